//! A filed pool is what its last commit left, wherever the power ends.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use fastrand::Rng;
use pando_durability::disk::{DiskFile, Fault, SimulatedDisk};

use super::journal::Line;
use super::simulated::Unsynced;
use super::*;
use crate::limits::POOL_BYTES_MIN;
use crate::{Allocator, Pool, Shape};

const LINES: u64 = POOL_BYTES_MIN / LINE_BYTES;
const NAME: &str = "disk/pool";

/// A disk with an empty pool on it.
fn disk(writes_through: bool) -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    disk.set_writes_through(writes_through);
    Filed::put_on(&disk, Path::new(NAME), POOL_BYTES_MIN);
    disk
}

/// What is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    Nothing,
    /// The sync of lines in their places, before the journal begins anew.
    Places,
    /// The sync of records.
    Records,
}

fn open(disk: &SimulatedDisk, planted: Planted) -> Result<Journal, PoolError> {
    let file = |access, unsynced: bool| -> io::Result<Box<dyn DiskFile>> {
        let file = disk.open(Path::new(NAME), access)?;
        Ok(if unsynced {
            Box::new(Unsynced(file))
        } else {
            file
        })
    };
    let places = file(Access::Write, planted == Planted::Places)?;
    let records = file(Access::WriteThrough, planted == Planted::Records)?;
    let mut journal = Journal::open(places, records)?;
    journal.set_lap_bytes(4 * BLOCK_BYTES);
    Ok(journal)
}

/// For each line, the number of the last commit that wrote it.
type Model = Vec<u64>;

fn content(number: u64, line: u64) -> [u8; 64] {
    let mut content = [number as u8; 64];
    content[..8].copy_from_slice(&(number << 32 | line).to_le_bytes());
    content
}

/// Commits random lines until power is lost. Returns the expected content after each commit that
/// began, and how many finished.
fn run(journal: &mut Journal, first: &Model, seed: u64, commits: u64) -> (Vec<Model>, usize) {
    let mut rng = Rng::with_seed(seed);
    let mut models = vec![first.clone()];
    for number in 1..=commits {
        let count = if rng.u8(..8) == 0 {
            300
        } else {
            rng.u64(1..20)
        };
        let mut numbers: Vec<u64> = (0..count).map(|_| rng.u64(..LINES)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let number = seed << 8 | number;
        let mut model = models.last().unwrap().clone();
        let lines: Vec<Line> = numbers
            .iter()
            .map(|line| (*line, content(number, *line)))
            .collect();
        for line in &numbers {
            model[*line as usize] = number;
        }
        models.push(model);
        if journal.commit(&lines).is_err() {
            let ended = models.len() - 2;
            return (models, ended);
        }
    }
    let ended = models.len() - 1;
    (models, ended)
}

/// Which of the models a pool holds, if any.
fn matching(disk: &SimulatedDisk, models: &[Model]) -> Option<usize> {
    let bytes = disk.contents(Path::new(NAME)).unwrap();
    let lines = bytes[BLOCK_BYTES as usize..]
        .chunks_exact(64)
        .take(LINES as usize);
    let lines: Vec<_> = lines.collect();
    models.iter().rposition(|model| {
        (0..)
            .zip(&lines)
            .zip(model)
            .all(|((number, line), commit)| match commit {
                0 => line.iter().all(|byte| *byte == 0),
                commit => **line == content(*commit, number),
            })
    })
}

/// Ends the power at every call of a run, and says what was found then.
fn crashes(writes_through: bool, planted: Planted, seed: u64) -> Result<(), String> {
    let empty: Model = vec![0; LINES as usize];
    let calls = {
        let disk = disk(writes_through);
        run(&mut open(&disk, planted).unwrap(), &empty, seed, 12);
        disk.call_count()
    };
    for call in 0..calls {
        let disk = disk(writes_through);
        disk.fail_at(call, Fault::PowerLoss);
        let (models, ended) = match open(&disk, planted) {
            Ok(mut journal) => run(&mut journal, &empty, seed, 12),
            Err(_) => (vec![empty.clone()], 0),
        };
        for kept in 0..4 {
            let after = disk.crash(kept + if kept > 1 { seed * 100 } else { 0 });
            // The power ends once more while the journal is replayed.
            after.fail_at(4 + kept as usize, Fault::PowerLoss);
            let after = match open(&after, planted) {
                Ok(_) => {
                    after.clear_faults();
                    after
                }
                Err(_) => after.crash(seed + kept),
            };
            let mut journal = open(&after, planted).map_err(|error| error.to_string())?;
            let found = matching(&after, &models);
            let Some(found) = found.filter(|found| *found >= ended) else {
                return Err(format!("call {call}, {kept}: {found:?} of {ended}"));
            };
            // A second run begins on what the first one left, with its records still there.
            let (again, ended) = run(&mut journal, &models[found], seed + 77, 3);
            let last = after.crash(kept);
            open(&last, planted).map_err(|error| error.to_string())?;
            let found = matching(&last, &again);
            if found != Some(ended) {
                return Err(format!("call {call}, {kept}, again: {found:?} of {ended}"));
            }
        }
    }
    Ok(())
}

#[test]
fn a_loss_of_power_leaves_what_a_commit_left() {
    for seed in 1..4 {
        for writes_through in [true, false] {
            let found = crashes(writes_through, Planted::Nothing, seed);
            assert_eq!(found, Ok(()), "seed {seed}, {writes_through}");
        }
    }
}

#[test]
fn canary_a_sync_left_out_is_found() {
    for planted in [Planted::Places, Planted::Records] {
        let found = (1..4).any(|seed| crashes(false, planted, seed).is_err());
        assert!(found, "{planted:?}");
    }
}

#[test]
fn after_a_failed_commit_nothing_is_committed() {
    let disk = disk(true);
    let mut journal = open(&disk, Planted::Nothing).unwrap();
    disk.fail_at(disk.call_count(), Fault::Error(io::ErrorKind::Other));
    let lines = [(3, content(1, 3))];
    journal.commit(&lines).unwrap_err();
    let error = journal.commit(&lines).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}

#[test]
fn golden_bytes() {
    let disk = disk(true);
    let mut journal = open(&disk, Planted::Nothing).unwrap();
    journal.commit(&[(2, [7; 64])]).unwrap();
    let bytes = disk.contents(Path::new(NAME)).unwrap();
    assert_eq!(bytes[..16], *b"PANDO\x1afl\x01\0\0\0\0\0\0\0");
    assert_eq!(bytes[16..24], POOL_BYTES_MIN.to_le_bytes());
    let record = &bytes[(BLOCK_BYTES + POOL_BYTES_MIN) as usize..];
    assert_eq!(record.len() as u64, BLOCK_BYTES);
    assert_eq!(record[..8], *b"PANDO\x1ajn");
    assert_eq!(record[16..28], [1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(record[32..40], [2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(record[40..104], [7; 64]);
    assert!(record[104..].iter().all(|byte| *byte == 0));
}

/// A file on a real disk that goes when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("pando-filed-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_filed_pool_is_there_again_without_what_was_not_committed() {
    let scratch = Scratch::new("again");
    let shape = Shape::with_nodes(512);
    let at = {
        let pool = Pool::create(Filed::create(&scratch.0, 1 << 20).unwrap(), shape).unwrap();
        let allocator = Allocator::new(Arc::new(pool)).unwrap();
        let (pool, epoch) = (allocator.pool(), allocator.pool().first_epoch());
        pool.begin(epoch).unwrap();
        let at = allocator.allocate(5000, epoch).unwrap();
        pool.memory().write(at, &[3; 5000]);
        pool.memory().flush(at, 5000);
        allocator.settle();
        pool.commit(epoch).unwrap();
        pool.memory().write(at, &[4; 5000]);
        pool.memory().flush(at, 5000);
        pool.memory().fence();
        assert!(matches!(
            Filed::open(&scratch.0, None),
            Err(PoolError::InUse)
        ));
        at
    };
    for _ in 0..2 {
        let pool = Pool::open(Filed::open(&scratch.0, Some(1 << 20)).unwrap(), 512).unwrap();
        // SAFETY: nobody writes.
        assert_eq!(unsafe { pool.memory().read(at, 5000) }, [3; 5000]);
    }
    let other = Filed::open(&scratch.0, Some(2 << 20));
    assert!(matches!(
        other,
        Err(PoolError::OtherSize {
            pool: 0x10_0000,
            ..
        })
    ));
}

#[test]
fn lines_of_commits_are_counted() {
    let scratch = Scratch::new("wear");
    let memory = Filed::create(&scratch.0, POOL_BYTES_MIN).unwrap();
    for _ in 0..2 {
        // Twice the same line, and the commit's.
        memory.flush(Offset::new(4096), 8);
        memory.flush(Offset::new(4104), 8);
        memory.commit(Offset::new(64), 1).unwrap();
    }
    let (lines, bytes) = (4, 2 * (8 + 8 + 8));
    assert_eq!(memory.wear(), crate::Wear { lines, bytes });
}

#[test]
fn what_is_no_filed_pool_is_refused() {
    use PoolError::*;
    let scratch = Scratch::new("refused");
    assert!(matches!(Filed::create(&scratch.0, 5), Err(NoSize { .. })));
    assert!(!scratch.0.exists());
    drop(Filed::create(&scratch.0, POOL_BYTES_MIN).unwrap());
    let whole = fs::read(&scratch.0).unwrap();
    assert_eq!(whole.len() as u64, BLOCK_BYTES + 2 * POOL_BYTES_MIN);
    let open = |bytes: &[u8]| {
        fs::write(&scratch.0, bytes).unwrap();
        Filed::open(&scratch.0, None).map(|filed| filed.bytes())
    };
    assert!(matches!(open(&whole), Ok(POOL_BYTES_MIN)));
    assert!(matches!(open(b""), Err(Unfinished)));
    assert!(matches!(
        open(b"something else of some length, really"),
        Err(Foreign)
    ));
    assert!(matches!(
        open(&whole[..8192]),
        Err(Truncated { found: 4096, .. })
    ));
    let changed = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        bytes
    };
    assert!(matches!(open(&changed(8, 2)), Err(Newer { found: 2, .. })));
    assert!(matches!(open(&changed(18, 1)), Err(Damaged { .. })));
    // A pool in memory is no file of one.
    assert!(matches!(open(&whole[4096..]), Err(Unfinished)));
}

#[test]
fn stores_after_a_flush_are_in_no_commit_without_what_was_flushed() {
    let scratch = Scratch::new("fences");
    let filed = Filed::create(&scratch.0, POOL_BYTES_MIN).unwrap();
    let line = |number: u64| Offset::new(number * LINE_BYTES);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let mut torn = None;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Line 400 never shows more than line 1 had at its flush before.
            for count in 1.. {
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                for number in [1, 400] {
                    filed.store(line(number), count);
                    filed.flush(line(number), 8);
                }
            }
        });
        let places = RealDisk.open(&scratch.0, Access::Read).unwrap();
        for commit in 1..300 {
            // What lies between takes its time to read.
            filed.flush(line(2), 398 * 64);
            filed.commit(line(3), commit).unwrap();
            let read = |number: u64| {
                let mut word = [0; 8];
                let place = BLOCK_BYTES + line(number).get();
                places.read_full_at(&mut word, place).unwrap();
                u64::from_le_bytes(word)
            };
            torn = torn.or((read(400) > read(1)).then_some((read(1), read(400))));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(torn, None);
}
