//! Large merges beside small ones: with the bound lowered, both have the same outcome for the same
//! input, whatever is written meanwhile.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::small::{self, Bounds};
use crate::clock::{Microseconds, Milliseconds};
use crate::commands::testing::{Shell, words};
use crate::durable::testing::{self, Fault};
use crate::expiry::Of;
use crate::{EngineKind, Options, Progress, Wait, maintenance};

fn shell() -> Shell {
    Shell::with_options(Options {
        engine: EngineKind::Minuet,
        ..Options::default()
    })
}

/// The bounds of a test, for as long as this is.
struct Lowered;

impl Lowered {
    fn to(keys: usize, slice: usize, near: usize) -> Self {
        small::set(Some(Bounds { keys, slice, near }));
        Self
    }
}

impl Drop for Lowered {
    fn drop(&mut self) {
        small::set(None);
    }
}

const DATABASES: [&str; 2] = ["SELECT 0", "SELECT 5"];

/// A line that changes something of the selected database.
fn change(rng: &mut fastrand::Rng) -> String {
    let (key, hash) = (rng.u8(..30), rng.u8(..5));
    let (field, number) = (rng.u8(..6), rng.u8(..4));
    match rng.u8(..16) {
        0..=5 => format!("SET k{key} {number}"),
        6 => format!("SET k{key} {number} PX {}", 1000 * (1 + u32::from(number))),
        7 | 8 => format!("DEL k{key}"),
        9 => format!("PEXPIRE k{key} {}", 1000 * (1 + u32::from(number))),
        10 | 11 => format!("HSET h{hash} f{field} {number} g{field} {number}"),
        12 => format!("HDEL h{hash} f{field} g{number}"),
        13 => format!("HPEXPIRE h{hash} 5000 FIELDS 1 f{field}"),
        14 => format!("PEXPIRE h{hash} {}", 1000 * (1 + u32::from(number))),
        _ => format!("RPUSH l{hash} {number}"),
    }
}

/// Changes the databases of a branch, or makes them.
fn change_all(shell: &mut Shell, rng: &mut fastrand::Rng, changes: usize) {
    for select in DATABASES {
        shell.check(&[(select, "+OK")]);
        for _ in 0..rng.usize(..=changes) {
            shell.line(&change(rng));
        }
    }
    shell.check(&[("SELECT 0", "+OK")]);
}

/// What a client sees of the databases.
fn contents(shell: &mut Shell) -> Vec<String> {
    let mut seen = Vec::new();
    for select in DATABASES {
        shell.check(&[(select, "+OK")]);
        seen.push(shell.line("DBSIZE"));
        for key in (0..30).map(|key| format!("k{key}")) {
            seen.push(format!("{key} {}", shell.line(&format!("GET {key}"))));
            seen.push(shell.line(&format!("PTTL {key}")));
        }
        for hash in 0..5 {
            for line in [
                format!("HGETALL h{hash}"),
                format!("PTTL h{hash}"),
                format!("HPTTL h{hash} FIELDS 3 f0 f1 f2"),
                format!("LRANGE l{hash} 0 -1"),
            ] {
                seen.push(format!("{line} {}", shell.line(&line)));
            }
        }
    }
    shell.check(&[("SELECT 0", "+OK")]);
    // Of the first branch alone is the index exact.
    if shell.client().base == 0 {
        let (database, now) = (&shell.database, Milliseconds::ZERO);
        for (index, of) in [(0, Of::Key), (0, Of::Field), (5, Of::Key), (5, Of::Field)] {
            let listed = database
                .expiry
                .by(of)
                .tree_summary(database.tree(index), now);
            seen.push(format!("{} have a deadline", listed.0));
        }
    }
    seen
}

/// Two branches that have parted, and the one that is merged into: the first, or another.
fn parted(seed: u64) -> (Shell, Shell) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut main = shell();
    change_all(&mut main, &mut rng, 60);
    main.line("BRANCH CREATE theirs");
    main.line("BRANCH CREATE other");
    let mut theirs = main.connect();
    theirs.check(&[("BRANCH USE theirs", "+OK")]);
    let mut ours = main.connect();
    let name = ours_of(seed);
    ours.check(&[(&format!("BRANCH USE {name}"), "+OK")]);
    change_all(&mut theirs, &mut rng, 40);
    change_all(&mut ours, &mut rng, 20);
    (theirs, ours)
}

fn ours_of(seed: u64) -> &'static str {
    ["main", "other"][usize::from(seed.is_multiple_of(3))]
}

fn merge_line(seed: u64) -> String {
    let rng = &mut fastrand::Rng::with_seed(!seed);
    let conflict = ["", " ON CONFLICT OURS", " ON CONFLICT THEIRS"][rng.usize(..3)];
    let dry = ["", "", "", " DRY RUN"][rng.usize(..4)];
    format!("BRANCH MERGE theirs INTO {}{conflict}{dry}", ours_of(seed))
}

fn text(reply: &[u8]) -> String {
    String::from_utf8_lossy(reply)
        .trim_end()
        .replace("\r\n", " ")
}

#[test]
fn a_large_merge_has_the_outcome_of_a_small_one() {
    for seed in 0..40 {
        let line = merge_line(seed);
        let (_theirs, mut expected) = parted(seed);
        let small = expected.line(&line);
        let (_theirs, mut ours) = parted(seed);
        let lowered = Lowered::to(0, 3, 2);
        let (large, slices) = ours.run_counting_slices(words(&line));
        drop(lowered);
        assert_eq!(text(&large), small, "seed {seed}: {line}");
        assert!(slices > 1 || small.contains("merged :0"), "seed {seed}");
        assert_eq!(contents(&mut ours), contents(&mut expected), "seed {seed}");
        // Both go on alike, small or large.
        let mut rng = fastrand::Rng::with_seed(seed);
        for _ in 0..2 {
            let mut again = rng.clone();
            change_all(&mut expected, &mut rng, 20);
            change_all(&mut ours, &mut again, 20);
            let line = format!("BRANCH MERGE {} INTO theirs", ours_of(seed));
            let small = expected.line(&line);
            let _lowered = Lowered::to(seed as usize % 3, 5, 2);
            assert_eq!(ours.line(&line), small, "seed {seed}: {line}");
        }
        assert_eq!(contents(&mut ours), contents(&mut expected), "seed {seed}");
        ours.pass_ms(2500);
        expected.pass_ms(2500);
        assert_eq!(contents(&mut ours), contents(&mut expected), "seed {seed}");
    }
}

/// What is written to ours while it is built: the outcome is that of a merge behind it all.
fn merge_amid_writes(seed: u64) -> Result<(), String> {
    let line = merge_line(seed).replace(" DRY RUN", "");
    let line = if line.contains("CONFLICT") {
        line
    } else {
        // One that fails does so by what there was at its beginning.
        format!("{line} ON CONFLICT OURS")
    };
    let (_theirs, mut ours) = parted(seed);
    let mut writer = ours.connect();
    writer.check(&[(&format!("BRANCH USE {}", ours_of(seed)), "+OK")]);
    let mut rng = fastrand::Rng::with_seed(seed + 1000);
    let mut written = Vec::new();
    let lowered = Lowered::to(0, 3, rng.usize(..4));
    let (large, _) = ours.run_between_slices(words(&line), |_| {
        for _ in 0..rng.usize(..3) {
            let line = match rng.u8(..12) {
                0 => DATABASES[rng.usize(..2)].to_owned(),
                _ => change(&mut rng),
            };
            writer.line(&line);
            written.push(line);
        }
    });
    drop(lowered);
    let (_theirs, mut expected) = parted(seed);
    for line in &written {
        expected.line(line);
    }
    expected.check(&[("SELECT 0", "+OK")]);
    let small = expected.line(&line);
    if text(&large) != small {
        return Err(format!("seed {seed}: {} for {small}", text(&large)));
    }
    if contents(&mut ours) != contents(&mut expected) {
        return Err(format!("seed {seed}: other contents"));
    }
    Ok(())
}

#[test]
fn what_is_written_amid_a_large_merge_is_not_lost() {
    for seed in 0..60 {
        merge_amid_writes(seed).unwrap_or_else(|what| panic!("{what}"));
    }
}

#[test]
fn a_large_merge_that_does_not_catch_up_is_noticed() {
    let runs = |seed| AssertUnwindSafe(move || merge_amid_writes(seed).is_err());
    let notices = |seed| catch_unwind(runs(seed)).unwrap_or(true);
    assert!(testing::with(Fault::NoCatchUp, || (0..10).any(notices)));
    assert!(!(0..10).any(notices));
}

/// However much is written while it goes through the keys, its answer is that of one moment, when
/// it began.
#[test]
fn a_large_dry_run_tells_of_one_moment() {
    for seed in 0..40 {
        let line = merge_line(seed).replace(" DRY RUN", "") + " DRY RUN";
        let (_theirs, mut ours) = parted(seed);
        let mut writer = ours.connect();
        writer.check(&[(&format!("BRANCH USE {}", ours_of(seed)), "+OK")]);
        let mut rng = fastrand::Rng::with_seed(seed + 2000);
        let (mut written, mut before) = (Vec::new(), 0);
        let lowered = Lowered::to(0, 3, 2);
        let (large, _) = ours.run_between_slices(words(&line), |slice| {
            for _ in 0..rng.usize(..3) {
                written.push(change(&mut rng));
                writer.line(&written[written.len() - 1]);
            }
            // The first slice is the beginning.
            before = if slice == 0 { written.len() } else { before };
        });
        drop(lowered);
        let (_theirs, mut expected) = parted(seed);
        for line in &written[..before] {
            expected.line(line);
        }
        expected.check(&[("SELECT 0", "+OK")]);
        assert_eq!(text(&large), expected.line(&line), "seed {seed}: {line}");
        for line in &written[before..] {
            expected.line(line);
        }
        assert_eq!(contents(&mut ours), contents(&mut expected), "seed {seed}");
    }
}

/// Keys that differ on two branches.
fn many() -> (Shell, Shell) {
    let mut main = shell();
    for key in 0..20 {
        main.line(&format!("SET k{key} base"));
    }
    main.line("BRANCH CREATE trial");
    let mut trial = main.connect();
    trial.check(&[("BRANCH USE trial", "+OK")]);
    for key in 0..20 {
        trial.line(&format!("SET k{key} trial"));
    }
    (main, trial)
}

const MERGE: &str = "BRANCH MERGE trial INTO MAIN";

#[test]
fn a_client_that_leaves_amid_a_large_merge_leaves_nothing() {
    let (mut main, _trial) = many();
    let _lowered = Lowered::to(3, 4, 2);
    let database = Arc::clone(&main.database);
    let gauge = |name: &str| {
        let mut found = 0;
        database.gauges(&mut |gauge| {
            if gauge.name == name {
                found = gauge.value as u64;
            }
        });
        found
    };
    let trees = gauge("trees");
    for left_after in 0..9 {
        let (_, Progress::Waits(Wait::Others(mut slices))) = main.begin(words(MERGE)) else {
            panic!("a large merge");
        };
        for _ in 0..left_after {
            assert!(!main.slice(&mut slices, &mut Vec::new()));
        }
        let mut other = main.connect();
        if left_after > 0 {
            let busy = "-ERR another large merge is under way; try again";
            other.check(&[(MERGE, busy)]);
            let hidden = &database.branches.hidden()[0].name;
            assert!(database.branches.named(hidden).is_err());
            // And a mark of what is merged.
            assert_eq!(database.branches.len(), 4);
        }
        assert_eq!(database.branches(), Some(2));
        let listed = other.line("BRANCH LIST");
        assert!(listed.starts_with("*2 "), "{listed}");
        let mut session = database.open_session().expect("a session is free");
        maintenance::round(&database, &mut session);
        assert_eq!(database.branches.len(), 2 + 2 * usize::from(left_after > 0));
        drop(slices);
        maintenance::round(&database, &mut session);
        database.close_session(&session);
        assert_eq!(database.branches.len(), 2);
        assert_eq!(gauge("trees"), trees);
        main.check(&[("GET k3", "$4 base"), ("DBSIZE", ":20")]);
    }
    let merged = "*6 $6 merged :20 $9 conflicts :0 $4 keys *0";
    main.check(&[(MERGE, merged), ("GET k3", "$5 trial")]);
    assert!(database.branches.hidden().is_empty());
    assert_eq!(database.branches.marks().len(), 1);
    main.check(&[("BRANCH DROP trial", "+OK")]);
    assert!(main.turn().drop_unfinished());
    assert_eq!(database.branches.len(), 1);
}

#[test]
fn what_ends_a_large_merge_changes_nothing() {
    let emptied = "-ERR the branch was emptied, or has gone, while it was compared";
    for (line, from, reply) in [
        ("FLUSHDB", 1, emptied),
        ("SWAPDB 0 1", 1, emptied),
        ("BRANCH DROP ours", 1, emptied),
        ("BRANCH DROP ours", 0, emptied),
        (
            "BRANCH DROP trial",
            1,
            "*6 $6 merged :20 $9 conflicts :0 $4 keys *0",
        ),
    ] {
        let (mut main, trial) = many();
        main.line("BRANCH CREATE ours");
        drop(trial);
        let _lowered = Lowered::to(3, 4, 2);
        let mut other = main.connect();
        let is_drop = line.starts_with("BRANCH DROP");
        if !is_drop {
            other.check(&[("BRANCH USE ours", "+OK")]);
        }
        let merge = words("BRANCH MERGE trial INTO ours");
        let (answer, _) = main.run_between_slices(merge, |slice| {
            if slice == from {
                other.check(&[(line, "+OK")]);
            }
        });
        assert_eq!(text(&answer), reply, "{line}");
        main.check(&[("GET k3", "$4 base")]);
    }
    let (mut main, _trial) = many();
    let _lowered = Lowered::to(3, 4, 2);
    let database = Arc::clone(&main.database);
    let (answer, _) = main.run_between_slices(words(MERGE), |slice| {
        if slice == 1 {
            let now = database.options.clock.now();
            let until = Microseconds(now.0 + 1_000_000);
            database.pause(until, false);
        }
    });
    assert_eq!(text(&answer), "-ERR writes are paused: nothing was merged");
    main.check(&[("GET k3", "$4 base")]);
}

#[test]
fn a_large_merge_breaks_watches_and_tokens() {
    let (mut main, mut trial) = many();
    let _lowered = Lowered::to(3, 4, 2);
    let watches = |main: &Shell, key: &str| {
        let mut other = main.connect();
        other.check(&[(&format!("WATCH {key}"), "+OK"), ("MULTI", "+OK")]);
        other
    };
    let mut present = watches(&main, "k3");
    let mut absent = watches(&main, "nothing");
    trial.check(&[("SET came trial", "+OK"), ("DEL k4", ":1")]);
    let mut came = watches(&main, "came");
    let mut went = watches(&main, "k4");
    // Tokens are drawn from this.
    let rollbacks = |main: &Shell| main.database.snapshots.rollbacks.load(Ordering::Relaxed);
    let before = rollbacks(&main);
    main.check(&[(MERGE, "*6 $6 merged :21 $9 conflicts :0 $4 keys *0")]);
    for broken in [&mut present, &mut came, &mut went] {
        broken.check(&[("EXEC", "*-1")]);
    }
    absent.check(&[("EXEC", "*0")]);
    assert_ne!(rollbacks(&main), before);
}

/// A branch and a snapshot of it, or of the one that it is made from, behind which it was changed.
fn behind_a_snapshot(seed: u64) -> Shell {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut main = shell();
    change_all(&mut main, &mut rng, 60);
    main.line("SNAPSHOT CREATE s");
    main.line("BRANCH CREATE other");
    let mut ours = main.connect();
    ours.check(&[(&format!("BRANCH USE {}", ours_of(seed)), "+OK")]);
    match rng.u8(..6) {
        0 => ours.check(&[("FLUSHDB", "+OK")]),
        1 => ours.check(&[("SWAPDB 0 5", "+OK")]),
        _ => {}
    }
    change_all(&mut ours, &mut rng, 40);
    ours
}

#[test]
fn a_large_reset_has_the_outcome_of_a_small_one() {
    let (mut counted, mut whole) = (0, 0);
    for seed in 0..60 {
        let line = format!("BRANCH RESET {} TO s", ours_of(seed));
        let mut expected = behind_a_snapshot(seed);
        let small = expected.line(&line);
        let mut ours = behind_a_snapshot(seed);
        let mut writer = ours.connect();
        writer.check(&[(&format!("BRANCH USE {}", ours_of(seed)), "+OK")]);
        let mut rng = fastrand::Rng::with_seed(!seed);
        let lowered = Lowered::to(0, 3, rng.usize(..4));
        let mut is_alone = true;
        let (large, slices) = ours.run_between_slices(words(&line), |slice| {
            if seed % 2 == 0 || slice == 0 {
                return;
            }
            for _ in 0..rng.usize(..3) {
                // Whatever is written meanwhile, it becomes what it was.
                writer.line(&change(&mut rng));
                is_alone = false;
            }
        });
        drop(lowered);
        if slices > 1 && is_alone {
            assert_eq!(text(&large), small, "seed {seed}");
        }
        counted += usize::from(slices > 1);
        whole += usize::from(text(&large) == "$-1");
        assert!(
            slices > 1 || text(&large) == "$-1" || small == ":0",
            "seed {seed}"
        );
        assert_eq!(contents(&mut ours), contents(&mut expected), "seed {seed}");
        // Both go on alike.
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut again = rng.clone();
        change_all(&mut expected, &mut rng, 20);
        change_all(&mut ours, &mut again, 20);
        let diff = "BRANCH MERGE other INTO main DRY RUN LIMIT 1000";
        assert_eq!(ours.line(diff), expected.line(diff), "seed {seed}");
        ours.pass_ms(2500);
        expected.pass_ms(2500);
        assert_eq!(contents(&mut ours), contents(&mut expected), "seed {seed}");
    }
    assert!(counted > 10 && whole > 10, "{counted} {whole}");
}

#[test]
fn a_large_reset_breaks_watches_and_shows_what_others_show() {
    for name in ["main", "other"] {
        let mut main = shell();
        for key in 0..20 {
            main.line(&format!("SET k{key} base"));
        }
        main.line("SNAPSHOT CREATE s");
        main.line("BRANCH CREATE other");
        let mut ours = main.connect();
        ours.check(&[(&format!("BRANCH USE {name}"), "+OK")]);
        for key in 0..20 {
            ours.line(&format!("SET k{key} ours"));
        }
        ours.check(&[("WATCH same", "+OK"), ("WATCH k1", "+OK")]);
        let _lowered = Lowered::to(3, 4, 2);
        let reply = if name == "main" { ":20" } else { "$-1" };
        main.check(&[
            (&format!("BRANCH RESET {name} TO s"), reply),
            (&format!("BRANCH DIFF {name} s COUNT"), ":0"),
        ]);
        ours.check(&[
            ("MULTI", "+OK"),
            ("EXEC", "*-1"),
            ("GET k1", "$4 base"),
            ("DBSIZE", ":20"),
            ("SET k1 later", "+OK"),
        ]);
        main.check(&[
            (
                &format!("BRANCH DIFF s {name}"),
                "*2 $-1 *1 *2 $2 k1 $7 changed",
            ),
            ("SNAPSHOT DROP s", ":1"),
        ]);
        ours.check(&[("GET k2", "$4 base"), ("GET k1", "$5 later")]);
    }
}
