//! Which versions can be seen, and how many of them come from a version.
//!
//! Seen are the tips of branches, the snapshots that are kept, and where two of these part: a merge
//! needs that version (`Transaction::parting`). So is, while a snapshot is kept and has a fork, the
//! place from which its next branch will come; a fork without branches is removed, and a new one
//! begun when it is needed. A version that is not seen never will be, because branches are made
//! from what is seen alone. Nor does a new branch part from others anywhere but at what was seen
//! before.
//!
//! A [`Live`] is found out from the whole catalog, and stands as long as the list of kept snapshots
//! and the catalog's head are the same (MG3 live-is-current): making a snapshot changes the list,
//! all that is done with branches the head, and taking a snapshot from the list the head as well,
//! so that the list alone never comes back to what it was.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pando_memnode::Bytes;

use crate::SnapshotId;
use crate::branch::{BranchId, decode_entry};
use crate::catalog::HEAD;
use crate::error::{Error, Stop};
use crate::fault::{Fault, planted};
use crate::line::{LINES, Line, decode_fork};
use crate::retention::KEPT;
use crate::transaction::Transaction;

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// The list and the head that it was found out from.
    of: (Bytes, Bytes),
    seen: BTreeSet<SnapshotId>,
    /// On each line: places, and how many of the versions that are seen come from there or later.
    lines: BTreeMap<u32, Vec<(u32, u64)>>,
    /// Lines on which nothing is seen, nor on those that leave them.
    pub(crate) dead: Vec<(u32, Line)>,
}

/// Counts by lines, given how many lines leave where.
fn count(
    seen: &BTreeSet<SnapshotId>,
    lines: &BTreeMap<u32, Line>,
) -> BTreeMap<u32, Vec<(u32, u64)>> {
    let mut counts: BTreeMap<u32, Vec<(u32, u64)>> = BTreeMap::new();
    for version in seen {
        let place = version.0 as u32;
        counts.entry(version.line()).or_default().push((place, 1));
    }
    // A line has a higher number than the one that it leaves, so those that leave it come first.
    let all = lines.iter().map(|(line, record)| (*line, Some(record)));
    for (line, record) in all.rev().chain([(0, None)]) {
        let Some(places) = counts.get_mut(&line) else {
            continue;
        };
        places.sort_unstable();
        let mut sum = 0;
        for (_, count) in places.iter_mut().rev() {
            sum += *count;
            *count = sum;
        }
        if let Some(Line { parent, .. }) = record {
            let above = counts.entry(parent.line()).or_default();
            above.push((parent.0 as u32, sum));
        }
    }
    counts
}

impl Live {
    /// What is seen, given tips and kept snapshots, the places from which branches may come, and
    /// where lines begin.
    fn new(
        mut seen: BTreeSet<SnapshotId>,
        forks: &[SnapshotId],
        lines: &BTreeMap<u32, Line>,
    ) -> Self {
        let first = Self {
            lines: count(&seen, lines),
            ..Self::default()
        };
        let is_dead = |line: &u32| first.under(SnapshotId::of(*line, 0)) == 0;
        let dead = lines.iter().filter(|(line, _)| is_dead(line));
        let dead = dead.map(|(line, record)| (*line, *record)).collect();
        let partings = lines.iter().filter_map(|(line, record)| {
            let on = first.under(SnapshotId::of(*line, 0));
            // The versions of a fork are the same as the snapshot that it is of.
            let parting = match lines.get(&record.parent.line()) {
                Some(fork) if fork.is_fork => fork.parent,
                _ => record.parent,
            };
            let parts = on > 0 && first.under(parting) > on;
            (parts && !planted(Fault::PartingFreed)).then_some(parting)
        });
        seen.extend(partings.collect::<Vec<_>>());
        seen.extend(forks);
        Self {
            of: Default::default(),
            lines: count(&seen, lines),
            seen,
            dead,
        }
    }

    /// Whether a version is seen itself.
    pub(crate) fn sees(&self, version: SnapshotId) -> bool {
        self.seen.contains(&version)
    }

    /// How many of the versions that are seen come from `version`, or are it.
    pub(crate) fn under(&self, version: SnapshotId) -> u64 {
        let Some(places) = self.lines.get(&version.line()) else {
            return 0;
        };
        let from = places.partition_point(|(place, _)| *place < version.0 as u32);
        places.get(from).map_or(0, |(_, count)| *count)
    }
}

impl Transaction<'_> {
    /// What is seen. The transaction commits only if it still is.
    pub(crate) fn live(&mut self) -> Result<Arc<Live>, Stop> {
        let (kept, head) = (self.replica(KEPT), self.replica(HEAD));
        let of = (kept?, head?);
        if let Some(live) = self.known_live().filter(|live| live.of == of) {
            return Ok(live);
        }
        let mut seen: BTreeSet<_> = self.kept()?.iter().map(|kept| kept.view.snapshot).collect();
        let (mut lines, mut forks) = (BTreeMap::new(), Vec::new());
        if self.is_founded()? {
            match self.tip_of(BranchId::FIRST) {
                Ok(tip) => _ = seen.insert(tip.snapshot),
                Err(Stop::Error(Error::NoBranch)) => {}
                Err(stop) => return Err(stop),
            }
            for (key, value) in self.catalog_scan(b"", b"", usize::MAX)? {
                if let Some(line) = key.strip_prefix(LINES)
                    && let Ok(line) = line.try_into()
                {
                    let record = Line::decode(&value).ok_or(Stop::Conflict)?;
                    lines.insert(u32::from_be_bytes(line), record);
                }
                let fork = decode_fork(&key, &value);
                let fork = fork.filter(|(of, _)| seen.contains(of));
                forks.extend(fork.map(|(_, next)| next));
                let tip = decode_entry(&key, &value);
                let tip = tip.filter(|tip| tip.branch() != Some(BranchId::FIRST));
                seen.extend(tip.map(|tip| tip.snapshot));
            }
        }
        let live = Arc::new(Live {
            of,
            ..Live::new(seen, &forks, &lines)
        });
        self.know_live(&live);
        Ok(live)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_memnode::Address;

    #[test]
    fn where_two_part_is_seen_while_both_are() {
        let line = |parent, is_fork| Line {
            parent,
            root: Address::default(),
            descendants_max: 2,
            is_fork,
        };
        let id = SnapshotId::of;
        // Line 1 leaves the first at 3; line 2 is the fork of 0.2, lines 3 and 4 leave that.
        let lines = BTreeMap::from([
            (1, line(id(0, 3), false)),
            (2, line(id(0, 2), true)),
            (3, line(id(2, 1), false)),
            (4, line(id(2, 2), false)),
        ]);
        let of = |seen: &[SnapshotId]| Live::new(seen.iter().copied().collect(), &[], &lines);
        let all = of(&[id(0, 9), id(1, 1), id(3, 1), id(4, 1)]);
        assert!(all.sees(id(0, 3)) && all.sees(id(0, 2)) && all.dead.is_empty());
        assert_eq!(
            (
                all.under(id(0, 1)),
                all.under(id(0, 3)),
                all.under(id(0, 4))
            ),
            (6, 3, 1)
        );
        assert_eq!((all.under(id(2, 1)), all.under(id(2, 2))), (2, 1));
        // Of what comes from the fork alone, the snapshot is where the two part.
        let two = of(&[id(3, 1), id(4, 1)]);
        assert!(two.sees(id(0, 2)) && !two.sees(id(0, 3)) && !two.sees(id(2, 1)));
        let dead: Vec<_> = two.dead.iter().map(|(line, _)| *line).collect();
        assert_eq!(dead, [1]);
        // One alone parts from nothing.
        let one = of(&[id(3, 1)]);
        assert!(!one.sees(id(0, 2)) && one.under(id(0, 1)) == 1);
        assert_eq!(one.dead.len(), 2);
    }
}
