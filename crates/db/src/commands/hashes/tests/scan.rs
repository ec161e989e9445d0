//! HSCAN.

use super::*;

#[test]
fn small_hashes_are_scanned_whole() {
    let mut shell = Shell::new();
    shell.check(&[
        ("HSET h b 2 a 1 \"\" 0", ":3"),
        ("HSCAN h 0", "*2 $1 0 *6 $0  $1 0 $1 a $1 1 $1 b $1 2"),
        ("HSCAN h 0 NOVALUES", "*2 $1 0 *3 $0  $1 a $1 b"),
        ("HSCAN h 0 novalues MATCH b COUNT 9", "*2 $1 0 *1 $1 b"),
        ("HSCAN h 0 NOVALUES MATCH", "-ERR syntax error"),
        (
            "HSCAN h 0 COUNT 1",
            "*2 $1 0 *6 $0  $1 0 $1 a $1 1 $1 b $1 2",
        ),
        ("HSCAN h 7", "*2 $1 0 *6 $0  $1 0 $1 a $1 1 $1 b $1 2"),
        (
            "HSCAN h 0 match [a-b] count 2",
            "*2 $1 0 *4 $1 a $1 1 $1 b $1 2",
        ),
        ("HSCAN h 0 MATCH b* MATCH a*", "*2 $1 0 *2 $1 a $1 1"),
        (
            "HSCAN h 0 MATCH *",
            "*2 $1 0 *6 $0  $1 0 $1 a $1 1 $1 b $1 2",
        ),
        ("HSCAN h 0 MATCH **", "*2 $1 0 *4 $1 a $1 1 $1 b $1 2"),
        ("HSCAN h 0 MATCH x*", "*2 $1 0 *0"),
        ("HSCAN none 0", "*2 $1 0 *0"),
        ("HSCAN none 5 COUNT x", "*2 $1 0 *0"),
    ]);
    shell.speak(RespVersion::Resp3);
    shell.check(&[("HSCAN h 0 MATCH a", "*2 $1 0 *2 $1 a $1 1")]);
}

#[test]
fn a_scan_has_its_errors() {
    Shell::new().check(&[
        ("HSET h f v", ":1"),
        ("HSCAN h x", "-ERR invalid cursor"),
        ("HSCAN none x", "-ERR invalid cursor"),
        ("HSCAN h 99999999999999999999", "-ERR invalid cursor"),
        ("HSCAN h 0 COUNT 0", "-ERR syntax error"),
        ("HSCAN h 0 COUNT -5", "-ERR syntax error"),
        (
            "HSCAN h 0 COUNT x",
            "-ERR value is not an integer or out of range",
        ),
        ("HSCAN h 0 COUNT", "-ERR syntax error"),
        ("HSCAN h 0 MATCH", "-ERR syntax error"),
        ("HSCAN h 0 TYPE hash", "-ERR syntax error"),
        ("HSCAN h 0 COUNT 5 x", "-ERR syntax error"),
    ]);
}

/// A hash of `fields` fields, with values long enough that Redis would have converted it.
fn set_large_hash(shell: &mut Shell, fields: usize) {
    let value = "v".repeat(LISTPACK_ITEM_BYTES_MAX + 1);
    for field in 0..fields {
        let field = format!("f{field:05}");
        assert_eq!(shell.run(["HSET", "h", &field, &value]), b":1\r\n");
    }
}

/// One call of HSCAN: the next cursor and the fields.
fn scan_on(shell: &mut Shell, cursor: &str, options: &str) -> (String, Vec<String>) {
    let reply = shell.line(&format!("HSCAN h {cursor} {options}"));
    assert!(reply.starts_with("*2 "), "{reply}");
    let mut words = bulks(&reply).into_iter();
    let next = words.next().expect("a cursor").to_owned();
    (next, words.step_by(2).map(str::to_owned).collect())
}

#[test]
fn large_hashes_are_scanned_by_count() {
    let mut shell = Shell::new();
    set_large_hash(&mut shell, 1000);
    for (options, calls) in [
        ("", 100),
        ("COUNT 300", 4),
        ("COUNT 1000", 1),
        ("COUNT 999", 2),
    ] {
        let (mut cursor, mut fields, mut count) = ("0".to_owned(), Vec::new(), 0);
        loop {
            let (next, found) = scan_on(&mut shell, &cursor, options);
            fields.extend(found);
            count += 1;
            if next == "0" {
                break;
            }
            assert!(next.parse::<u64>().is_ok());
            cursor = next;
        }
        assert!(fields.is_sorted() && fields.len() == 1000, "{options}");
        assert_eq!(count, calls, "{options}");
    }
    // Only what the prefix reaches is looked at.
    let (next, found) = scan_on(&mut shell, "0", "MATCH f0012? COUNT 10");
    assert_eq!((next.as_str(), found.len()), ("0", 10));
    let (next, found) = scan_on(&mut shell, "0", "MATCH *5");
    assert_eq!((next == "0", found), (false, vec!["f00005".to_owned()]));
}

#[test]
fn a_cursor_is_of_one_hash() {
    let mut shell = Shell::new();
    set_large_hash(&mut shell, 30);
    let unknown =
        "-ERR unknown cursor: too old, or given out for another database; begin again with 0";
    let (cursor, first) = scan_on(&mut shell, "0", "");
    let (_, second) = scan_on(&mut shell, &cursor, "");
    let (_, again) = scan_on(&mut shell, &cursor, "");
    assert_eq!(second, again);
    let other = shell.connect().line(&format!("HSCAN h {cursor}"));
    assert_eq!(bulks(&other).len(), 1 + 20, "from any connection");
    assert_eq!(first.len(), 10);
    assert_eq!(shell.line("HSCAN h 5"), unknown);
    assert_eq!(shell.line("COPY h g"), ":1");
    assert_eq!(shell.line(&format!("HSCAN g {cursor}")), unknown);
}

/// A reply ends early when its values are large.
#[test]
fn a_scan_stops_at_the_bound_of_a_reply() {
    let options = Options {
        reply_bytes_max: 1000,
        ..Options::default()
    };
    let mut shell = Shell::with_options(options);
    let value = "v".repeat(400);
    for field in ["a", "b", "c", "d"] {
        shell.run(["HSET", "h", field, &value]);
    }
    let (next, found) = scan_on(&mut shell, "0", "");
    assert_eq!(found, ["a", "b", "c"]);
    assert_eq!(
        scan_on(&mut shell, &next, ""),
        ("0".to_owned(), vec!["d".to_owned()])
    );
}

/// Whatever is there from the first call to the last is returned, once, whatever else is set and
/// removed meanwhile, the field that the cursor names included.
#[test]
fn a_scan_meets_what_is_there_throughout() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..20 {
        let mut shell = Shell::new();
        set_large_hash(&mut shell, 200);
        let stable = |field: usize| field.is_multiple_of(3);
        let (mut cursor, mut fields) = ("0".to_owned(), Vec::new());
        loop {
            let (next, found) = scan_on(&mut shell, &cursor, "COUNT 7");
            let last = found.last().cloned();
            fields.extend(found);
            if next == "0" {
                break;
            }
            cursor = next;
            let named = last.and_then(|field| field[1..].parse::<usize>().ok());
            let others = std::iter::repeat_with(|| random.usize(..200)).take(20);
            for field in others
                .chain(named)
                .filter(|field| !stable(*field))
                .collect::<Vec<_>>()
            {
                if random.bool() {
                    shell.line(&format!("HSET h f{field:05} w"));
                } else {
                    shell.line(&format!("HDEL h f{field:05}"));
                }
            }
        }
        assert!(fields.is_sorted_by(|a, b| a < b), "in order and once");
        for field in (0..200).filter(|field| stable(*field)) {
            assert!(
                fields.contains(&format!("f{field:05}")),
                "{field} was there throughout"
            );
        }
    }
}
