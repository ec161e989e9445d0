//! What the log costs: a record, and an acknowledgement.
//!
//! ```text
//! cargo run --release -p pando-durability --example log -- append DIRECTORY     # per record
//! cargo run --release -p pando-durability --example log -- sync DIRECTORY       # one waiter
//! valgrind --tool=callgrind target/release/examples/log append-only DIRECTORY
//! ```
//!
//! `append`: one session, groups of one 50-byte record, 64 to a turn; without a log, with one whose
//! epoch ends every 25 ms, in rounds that alternate. `sync`: how long one waiter waits, by whoever
//! writes, beside a plain write and `fdatasync` on the same disk.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use pando_durability::disk::{Access, AlignedBuffer, Disk, RealDisk};
use pando_durability::limits::{PENDING_BYTES_MAX, SEGMENT_BYTES};
use pando_durability::log::{Due, Log, LogOptions, LogScan, LogSession, ScanOptions, measure_sync};
use pando_sync::{LogEpoch, Milliseconds};

/// Records of a round of `append`.
const RECORDS: u64 = 4_000_000;
/// Records of a turn.
const TURN: u64 = 64;
/// Acknowledgements of a round of `sync`.
const WAITS: usize = 2_000;
const ROUNDS: usize = 5;

fn open(directory: &Path, threads: bool) -> Arc<Log> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    disk.create_directory(directory).expect("the directory");
    let scan = ScanOptions {
        threads: 1,
        sync: true,
    };
    let scan = LogScan::read(&disk, &[directory.to_owned()], scan).expect("the log");
    let cut = scan
        .cut(scan.newest_epoch().next(), scan.newest_epoch())
        .expect("nothing is read");
    let options = LogOptions {
        directories: vec![directory.to_owned()],
        logs: 1,
        segment_bytes: SEGMENT_BYTES,
        identity: scan.identity().unwrap_or(1),
        pending_bytes_max: PENDING_BYTES_MAX,
        checkpoints: None,
        checkpoint_bytes: 0,
        threads,
    };
    let log = Log::open(options, disk, &cut).expect("the log");
    log.recycle_below(LogEpoch::NEVER).expect("old segments");
    log
}

/// What stands for a SET: a key of 16 bytes and a value of 16, and what goes with them.
#[inline(never)]
fn append(session: &mut LogSession, epoch: u64, number: u64) {
    session.reserve(50);
    session.append(|buffer| {
        buffer.extend_from_slice(&[1, 0]);
        buffer.extend_from_slice(&number.to_le_bytes());
        buffer.extend_from_slice(&[number as u8; 40]);
    });
    session.end_group(LogEpoch(epoch));
}

/// Closes an epoch every 25 ms until it is told to stop.
fn tick(log: &Log, epoch: &Mutex<u64>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        if log.wait_until_due(Duration::from_millis(25)) == Due::Stopped {
            return;
        }
        let mut epoch = epoch.lock().expect("no panic");
        log.close_epoch(LogEpoch(*epoch), Milliseconds(0));
        *epoch += 1;
    }
}

/// Appends a round of records; returns nanoseconds of processor time of the process for each, and
/// of wall time.
fn round(log: Option<&Log>) -> (f64, f64) {
    let began = (cpu(), Instant::now());
    let Some(log) = log else {
        let mut sum = 0_u64;
        for number in 0..RECORDS {
            sum = std::hint::black_box(sum ^ number);
        }
        return per_record(began);
    };
    let epoch = Mutex::new(log.statistics().closed.next().0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| tick(log, &epoch, &stop));
        let mut session = log.session(0);
        for turn in 0..RECORDS / TURN {
            session.wait_for_room();
            // The lock stands for the gate.
            let epoch = epoch.lock().expect("no panic");
            for number in 0..TURN {
                append(&mut session, *epoch, turn * TURN + number);
            }
            session.hand_over();
        }
        stop.store(true, Ordering::Relaxed);
    });
    log.recycle_below(log.durable()).expect("recycled");
    per_record(began)
}

fn per_record((cpu_before, began): (Duration, Instant)) -> (f64, f64) {
    let wall = began.elapsed();
    let nanos = |time: Duration| time.as_nanos() as f64 / RECORDS as f64;
    (nanos(cpu().saturating_sub(cpu_before)), nanos(wall))
}

/// Processor time of the process, from the kernel's count in ticks of 10 ms.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<_> = stat
        .rsplit(')')
        .next()
        .expect("a name")
        .split_whitespace()
        .collect();
    let ticks: u64 = fields[11..13]
        .iter()
        .map(|ticks| ticks.parse().unwrap_or(0))
        .sum();
    Duration::from_millis(ticks * 10)
}

fn run_append(directory: &Path) {
    let log = open(directory, true);
    for _ in 0..ROUNDS {
        let (none, with) = (round(None), round(Some(&log)));
        println!(
            "none {:.1} ns CPU; log {:.1} ns CPU, {:.1} ns wall, each record",
            none.0, with.0, with.1
        );
    }
    println!("{:?}", log.statistics());
    log.close().expect("closed");
}

fn median(mut samples: Vec<Duration>) -> Duration {
    samples.sort_unstable();
    samples[samples.len() / 2]
}

fn timed(mut call: impl FnMut(usize)) -> Duration {
    let sample = |at| {
        let began = Instant::now();
        call(at);
        began.elapsed()
    };
    median((0..WAITS).map(sample).collect())
}

/// Write and `fdatasync` of 100 bytes at the end of a file, as an append-only file does.
fn plain(directory: &Path) -> Duration {
    let path = directory.join("plain");
    let _ = std::fs::remove_file(&path);
    let file = RealDisk.create(&path, Access::Write).expect("created");
    let median = timed(|at| {
        file.write_all_at(&[7; 100], at as u64 * 100)
            .expect("written");
        file.sync().expect("synced");
    });
    std::fs::remove_file(path).expect("removed");
    median
}

/// A block written through into a file made ahead: what the disk itself costs.
fn through(directory: &Path) -> Duration {
    let path = directory.join("through");
    let _ = std::fs::remove_file(&path);
    let file = RealDisk
        .create(&path, Access::WriteThrough)
        .expect("created");
    let mut block = AlignedBuffer::new(1 << 20);
    block.pad_to_capacity();
    for at in 0..16 {
        file.write_all_at(block.as_slice(), at << 20)
            .expect("written");
    }
    let block = &block.as_slice()[..4096];
    let median = timed(|at| {
        file.write_all_at(block, at as u64 % 4096 * 4096)
            .expect("written");
    });
    std::fs::remove_file(path).expect("removed");
    median
}

/// One waiter that closes the epoch and writes it himself.
fn own(log: &Log) -> Duration {
    let mut session = log.session(0);
    let mut epoch = log.statistics().closed.next().0;
    timed(|at| {
        append(&mut session, epoch, at as u64);
        session.hand_over();
        log.seal(LogEpoch(epoch), Milliseconds(0)).flush();
        assert!(log.durable() >= LogEpoch(epoch));
        epoch += 1;
    })
}

/// One waiter, with an epoch thread that writes, or leaves that to the logger.
fn waiting(log: &Arc<Log>, inline: bool, woken: &Arc<(Mutex<()>, Condvar)>) -> Duration {
    let stop = AtomicBool::new(false);
    let epoch = AtomicU64::new(log.statistics().closed.next().0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if log.wait_until_due(Duration::from_millis(25)) == Due::Wanted {
                    let closed = epoch.fetch_add(1, Ordering::Relaxed);
                    let sealed = log.seal(LogEpoch(closed), Milliseconds(0));
                    if inline { sealed.flush() } else { drop(sealed) }
                }
            }
        });
        let mut session = log.session(0);
        let median = timed(|at| {
            let epoch = epoch.load(Ordering::Relaxed);
            append(&mut session, epoch, at as u64);
            session.hand_over();
            if !log.want(LogEpoch(epoch)) {
                let guard = woken.0.lock().expect("no panic");
                let waits = |(): &mut ()| log.durable() < LogEpoch(epoch);
                drop(woken.1.wait_while(guard, waits).expect("no panic"));
            }
        });
        stop.store(true, Ordering::Relaxed);
        median
    })
}

fn run_sync(directory: &Path) {
    let log = open(directory, true);
    let woken = Arc::new((Mutex::new(()), Condvar::new()));
    let wake = Arc::clone(&woken);
    log.on_durable(Box::new(move |_| {
        drop(wake.0.lock().expect("no panic"));
        wake.1.notify_all();
    }));
    let cost = measure_sync(&RealDisk, directory).expect("measured");
    println!("measured at start: {cost:?}");
    for _ in 0..ROUNDS {
        println!(
            "write and fdatasync {:?}; a block written through {:?}; the waiter writes {:?}; \
             the epoch thread writes {:?}; the logger writes {:?}",
            plain(directory),
            through(directory),
            own(&log),
            waiting(&log, true, &woken),
            waiting(&log, false, &woken),
        );
    }
    log.close().expect("closed");
}

/// For callgrind: appending alone, with everything written by this thread.
fn run_append_only(directory: &Path) {
    let log = open(directory, false);
    let mut session = log.session(0);
    let mut epoch = log.durable().next().0;
    for turn in 0..3_000 {
        for number in 0..TURN {
            append(&mut session, epoch, turn * TURN + number);
        }
        session.hand_over();
        if turn % 100 == 99 {
            log.close_epoch(LogEpoch(epoch), Milliseconds(0));
            epoch += 1;
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let directory: PathBuf = arguments.next().expect("a directory").into();
    match what.as_str() {
        "append" => run_append(&directory),
        "append-only" => run_append_only(&directory),
        "sync" => run_sync(&directory),
        other => panic!("append, append-only or sync, not {other:?}"),
    }
}
