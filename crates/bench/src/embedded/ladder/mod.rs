//! The ladder of the Masstree paper's figure 8: from a binary tree to Masstree, one design feature
//! at a time, and two steps of our own after it.
//!
//! | rung | what it adds |
//! |---|---|
//! | `binary` | a lock-free binary tree, keys of up to 16 bytes compared as bytes |
//! | `intcmp` | keys compared as two integers (§4.2) |
//! | `four-tree` | fanout 4: the first line of a node is all that a descent needs |
//! | `b-tree` | a B+-tree of fanout 15 with versions and locks, nodes that shift their keys |
//! | `prefetch` | all lines of a node asked for at once |
//! | `permuter` | leaves that publish an insert by one word (§4.6.2) |
//! | `masstree` | the engine, on ordinary pages |
//! | `huge-pages` | the engine as it is by default |
//! | `batching` | gets, 32 at a time, their descents interleaved (§4.8) |
//!
//! `single` and `fixed` are the B-tree of `permuter` without interlocked instructions and version
//! checks, and for keys of 8 bytes only (§6.4).
//!
//! Departures: the trees below Masstree are safe Rust, nodes in arenas named by 32-bit indices, so
//! that there is no allocator to compare (the paper's `+Flow`); their B-tree couples versions on
//! the way down and splits full nodes ahead instead of locking upwards; a prefetch is a load of one
//! word per line, which the processor overlaps. Nothing is ever removed.

mod arena;
mod binary;
mod btree;
mod four;

use clap::{Args, ValueEnum};

use super::EmbeddedError;
use super::keys::{KeyShape, Keys, value_of};
use super::targets::{Masstree, MasstreeSmall, Target, Worker};
use super::threads::{on_threads, print_rate, share};

pub(super) use binary::Binary;
pub(super) use btree::BTree;
pub(super) use four::FourTree;

/// Keys of one batched get.
const BATCH: usize = 32;

/// A rung of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Rung {
    Binary,
    Intcmp,
    FourTree,
    BTree,
    Prefetch,
    Permuter,
    Masstree,
    HugePages,
    Batching,
    Single,
    Fixed,
}

impl Rung {
    pub(crate) fn name(self) -> String {
        self.to_possible_value()
            .expect("no variant is hidden")
            .get_name()
            .to_owned()
    }
}

/// Keys of up to `8 * WORDS` bytes as integers whose order is that of the keys. Keys that end in
/// zero bytes would coincide with shorter ones; the workloads have none.
pub(super) fn words<const WORDS: usize>(key: &[u8]) -> [u64; WORDS] {
    assert!(key.len() <= 8 * WORDS, "key of {} bytes", key.len());
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(key.chunks(8)) {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_be_bytes(padded);
    }
    words
}

/// Puts into an empty tree, then gets: one rung, in this process.
#[derive(Debug, Args)]
pub(crate) struct LadderOptions {
    #[arg(long, value_enum)]
    rung: Rung,
    #[arg(long)]
    keys: usize,
    #[arg(long, value_enum, default_value = "decimal")]
    shape: KeyShape,
    /// Keys of so many bytes instead, of which only the last 8, digits, differ.
    #[arg(long, value_parser = clap::value_parser!(u16).range(8..=16))]
    key_bytes: Option<u16>,
    #[arg(long)]
    threads: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run_ladder(options: &LadderOptions) -> Result<(), EmbeddedError> {
    match options.rung {
        Rung::Binary => measure::<Binary<false>>(options),
        Rung::Intcmp => measure::<Binary<true>>(options),
        Rung::FourTree => measure::<FourTree>(options),
        Rung::BTree => measure::<BTree<2, false, false, true>>(options),
        Rung::Prefetch => measure::<BTree<2, true, false, true>>(options),
        Rung::Permuter => measure::<BTree<2, true, true, true>>(options),
        Rung::Masstree => measure::<MasstreeSmall>(options),
        Rung::HugePages | Rung::Batching => measure::<Masstree>(options),
        Rung::Single => measure::<BTree<2, true, true, false>>(options),
        Rung::Fixed => measure::<BTree<1, true, true, true>>(options),
    }
}

fn measure<T: Target>(options: &LadderOptions) -> Result<(), EmbeddedError> {
    let LadderOptions { rung, threads, .. } = *options;
    if rung == Rung::Single && threads > 1 {
        return Err(EmbeddedError::OneThread);
    }
    let keys = match options.key_bytes {
        Some(bytes) => Keys::behind_prefix(bytes.into(), options.keys, options.seed),
        None => Keys::draw(options.shape, options.keys, options.seed),
    };
    let order = keys.shuffled(options.seed + 1);
    let target = T::new();
    let work = |worker: &mut T::Worker<'_>, thread| {
        for index in share(keys.len(), threads, thread) {
            let key = keys.get(index);
            worker.put(key, value_of(key));
        }
        0
    };
    let (seconds, _) = on_threads(threads, || target.worker(), work);
    print_rate("put, million/s", keys.len(), seconds);

    let batch = if rung == Rung::Batching { BATCH } else { 1 };
    let work = |worker: &mut T::Worker<'_>, thread| {
        let share = share(order.len(), threads, thread);
        let mut sum = 0_u64;
        if batch == 1 {
            for index in share {
                sum = sum.wrapping_add(worker.get(order.get(index)).unwrap_or(0));
            }
            return sum;
        }
        let mut gathered = Vec::with_capacity(batch);
        for index in share {
            gathered.push(order.get(index));
            if gathered.len() == batch {
                sum = sum.wrapping_add(worker.get_batch(&gathered));
                gathered.clear();
            }
        }
        sum.wrapping_add(worker.get_batch(&gathered))
    };
    let (seconds, sum) = on_threads(threads, || target.worker(), work);
    let expected = (0..keys.len()).fold(0_u64, |sum, at| sum.wrapping_add(value_of(keys.get(at))));
    if sum != expected {
        return Err(EmbeddedError::WrongSum {
            what: rung.name(),
            got: sum,
            expected,
        });
    }
    print_rate("get, million/s", keys.len(), seconds);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn agrees_with_a_map<T: Target>(name: &str) {
        const KEYS: u64 = 6000;
        let target = T::new();
        let mut worker = target.worker();
        let mut map = BTreeMap::new();
        let mut random = fastrand::Rng::with_seed(9);
        for serial in 0..KEYS {
            let key = random.u32(..20_000).to_string();
            worker.put(key.as_bytes(), serial);
            map.insert(key, serial);
        }
        for number in 0..20_000 {
            let key = number.to_string();
            assert_eq!(
                worker.get(key.as_bytes()),
                map.get(&key).copied(),
                "{name} {key}"
            );
        }
    }

    fn keeps_what_threads_put<T: Target>(name: &str) {
        const PER_THREAD: u64 = 8000;
        let target = T::new();
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let target = &target;
                scope.spawn(move || {
                    let mut worker = target.worker();
                    for number in 0..PER_THREAD {
                        // Neighbours of one another, from every thread.
                        let key = (3 * number + thread).to_string();
                        worker.put(key.as_bytes(), number);
                        assert_eq!(worker.get(key.as_bytes()), Some(number), "{name} {key}");
                    }
                });
            }
        });
        let mut worker = target.worker();
        for number in 0..3 * PER_THREAD {
            let key = number.to_string();
            assert_eq!(worker.get(key.as_bytes()), Some(number / 3), "{name} {key}");
        }
    }

    #[test]
    fn every_rung_is_a_map() {
        agrees_with_a_map::<Binary<false>>("binary");
        agrees_with_a_map::<Binary<true>>("intcmp");
        agrees_with_a_map::<FourTree>("four-tree");
        agrees_with_a_map::<BTree<2, false, false, true>>("b-tree");
        agrees_with_a_map::<BTree<2, true, false, true>>("prefetch");
        agrees_with_a_map::<BTree<2, true, true, true>>("permuter");
        agrees_with_a_map::<BTree<2, true, true, false>>("single");
        agrees_with_a_map::<BTree<1, true, true, true>>("fixed");
        agrees_with_a_map::<MasstreeSmall>("masstree");
    }

    #[test]
    fn every_shared_rung_keeps_what_threads_put() {
        keeps_what_threads_put::<Binary<false>>("binary");
        keeps_what_threads_put::<Binary<true>>("intcmp");
        keeps_what_threads_put::<FourTree>("four-tree");
        keeps_what_threads_put::<BTree<2, false, false, true>>("b-tree");
        keeps_what_threads_put::<BTree<2, true, true, true>>("permuter");
        keeps_what_threads_put::<BTree<1, true, true, true>>("fixed");
        keeps_what_threads_put::<MasstreeSmall>("masstree");
    }

    #[test]
    fn words_are_ordered_as_their_keys() {
        let mut keys: Vec<String> = (0..3000_u64).map(|n| (n * 7_919_113).to_string()).collect();
        keys.sort();
        assert!(
            keys.windows(2)
                .all(|pair| { words::<2>(pair[0].as_bytes()) < words::<2>(pair[1].as_bytes()) })
        );
    }
}
