//! Gets per second of one thread and of two, without a writer and beside one.
//!
//! `cargo run --release -p pando-cdds --example readers`

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pando_cdds::{Reader, Tree, limits};
use pando_pmem::{Mapped, Pool, Shape};

const PAIRS: u64 = 1_000_000;
const POOL_BYTES: u64 = 1 << 30;
const TIME: Duration = Duration::from_millis(800);
const ROUNDS: usize = 5;

fn key(number: u64) -> [u8; 8] {
    // In no order.
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn read(reader: &mut Reader<Mapped>, seed: u64) -> u64 {
    let mut random = seed;
    let (begin, mut gets) = (Instant::now(), 0);
    while begin.elapsed() < TIME {
        for _ in 0..100 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let key = key((random >> 20) % PAIRS);
            let found = reader.get(&key, |value| value.is_some());
            assert!(found.expect("it is whole"), "it was put");
        }
        gets += 100;
    }
    gets
}

/// Gets per second of so many threads.
fn measure(tree: &Tree<Mapped>, threads: u64) -> f64 {
    let gets: u64 = thread::scope(|scope| {
        let spawn = |seed| {
            let mut reader = tree.reader().expect("few readers");
            scope.spawn(move || read(&mut reader, seed))
        };
        let readers: Vec<_> = (1..=threads).map(spawn).collect();
        let gets = readers.into_iter().map(thread::ScopedJoinHandle::join);
        gets.map(|gets| gets.expect("no panic")).sum()
    });
    gets as f64 / TIME.as_secs_f64()
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() {
    let memory = Mapped::anonymous(POOL_BYTES).expect("memory");
    let shape = Shape::with_nodes(limits::node_bytes(limits::ENTRIES));
    let pool = Pool::create(memory, shape).expect("a pool");
    let mut tree = Tree::open(Arc::new(pool)).expect("a tree");
    for number in 0..PAIRS {
        tree.put(&key(number), &number.to_le_bytes()).expect("room");
        if number % 1000 == 0 {
            tree.commit().expect("memory takes it");
        }
    }
    tree.commit().expect("memory takes it");
    let (mut one, mut two) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        one.push(measure(&tree, 1));
        two.push(measure(&tree, 2));
    }
    let (one, two) = (median(one), median(two));
    println!("one reader   {one:>12.0} gets/s");
    println!(
        "two readers  {two:>12.0} gets/s, {:.2} times one",
        two / one
    );
    let mut reader = tree.reader().expect("few readers");
    let is_over = Arc::new(AtomicBool::new(false));
    let (gets, puts) = thread::scope(|scope| {
        let reads = scope.spawn(|| {
            let gets = read(&mut reader, 1);
            is_over.store(true, Ordering::Relaxed);
            gets
        });
        let mut puts = 0_u64;
        while !is_over.load(Ordering::Relaxed) {
            tree.put(&key(puts % PAIRS), b"8 bytes!").expect("room");
            tree.commit().expect("memory takes it");
            puts += 1;
        }
        (reads.join().expect("no panic"), puts)
    });
    let per_second = |count: u64| count as f64 / TIME.as_secs_f64();
    println!(
        "beside a writer: {:.0} gets/s, {:.0} puts/s, each committed",
        per_second(gets),
        per_second(puts)
    );
}
