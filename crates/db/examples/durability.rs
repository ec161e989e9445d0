//! Measures what keeping data costs: puts with and without a log and during a checkpoint, the
//! checkpoint itself, recovery from it, and replay of the log.
//!
//! `cargo run --release -p pando-db --example durability -- DIRECTORY [MILLION_PAIRS] [THREADS]
//! [ROUNDS] [SHARE | puts]`
//!
//! One writer's rate alone and beside a checkpoint is taken in turns, ROUNDS times (default 5), the
//! checkpoint's thread working SHARE percent of its time (default: as the server has it). Where the
//! operating system counts what a thread has run (`/proc/thread-self/schedstat`), puts per second
//! of that are told too: on a busy machine they show what caches and memory cost, without what the
//! scheduler gave to others.
//!
//! With `puts`, only puts are measured, ROUNDS times without a log and with one in turns, and
//! printed as `crates/bench/scripts/durability.sh` reads them: thousands a second, and microseconds
//! of all threads' CPU for each. Each time is a process of its own.
//!
//! Keys are decimal numbers in random order, values 8 bytes, as in §6 of the Masstree paper. The
//! directory must be empty or missing; it is removed in the end.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use pando_db::{
    CheckpointOptions, CheckpointReport, Database, DurabilityOptions, Options, Pace, Session,
};
use pando_engine::{Body, Decision, NewValue};

/// Puts of one turn, as a worker's batch has them.
const BATCH: u64 = 128;

/// What one process of [`measure_puts`] does, and how its lines begin.
const PUTS_NONE: &str = "puts-none";
const PUTS_INTERVAL: &str = "puts-interval";

type Failure = Box<dyn std::error::Error>;

/// The key of this number: they come in no order.
fn key(number: u64, buffer: &mut Vec<u8>) {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    buffer.clear();
    write!(buffer, "{}", mixed << 16 | number & 0xffff).expect("a vector takes all");
}

fn put(session: &mut Session, numbers: std::ops::Range<u64>) {
    let mut buffer = Vec::new();
    let mut turn = session.turn();
    let mut keyspace = turn.keyspace(0);
    for number in numbers {
        key(number, &mut buffer);
        let value = number.to_le_bytes();
        keyspace
            .update(&buffer, |_| {
                Decision::Write(NewValue::new(Body::string(&value)))
            })
            .expect("a short key");
    }
}

/// Puts `pairs` pairs with as many threads; millions per second.
fn fill(database: &Arc<Database>, pairs: u64, threads: u64) -> Result<f64, Failure> {
    let next = AtomicU64::new(0);
    let mut sessions = Vec::new();
    for _ in 0..threads {
        sessions.push(database.session()?);
    }
    let began = Instant::now();
    std::thread::scope(|scope| {
        for mut session in sessions {
            let next = &next;
            scope.spawn(move || {
                loop {
                    let first = next.fetch_add(BATCH, Ordering::Relaxed);
                    if first >= pairs {
                        return;
                    }
                    put(&mut session, first..(first + BATCH).min(pairs));
                    if first.is_multiple_of(BATCH * 64) {
                        session.tidy();
                    }
                }
            });
        }
    });
    Ok(pairs as f64 / began.elapsed().as_secs_f64() / 1e6)
}

/// Overwrites pairs until it is stopped; how many.
fn overwrite(session: &mut Session, pairs: u64, stop: &AtomicBool) -> u64 {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut puts = 0;
    while !stop.load(Ordering::Relaxed) {
        let first = rng.u64(..pairs - BATCH);
        put(session, first..first + BATCH);
        puts += BATCH;
        if puts.is_multiple_of(BATCH * 64) {
            session.tidy();
        }
    }
    puts
}

/// Nanoseconds that the calling thread has run, if the operating system tells.
fn ran_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Millions of puts per second.
#[derive(Clone, Copy)]
struct Rate {
    /// Of time.
    wall: f64,
    /// Of the writer's time on a processor.
    cpu: f64,
}

/// One writer's rate while `beside` runs.
fn writer_beside<R>(session: &mut Session, pairs: u64, beside: impl FnOnce() -> R) -> (Rate, R) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let handle = scope.spawn(|| {
            let (began, before) = (Instant::now(), ran_ns());
            let puts = overwrite(session, pairs, &stop);
            let us = began.elapsed().as_micros() as u64;
            let ran_ns = ran_ns().zip(before).map(|(now, before)| now - before);
            Rate {
                wall: per_second(puts, us),
                cpu: per_second(puts, ran_ns.map_or(us, |ns| ns / 1000)),
            }
        });
        let result = beside();
        stop.store(true, Ordering::Relaxed);
        (handle.join().expect("a writer does not panic"), result)
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What a checkpoint of one thread leaves of one writer's rate.
fn beside_checkpoints(
    database: &Database,
    session: &mut Session,
    pairs: u64,
    rounds: usize,
    pace: Pace,
) -> Result<(), Failure> {
    let options = CheckpointOptions {
        pace,
        ..CheckpointOptions::default()
    };
    let (mut walls, mut cpus, mut seconds) = (Vec::new(), Vec::new(), Vec::new());
    let mut length = std::time::Duration::from_secs(2);
    for _ in 0..rounds {
        // As long alone as beside the last checkpoint, half before and half after.
        let pause = || std::thread::sleep(length / 2);
        let (before, ()) = writer_beside(session, pairs, pause);
        let (during, report) = writer_beside(session, pairs, || database.checkpoint(&options));
        let (after, ()) = writer_beside(session, pairs, pause);
        let report: CheckpointReport = report?;
        let alone = |of: fn(&Rate) -> f64| f64::midpoint(of(&before), of(&after));
        walls.push(during.wall / alone(|rate| rate.wall) * 100.0);
        cpus.push(during.cpu / alone(|rate| rate.cpu) * 100.0);
        seconds.push(report.took_us as f64 / 1e6);
        length = std::time::Duration::from_micros(report.took_us);
        println!(
            "  {:.2} M puts/s alone, {:.2} beside a checkpoint: {:.0} %, {:.0} % per CPU second; \
             {:.1} s",
            alone(|rate| rate.wall),
            during.wall,
            walls[walls.len() - 1],
            cpus[cpus.len() - 1],
            report.took_us as f64 / 1e6
        );
    }
    println!(
        "one writer beside a checkpoint of one thread at {} %: {:.0} % of its rate, {:.0} % per \
         CPU second; {:.1} s (medians of {rounds})",
        pace.share_percent,
        median(walls),
        median(cpus),
        median(seconds)
    );
    Ok(())
}

fn per_second(count: u64, us: u64) -> f64 {
    count as f64 / us.max(1) as f64
}

/// Megabytes per second that the disk writes and syncs, one file in order.
fn disk_rate(directory: &Path) -> Result<f64, Failure> {
    const MEGABYTES: u64 = 256;
    let path = directory.join("disk-rate");
    let block = vec![0x5a; 1_000_000];
    let mut file = std::fs::File::create(&path)?;
    let began = Instant::now();
    for _ in 0..MEGABYTES {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    let took = began.elapsed().as_secs_f64();
    std::fs::remove_file(&path)?;
    Ok(MEGABYTES as f64 / took)
}

fn open(directory: &Path, threads: u64) -> Result<Arc<Database>, Failure> {
    let durability = DurabilityOptions {
        logs: threads as usize,
        recovery_threads: threads as usize,
        ..DurabilityOptions::new(directory)
    };
    Ok(Database::open(Options {
        durability: Some(durability),
        ..Options::default()
    })?)
}

/// Makes everything durable and lets go of the directory.
fn close(database: &Arc<Database>) -> Result<(), Failure> {
    database.close();
    database.close_log()?;
    Ok(())
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("a directory is asked for")?;
    let directory = Path::new(&directory);
    let pairs: u64 = arguments.next().map_or(Ok(10), |text| text.parse())? * 1_000_000;
    let threads: u64 = arguments.next().map_or(Ok(2), |text| text.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let mut pace = Pace::default();
    let what = arguments.next();
    let result = match what.as_deref() {
        Some("puts") => return measure_puts(pairs, threads, rounds),
        Some(what @ (PUTS_NONE | PUTS_INTERVAL)) => {
            std::fs::create_dir_all(directory)?;
            measure_puts_once(directory, pairs, threads, what)
        }
        share => {
            if let Some(share) = share {
                pace.share_percent = share.parse()?;
            }
            measure(directory, pairs, threads, rounds, pace)
        }
    };
    std::fs::remove_dir_all(directory)?;
    result
}

/// What all threads of this process have run, in microseconds; 0 where nobody tells.
fn process_cpu_us() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name, in parentheses, may hold anything; user and system time are the 14th and 15th.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    ticks * 10_000
}

/// Puts without a log and with one, in turns, each in a process of its own: neither finds memory
/// that the other has left.
fn measure_puts(pairs: u64, threads: u64, rounds: usize) -> Result<(), Failure> {
    let directory = std::env::args().nth(1).expect("it was there before");
    let millions = (pairs / 1_000_000).to_string();
    for _ in 0..rounds {
        for what in [PUTS_NONE, PUTS_INTERVAL] {
            let status = std::process::Command::new(std::env::current_exe()?)
                .args([&directory, &millions, &threads.to_string(), "1", what])
                .status()?;
            if !status.success() {
                return Err(format!("{what}: {status}").into());
            }
        }
    }
    Ok(())
}

/// One of the two, in this process.
fn measure_puts_once(
    directory: &Path,
    pairs: u64,
    threads: u64,
    what: &str,
) -> Result<(), Failure> {
    let database = if what == PUTS_NONE {
        Database::open(Options::default())?
    } else {
        open(directory, threads)?
    };
    let began = process_cpu_us();
    let rate = fill(&database, pairs, threads)?;
    let cpu_us = process_cpu_us() - began;
    println!("{what} {threads} rate {:.1}", rate * 1000.0);
    println!("{what} {threads} cpu {:.3}", cpu_us as f64 / pairs as f64);
    if what == PUTS_INTERVAL {
        close(&database)?;
    }
    Ok(())
}

fn measure(
    directory: &Path,
    pairs: u64,
    threads: u64,
    rounds: usize,
    pace: Pace,
) -> Result<(), Failure> {
    println!("{pairs} pairs, {threads} threads");
    let memory = Database::open(Options::default())?;
    println!("put, no log: {:.2} M/s", fill(&memory, pairs, threads)?);
    drop(memory);

    let database = open(directory, threads)?;
    println!("put, logged: {:.2} M/s", fill(&database, pairs, threads)?);

    let mut session = database.session()?;
    if rounds > 0 {
        beside_checkpoints(&database, &mut session, pairs, rounds, pace)?;
    }
    let options = CheckpointOptions {
        threads: threads as usize,
        pace: Pace::FULL,
        ..CheckpointOptions::default()
    };
    let report = database.checkpoint(&options)?;
    let disk = disk_rate(directory)?;
    let rate = per_second(report.bytes, report.took_us);
    println!(
        "checkpoint: {:.1} s, {:.2} M pairs/s, {rate:.0} MB/s of {disk:.0} that the disk writes, \
         {:.1} bytes a pair",
        report.took_us as f64 / 1e6,
        per_second(report.entries, report.took_us),
        report.bytes as f64 / report.entries as f64
    );
    drop(session);
    // What is replayed: as many puts as there are pairs in a tenth of the database.
    let mut session = database.session()?;
    for first in (0..pairs / 10).step_by(BATCH as usize) {
        put(&mut session, first..first + BATCH);
    }
    drop(session);
    close(&database)?;
    drop(database);

    let began = Instant::now();
    let database = open(directory, threads)?;
    let took = began.elapsed();
    let recovery = database.recovery().ok_or("it is on disk")?;
    println!(
        "recovery: {:.1} s; load {:.1} s, {:.2} M pairs/s, {:.0} MB/s; replay {:.1} s, {:.2} M \
         records/s, {:.0} MB/s",
        took.as_secs_f64(),
        recovery.load_us as f64 / 1e6,
        per_second(recovery.loaded, recovery.load_us),
        per_second(recovery.loaded_bytes, recovery.load_us),
        recovery.replay_us as f64 / 1e6,
        per_second(recovery.replayed, recovery.replay_us),
        per_second(recovery.replayed_bytes, recovery.replay_us)
    );
    let keys = database.summary(0).0;
    if keys < pairs * 9 / 10 {
        return Err(format!("{keys} of {pairs} keys came back").into());
    }
    close(&database)
}
