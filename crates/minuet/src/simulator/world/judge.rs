//! The end of a run: everything is collected that can be, then the oracles look.

use super::super::audit;
use super::super::script::{Seen, Work};
use super::Report;
use super::{Violation, World};
use crate::collect::Step;
use crate::tree::{Diffed, Probe, TreeId};

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

    /// What differs between two snapshots, applied to the one, must be the other.
    pub(super) fn compare_all(&mut self) -> Result<(), Violation> {
        let memnodes: Vec<_> = self.nodes.iter().map(|node| node.memnode.clone()).collect();
        let kept = audit::kept(&memnodes).map_err(|what| self.violation(what))?;
        let catalog = audit::catalog(&memnodes).map_err(|what| self.violation(what))?;
        for pair in kept.windows(2) {
            let views = (pair[0].view, pair[1].view);
            let walk =
                |view| audit::walk(&memnodes, &catalog.lines, view).map(|(contents, _)| contents);
            let walked = walk(views.0).and_then(|old| Ok((old, walk(views.1)?)));
            let (mut old, mut new) = walked.map_err(|what| self.violation(what))?;
            let tree = TreeId(self.random.u32(1..5));
            for contents in [&mut old, &mut new] {
                contents.retain(|key, _| key.starts_with(&tree.0.to_be_bytes()));
            }
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
                self.start(host, work)?;
                self.rest()?;
                let Diffed { changes, next } = std::mem::take(&mut self.diffed);
                for change in changes {
                    let full = [&tree.0.to_be_bytes()[..], &change.key].concat();
                    let before = match change.after.clone() {
                        Some(entry) => old.insert(full, entry),
                        None => old.remove(&full),
                    };
                    if before != change.before {
                        return Err(
                            self.violation(format!("{before:?} was changed, not {change:?}"))
                        );
                    }
                }
                from = next;
            }
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

    /// The oracles.
    pub(super) fn judge(mut self) -> Result<Report, Violation> {
        let memnodes: Vec<_> = self.nodes.iter().map(|node| node.memnode.clone()).collect();
        let tip = audit::tip(&memnodes).map_err(|what| self.violation(what))?;
        let kept = audit::kept(&memnodes).map_err(|what| self.violation(what))?;
        let newest = kept.len().saturating_sub(self.config.newest_kept as usize);
        if let Some(kept) = kept[..newest].iter().find(|kept| kept.name.is_none()) {
            return Err(self.violation(format!("nobody needs {kept:?}, and it is kept")));
        }
        self.snapshots
            .sort_unstable_by_key(|(view, _)| view.snapshot);
        let last = self.snapshots.iter().rev().zip(kept.iter().rev());
        if let Some((_, kept)) = last
            .take(self.config.newest_kept as usize)
            .find(|((view, _), kept)| *view != kept.view)
        {
            return Err(self.violation(format!("{kept:?} is kept in a newer one's place")));
        }
        let all = audit::audit(&memnodes, self.config.descendants_max, true);
        let mut all = all.map_err(|what| self.violation(what))?;
        let contents = all.remove(&tip.snapshot).expect("the tip's");
        for kept in &kept {
            let past = all.remove(&kept.view.snapshot).expect("what is kept");
            let of = self.snapshots.iter().find(|(made, _)| *made == kept.view);
            let Some((_, maker)) = of else {
                return Err(self.violation(format!("nobody made {kept:?}")));
            };
            // Whoever made a snapshot has read all of it.
            let reads = past.into_iter().map(|(full, (version, value))| {
                let (tree, key) = full.split_first_chunk().expect("a tree's number");
                let key = (TreeId(u32::from_be_bytes(*tree)), key.to_vec());
                Seen::Read {
                    key,
                    probe: Probe {
                        version,
                        value: Some(value),
                    },
                }
            });
            self.history.ran[*maker].seen.extend(reads);
        }
        self.history
            .check(&contents)
            .map_err(|what| self.violation(what))?;
        Ok(self.report)
    }
}
