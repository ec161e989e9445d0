//! Names of removed keys, beside what was removed.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;

use super::*;
use crate::NamesRead;
use crate::canary::{Fault, plant};

/// A pool, its clock, and what its tree held at the end of each epoch.
struct Pool {
    file: PoolFile,
    clock: Arc<EpochClock>,
    engine: Arc<Cdds>,
    tree: TreeId,
    held: BTreeMap<LogEpoch, BTreeSet<Vec<u8>>>,
    now: BTreeSet<Vec<u8>>,
}

impl Pool {
    fn new(name: &str) -> Self {
        let file = PoolFile::new(name);
        let (clock, engine) = file.open().expect("a pool");
        let tree = engine.create_tree();
        engine
            .remember_removed(clock.current().previous())
            .expect("there is room");
        let mut pool = Self {
            file,
            clock,
            engine,
            tree,
            held: BTreeMap::new(),
            now: BTreeSet::new(),
        };
        pool.commit();
        pool
    }

    fn commit(&mut self) {
        let closed = self.clock.current();
        self.clock.rise_to(closed.next());
        self.engine.commit(closed).expect("there is room");
        self.held.insert(closed, self.now.clone());
    }

    /// The process dies.
    fn crash(&mut self) {
        let other = PoolFile::new(&format!("crashed-{}", fastrand::u64(..)));
        std::fs::copy(&self.file.0, &other.0).expect("there is room");
        let (clock, engine) = other.open().expect("a pool");
        let found = engine.found();
        self.held.retain(|epoch, _| *epoch <= found);
        let last = self.held.values().next_back();
        self.now = last.cloned().unwrap_or_default();
        (self.file, self.clock, self.engine) = (other, clock, engine);
    }

    fn write(&mut self, random: &mut Rng) {
        let mut session = self.engine.session().expect("few sessions");
        let number = random.u32(0..200);
        let key = format!("key-{number}").into_bytes();
        let at = Key::new(self.tree, &key);
        if random.bool() {
            let value = format!("value {number}");
            let written = session.update(at, &mut NoHook, |_| {
                Decision::Write(NewValue::new(Body::string(value.as_bytes())))
            });
            assert!(written.is_some());
            self.now.insert(key);
        } else {
            session.update(at, &mut NoHook, |_| Decision::Remove);
            self.now.remove(&key);
        }
    }

    /// CQ1 named-with, CQ2 known-gap: whoever stands at an epoch finds the names of what has gone.
    fn check(&self) -> Result<usize, String> {
        let since = self.engine.removed_since().ok_or("nothing is remembered")?;
        let mut checked = 0;
        for (epoch, held) in self.held.range(since..) {
            let (mut names, mut at) = (BTreeSet::new(), Some(NamesRead::behind(*epoch)));
            while let Some(from) = at {
                at = self.engine.removed(from, |key| {
                    assert_eq!(key.tree, self.tree);
                    names.insert(key.bytes.to_vec());
                });
            }
            if let Some(missed) = held.difference(&self.now).find(|key| !names.contains(*key)) {
                let missed = String::from_utf8_lossy(missed);
                return Err(format!("{missed} has gone since epoch {epoch}"));
            }
            checked += 1;
        }
        Ok(checked)
    }
}

fn run(seed: u64) -> Result<usize, String> {
    let mut random = Rng::with_seed(seed);
    let mut pool = Pool::new(&format!("removed-{seed}-{}", fastrand::u64(..)));
    let mut checked = 0;
    for _ in 0..random.usize(20..200) {
        match random.u32(0..100) {
            0..=79 => (0..random.usize(1..40)).for_each(|_| pool.write(&mut random)),
            80..=83 => {
                let bytes_max = random.u64(0..20_000);
                pool.engine.set_removed_bytes_max(bytes_max);
            }
            84..=85 => {
                pool.engine.give_up_removed();
            }
            86..=89 => pool.crash(),
            _ => {
                pool.commit();
                checked += pool.check()?;
            }
        }
    }
    Ok(checked)
}

#[test]
fn whatever_has_gone_is_named() {
    let mut checked = 0;
    for seed in 0..60 {
        checked += run(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    assert!(checked > 1000, "{checked}");
}

#[test]
fn a_name_that_is_missing_is_noticed() {
    for fault in [Fault::Unnamed, Fault::GapUnknown] {
        plant(Some(fault));
        let noticed = (0..60).any(|seed| run(seed).is_err());
        plant(None);
        assert!(noticed, "{fault:?}");
    }
}

/// A restart finds what was known, and nothing of what was not committed.
#[test]
fn names_last_as_long_as_their_removals() {
    let mut pool = Pool::new("removed-lasts");
    let mut random = Rng::with_seed(7);
    for _ in 0..300 {
        pool.write(&mut random);
    }
    pool.commit();
    let (since, bytes) = (pool.engine.removed_since(), pool.engine.removed_bytes());
    assert!(since.is_some() && bytes > 0);
    pool.write(&mut random);
    pool.crash();
    assert_eq!(pool.engine.removed_since(), since);
    assert_eq!(pool.engine.removed_bytes(), bytes);
    assert!(pool.check().is_ok_and(|checked| checked > 0));
}

/// They are bounded, and give way to what has no room.
#[test]
fn names_take_no_more_than_they_may() {
    let mut pool = Pool::new("removed-bounded");
    let mut random = Rng::with_seed(8);
    pool.engine.set_removed_bytes_max(10_000);
    for _ in 0..100 {
        for _ in 0..200 {
            pool.write(&mut random);
        }
        pool.commit();
        assert!(pool.engine.removed_bytes() <= 10_000);
        pool.check().expect("what is known is right");
    }
    assert!(pool.engine.removed_since() > pool.held.keys().next().copied());
    while pool.engine.give_up_removed() {}
    pool.commit();
    assert_eq!(pool.engine.removed_bytes(), 0);
    pool.check().expect("what is known is right");
}
