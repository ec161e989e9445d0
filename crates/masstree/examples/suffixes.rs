//! What a key's suffix costs where it is, in the block of its value, and what it would cost in a
//! bag of its node's, as the paper has it (§4.2).
//!
//! `cargo run --release -p pando-masstree --example suffixes -- [keys] [suffix bytes]`. The keys
//! begin with random slices, so that all trees have one shape. A bag is emulated beside a tree of
//! slices alone: a get also compares the suffix in an array of ten suffixes, that of its neighbours
//! in order. Where the bag is, the program either knows beforehand, so that its line is fetched
//! together with the node's and the bag costs less than it really would, or only from the value, so
//! that it costs more.

use std::hint::black_box;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::time::Instant;

use pando_engine::{
    Body, BodyRef, Decision, Direction, Engine, EpochClock, Key, LogEpoch, NewValue, NoHook,
    Ordered, Point, TreeId, ValueRef,
};
use pando_masstree::{Masstree, MasstreeSession};

const SLICE_BYTES: usize = 8;
const SUFFIX_BYTES_MAX: usize = 32;
/// Suffixes in a bag: what a node holds on average.
const BAG_KEYS: usize = 10;
const ROUNDS: usize = 5;
const PIN_KEYS: usize = 64;
const SCAN_KEYS: usize = 100;

/// A key and its place in order, which is also its value.
#[derive(Clone, Copy)]
struct Item {
    key: [u8; SLICE_BYTES + SUFFIX_BYTES_MAX],
    rank: u64,
}

/// The suffixes of neighbouring keys, on lines of their own.
#[repr(align(64))]
#[derive(Clone)]
struct Bag([[u8; SUFFIX_BYTES_MAX]; BAG_KEYS]);

/// A tree whose keys are the first bytes of the items' keys.
struct Keyed {
    session: MasstreeSession,
    tree: TreeId,
    bytes: usize,
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().ok());
    let count = arguments.next().flatten().unwrap_or(2_000_000);
    let suffix_bytes = arguments.next().flatten().unwrap_or(8);
    assert!(suffix_bytes <= SUFFIX_BYTES_MAX, "at most 32 bytes");
    let mut random = fastrand::Rng::with_seed(31_415);
    let mut items = drawn(count, &mut random);
    let bags = bags_of(&items);
    let key_bytes = SLICE_BYTES + suffix_bytes;
    let mut trees = [SLICE_BYTES, key_bytes].map(Keyed::new);
    random.shuffle(&mut items);
    for tree in &mut trees {
        tree.put(&items);
    }
    let [slices, whole] = &mut trees;
    for _ in 0..ROUNDS {
        random.shuffle(&mut items);
        let is_in = |bag: usize, item: &Item| {
            let suffix = &bags[bag / BAG_KEYS].0[bag % BAG_KEYS][..suffix_bytes];
            suffix == &item.key[SLICE_BYTES..key_bytes]
        };
        phase("get: no suffix", count, || {
            slices.get(&items, |_, _| true);
        });
        phase("get: in the block", count, || {
            whole.get(&items, |_, _| true);
        });
        phase("get: in a bag, known beforehand", count, || {
            slices.get(&items, |item, _| is_in(item.rank as usize, item));
        });
        phase("get: in a bag, known from the value", count, || {
            slices.get(&items, |item, value| is_in(value as usize, item));
        });
        phase("overwrite: no suffix", count, || slices.put(&items));
        phase("overwrite: in the block", count, || whole.put(&items));
        let starts = &items[..count / SCAN_KEYS];
        phase("scan: no suffix", count, || slices.scan(starts));
        phase("scan: in the block", count, || whole.scan(starts));
    }
}

/// Items with different slices, in order.
fn drawn(count: usize, random: &mut fastrand::Rng) -> Vec<Item> {
    let mut slices: Vec<u64> = (0..count).map(|_| random.u64(..)).collect();
    slices.sort_unstable();
    slices.dedup();
    let item = |(rank, slice): (usize, u64)| {
        let mut key = [0; SLICE_BYTES + SUFFIX_BYTES_MAX];
        random.fill(&mut key);
        key[..SLICE_BYTES].copy_from_slice(&slice.to_be_bytes());
        let rank = rank as u64;
        Item { key, rank }
    };
    slices.into_iter().enumerate().map(item).collect()
}

fn bags_of(items: &[Item]) -> Vec<Bag> {
    let bag = |items: &[Item]| {
        let mut bag = Bag([[0; SUFFIX_BYTES_MAX]; BAG_KEYS]);
        for (suffix, item) in bag.0.iter_mut().zip(items) {
            suffix.copy_from_slice(&item.key[SLICE_BYTES..]);
        }
        bag
    };
    items.chunks(BAG_KEYS).map(bag).collect()
}

fn phase<R>(name: &str, operations: usize, run: impl FnOnce() -> R) {
    let start = Instant::now();
    black_box(run());
    let nanoseconds = start.elapsed().as_nanos() as f64 / operations as f64;
    println!("{name}: {nanoseconds:.1} ns");
}

fn number_in(value: ValueRef<'_>) -> u64 {
    match value.body {
        BodyRef::String(string) => {
            let bytes = string.as_flat().and_then(|bytes| bytes.first_chunk());
            u64::from_le_bytes(*bytes.expect("eight bytes were put"))
        }
        BodyRef::Row(..) => unreachable!("strings were put"),
    }
}

impl Keyed {
    fn new(bytes: usize) -> Self {
        let engine = Masstree::new(Arc::new(EpochClock::starting_at(LogEpoch(1))));
        let tree = engine.create_tree();
        let session = engine.session().expect("the first session");
        Self {
            session,
            tree,
            bytes,
        }
    }

    fn put(&mut self, items: &[Item]) {
        self.each(items, |session, key, item| {
            let value = item.rank.to_le_bytes();
            session.update(key, &mut NoHook, |_| {
                Decision::Write(NewValue::new(Body::string(&value)))
            });
        });
    }

    fn get(&mut self, items: &[Item], mut is_it: impl FnMut(&Item, u64) -> bool) {
        let mut found = 0;
        self.each(items, |session, key, item| {
            let value = session.get(key, |value| value.map(number_in));
            found += usize::from(value.is_some_and(|value| is_it(item, value)));
        });
        assert_eq!(found, items.len(), "every key was put");
    }

    fn scan(&mut self, starts: &[Item]) {
        let (mut sum, tree) = (0, self.tree);
        self.each(starts, |session, key, _| {
            let (start, mut left) = (Bound::Included(key.bytes), SCAN_KEYS);
            session.scan(tree, start, Direction::Forward, |key, value| {
                sum += u64::from(key[key.len() - 1]) ^ number_in(value);
                left -= 1;
                if left == 0 {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            });
        });
        black_box(sum);
    }

    /// One pin per [`PIN_KEYS`] items.
    fn each(
        &mut self,
        items: &[Item],
        mut operate: impl FnMut(&mut MasstreeSession, Key<'_>, &Item),
    ) {
        for items in items.chunks(PIN_KEYS) {
            self.session.pin();
            for item in items {
                let key = Key::new(self.tree, &item.key[..self.bytes]);
                operate(&mut self.session, key, item);
            }
            self.session.unpin();
        }
    }
}
