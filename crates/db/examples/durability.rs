//! Measures what keeping data costs: puts with and without a log and during a checkpoint, the
//! checkpoint itself, recovery from it, and replay of the log.
//!
//! `cargo run --release -p pando-db --example durability -- DIRECTORY [MILLION_PAIRS] [THREADS]`
//!
//! Keys are decimal numbers in random order, values 8 bytes, as in §6 of the Masstree paper. The
//! directory must be empty or missing; it is removed in the end.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use pando_db::{CheckpointOptions, Database, DurabilityOptions, Options, Session};
use pando_engine::{Body, Decision, NewValue};

/// Puts of one turn, as a worker's batch has them.
const BATCH: u64 = 128;

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
                Decision::Write(NewValue::new(Body::Bytes(&value)))
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

fn per_second(count: u64, us: u64) -> f64 {
    count as f64 / us.max(1) as f64
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
    let run = || measure(directory, pairs, threads);
    let result = run();
    std::fs::remove_dir_all(directory)?;
    result
}

fn measure(directory: &Path, pairs: u64, threads: u64) -> Result<(), Failure> {
    println!("{pairs} pairs, {threads} threads");
    let memory = Database::open(Options::default())?;
    println!("put, no log: {:.2} M/s", fill(&memory, pairs, threads)?);
    drop(memory);

    let database = open(directory, threads)?;
    println!("put, logged: {:.2} M/s", fill(&database, pairs, threads)?);

    let mut session = database.session()?;
    let stop = AtomicBool::new(false);
    let writer = |stop: &AtomicBool, session: &mut Session| {
        let began = Instant::now();
        let puts = overwrite(session, pairs, stop);
        per_second(puts, began.elapsed().as_micros() as u64)
    };
    let alone = std::thread::scope(|scope| {
        let handle = scope.spawn(|| writer(&stop, &mut session));
        std::thread::sleep(std::time::Duration::from_secs(3));
        stop.store(true, Ordering::Relaxed);
        handle.join().expect("a writer does not panic")
    });
    stop.store(false, Ordering::Relaxed);
    let (during, report) = std::thread::scope(|scope| {
        let handle = scope.spawn(|| writer(&stop, &mut session));
        let report = database.checkpoint(&CheckpointOptions::default());
        stop.store(true, Ordering::Relaxed);
        (handle.join().expect("a writer does not panic"), report)
    });
    let report = report?;
    println!(
        "one writer: {alone:.2} M puts/s alone, {during:.2} during a checkpoint of one thread \
         ({:.0} %), which took {:.1} s",
        during / alone * 100.0,
        report.took_us as f64 / 1e6
    );
    let options = CheckpointOptions {
        threads: threads as usize,
        ..CheckpointOptions::default()
    };
    let report = database.checkpoint(&options)?;
    println!(
        "checkpoint: {:.1} s, {:.2} M pairs/s, {:.0} MB/s, {:.1} bytes a pair",
        report.took_us as f64 / 1e6,
        per_second(report.entries, report.took_us),
        per_second(report.bytes, report.took_us),
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
