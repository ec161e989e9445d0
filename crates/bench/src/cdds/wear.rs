//! What each operation sends to memory that wears out: bytes that were stored to, the lines they
//! lie in, flushes and fences.
//!
//! Bytes and lines are those of a mapping; flushes and fences are counted by simulated memory,
//! where there are fewer pairs, since it remembers every store.

use std::sync::Arc;

use pando_pmem::{Mapped, Medium, Pmem, Pool, Protection, Simulated};

use super::{Kind, Options, Outcome, Scratch, Store, make_key};

const KINDS: [Kind; 3] = [Kind::Tree, Kind::Sorted, Kind::Table];

const OPERATIONS: [&str; 4] = ["put", "put again", "get", "delete"];

/// Pairs of which every store is remembered.
const REMEMBERED: u32 = 500;

/// Calls `told` after so many of each operation.
fn of_each(store: &mut dyn Store, pairs: u32, bytes: usize, mut told: impl FnMut()) -> Outcome<()> {
    let (value, mut got) = (vec![0xa5; bytes], Vec::new());
    for operation in OPERATIONS {
        for number in 0..pairs {
            let key = make_key(number);
            match operation {
                "get" => {
                    got.clear();
                    store.get(&key, &mut got)?;
                }
                "delete" => store.delete(&key)?,
                _ => store.put(&key, &value)?,
            }
        }
        told();
    }
    Ok(())
}

/// What was added from each figure to the next, by pair.
fn differences(figures: &[[u64; 2]], pairs: u32) -> Vec<[f64; 2]> {
    let steps = figures.windows(2);
    steps
        .map(|pair| [0, 1].map(|index| (pair[1][index] - pair[0][index]) as f64 / f64::from(pairs)))
        .collect()
}

/// Bytes and lines of each operation.
fn written(kind: Kind, options: &Options) -> Outcome<Vec<[f64; 2]>> {
    let name = format!("pando-bench-{}-{}-wear", std::process::id(), options.pairs);
    let scratch = Scratch(options.directory.join(name));
    let bytes = (64 << 20) + u64::from(options.pairs) * (options.value_bytes as u64 * 4 + 2048);
    let bytes = bytes.next_multiple_of(1 << 20);
    let memory = Mapped::create(&scratch.0, bytes, Medium::Rehearsal, Protection::None)?;
    let pool = Arc::new(Pool::create(memory, kind.shape())?);
    let mut store = kind.within(Arc::clone(&pool))?;
    let figures = || {
        let wear = pool.memory().wear();
        [wear.bytes, wear.lines]
    };
    let mut told = vec![figures()];
    of_each(&mut *store, options.pairs, options.value_bytes, || {
        told.push(figures());
    })?;
    Ok(differences(&told, options.pairs))
}

/// Flushes and fences of each operation.
fn waited(kind: Kind, options: &Options) -> Outcome<Vec<[f64; 2]>> {
    let pairs = options.pairs.min(REMEMBERED);
    let value_bytes = options.value_bytes.min(100);
    let memory = Simulated::recording(vec![0; (16 << 20) / 8]);
    let pool = Arc::new(Pool::create(memory, kind.shape())?);
    let mut store = kind.within(Arc::clone(&pool))?;
    let figures = || {
        let marks = pool.memory().trace().marks();
        marks.iter().fold([0, 0], |[flushes, fences], mark| {
            [flushes + mark.flushes as u64, fences + mark.fences as u64]
        })
    };
    let mut told = vec![figures()];
    of_each(&mut *store, pairs, value_bytes, || told.push(figures()))?;
    Ok(differences(&told, pairs))
}

pub(super) fn run(options: &Options) -> Outcome<()> {
    println!(
        "{:<24} {:>10} {:>8} {:>8} {:>8} {:>8}",
        "", "", "bytes", "lines", "flushes", "fences"
    );
    for kind in KINDS {
        let (written, waited) = (written(kind, options)?, waited(kind, options)?);
        for (operation, (written, waited)) in OPERATIONS.iter().zip(written.iter().zip(&waited)) {
            let ([bytes, lines], [flushes, fences]) = (written, waited);
            let name = kind.name();
            println!(
                "{name:<24} {operation:>10} {bytes:>8.0} {lines:>8.1} {flushes:>8.1} {fences:>8.1}"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An operation that changes something is durable when it returns, so it has waited; one that
    /// changes nothing has nothing to wait for.
    #[test]
    fn whoever_changes_waits_and_whoever_reads_does_not() {
        let options = Options {
            pairs: 200,
            value_bytes: 100,
            rounds: 1,
            directory: "/dev/shm".into(),
        };
        for kind in KINDS {
            for figures in [written(kind, &options), waited(kind, &options)] {
                let figures = figures.unwrap();
                for (operation, of_operation) in OPERATIONS.iter().zip(figures) {
                    let writes = *operation != "get";
                    assert!(
                        of_operation.iter().all(|figure| (*figure >= 1.0) == writes),
                        "{kind:?}: {operation} {of_operation:?}"
                    );
                }
            }
        }
    }
}
