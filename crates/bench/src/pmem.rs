//! What persistence costs by itself: flushes by size, blocks, windows for writers, and commits to a
//! file by the two ways there are.
//!
//! The flush of an object of some size is the CDDS paper's Figure 5. Commits to a file decide how
//! `Filed` works: a double write of the lines that changed, beside the write of their pages, which
//! is what `msync` would do (and which tears).
//!
//! Deliberately absent: trees. These are the parts that they are built of.

use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use pando_pmem::{
    Allocator, Filed, Full, Mapped, Medium, Offset, Pmem, Pool, PoolError, Protection, Shape,
    Writes,
};

const POOL_BYTES: u64 = 256 << 20;
const PAGE_BYTES: u64 = 4096;
const LINE_BYTES: u64 = 64;

/// What to measure, and where.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// A directory on a tmpfs, for mapped pools.
    #[arg(long, default_value = "/dev/shm")]
    memory: PathBuf,
    /// A directory on a disk, for filed pools.
    #[arg(long, default_value = ".")]
    disk: PathBuf,
    /// Milliseconds for each figure.
    #[arg(long, default_value_t = 300)]
    millis: u64,
    /// Rounds, of which the median is shown.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PmemError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Pool(#[from] PoolError),
    #[error(transparent)]
    Full(#[from] Full),
}

type Outcome<T> = Result<T, PmemError>;

/// A file that goes when the measurement ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(directory: &Path, name: &str) -> Self {
        Self(directory.join(format!("pando-bench-{}-{name}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It may not have been created.
        let _ = fs::remove_file(&self.0);
    }
}

impl Options {
    /// Nanoseconds that one call takes: the median of the rounds.
    fn time(&self, mut call: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
        let mut rounds = Vec::new();
        for _ in 0..self.rounds.max(1) {
            let (start, mut calls) = (Instant::now(), 0_u64);
            let budget = Duration::from_millis(self.millis);
            // The clock is asked seldom, and at least once.
            while calls == 0 || start.elapsed() < budget {
                for _ in 0..16 {
                    call()?;
                    calls += 1;
                }
            }
            rounds.push(start.elapsed().as_nanos() as f64 / calls as f64);
        }
        rounds.sort_by(f64::total_cmp);
        Ok(rounds[rounds.len() / 2])
    }
}

/// Prints all figures.
pub(crate) fn run(options: &Options) -> Outcome<()> {
    flushes(options)?;
    windows(options)?;
    blocks(options)?;
    commits(options)
}

fn mapped(scratch: &Scratch, protection: Protection) -> Outcome<Mapped> {
    let mapped = Mapped::create(&scratch.0, POOL_BYTES, Medium::Rehearsal, protection)?;
    Ok(mapped)
}

/// A place for an object, at random, so that its lines are not in the cache.
fn place(rng: &mut Rng, bytes: u64) -> Offset {
    Offset::new(rng.u64(0..(POOL_BYTES - bytes) / PAGE_BYTES) * PAGE_BYTES)
}

fn flushes(options: &Options) -> Outcome<()> {
    let scratch = Scratch::new(&options.memory, "flushes");
    let memory = mapped(&scratch, Protection::None)?;
    println!("flush by {:?}, ns per object", memory.flushes_by());
    println!(
        "{:>8} {:>10} {:>22} {:>8}",
        "bytes", "write", "write, flush, fence", "ratio"
    );
    for bytes in [64, 256, 1024, 4096, 16384] {
        let mut rng = Rng::with_seed(bytes);
        let object = vec![7; bytes as usize];
        let volatile = options.time(|| {
            memory.write(place(&mut rng, bytes), black_box(&object));
            Ok(())
        })?;
        let durable = options.time(|| {
            let at = place(&mut rng, bytes);
            memory.write(at, black_box(&object));
            memory.flush(at, bytes as usize);
            memory.fence();
            Ok(())
        })?;
        let ratio = durable / volatile;
        println!("{bytes:>8} {volatile:>10.0} {durable:>22.0} {ratio:>8.2}");
    }
    Ok(())
}

fn windows(options: &Options) -> Outcome<()> {
    for protection in [Protection::None, Protection::Pages, Protection::Keys] {
        let scratch = Scratch::new(&options.memory, "windows");
        let memory = match mapped(&scratch, protection) {
            Err(PmemError::Pool(PoolError::NoProtectionKeys(error))) => {
                println!("a store in a window of its own, protection Keys: {error}");
                continue;
            }
            memory => memory?,
        };
        let at = Offset::new(PAGE_BYTES);
        let nanos = options.time(|| {
            let _window = Writes::new(&memory);
            memory.store(at, 1);
            Ok(())
        })?;
        println!("a store in a window of its own, protection {protection:?}: {nanos:.0} ns");
    }
    Ok(())
}

fn blocks(options: &Options) -> Outcome<()> {
    let scratch = Scratch::new(&options.memory, "blocks");
    let pool = Pool::create(mapped(&scratch, Protection::None)?, Shape::with_nodes(4096))?;
    let allocator = Allocator::new(Arc::new(pool))?;
    let pool = allocator.pool();
    let mut epoch = pool.first_epoch();
    let mut held = Vec::new();
    for per_epoch in [1_usize, 100] {
        let nanos = options.time(|| {
            pool.begin(epoch)?;
            for at in held.drain(..) {
                allocator.free(at, epoch);
            }
            for _ in 0..per_epoch {
                held.push(allocator.allocate(200, epoch)?);
            }
            allocator.settle();
            pool.commit(epoch)?;
            allocator.set_horizon(epoch);
            epoch = epoch.next();
            Ok(())
        })?;
        let each = nanos / per_epoch as f64;
        println!(
            "a block taken and one freed, {per_epoch} to an epoch with its commit: {each:.0} ns"
        );
    }
    Ok(())
}

/// A file whose pages are written as `msync` writes them.
struct Pages(File);

impl Pages {
    fn create(scratch: &Scratch) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create_new(true)
            .open(&scratch.0)?;
        // Blocks that were never written would cost the file system more.
        let zeroes = vec![0; 1 << 20];
        for at in (0..POOL_BYTES).step_by(zeroes.len()) {
            file.write_all_at(&zeroes, at)?;
        }
        file.sync_all()?;
        Ok(Self(file))
    }

    fn commit(&self, lines: &[u64]) -> io::Result<()> {
        let mut pages: Vec<_> = lines.iter().map(|at| at / PAGE_BYTES).collect();
        pages.dedup();
        for page in pages {
            self.0
                .write_all_at(&[1; PAGE_BYTES as usize], page * PAGE_BYTES)?;
        }
        self.0.sync_data()?;
        // The word comes after them.
        self.0.write_all_at(&[2; PAGE_BYTES as usize], 0)?;
        self.0.sync_data()
    }
}

fn commits(options: &Options) -> Outcome<()> {
    let (filed, pages) = (
        Scratch::new(&options.disk, "filed"),
        Scratch::new(&options.disk, "pages"),
    );
    let memory = Filed::create(&filed.0, POOL_BYTES)?;
    let pages = Pages::create(&pages)?;
    println!("a commit to a file, µs");
    println!(
        "{:>8} {:>14} {:>14} {:>8}",
        "lines", "double write", "pages", "ratio"
    );
    for count in [1_usize, 16, 256, 4096] {
        let mut rng = Rng::with_seed(count as u64);
        let mut lines = || {
            let lines = (0..count).map(|_| rng.u64(1..POOL_BYTES / LINE_BYTES) * LINE_BYTES);
            let mut lines: Vec<_> = lines.collect();
            lines.sort_unstable();
            lines
        };
        let mut word = 0;
        let double = options.time(|| {
            for at in lines().into_iter().map(Offset::new) {
                memory.store(at, 1);
                memory.flush(at, 8);
            }
            word += 1;
            Ok(memory.commit(Offset::new(8), word)?)
        })?;
        let paged = options.time(|| Ok(pages.commit(&lines())?))?;
        let (double, paged) = (double / 1e3, paged / 1e3);
        println!(
            "{count:>8} {double:>14.0} {paged:>14.0} {:>8.2}",
            double / paged
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_side_runs() {
        let options = Options {
            memory: PathBuf::from("/dev/shm"),
            disk: std::env::temp_dir(),
            millis: 0,
            rounds: 1,
        };
        flushes(&options).unwrap();
        windows(&options).unwrap();
        blocks(&options).unwrap();
    }
}
