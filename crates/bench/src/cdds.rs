//! The CDDS structures by themselves: what versions cost, how the hash table compares with the
//! tree, how much each operation writes, how long collection holds others up, and what a second
//! thread brings.
//!
//! The CDDS paper (§4.3) compares its tree without flushes to an ordinary B-tree, and finds 24 %
//! fewer puts, 13 % fewer gets and 39 % fewer deletes. Here the other side is twofold: the same
//! tree in one epoch that never ends, so that no version is kept, and the standard library's.
//!
//! Deliberately absent: other stores, whose code is foreign; `pando-peers` has them.

mod collection;
mod wear;

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use pando_cdds::{Cdds, SortedTree, Table, Tree, limits};
use pando_engine::{Body, Decision, Engine, EpochClock, Key, NewValue, NoHook, Point};
use pando_pmem::{Mapped, Medium, Pmem, Pool, PoolError, Protection, Shape};

use crate::embedded::threads::{Ran, run_threads};

const KEY_BYTES: usize = 25;

/// Commands of a session's batch.
const BATCH: usize = 32;

/// What to measure, and where.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Pairs.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Bytes of a value.
    #[arg(long, default_value_t = 2048)]
    value_bytes: usize,
    /// Rounds, in each of which everything is measured once; medians are shown.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// A directory on a tmpfs.
    #[arg(long, default_value = "/dev/shm")]
    directory: PathBuf,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CddsError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Pool(#[from] PoolError),
    #[error(transparent)]
    Tree(#[from] pando_cdds::Error),
    #[error("{store}: pair {number} is lost")]
    Lost { store: &'static str, number: u32 },
}

type Outcome<T> = Result<T, CddsError>;

/// Pairs, put, got and deleted one at a time.
trait Store {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Outcome<()>;
    /// Whether it is there; what is, is copied.
    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> Outcome<bool>;
    fn delete(&mut self, key: &[u8]) -> Outcome<()>;
}

struct OfTree<M> {
    tree: Tree<M>,
    commits: bool,
}

impl<M: Pmem> OfTree<M> {
    fn end(&mut self) -> Outcome<()> {
        if self.commits {
            self.tree.commit()?;
        }
        Ok(())
    }
}

impl<M: Pmem> Store for OfTree<M> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        self.tree.put(key, value)?;
        self.end()
    }

    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> Outcome<bool> {
        let value = self.tree.get(key)?;
        into.extend_from_slice(value.unwrap_or_default());
        Ok(value.is_some())
    }

    fn delete(&mut self, key: &[u8]) -> Outcome<()> {
        self.tree.remove(key)?;
        self.end()
    }
}

struct OfSorted<M>(SortedTree<M>);

impl<M: Pmem> Store for OfSorted<M> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        Ok(self.0.put(key, value)?)
    }

    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> Outcome<bool> {
        let value = self.0.get(key)?;
        into.extend_from_slice(value.unwrap_or_default());
        Ok(value.is_some())
    }

    fn delete(&mut self, key: &[u8]) -> Outcome<()> {
        self.0.remove(key)?;
        Ok(())
    }
}

struct OfTable<M>(Table<M>);

impl<M: Pmem> Store for OfTable<M> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        self.0.put(key, value)?;
        self.0.commit()?;
        Ok(())
    }

    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> Outcome<bool> {
        let value = self.0.get(key)?;
        into.extend_from_slice(value.unwrap_or_default());
        Ok(value.is_some())
    }

    fn delete(&mut self, key: &[u8]) -> Outcome<()> {
        self.0.remove(key)?;
        self.0.commit()?;
        Ok(())
    }
}

struct Plain(BTreeMap<Box<[u8]>, Box<[u8]>>);

impl Store for Plain {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        self.0.insert(key.into(), value.into());
        Ok(())
    }

    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> Outcome<bool> {
        let value = self.0.get(key);
        into.extend_from_slice(value.map_or(&[], |value| value));
        Ok(value.is_some())
    }

    fn delete(&mut self, key: &[u8]) -> Outcome<()> {
        self.0.remove(key);
        Ok(())
    }
}

/// A file that goes when the measurement ends.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // It may not have been created.
        let _ = fs::remove_file(&self.0);
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The tree, with a commit after each change, all flushes and fences executed.
    Tree,
    /// The paper's layout of nodes, likewise.
    Sorted,
    /// The tree without flushes and fences.
    Volatile,
    /// The paper's layout, likewise.
    VolatileSorted,
    /// The tree without them, in one epoch.
    OneEpoch,
    /// The standard library's B-tree.
    Plain,
    /// The hash table, as the tree.
    Table,
    /// The same without flushes and fences.
    VolatileTable,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Tree,
        Self::Sorted,
        Self::Volatile,
        Self::VolatileSorted,
        Self::OneEpoch,
        Self::Plain,
        Self::Table,
        Self::VolatileTable,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Tree => "tree, durable",
            Self::Sorted => "sorted nodes, durable",
            Self::Volatile => "tree",
            Self::VolatileSorted => "sorted nodes",
            Self::OneEpoch => "tree, one epoch",
            Self::Plain => "BTreeMap",
            Self::Table => "hash table, durable",
            Self::VolatileTable => "hash table",
        }
    }

    fn create(self, options: &Options, scratch: &Path) -> Outcome<Box<dyn Store>> {
        let room = (64 << 20) + u64::from(options.pairs) * (options.value_bytes as u64 * 2 + 1024);
        let pool = || -> Outcome<_> {
            let medium = match self {
                Self::Tree | Self::Sorted | Self::Table => Medium::Rehearsal,
                _ => Medium::SharedMemory,
            };
            let bytes = room.next_multiple_of(1 << 20);
            let memory = Mapped::create(scratch, bytes, medium, Protection::None)?;
            Ok(Arc::new(Pool::create(memory, self.shape())?))
        };
        match self {
            Self::Plain => Ok(Box::new(Plain(BTreeMap::new()))),
            _ => self.within(pool()?),
        }
    }

    fn shape(self) -> Shape {
        match self {
            Self::Table | Self::VolatileTable => Table::<Mapped>::shape(),
            _ => Shape::with_nodes(limits::node_bytes(limits::ENTRIES)),
        }
    }

    /// The one of a pool; of `Plain`, which has none, the tree.
    fn within<M: Pmem>(self, pool: Arc<Pool<M>>) -> Outcome<Box<dyn Store>> {
        Ok(match self {
            Self::Table | Self::VolatileTable => Box::new(OfTable(Table::open(pool)?)),
            Self::Sorted | Self::VolatileSorted => Box::new(OfSorted(SortedTree::create(pool)?)),
            _ => Box::new(OfTree {
                tree: Tree::open(pool)?,
                commits: self != Self::OneEpoch,
            }),
        })
    }
}

/// A permutation of numbers that looks like chance.
fn scramble(number: u64) -> u64 {
    let word = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// As YCSB's: with a common beginning.
fn make_key(number: u32) -> [u8; KEY_BYTES] {
    let mut key = *b"user000000000000000000000";
    let mut rest = scramble(u64::from(number) + 1);
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// The pair of a turn: each phase comes to every pair once, in an order of its own.
fn number(turn: u32, pairs: u32, phase: usize) -> u32 {
    let steps: [u64; 3] = [2_654_435_761, 2_246_822_519, 3_266_489_917];
    let (turn, pairs) = (u64::from(turn), u64::from(pairs));
    ((turn * steps[phase] + 17 * phase as u64) % pairs) as u32
}

/// Nanoseconds for each put, get and delete.
fn measure(kind: Kind, options: &Options) -> Outcome<[f64; 3]> {
    let name = format!("pando-bench-{}-cdds", std::process::id());
    let scratch = Scratch(options.directory.join(name));
    let mut store = kind.create(options, &scratch.0)?;
    let (mut value, mut got) = (vec![0xa5; options.value_bytes], Vec::new());
    let mut times = [0.0; 3];
    for (phase, time) in times.iter_mut().enumerate() {
        let started = Instant::now();
        for turn in 0..options.pairs {
            let number = number(turn, options.pairs, phase);
            let key = make_key(number);
            match phase {
                0 => {
                    let mark = options.value_bytes.min(4);
                    value[..mark].copy_from_slice(&number.to_le_bytes()[..mark]);
                    store.put(&key, &value)?;
                }
                1 => {
                    got.clear();
                    let store_name = kind.name();
                    if !store.get(&key, &mut got)? || got.len() != options.value_bytes {
                        let store = store_name;
                        return Err(CddsError::Lost { store, number });
                    }
                    black_box(&got);
                }
                _ => store.delete(&key)?,
            }
        }
        *time = started.elapsed().as_nanos() as f64 / f64::from(options.pairs);
    }
    Ok(times)
}

fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut figures = Vec::from_iter(figures);
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Prints all figures.
pub(crate) fn run(options: &Options) -> Outcome<()> {
    versions(options)?;
    wear::run(options)?;
    collection::run(options)?;
    threads(options)
}

fn versions(options: &Options) -> Outcome<()> {
    let mut times = vec![Vec::new(); Kind::ALL.len()];
    for _ in 0..options.rounds {
        for (times, kind) in times.iter_mut().zip(Kind::ALL) {
            times.push(measure(kind, options)?);
        }
    }
    let medians: Vec<[f64; 3]> = times
        .iter()
        .map(|rounds| [0, 1, 2].map(|phase| median(rounds.iter().map(|times| times[phase]))))
        .collect();
    println!(
        "{:<24} {:>8} {:>8} {:>8}   ns each",
        "", "put", "get", "delete"
    );
    for (kind, [put, get, delete]) in Kind::ALL.iter().zip(&medians) {
        println!("{:<24} {put:>8.0} {get:>8.0} {delete:>8.0}", kind.name());
    }
    // Fewer operations in a time, as the paper says it.
    for without in [Kind::OneEpoch, Kind::Plain] {
        let of = |kind: Kind| {
            medians[Kind::ALL
                .iter()
                .position(|other| *other == kind)
                .unwrap_or(0)]
        };
        let fewer =
            [0, 1, 2].map(|phase| 100.0 * (1.0 - of(without)[phase] / of(Kind::Volatile)[phase]));
        println!(
            "fewer than {}: {:.0} % of puts, {:.0} % of gets, {:.0} % of deletes \
             (the paper: 24, 13, 39)",
            without.name(),
            fewer[0],
            fewer[1],
            fewer[2]
        );
    }
    Ok(())
}

/// Gets and updates of one session and of two, in one tree of an engine.
fn threads(options: &Options) -> Outcome<()> {
    let place = pando_cdds::Options {
        bytes: (u64::from(options.pairs) * 512)
            .next_multiple_of(1 << 20)
            .max(64 << 20),
        ..pando_cdds::Options::default()
    };
    let engine = Cdds::open(Arc::new(EpochClock::self_driven()), place)?;
    let tree = engine.create_tree();
    let update = |session: &mut pando_cdds::CddsSession, key: &[u8]| {
        session.update(Key::new(tree, key), &mut NoHook, |_| {
            Decision::Write(NewValue::new(Body::string(b"8 bytes!")))
        });
    };
    let mut session = engine.session().expect("few sessions");
    for number in 0..options.pairs {
        update(&mut session, &make_key(number));
        if number % 1000 == 0 {
            session.maintain(1000);
        }
    }
    drop(session);
    let batches = options.pairs as usize / BATCH + 1;
    let measure = |threads: usize, is_get: bool| -> Ran {
        let worker = || engine.session().expect("few sessions");
        run_threads(threads, worker, |session, thread| {
            let mut random = fastrand::Rng::with_seed(thread as u64);
            let mut found = 0;
            for batch in 0..batches {
                session.pin();
                for _ in 0..BATCH {
                    let key = make_key(random.u32(..options.pairs));
                    if is_get {
                        let key = Key::new(tree, &key);
                        found += u64::from(session.get(key, |value| value.is_some()));
                    } else {
                        update(session, &key);
                    }
                }
                session.unpin();
                if !is_get && batch % 32 == 0 {
                    session.maintain(0);
                }
            }
            found
        })
    };
    for (what, is_get) in [("gets", true), ("updates", false)] {
        let mut ratios = [Vec::new(), Vec::new()];
        for _ in 0..options.rounds {
            let (one, two) = (measure(1, is_get), measure(2, is_get));
            // Each thread does as much as the one alone.
            ratios[0].push(2.0 * one.seconds / two.seconds);
            ratios[1].push(4.0 * one.cpu_seconds / two.cpu_seconds);
        }
        let [wall, cpu] = ratios.map(median);
        println!("{what} of two threads: {wall:.2} times one, by processor time {cpu:.2}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_runs() {
        let options = Options {
            pairs: 500,
            value_bytes: 100,
            rounds: 1,
            directory: PathBuf::from("/dev/shm"),
        };
        run(&options).unwrap();
    }

    #[test]
    fn every_phase_comes_to_every_pair_once() {
        for phase in 0..3 {
            let mut numbers: Vec<_> = (0..5_000).map(|turn| number(turn, 5_000, phase)).collect();
            numbers.sort_unstable();
            assert!(numbers.iter().copied().eq(0..5_000));
        }
        let mut keys: Vec<_> = (0..5_000).map(make_key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 5_000);
    }
}
