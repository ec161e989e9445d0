//! Which versions come from which: the version tree (§5.1), by lines.
//!
//! | version tree | here |
//! |---|---|
//! | a version's parent | the one before it on its line; of a line's first, the line's parent |
//! | x is an ancestor of t, or t | x is on t's line and not after it, or not after where t's line, or one above it, leaves x's |
//! | the lowest common ancestor | on the last line that both come along, the earlier place |
//!
//! A lineage is the way from the first line to a line: on each line above it, the last version that
//! belongs to the way. Lines are numbered as they are made, so a lineage is in order. Where a line
//! begins never changes, and no number is used again; so what a proxy remembers of lines stays
//! right for ever. Only that there is no such line is looked up anew (`Transaction::lineage`).
//!
//! Invariants:
//! - **MV1 lines-stay** While a version is kept, or is the tip of a branch, the catalog has its
//!   line and all lines above.
//! - **MV2 two-ways-on** A version has at most two children: the next one of its line, and the
//!   first of another. A snapshot from which branches are made again and again gets a line of its
//!   own for that, whose versions are all the same as it, with one branch at each (`branch`).

use std::sync::Arc;

use crate::SnapshotId;

/// The way from the first line to a line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Lineage {
    /// The last version on each line above, in order.
    pub(crate) above: Vec<SnapshotId>,
    /// Ids in the descendant set of a node that is made on this line, at most.
    pub(crate) descendants_max: u8,
}

/// A version, and how it came to be.
#[derive(Clone, Debug)]
pub(crate) struct Ancestry {
    pub(crate) version: SnapshotId,
    pub(crate) lineage: Arc<Lineage>,
}

impl Ancestry {
    /// Whether `other` is an ancestor of this version, or it.
    pub(crate) fn has(&self, other: SnapshotId) -> bool {
        if other.line() == self.version.line() {
            return other <= self.version;
        }
        let above = &self.lineage.above;
        let of = |last: &SnapshotId| last.line().cmp(&other.line());
        above
            .binary_search_by(of)
            .is_ok_and(|index| other <= above[index])
    }

    /// The line that the way goes to from `version`, if it leaves that one's line there.
    pub(crate) fn left_at(&self, version: SnapshotId) -> Option<u32> {
        let mut way = self.way().skip_while(|last| *last != version);
        way.nth(1).map(SnapshotId::line)
    }

    fn way(&self) -> impl Iterator<Item = SnapshotId> + '_ {
        self.lineage.above.iter().copied().chain([self.version])
    }

    /// The lowest common ancestor of two versions.
    pub(crate) fn common(&self, other: &Self) -> SnapshotId {
        let both = self.way().zip(other.way());
        let along = both.take_while(|(one, other)| one.line() == other.line());
        let along = along.map(|(one, other)| one.min(other));
        along.last().expect("all come from the first line")
    }
}

/// The lowest of the versions where two of `versions` part, and that lies below none other.
pub(crate) fn lowest_parting(versions: &[Ancestry]) -> Option<SnapshotId> {
    let mut lowest: Option<Ancestry> = None;
    for (index, one) in versions.iter().enumerate() {
        for other in &versions[index + 1..] {
            let version = one.common(other);
            if lowest
                .as_ref()
                .is_some_and(|lowest| version == lowest.version)
            {
                continue;
            }
            // Where two part is on the way of either, so its own way is a part of that.
            let way = one.way().take_while(|last| last.line() < version.line());
            let lineage = Lineage {
                above: way.collect(),
                descendants_max: 0,
            };
            let parting = Ancestry {
                version,
                lineage: Arc::new(lineage),
            };
            if lowest
                .as_ref()
                .is_none_or(|lowest| parting.has(lowest.version))
            {
                lowest = Some(parting);
            }
        }
    }
    lowest.map(|lowest| lowest.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(line: u32, place: u32, above: &[(u32, u32)]) -> Ancestry {
        let above = above
            .iter()
            .map(|(line, place)| SnapshotId::of(*line, *place));
        Ancestry {
            version: SnapshotId::of(line, place),
            lineage: Arc::new(Lineage {
                above: above.collect(),
                descendants_max: 2,
            }),
        }
    }

    #[test]
    fn versions_come_from_those_on_their_way() {
        let tip = version(5, 3, &[(0, 7), (2, 4)]);
        for (line, place, is) in [
            (5, 3, true),
            (5, 4, false),
            (2, 4, true),
            (2, 5, false),
            (0, 7, true),
            (0, 8, false),
            (1, 1, false),
        ] {
            assert_eq!(tip.has(SnapshotId::of(line, place)), is, "{line}.{place}");
        }
    }

    #[test]
    fn two_versions_part_on_the_last_line_that_both_come_along() {
        let (one, other) = (version(5, 3, &[(0, 7), (2, 4)]), version(2, 6, &[(0, 7)]));
        assert_eq!(one.common(&other), SnapshotId::of(2, 4));
        let main = version(0, 9, &[]);
        assert_eq!(main.common(&one), SnapshotId::of(0, 7));
        assert_eq!(one.common(&version(0, 3, &[])), SnapshotId::of(0, 3));
    }

    #[test]
    fn the_lowest_parting_lies_below_the_others() {
        let versions = [
            version(0, 9, &[]),
            version(1, 1, &[(0, 2)]),
            version(3, 1, &[(0, 2), (1, 4)]),
            version(4, 1, &[(0, 2), (1, 6)]),
        ];
        // The first of them is below what is above where the two last part.
        assert_eq!(lowest_parting(&versions[1..]), Some(SnapshotId::of(1, 4)));
        assert_eq!(lowest_parting(&versions[..2]), Some(SnapshotId::of(0, 2)));
        assert_eq!(lowest_parting(&versions[..1]), None);
    }
}
