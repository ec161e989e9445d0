//! A database on a simulated pool that crashes: the mapping of databases, deadlines, snapshots that
//! last and numbers of keys are found as they were in one epoch, between the last acknowledged
//! and the last begun.
//!
//! What is expected is what the same database said before the crash. A step is a few small commands
//! in one epoch, or one that concerns whole databases.

use std::sync::Arc;

use fastrand::Rng;
use pando_cdds::{Crash, Mark, Platform, Sampling, Simulated, Trace};

use crate::commands::testing::{START_MS, Shell};
use crate::durable::testing::{self, Fault};
use crate::{EngineKind, Options, Place, PoolOptions};

const DATABASES: usize = 3;
const BYTES: u64 = 1 << 20;

fn open(memory: Arc<Simulated>) -> Result<Shell, String> {
    let pool = PoolOptions {
        place: Place::Simulated(memory),
        ..PoolOptions::default()
    };
    let options = Options {
        engine: EngineKind::Cdds,
        databases: DATABASES,
        pool,
        ..Options::default()
    };
    // Without background threads: nothing happens between two steps.
    Shell::on_disk(options, START_MS).map_err(|error| error.to_string())
}

/// Everything that a database says of its keys, by the words before each command.
fn contents(shell: &mut Shell, before: &str) -> Vec<String> {
    let mut all = Vec::new();
    for index in 0..DATABASES {
        shell.line(&format!("SELECT {index}"));
        let mut keys: Vec<String> = (0..6).map(|key| format!("k{key}")).collect();
        keys.extend((0..3).map(|key| format!("h{key}")));
        for key in keys {
            let ask = |shell: &mut Shell, what: String| shell.line(&format!("{before}{what}"));
            let read = if key.starts_with('k') {
                [format!("GET {key}"), format!("PEXPIRETIME {key}")]
            } else {
                [
                    format!("HGETALL {key}"),
                    format!("HPEXPIRETIME {key} FIELDS 1 f"),
                ]
            };
            let read = read.map(|what| ask(shell, what));
            if ask(shell, format!("EXISTS {key}")) == ":1" {
                all.push(format!("{index} {key} {}", read.join(" ")));
            }
        }
        all.push(shell.line(&format!("{before}DBSIZE")));
    }
    shell.line("SELECT 0");
    all
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    present: Vec<String>,
    /// Name, what is said of it, contents.
    snapshots: Vec<(String, Vec<String>)>,
    /// Keys with a deadline and hashes with one of a field, in each database, by the index.
    listed: Vec<(u64, u64)>,
}

fn state_of(shell: &mut Shell) -> State {
    let database = Arc::clone(&shell.database);
    while database.is_listing_deadlines() {
        database.fill_expiry_index(shell.turn().session_mut());
    }
    let names: Vec<_> = database.snapshots.list().iter().cloned().collect();
    let names = names.iter().map(|snapshot| {
        let name = String::from_utf8_lossy(&snapshot.name).into_owned();
        (name, snapshot.moment.time.0, snapshot.epoch())
    });
    let snapshots = names.map(|(name, time, epoch)| {
        let shown = contents(shell, &format!("SNAPSHOT READ {name} "));
        (format!("{name} {time} {epoch}"), shown)
    });
    let snapshots = snapshots.collect();
    let listed = (0..DATABASES).map(|index| {
        let (_, keys, _) = database.summary(index);
        (keys, database.expiring_hashes(index))
    });
    State {
        snapshots,
        listed: listed.collect(),
        present: contents(shell, ""),
    }
}

/// Counts and lists agree with what is read.
fn check_counts(state: &State) -> Result<(), String> {
    let mut keys = 0;
    let mut listed = vec![(0, 0); DATABASES];
    for line in &state.present {
        if let Some(count) = line.strip_prefix(':') {
            if count != keys.to_string() {
                return Err(format!("{count} keys are counted of {keys}"));
            }
            keys = 0;
            continue;
        }
        keys += 1;
        let index: usize = line[..1].parse().expect("a database");
        let has_deadline = !line.ends_with(":-1");
        match &line[2..3] {
            "k" => listed[index].0 += u64::from(has_deadline),
            _ => listed[index].1 += u64::from(has_deadline),
        }
    }
    if listed != state.listed {
        return Err(format!("listed are {:?}, not {listed:?}", state.listed));
    }
    Ok(())
}

/// A small command on a random key of the database in use.
fn small(rng: &mut Rng, serial: u64) -> String {
    let (key, hash) = (rng.u8(..6), rng.u8(..3));
    match rng.u8(..9) {
        0 | 1 => format!("SET k{key} {serial}"),
        2 | 3 => format!("SET k{key} {serial} PX {}", 100_000 + serial),
        4 => format!("PERSIST k{key}"),
        5 => format!("PEXPIRE k{key} {}", 200_000 + serial),
        6 => format!("DEL k{key} h{hash}"),
        7 => format!("HSET h{hash} f {serial} g {serial}"),
        _ => format!("HPEXPIRE h{hash} {} FIELDS 1 f", 300_000 + serial),
    }
}

/// A command about databases or snapshots, of which `names` are there.
fn large(rng: &mut Rng, serial: u64, names: &[String]) -> String {
    let any = |rng: &mut Rng| names[rng.usize(..names.len())].clone();
    match rng.u8(..8) {
        0 | 1 => format!(
            "SWAPDB {} {}",
            rng.usize(..DATABASES),
            rng.usize(..DATABASES)
        ),
        2 => "FLUSHDB".into(),
        3 if rng.bool() => "FLUSHALL".into(),
        3..6 if names.len() < 3 => format!("SNAPSHOT CREATE s{serial} PERSIST"),
        6 if !names.is_empty() => format!("SNAPSHOT DROP {}", any(rng)),
        _ if !names.is_empty() => format!("SNAPSHOT ROLLBACK {} FORCE", any(rng)),
        _ => "SWAPDB 0 1".into(),
    }
}

/// A recorded run: what may be found after a crash in each step, the last of it when it is over.
struct Run {
    trace: Trace,
    steps: Vec<Vec<State>>,
}

/// Runs so many steps on a database that some others have filled.
fn run(seed: u64, count: u64) -> Run {
    let mut rng = Rng::with_seed(seed);
    let mut shell = open(Arc::new(Simulated::new(BYTES))).expect("it opens");
    for serial in 0..40 {
        shell.line(&format!("SELECT {}", rng.usize(..DATABASES)));
        shell.line(&small(&mut rng, serial));
    }
    shell.line("SNAPSHOT CREATE first PERSIST");
    let words = match &shell.database.options().pool.place {
        Place::Simulated(memory) => memory.words(),
        _ => unreachable!("it was opened there"),
    };
    drop(shell);
    let memory = Arc::new(Simulated::recording(words));
    let mut shell = open(Arc::clone(&memory)).expect("it opens again");
    // What opening itself notes.
    shell.database.end_epoch();
    let mut steps = vec![vec![state_of(&mut shell)]];
    for step in 0..count {
        let before = steps[step as usize].last().expect("a state").clone();
        memory.note(2 * step + 1);
        let mut between = Vec::new();
        if rng.bool() {
            for serial in 0..rng.u64(1..4) {
                shell.line(&format!("SELECT {}", rng.usize(..DATABASES)));
                shell.line(&small(&mut rng, 100 * (step + 1) + serial));
            }
        } else {
            shell.line(&format!("SELECT {}", rng.usize(..DATABASES)));
            let name = |(said, _): &(String, _)| said.split(' ').next().expect("a name").into();
            let names: Vec<String> = before.snapshots.iter().map(name).collect();
            let line = large(&mut rng, step, &names);
            let reply = shell.line(&line);
            assert!(!reply.starts_with('-'), "{line}: {reply}");
            // Newer snapshots go one by one before a rollback.
            let newer = names
                .iter()
                .position(|name| line.contains(&format!("BACK {name} ")));
            for last in newer.map_or(0..0, |at| 1..names.len() - at) {
                let mut without = before.clone();
                let first = newer.expect("a rollback") + 1;
                without.snapshots.drain(first..first + last);
                between.push(without);
            }
        }
        shell.database.end_epoch();
        memory.note(2 * step + 2);
        let after = state_of(&mut shell);
        check_counts(&after).expect("before any crash");
        steps.push([vec![before], between, vec![after]].concat());
    }
    Run {
        trace: memory.trace(),
        steps,
    }
}

/// What is found after a crash, beside what may be.
fn judge(memory: Simulated, run: &Run, noted: &[u64]) -> Result<(), String> {
    let last = noted.last().copied().unwrap_or(0);
    let may_be = &run.steps[last.div_ceil(2) as usize];
    let may_be = if last % 2 == 0 {
        &may_be[may_be.len() - 1..]
    } else {
        &may_be[..]
    };
    let mut shell = open(Arc::new(memory))?;
    let found = state_of(&mut shell);
    if !may_be.contains(&found) {
        return Err(format!("{found:?} beside {may_be:?}"));
    }
    check_counts(&found)?;
    shell.line("SET k0 further PX 5");
    shell.line("SWAPDB 0 2");
    shell.database.end_epoch();
    let further = state_of(&mut shell);
    check_counts(&further)?;
    if further.snapshots != found.snapshots {
        return Err("a snapshot changed by further work".into());
    }
    Ok(())
}

const FEW: Sampling = Sampling {
    exhaustive_max: 4,
    samples: 2,
    seed: 1,
};

/// How much is tried, by `PANDO_CRASH_EFFORT`.
fn effort() -> usize {
    let effort = std::env::var("PANDO_CRASH_EFFORT").ok();
    effort.map_or(1, |effort| effort.parse().expect("a number"))
}

/// The first thing that is wrong after some crash, of which one in `stride` is tried, and of what
/// it may leave likewise; how many images were.
fn failure(trace: &Trace, run: &Run, stride: usize) -> (usize, Option<String>) {
    let (mut images, mut failure) = (0, None);
    trace.crashes(Platform::Lines, |crash: &Crash<'_>| {
        if !crash.number.is_multiple_of(stride) || failure.is_some() {
            return;
        }
        let first = crash.number / stride % stride;
        for image in crash.images(FEW).skip(first).step_by(stride) {
            images += 1;
            if let Err(wrong) = judge(image.memory(), run, crash.noted()) {
                failure = Some(format!("{:?}: {wrong}", crash.noted()));
                return;
            }
        }
    });
    (images, failure)
}

#[test]
fn what_a_pool_notes_is_found_as_of_one_epoch() {
    let (mut images, effort) = (0, effort());
    for seed in 0..12 * effort as u64 {
        let run = run(seed, 8);
        let (tried, failure) = failure(&run.trace, &run, 7);
        images += tried;
        assert_eq!(failure, None, "seed {seed}");
    }
    assert!(images > 300, "{images} images");
}

#[test]
fn canary_a_mapping_that_is_not_noted_is_found() {
    let found = (0..6).any(|seed| {
        let run = testing::with(Fault::MappingForgotten, || run(seed, 8));
        failure(&run.trace, &run, 7).1.is_some()
    });
    assert!(found);
}

#[test]
fn canary_a_flush_left_out_is_found() {
    let mark = Mark("entry: flush of its beginning");
    let found = (0..6).any(|seed| {
        let run = run(seed, 8);
        failure(&run.trace.without(mark, None), &run, 7).1.is_some()
    });
    assert!(found);
}
