//! What is noted in a pool about a snapshot that lasts, beside its name and epoch.
//!
//! | bytes, little-endian | what |
//! |---|---|
//! | 8 | its time in ms |
//! | 8 | when it goes in ms, 0 for never |
//! | 4 and 8 for each database | its tree, how many keys it showed |

use pando_cdds::KeptSnapshot;
use pando_engine::{Snapshot, TreeId};

use crate::clock::Milliseconds;
use crate::durable::forks::Place;
use crate::snapshots::{Frozen, Leases, NamedSnapshot};
use crate::view::Moment;

/// What is noted about a snapshot that lasts.
pub(crate) fn about(
    time: Milliseconds,
    until: Option<Milliseconds>,
    databases: &[Frozen],
) -> Vec<u8> {
    let until = until.map_or(0, |until| until.0.max(1));
    let mut about = [time.0.to_le_bytes(), until.to_le_bytes()].concat();
    for frozen in databases {
        about.extend_from_slice(&frozen.tree.0.to_le_bytes());
        about.extend_from_slice(&frozen.keys.to_le_bytes());
    }
    about
}

/// The snapshot that this was noted about, for so many databases; `None` if it is no such note. A
/// database that there was not has the tree that it has now, as it was then: empty.
pub(crate) fn kept_snapshot(kept: &KeptSnapshot, trees: &[TreeId]) -> Option<NamedSnapshot> {
    let (time, rest) = kept.about.split_first_chunk()?;
    let (until, rest) = rest.split_first_chunk()?;
    let (each, rest) = rest.as_chunks::<12>();
    if !rest.is_empty() {
        return None;
    }
    let frozen = each.iter().map(|bytes| {
        let (tree, keys) = bytes.split_at(4);
        Frozen {
            tree: TreeId(u32::from_le_bytes(tree.try_into().expect("4 bytes"))),
            keys: u64::from_le_bytes(keys.try_into().expect("8 bytes")),
        }
    });
    let mut databases: Vec<Frozen> = frozen.collect();
    let missing = trees.iter().skip(databases.len());
    databases.extend(missing.map(|tree| Frozen {
        tree: *tree,
        keys: 0,
    }));
    let until = u64::from_le_bytes(*until);
    Some(NamedSnapshot {
        name: kept.name.as_bytes().into(),
        moment: Moment {
            snapshot: Snapshot::of_epoch(kept.epoch),
            time: Milliseconds(u64::from_le_bytes(*time)),
        },
        until: (until > 0).then_some(Milliseconds(until)),
        is_held: true,
        lasts: true,
        is_lent: false,
        leases: Leases::default(),
        databases: databases.into(),
        place: Place::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_about_a_snapshot_comes_back() {
        let frozen = |tree, keys| Frozen {
            tree: TreeId(tree),
            keys,
        };
        let databases = [frozen(3, 70), frozen(0, u64::MAX)];
        let about = about(Milliseconds(5), Some(Milliseconds(9)), &databases);
        let kept = |about: &[u8]| KeptSnapshot {
            name: "s".into(),
            epoch: pando_engine::LogEpoch(8),
            about: about.into(),
        };
        let trees = [TreeId(1), TreeId(2), TreeId(6)];
        let snapshot = kept_snapshot(&kept(&about), &trees).expect("a note");
        assert_eq!((snapshot.moment.time.0, snapshot.epoch().0), (5, 8));
        assert_eq!(snapshot.until, Some(Milliseconds(9)));
        let back = snapshot
            .databases
            .iter()
            .map(|frozen| (frozen.tree.0, frozen.keys));
        assert_eq!(back.collect::<Vec<_>>(), [(3, 70), (0, u64::MAX), (6, 0)]);
        for len in (0..about.len()).filter(|len| *len != 16 && *len != 28) {
            assert!(
                kept_snapshot(&kept(&about[..len]), &trees).is_none(),
                "{len}"
            );
        }
    }
}
