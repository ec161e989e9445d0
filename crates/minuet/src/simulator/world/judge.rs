//! The end of a run: everything is collected that can be, then the oracles look.

use std::collections::BTreeMap;

use super::super::audit;
use super::super::audit::Held;
use super::super::history::Ran;
use super::super::script::{At, Key, Seen, Work};
use super::Report;
use super::{Violation, World};
use crate::branch::BranchId;
use crate::collect::Step;
use crate::retention::Kept;
use crate::snapshot::View;
use crate::tree::{Diffed, Probe, TreeId};

/// Pairs of versions that are compared at the end.
const COMPARED: usize = 6;

impl World {
    /// Collects until nothing is left that could go: all leases end meanwhile.
    pub(super) fn collect_all(&mut self) -> Result<(), Violation> {
        self.collecting = None;
        let rounds = self.collector.collected().rounds + 5;
        while self.collector.collected().rounds < rounds {
            if matches!(self.collector.step(), Step::Publish { .. }) {
                self.now += self.lease_time;
            }
            self.collect(0)?;
            self.rest()?;
        }
        self.report.collected = self.collector.collected().pages;
        Ok(())
    }

    /// What differs between two versions, applied to the one, must be the other.
    pub(super) fn compare_all(&mut self) -> Result<(), Violation> {
        let memnodes: Vec<_> = self.nodes.iter().map(|node| node.memnode.clone()).collect();
        let kept = audit::kept(&memnodes).map_err(|what| self.violation(what))?;
        let catalog = audit::catalog(&memnodes).map_err(|what| self.violation(what))?;
        let kept = kept.into_iter().map(|kept| kept.view);
        let mut views: Vec<_> = kept.chain(catalog.tips.into_values()).collect();
        self.random.shuffle(&mut views);
        for pair in views.windows(2).take(COMPARED) {
            let views = (pair[0], pair[1]);
            let walk =
                |view| audit::walk(&memnodes, &catalog.lines, view).map(|(held, _)| held.contents);
            let walked = walk(views.0).and_then(|old| Ok((old, walk(views.1)?)));
            let (mut old, mut new) = walked.map_err(|what| self.violation(what))?;
            let tree = TreeId(self.random.u32(1..5));
            for contents in [&mut old, &mut new] {
                contents.retain(|key, _| key.starts_with(&tree.0.to_be_bytes()));
            }
            self.apply_diff(views, tree, &mut old)?;
            let values = |contents: audit::Contents| {
                let entries = contents.into_iter();
                let entries = entries.map(|(key, (_, value))| (key, value));
                entries.collect::<Vec<_>>()
            };
            if values(old) != values(new) {
                return Err(self.violation(format!("{views:?} differ in more")));
            }
        }
        Ok(())
    }

    /// Compares two versions part by part, and does to `old` what differs.
    fn apply_diff(
        &mut self,
        views: (View, View),
        tree: TreeId,
        old: &mut audit::Contents,
    ) -> Result<(), Violation> {
        let mut from = Some((tree, Vec::new()));
        while let Some((_, key)) = from {
            let limit = self.random.usize(1..20);
            let work = Work::Diff {
                views,
                tree,
                from: key,
                limit,
            };
            // Each host has another cache.
            let host = self.random.usize(0..self.hosts.len());
            self.start(host, (work, BranchId::FIRST))?;
            self.rest()?;
            let Diffed { changes, next } = std::mem::take(&mut self.diffed);
            for change in changes {
                let full = [&tree.0.to_be_bytes()[..], &change.key].concat();
                let before = match change.after.clone() {
                    Some(entry) => old.insert(full, entry),
                    None => old.remove(&full),
                };
                if before != change.before {
                    return Err(self.violation(format!("{before:?} was changed, not {change:?}")));
                }
            }
            from = next;
        }
        Ok(())
    }

    /// Whether the list has the newest snapshots, and beside them those alone that have a name.
    fn check_kept(&self, kept: &[Kept]) -> Result<(), Violation> {
        let newest = kept.len().saturating_sub(self.config.newest_kept as usize);
        let (old, newest) = kept.split_at(newest);
        if let Some(kept) = old.iter().find(|kept| kept.name.is_none()) {
            return Err(self.violation(format!("nobody needs {kept:?}, and it is kept")));
        }
        let begin =
            |view: &View| Some(self.history.ran[*self.history.makers.get(&view.snapshot)?].begin);
        let end = |view: &View| self.history.ran[*self.history.makers.get(&view.snapshot)?].end;
        for made in &self.snapshots {
            if kept.iter().any(|kept| kept.view == *made) {
                continue;
            }
            let is_full = newest.len() == self.config.newest_kept as usize;
            let is_older = |other: &View| {
                let (before, after) = (other.snapshot, made.snapshot);
                let on_one_line = before.line() == after.line() && before < after;
                on_one_line
                    || end(other)
                        .zip(begin(made))
                        .is_some_and(|(end, begin)| end < begin)
            };
            let older = newest.iter().find(|kept| is_older(&kept.view));
            if !is_full || older.is_some() {
                return Err(self.violation(format!("{older:?} is kept, and {made:?} is not")));
            }
        }
        let unknown = kept
            .iter()
            .find(|kept| !self.snapshots.contains(&kept.view));
        unknown.map_or(Ok(()), |kept| {
            Err(self.violation(format!("nobody made {kept:?}")))
        })
    }

    /// The oracles.
    pub(super) fn judge(mut self) -> Result<Report, Violation> {
        let memnodes: Vec<_> = self.nodes.iter().map(|node| node.memnode.clone()).collect();
        let kept = audit::kept(&memnodes).map_err(|what| self.violation(what))?;
        self.check_kept(&kept)?;
        let catalog = audit::catalog(&memnodes).map_err(|what| self.violation(what))?;
        let tips = catalog.tips.iter();
        let tips: BTreeMap<_, _> = tips
            .map(|(branch, tip)| (*branch, tip.snapshot.line()))
            .collect();
        if tips != self.history.branches {
            let made = &self.history.branches;
            return Err(self.violation(format!("{tips:?} are there, and {made:?} were made")));
        }
        let all = audit::audit(&memnodes, &self.config, true);
        let all = all.map_err(|what| self.violation(what))?;
        // At last, somebody reads all that is there.
        let keys: Vec<_> = self.history.keys().into_iter().collect();
        let mut seen = Vec::new();
        for (version, held) in all {
            let line = version.line();
            let at = if catalog.tips.values().any(|tip| tip.snapshot == version) {
                At::End(line)
            } else if catalog.lines.get(&line).is_some_and(|line| line.is_fork) {
                continue;
            } else {
                At::Past(version)
            };
            seen.extend(all_of(at, held, &keys));
        }
        let end = None;
        let begin = self.now + 1;
        self.history.ran.push(Ran { begin, end, seen });
        self.history.check().map_err(|what| self.violation(what))?;
        Ok(self.report)
    }
}

/// A read of all that a version has, and of all keys that it has not.
fn all_of(at: At, mut held: Held, keys: &[Key]) -> Vec<Seen> {
    let contents = std::mem::take(&mut held.contents);
    let absent = keys.iter().filter_map(|key| {
        let full = [&key.0.0.to_be_bytes()[..], &key.1].concat();
        let version = held.floor(&full);
        let value = None;
        let probe = Probe { version, value };
        (!contents.contains_key(&full)).then(|| (key.clone(), probe))
    });
    let absent: Vec<_> = absent.collect();
    let present = contents.into_iter().map(|(full, (version, value))| {
        let (tree, key) = full.split_first_chunk().expect("a tree's number");
        let key = (TreeId(u32::from_be_bytes(*tree)), key.to_vec());
        let value = Some(value);
        (key, Probe { version, value })
    });
    let all = present.chain(absent);
    all.map(|(key, probe)| Seen::Read { at, key, probe })
        .collect()
}
