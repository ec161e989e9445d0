//! Commits of a key follow each other, also across removal, purge and insertion (E1 atomic-update,
//! E2 versions-grow, E3 hook-once).

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Mutex, TryLockError};

use super::{Arena, for_each_family, number_body, number_of, short};
use crate::conformance::model::Verdict;
use crate::conformance::{Failure, Plan, Subject};
use crate::{CommitHook, Decision, Engine, Key, NewValue, Point, Probe, ValueRef, ValueVersion};

const KEYS: u16 = 28;
const ROUNDS: usize = 80;
const ROUND_UPDATES: usize = 16;

/// The last commit of a key.
#[derive(Default)]
struct Link {
    version: Option<ValueVersion>,
    number: Option<u64>,
}

type Links = HashMap<Vec<u8>, Mutex<Link>>;

/// A hook that ties each commit to the one before it.
struct Chain<'l> {
    links: &'l Links,
    /// What the closure saw when it decided.
    shown: &'l Cell<Option<ValueVersion>>,
    verdict: Verdict,
    commits: usize,
}

impl CommitHook for Chain<'_> {
    fn committed(
        &mut self,
        key: Key<'_>,
        old: Option<ValueRef<'_>>,
        new: Option<ValueRef<'_>>,
        version: ValueVersion,
    ) {
        self.commits += 1;
        let result = self.follow(key.bytes, old, new, version);
        self.verdict
            .note(result.map_err(|what| format!("commit of {}: {what}", short(key.bytes))));
    }
}

impl Chain<'_> {
    fn follow(
        &self,
        key: &[u8],
        old: Option<ValueRef<'_>>,
        new: Option<ValueRef<'_>>,
        version: ValueVersion,
    ) -> Result<(), String> {
        let link = self.links.get(key).ok_or("a key that nobody writes")?;
        let mut link = match link.try_lock() {
            Ok(link) => link,
            Err(TryLockError::WouldBlock) => return Err("two hooks of one key at once (E3)".into()),
            Err(TryLockError::Poisoned(error)) => return Err(error.to_string()),
        };
        if Some(version) <= link.version {
            return Err(format!("version {version:?} after {:?} (E2)", link.version));
        }
        if old.map(|old| old.version) != self.shown.get() {
            return Err(format!("decided on {:?} (E1)", self.shown.get()));
        }
        let replaced = old.map(|old| number_of(&old)).transpose()?;
        if replaced != link.number {
            return Err(format!(
                "replaces {replaced:?}, but {:?} is there (E1)",
                link.number
            ));
        }
        if old.is_some_and(|old| Some(old.version) != link.version) {
            return Err("the old value's version is not that of its commit".into());
        }
        if new.is_some_and(|new| new.version != version) {
            return Err("the new value's version is not that of its commit".into());
        }
        let number = new.map(|new| number_of(&new)).transpose()?;
        *link = Link {
            version: Some(version),
            number,
        };
        Ok(())
    }
}

struct Worker {
    rng: fastrand::Rng,
    number: u64,
    count: u64,
    /// The last version seen of each key.
    seen: [Option<ValueVersion>; KEYS as usize],
}

impl Worker {
    /// Updates a key in some way; returns how many commits that made.
    fn update(
        &mut self,
        session: &mut impl Point,
        number: u16,
        key: Key<'_>,
        hook: &mut Chain<'_>,
    ) -> Result<usize, String> {
        self.count += 1;
        let written = self.count << 8 | self.number;
        let (choice, length) = (self.rng.u8(..10), self.rng.usize(..300));
        let shown = hook.shown;
        let version = session.update(key, hook, |old| {
            shown.set(old.map(|old| old.version));
            match choice {
                0 => Decision::Keep,
                1..5 => Decision::Remove,
                _ => Decision::Write(NewValue::new(number_body(written, length))),
            }
        });
        if choice == 0 && version.is_some() {
            return Err("a key that is kept draws a version".into());
        }
        let seen = &mut self.seen[usize::from(number)];
        if version.is_some() && version <= *seen {
            return Err(format!("commits {version:?} having seen {seen:?} (E2)"));
        }
        *seen = version.or(*seen);
        Ok(usize::from(version.is_some()))
    }

    /// Probes a key: its state is not older than what was seen, and a tombstone that was seen is
    /// gone only below the horizon.
    fn probe<E: Engine<Session: Subject>>(
        &mut self,
        arena: &Arena<E>,
        session: &mut E::Session,
        number: u16,
        key: Key<'_>,
    ) -> Result<(), String> {
        let found = session.probe(key);
        let seen = &mut self.seen[usize::from(number)];
        let right = match found {
            Probe::Absent => seen.is_none_or(|seen| seen.epoch() < arena.clock.horizon()),
            Probe::Removed(version) | Probe::Present { version, .. } => {
                let last = seen.replace(version);
                Some(version) >= last
            }
        };
        if right {
            Ok(())
        } else {
            Err(format!("probe says {found:?} having seen {seen:?}"))
        }
    }
}

/// Each commit of a key replaces what the previous one left, with a greater version and one hook,
/// while tombstones are purged as early as allowed.
pub fn commits_form_a_chain<E: Engine<Session: Subject>>(plan: &Plan) -> Result<(), Failure> {
    for_each_family(plan, "commits_form_a_chain", |family, name| {
        let arena = Arena::<E>::new(plan);
        let links: Links = (0..KEYS)
            .map(|key| (family.key(key), Mutex::default()))
            .collect();
        let begin = |worker: usize| Worker {
            rng: plan.rng(&format!("{name} {worker}")),
            number: worker as u64,
            count: 0,
            seen: [None; KEYS as usize],
        };
        arena.race(ROUNDS, begin, |worker, session| {
            let shown = Cell::new(None);
            let verdict = Verdict::default();
            let mut hook = Chain {
                links: &links,
                shown: &shown,
                verdict,
                commits: 0,
            };
            let mut committed = 0;
            for _ in 0..ROUND_UPDATES {
                let number = worker.rng.u16(..KEYS);
                let bytes = family.key(number);
                let key = Key::new(arena.tree, &bytes);
                if worker.rng.u8(..4) == 0 {
                    worker.probe(&arena, session, number, key)?;
                } else {
                    committed += worker.update(session, number, key, &mut hook)?;
                }
            }
            if hook.commits != committed {
                return Err(format!(
                    "{} hooks of {committed} commits (E3)",
                    hook.commits
                ));
            }
            hook.verdict.into_result()
        })?;
        let mut session = arena.session();
        let mut present = 0;
        for (key, link) in links {
            let link = link.into_inner().map_err(|error| error.to_string())?;
            let found = session.get(Key::new(arena.tree, &key), |found| {
                let version = found.map(|found| found.version);
                found
                    .map(|found| number_of(&found))
                    .transpose()
                    .map(|number| (version, number))
            })?;
            let expected = (link.version.filter(|_| link.number.is_some()), link.number);
            if found != expected {
                return Err(format!("{} holds {found:?}, not {expected:?}", short(&key)));
            }
            present += usize::from(link.number.is_some());
        }
        let keys = arena.settled()?.len();
        if keys == present {
            Ok(())
        } else {
            Err(format!("{keys} keys, {present} were written"))
        }
    })
}
