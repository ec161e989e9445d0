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

    /// The last version on each line of the way, in order, and this version.
    fn way(&self) -> impl Iterator<Item = SnapshotId> + '_ {
        self.lineage.above.iter().copied().chain([self.version])
    }

    /// Whether the version that a way leads to, and that is on this version's way, lies below `at`.
    fn is_below(&self, way: &[SnapshotId], at: SnapshotId) -> bool {
        let version = *way.last().expect("a way has an end");
        debug_assert!(self.has(version) && self.has(at));
        // Of two on one way, the one that comes later has a later line, or place on the same line.
        version > at
    }

    /// The lowest common ancestor of two versions.
    pub(crate) fn common(&self, other: &Self) -> SnapshotId {
        let both = self.way().zip(other.way());
        let along = both.take_while(|(one, other)| one.line() == other.line());
        let along = along.map(|(one, other)| one.min(other));
        along.last().expect("all come from the first line")
    }
}

/// A version in the tree of some versions and of all places where two of these part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Joint {
    /// The joint that it comes from, which is an earlier one; none of the first.
    pub(crate) parent: Option<usize>,
    /// Which of the versions it is.
    pub(crate) is: Vec<usize>,
    /// Two of the versions that part here, if it is none of them.
    pub(crate) parts: Option<(usize, usize)>,
}

/// The tree of some versions and of all places where two of these part: parents come first.
/// O(n · log n) steps on their ways.
pub(crate) fn joints(versions: &[Ancestry]) -> Vec<Joint> {
    let ways: Vec<Vec<SnapshotId>> = versions.iter().map(|one| one.way().collect()).collect();
    let mut order: Vec<usize> = (0..versions.len()).collect();
    // In this order a version comes before all that come from it, and these are side by side.
    order.sort_by(|one, other| ways[*one].cmp(&ways[*other]));
    let mut found: Vec<(Vec<SnapshotId>, Joint)> = Vec::new();
    // The way to the last one, by joints.
    let mut path: Vec<usize> = Vec::new();
    let mut last: Option<usize> = None;
    for &next in &order {
        if let Some(last) = last {
            let at = versions[last].common(&versions[next]);
            let mut below = None;
            while let Some(&joint) = path.last()
                && found[joint].0.last() != Some(&at)
                && versions[last].is_below(&found[joint].0, at)
            {
                below = path.pop();
            }
            let is_new = path
                .last()
                .is_none_or(|top| found[*top].0.last() != Some(&at));
            if is_new {
                let way = ways[last].iter().take_while(|up| up.line() < at.line());
                let joint = Joint {
                    parent: path.last().copied(),
                    is: Vec::new(),
                    parts: Some((last, next)),
                };
                found.push((way.copied().chain([at]).collect(), joint));
                path.push(found.len() - 1);
            }
            if let Some(below) = below {
                found[below].1.parent = path.last().copied();
            }
        }
        match path.last() {
            Some(&top) if found[top].0 == ways[next] => found[top].1.is.push(next),
            top => {
                let joint = Joint {
                    parent: top.copied(),
                    is: vec![next],
                    parts: None,
                };
                found.push((ways[next].clone(), joint));
                path.push(found.len() - 1);
            }
        }
        last = Some(next);
    }
    in_order(&found)
}

/// Joints by their ways, so that parents come first.
fn in_order(found: &[(Vec<SnapshotId>, Joint)]) -> Vec<Joint> {
    let mut order: Vec<usize> = (0..found.len()).collect();
    order.sort_by(|one, other| found[*one].0.cmp(&found[*other].0));
    let mut places = vec![0; found.len()];
    for (place, joint) in order.iter().enumerate() {
        places[*joint] = place;
    }
    let joints = order.iter().map(|joint| {
        let mut joint = found[*joint].1.clone();
        joint.parent = joint.parent.map(|parent| places[parent]);
        joint
    });
    joints.collect()
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
    fn the_tree_of_versions_has_the_places_where_they_part() {
        let versions = [
            version(5, 3, &[(0, 7), (2, 4)]),
            version(0, 9, &[]),
            version(2, 6, &[(0, 7)]),
            version(9, 1, &[(0, 7), (2, 3)]),
            version(0, 7, &[]),
            version(0, 8, &[]),
        ];
        let joint = |parent, is: &[usize], parts| Joint {
            parent,
            is: is.to_vec(),
            parts,
        };
        let expected = [
            joint(None, &[4], None),
            joint(Some(0), &[], Some((3, 0))),
            joint(Some(1), &[3], None),
            joint(Some(1), &[], Some((0, 2))),
            joint(Some(3), &[0], None),
            joint(Some(3), &[2], None),
            joint(Some(0), &[5], None),
            joint(Some(6), &[1], None),
        ];
        assert_eq!(joints(&versions), expected);
        assert_eq!(joints(&versions[..1]), [joint(None, &[0], None)]);
        assert_eq!(joints(&[]), []);
    }

    /// Any versions: each joint is where its parts part, and comes from its parent.
    #[test]
    fn the_tree_of_any_versions_is_theirs() {
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            // Where lines begin, by their numbers.
            let mut ways: Vec<Vec<(u32, u32)>> = vec![Vec::new()];
            for line in 1..12 {
                let parent = rng.u32(..line);
                let mut way = ways[parent as usize].clone();
                way.push((parent, rng.u32(1..6)));
                ways.push(way);
            }
            let mut picked = std::collections::BTreeSet::new();
            for _ in 0..rng.usize(1..20) {
                picked.insert((rng.u32(..12), rng.u32(1..8)));
            }
            let versions: Vec<Ancestry> = picked
                .iter()
                .map(|(line, place)| version(*line, *place, &ways[*line as usize]))
                .collect();
            let joints = joints(&versions);
            let of = |joint: &Joint| match joint.parts {
                Some((one, other)) => versions[one].common(&versions[other]),
                None => versions[joint.is[0]].version,
            };
            let mut seen = std::collections::BTreeSet::new();
            for (index, joint) in joints.iter().enumerate() {
                assert!(seen.insert(of(joint)), "each version once");
                assert_eq!(joint.parts.is_none(), !joint.is.is_empty());
                assert_eq!(joint.parent.is_none(), index == 0);
                assert!(joint.parent.is_none_or(|parent| parent < index));
            }
            // The way of each version by joints is the joints that it comes from.
            for (index, joint) in joints.iter().enumerate() {
                for &is in &joint.is {
                    let (mut up, mut way) = (Some(index), Vec::new());
                    while let Some(joint) = up {
                        way.push(joint);
                        up = joints[joint].parent;
                    }
                    way.reverse();
                    let has = |joint: &usize| versions[is].has(of(&joints[*joint]));
                    let all: Vec<usize> = (0..joints.len()).filter(has).collect();
                    assert_eq!(way, all, "seed {seed}");
                }
            }
            assert_eq!(
                joints.iter().map(|joint| joint.is.len()).sum::<usize>(),
                versions.len()
            );
        }
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
