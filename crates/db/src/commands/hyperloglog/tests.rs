//! Replies and bytes as redis-server 7.0.15 gives them.

use crate::commands::testing::Shell;

const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
const NO_SKETCH: &str = "-WRONGTYPE Key is not a valid HyperLogLog string value.";
const DAMAGED: &str = "-INVALIDOBJ Corrupted HLL object detected";

/// Adds the numbers below `count` to a key.
fn add(shell: &mut Shell, key: &str, count: u32) {
    let numbers: Vec<u32> = (1..=count).collect();
    for numbers in numbers.chunks(500) {
        let elements: Vec<String> = numbers.iter().map(u32::to_string).collect();
        let reply = shell.line(&format!("PFADD {key} {}", elements.join(" ")));
        assert!(reply == ":0" || reply == ":1", "{reply}");
    }
}

/// The bytes at a key.
fn bytes(shell: &mut Shell, key: &str) -> Vec<u8> {
    let out = shell.run(["GET", key]);
    let head = out
        .windows(2)
        .position(|two| two == b"\r\n")
        .expect("a bulk string")
        + 2;
    out[head..out.len() - 2].to_vec()
}

#[test]
fn elements_are_added_and_counted() {
    let mut shell = Shell::new();
    shell.check(&[
        ("PFADD h a b c", ":1"),
        ("PFADD h c b", ":0"),
        (
            "PFDEBUG DECODE h",
            "$44 Z:8436 v:1,1 Z:4274 v:2,1 Z:3068 v:1,1 Z:603",
        ),
        ("PFCOUNT h", ":3"),
        ("PFADD e", ":1"),
        ("PFADD e", ":0"),
        ("PFCOUNT e", ":0"),
        ("PFCOUNT missing", ":0"),
        ("PFDEBUG ENCODING h", "+sparse"),
    ]);
    add(&mut shell, "g", 1000);
    shell.check(&[
        ("STRLEN g", ":1922"),
        ("PFCOUNT g", ":1001"),
        ("PFCOUNT g h missing", ":1004"),
        ("PFMERGE d h g", "+OK"),
        ("PFCOUNT d", ":1004"),
        ("PFDEBUG ENCODING d", "+sparse"),
        ("PFMERGE missing", "+OK"),
        ("PFCOUNT missing", ":0"),
        ("PFSELFTEST", "+OK"),
    ]);
    add(&mut shell, "big", 100_000);
    shell.check(&[
        ("PFCOUNT big", ":99562"),
        ("PFDEBUG ENCODING big", "+dense"),
        ("STRLEN big", ":12304"),
        ("PFMERGE d big", "+OK"),
        ("PFDEBUG ENCODING d", "+dense"),
    ]);
}

#[test]
fn a_count_is_kept_beside_the_registers() {
    const RUNS: &[u8] = b"`\xf3\x80P\xb1\x84K\xfb\x80BZ";
    let mut shell = Shell::new();
    shell.check(&[("PFADD h a b c", ":1")]);
    let fresh = [b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80", RUNS].concat();
    assert_eq!(bytes(&mut shell, "h"), fresh);
    shell.check(&[
        ("SNAPSHOT CREATE s", "*3 $1 s :1700000000000 :1"),
        ("SNAPSHOT READ s PFCOUNT h", ":3"),
    ]);
    assert_eq!(bytes(&mut shell, "h"), fresh, "a snapshot is only read");
    shell.check(&[("PFCOUNT h h", ":3")]);
    assert_eq!(
        bytes(&mut shell, "h"),
        fresh,
        "of several keys no count is stored"
    );
    shell.check(&[("EXPIRE h 100", ":1"), ("PFCOUNT h", ":3")]);
    let counted = [b"HYLL\x01\0\0\0\x03\0\0\0\0\0\0\0", RUNS].concat();
    assert_eq!(bytes(&mut shell, "h"), counted);
    shell.check(&[("TTL h", ":100"), ("PFADD h d", ":1"), ("TTL h", ":100")]);
    assert_eq!(bytes(&mut shell, "h")[8..16], *b"\x03\0\0\0\0\0\0\x80");
}

#[test]
fn both_forms_have_the_same_registers() {
    let mut shell = Shell::new();
    add(&mut shell, "h", 700);
    let before = shell.line("PFCOUNT h");
    shell.check(&[
        ("PFDEBUG TODENSE h", ":1"),
        ("PFDEBUG TODENSE h", ":0"),
        ("PFDEBUG DECODE h", "-ERR HLL encoding is not sparse"),
        ("PFADD h 1 2 3 700", ":0"),
        ("PFADD h another", ":1"),
    ]);
    add(&mut shell, "other", 700);
    assert_eq!(shell.line("PFCOUNT other"), before);
    shell.check(&[("PFADD other another", ":1")]);
    assert_eq!(
        shell.line("PFDEBUG GETREG other"),
        shell.line("PFDEBUG GETREG h")
    );
}

#[test]
fn what_is_no_sketch_is_refused() {
    let mut shell = Shell::new();
    shell.check(&[
        ("HSET hash f v", ":1"),
        ("PFADD hash a", WRONG),
        ("PFCOUNT hash", WRONG),
        ("PFMERGE hash", WRONG),
        ("PFMERGE d hash", WRONG),
        ("SET junk HYLL", "+OK"),
        ("PFADD junk a", NO_SKETCH),
        ("PFCOUNT junk", NO_SKETCH),
        ("PFCOUNT junk junk", NO_SKETCH),
        (
            "PFDEBUG DECODE missing",
            "-ERR The specified key does not exist",
        ),
        ("PFDEBUG DECODE junk", NO_SKETCH),
        ("PFADD cut", ":1"),
        ("APPEND cut a", ":19"),
        ("PFDEBUG DECODE cut", "$14 Z:16384 Z:8449"),
        ("PFADD h a", ":1"),
        ("PFDEBUG NONE h", "-ERR Unknown PFDEBUG subcommand 'NONE'"),
    ]);
    let shown = shell.run([&b"PFDEBUG"[..], b"\xff\0x", b"h"]);
    assert_eq!(shown, b"-ERR Unknown PFDEBUG subcommand '\xff'\r\n");
    let header = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80";
    let runs: [&[u8]; 4] = [b"", b"\x7f", b"\x7f\xfe", b"\x7f\xff\x00"];
    for runs in runs {
        shell.store(b"bad", &[header, runs].concat());
        shell.check(&[("PFCOUNT bad", DAMAGED), ("PFMERGE d bad", DAMAGED)]);
    }
    shell.store(b"bad", &[header, vec![0; 40_000].as_slice()].concat());
    shell.check(&[("PFADD bad a", DAMAGED), ("EXISTS d", ":0")]);
    let dense = |len: usize| [b"HYLL\0\0\0\0\0\0\0\0\0\0\0\x80", vec![0; len].as_slice()].concat();
    shell.store(b"bad", &dense(12_287));
    shell.check(&[("PFADD bad a", NO_SKETCH)]);
    shell.store(b"bad", &dense(12_288));
    shell.check(&[("PFADD bad a", ":1"), ("PFCOUNT bad", ":1")]);
}

/// Whatever the runs are, a sketch is counted or refused, and stays within its bounds.
#[test]
fn random_runs_are_counted_or_refused() {
    let mut random = fastrand::Rng::with_seed(crate::commands::testing::seed());
    let mut shell = Shell::new();
    for _ in 0..2000 {
        let len = random.usize(..60);
        let runs: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
        let header = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80".as_slice();
        shell.store(b"h", &[header, &runs].concat());
        for line in [
            "PFADD h a b c",
            "PFCOUNT h",
            "PFMERGE h h",
            "PFDEBUG GETREG h",
        ] {
            let reply = shell.line(line);
            assert!(
                !reply.starts_with('-') || reply == DAMAGED,
                "{reply} to {line}"
            );
        }
    }
}
