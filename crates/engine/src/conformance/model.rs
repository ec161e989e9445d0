//! The model of an engine: sorted maps, and the versions that V1 version-draw requires.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use super::Subject;
use super::values::{Applied, Content, Prepared, compare, compare_replaced};
use crate::{
    Attributes, CommitHook, Direction, Key, LogEpoch, Probe, TreeId, ValueRef, ValueVersion,
};

/// A value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) version: ValueVersion,
    pub(super) attributes: Attributes,
    pub(super) content: Arc<Content>,
}

/// A tree.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) live: BTreeMap<Vec<u8>, Entry>,
    /// Removed keys with the versions of their removal.
    pub(super) removed: BTreeMap<Vec<u8>, ValueVersion>,
}

/// What one update is expected to do.
#[derive(Debug)]
pub(super) struct Expected {
    key: Vec<u8>,
    old: Option<Entry>,
    new: Option<Entry>,
    /// `None` keeps.
    pub(super) version: Option<ValueVersion>,
}

impl Tree {
    /// Applies a change in `epoch`.
    pub(super) fn update(
        &mut self,
        key: &[u8],
        change: &Prepared<'_>,
        epoch: LogEpoch,
    ) -> Expected {
        let old = self.live.get(key).cloned();
        let mut expected = Expected {
            key: key.to_vec(),
            old,
            new: None,
            version: None,
        };
        let applied = change.apply(expected.old.as_ref());
        if matches!(applied, Applied::Keep) {
            return expected;
        }
        let last = expected.old.as_ref().map(|old| old.version);
        let version = ValueVersion::after(last.or(self.removed.remove(key)), epoch);
        expected.version = Some(version);
        if let Applied::Write(content, attributes) = applied {
            let new = Entry {
                version,
                attributes,
                content,
            };
            expected.new = Some(new.clone());
            self.live.insert(key.to_vec(), new);
        } else {
            self.live.remove(key);
            self.removed.insert(key.to_vec(), version);
        }
        expected
    }

    /// Whether the key's probe is right. Tombstones below `horizon` may be gone; with `purged` they
    /// must be.
    pub(super) fn check_probe(
        &self,
        key: &[u8],
        found: Probe,
        horizon: LogEpoch,
        purged: bool,
    ) -> Result<(), String> {
        let right = match (self.live.get(key), self.removed.get(key)) {
            (Some(entry), _) => {
                let (version, deadline) = (entry.version, entry.attributes.deadline);
                found == Probe::Present { version, deadline }
            }
            (None, Some(version)) => {
                let removed = found == Probe::Removed(*version);
                let absent = found == Probe::Absent;
                if version.epoch() < horizon {
                    absent || removed && !purged
                } else {
                    removed
                }
            }
            (None, None) => found == Probe::Absent,
        };
        if right {
            return Ok(());
        }
        let (live, removed) = (
            self.live.get(key).map(|entry| entry.version),
            self.removed.get(key),
        );
        Err(format!(
            "probe of {} says {found:?}; {live:?}, {removed:?}",
            short(key)
        ))
    }

    /// Scans the engine's tree and this one; both must show the same.
    pub(super) fn check_scan(
        &self,
        session: &mut impl Subject,
        tree: TreeId,
        from: Bound<&[u8]>,
        direction: Direction,
        limit: usize,
    ) -> Result<(), String> {
        let mut expected: Box<dyn Iterator<Item = _>> = match direction {
            Direction::Forward => Box::new(self.live.range::<[u8], _>((from, Bound::Unbounded))),
            Direction::Backward => {
                Box::new(self.live.range::<[u8], _>((Bound::Unbounded, from)).rev())
            }
        };
        let mut verdict = Verdict::default();
        let (mut shown, mut over) = (0, false);
        if limit > 0 {
            session.list(tree, from, direction, |key, value| {
                if over {
                    verdict.note(Err(format!("{} after the break", short(key))));
                }
                let next = expected.next();
                verdict.note(match next {
                    Some((expected, entry)) if expected == key => compare(Some(value), Some(entry)),
                    Some((expected, _)) => {
                        Err(format!("{} instead of {}", short(key), short(expected)))
                    }
                    None => Err(format!("{} beyond the end", short(key))),
                });
                shown += 1;
                over |= shown == limit || verdict.0.is_some();
                if over {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
        }
        if shown < limit
            && verdict.0.is_none()
            && let Some((missing, _)) = expected.next()
        {
            verdict.note(Err(format!("{} is missing", short(missing))));
        }
        let from = from.map(short);
        verdict
            .into_result()
            .map_err(|what| format!("{direction:?} scan from {from:?}: {what}"))
    }

    /// Checks all answers about the tree.
    pub(super) fn check(
        &self,
        session: &mut impl Subject,
        tree: TreeId,
        horizon: LogEpoch,
        purged: bool,
    ) -> Result<(), String> {
        for direction in [Direction::Forward, Direction::Backward] {
            self.check_scan(session, tree, Bound::Unbounded, direction, usize::MAX)?;
        }
        for (key, entry) in &self.live {
            session
                .get(Key::new(tree, key), |found| compare(found, Some(entry)))
                .map_err(|what| format!("get of {}: {what}", short(key)))?;
        }
        for key in self.live.keys().chain(self.removed.keys()) {
            let found = session.probe(Key::new(tree, key));
            self.check_probe(key, found, horizon, purged)?;
        }
        for key in self.removed.keys() {
            session
                .get(Key::new(tree, key), |found| compare(found, None))
                .map_err(|what| format!("get of {}: {what}", short(key)))?;
        }
        Ok(())
    }
}

/// The first error, recorded where a closure cannot return it.
#[derive(Debug, Default)]
pub(super) struct Verdict(pub(super) Option<String>);

impl Verdict {
    pub(super) fn note(&mut self, result: Result<(), String>) {
        if let Err(what) = result {
            self.0.get_or_insert(what);
        }
    }

    pub(super) fn into_result(self) -> Result<(), String> {
        self.0.map_or(Ok(()), Err)
    }
}

impl Expected {
    /// Whether the closure saw the right value.
    pub(super) fn check_shown(&self, old: Option<ValueRef<'_>>) -> Result<(), String> {
        compare(old, self.old.as_ref()).map_err(|what| format!("shown to the closure: {what}"))
    }
}

/// A hook that compares commits with the expected ones, in order (E3 hook-once).
#[derive(Debug)]
pub(super) struct ExpectingHook<'e> {
    expected: std::slice::Iter<'e, Expected>,
    verdict: Verdict,
}

impl<'e> ExpectingHook<'e> {
    pub(super) fn new(expected: &'e [Expected]) -> Self {
        Self {
            expected: expected.iter(),
            verdict: Verdict::default(),
        }
    }

    fn next_commit(&mut self) -> Option<&'e Expected> {
        self.expected.find(|expected| expected.version.is_some())
    }

    pub(super) fn finish(mut self) -> Result<(), String> {
        if let Some(missing) = self.next_commit() {
            let what = format!("no hook for the commit of {}", short(&missing.key));
            self.verdict.note(Err(what));
        }
        self.verdict.into_result()
    }
}

impl CommitHook for ExpectingHook<'_> {
    fn committed(
        &mut self,
        key: Key<'_>,
        old: Option<ValueRef<'_>>,
        new: Option<ValueRef<'_>>,
        version: ValueVersion,
    ) {
        let result = match self.next_commit() {
            None => Err(format!(
                "a hook for {} beyond the commits",
                short(key.bytes)
            )),
            Some(expected) if expected.key != key.bytes => Err(format!(
                "a hook for {} before {}",
                short(key.bytes),
                short(&expected.key)
            )),
            Some(expected) if expected.version != Some(version) => Err(format!(
                "the hook's version {version:?}, not {:?}",
                expected.version
            )),
            Some(expected) => compare_replaced(old, expected.old.as_ref())
                .map_err(|what| format!("the hook's old value: {what}"))
                .and_then(|()| {
                    compare(new, expected.new.as_ref())
                        .map_err(|what| format!("the hook's new value: {what}"))
                }),
        };
        self.verdict.note(result);
    }
}

/// A key as failures print it.
pub(super) fn short(key: &[u8]) -> String {
    const SHOWN: usize = 48;
    if key.len() <= SHOWN {
        return format!("\"{}\"", key.escape_ascii());
    }
    let (head, last) = (&key[..SHOWN / 2], &key[key.len() - 1..]);
    format!(
        "\"{}…{}\" ({} bytes)",
        head.escape_ascii(),
        last.escape_ascii(),
        key.len()
    )
}
