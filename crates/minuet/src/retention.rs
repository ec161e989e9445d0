//! Which snapshots are kept: the list of them, their names.
//!
//! The list is replicated in one slot on every memnode, as the tip is, and has the snapshots of all
//! branches in the order in which they were made. `create_snapshot_of` adds to it, naming changes
//! it, and the collection takes from it what is neither among the newest, nor named, nor leased
//! (`collect`). A snapshot that has left the list never comes back.
//!
//! An entry of the list, little-endian:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | the snapshot's id |
//! | 8 | 18 | its root's address |
//! | 26 | 2 | bytes of its name; 0: it has none |
//! | 28 | | the name |

use pando_memnode::Slot;

use crate::error::{Error, Stop};
use crate::limits::{NAME_BYTES_MAX, SNAPSHOTS_MAX};
use crate::page::{self, ADDRESS_BYTES};
use crate::snapshot::{Kind, SnapshotId, View};
use crate::transaction::Transaction;

/// The slot of the list, on each memnode.
pub(crate) const KEPT: Slot = Slot(1);

/// Bytes of an entry without its name.
pub(crate) const KEPT_BYTES: usize = 8 + ADDRESS_BYTES + 2;

/// A snapshot that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// It, to be read.
    pub view: View,
    /// Its name, if it has one: then it stays until the name goes.
    pub name: Option<Vec<u8>>,
}

pub(crate) fn encode(list: &[Kept]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Kept { view, name } in list {
        let name = name.as_deref().unwrap_or_default();
        bytes.extend(view.snapshot.0.to_le_bytes());
        bytes.extend(page::encode_address(view.root));
        bytes.extend((name.len() as u16).to_le_bytes());
        bytes.extend(name);
    }
    debug_assert_eq!(decode(&bytes), list);
    bytes
}

/// Reads a list that memnodes have.
pub(crate) fn decode(mut bytes: &[u8]) -> Vec<Kept> {
    let mut list = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(KEPT_BYTES) {
        let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight"));
        let len = usize::from(u16::from_le_bytes([
            head[KEPT_BYTES - 2],
            head[KEPT_BYTES - 1],
        ]));
        let (name, rest) = rest.split_at(len);
        let view = View {
            snapshot: SnapshotId(number(0)),
            root: page::decode_address(&head[8..]),
            kind: Kind::Snapshot,
        };
        let name = (len > 0).then(|| name.to_vec());
        list.push(Kept { view, name });
        bytes = rest;
    }
    list
}

impl Transaction<'_> {
    /// The snapshots that are kept, the oldest first. The transaction commits only if they still
    /// are.
    pub fn kept(&mut self) -> Result<Vec<Kept>, Stop> {
        Ok(decode(&self.replica(KEPT)?))
    }

    pub(crate) fn set_kept(&mut self, list: &[Kept]) {
        // A free slot is no replica; a list that becomes empty keeps one byte.
        let mut bytes = encode(list);
        if bytes.is_empty() {
            bytes.push(0);
        }
        self.write_replica(KEPT, bytes.into());
    }

    /// Adds a snapshot, the newest.
    pub(crate) fn keep(&mut self, view: View) -> Result<(), Stop> {
        let mut list = self.kept()?;
        if list.len() >= SNAPSHOTS_MAX {
            return Err(Error::TooManySnapshots.into());
        }
        if list.iter().any(|kept| kept.view.snapshot == view.snapshot) {
            // The list and the tip are remembered from different times.
            return Err(Stop::Conflict);
        }
        list.push(Kept { view, name: None });
        self.set_kept(&list);
        Ok(())
    }

    /// Fails if a snapshot is not kept.
    pub(crate) fn require_kept(&mut self, view: View) -> Result<(), Stop> {
        let list = self.kept()?;
        let is_kept = list.iter().any(|kept| kept.view == view);
        is_kept.then_some(()).ok_or(Error::NoSnapshot.into())
    }

    /// Gives a snapshot a name, in place of one that it has. It then stays.
    pub fn name_snapshot(&mut self, snapshot: SnapshotId, name: &[u8]) -> Result<(), Stop> {
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
            return Err(Error::BadName { bytes: name.len() }.into());
        }
        let mut list = self.kept()?;
        let is_named = |kept: &Kept| kept.name.as_deref() == Some(name);
        let other = list.iter().find(|kept| is_named(kept));
        if other.is_some_and(|other| other.view.snapshot != snapshot) {
            return Err(Error::NameTaken.into());
        }
        let kept = list.iter_mut().find(|kept| kept.view.snapshot == snapshot);
        kept.ok_or(Error::NoSnapshot)?.name = Some(name.to_vec());
        self.set_kept(&list);
        Ok(())
    }

    /// Takes a name away. The snapshot goes when it is not among the newest, and nobody reads it.
    pub fn unname_snapshot(&mut self, name: &[u8]) -> Result<(), Stop> {
        let mut list = self.kept()?;
        let named = list
            .iter_mut()
            .find(|kept| kept.name.as_deref() == Some(name));
        named.ok_or(Error::NoSnapshot)?.name = None;
        self.set_kept(&list);
        Ok(())
    }

    /// The snapshot of a name.
    pub fn named_snapshot(&mut self, name: &[u8]) -> Result<View, Stop> {
        let list = self.kept()?;
        let named = list.iter().find(|kept| kept.name.as_deref() == Some(name));
        Ok(named.ok_or(Error::NoSnapshot)?.view)
    }
}
