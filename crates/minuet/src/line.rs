//! Lines in the catalog: where each begins, and how a new one does.
//!
//! | key in the catalog | what it has, little-endian |
//! |---|---|
//! | `l`, line (4, big-endian) | the version that it leaves (8), that one's root (18), ids in a descendant set at most (1), whether it is a fork's (1) |
//! | `s`, snapshot (8, big-endian) | the line of its fork (4), the place of the next branch there (4) |
//!
//! The first line has no entry. An entry `l` never changes. When nothing on a line can be seen, nor
//! on those that leave it, the collection removes it (`live`).
//!
//! A *fork* is the line of a snapshot from which branches are made: its versions are the same as
//! the snapshot, have no root of their own, and each has one branch (MV2 two-ways-on).

use std::sync::Arc;

use pando_memnode::Address;

use crate::SnapshotId;
use crate::catalog::Head;
use crate::error::{Error, Stop};
use crate::lineage::{Ancestry, Lineage};
use crate::page::{self, ADDRESS_BYTES, PageEdit};
use crate::snapshot::{Kind, View};
use crate::transaction::Transaction;
use crate::tree::read_root;

/// Where a line begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// The version of another line that it leaves.
    pub(crate) parent: SnapshotId,
    /// The root of that version.
    pub(crate) root: Address,
    /// Ids in the descendant set of a node that is made on it, at most.
    pub(crate) descendants_max: u8,
    /// Whether its versions are all the same as the parent.
    pub(crate) is_fork: bool,
}

impl Line {
    fn encode(self) -> Vec<u8> {
        let mut bytes = self.parent.0.to_le_bytes().to_vec();
        bytes.extend(page::encode_address(self.root));
        bytes.extend([self.descendants_max, u8::from(self.is_fork)]);
        debug_assert_eq!(Self::decode(&bytes), Some(self));
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (parent, rest) = bytes.split_first_chunk()?;
        let (root, rest) = rest.split_at_checked(ADDRESS_BYTES)?;
        Some(Self {
            parent: SnapshotId(u64::from_le_bytes(*parent)),
            root: page::decode_address(root),
            descendants_max: *rest.first()?,
            is_fork: *rest.get(1)? != 0,
        })
    }
}

/// The entries of all lines begin so.
pub(crate) const LINES: &[u8] = b"l";

const FORKS: &[u8] = b"s";

pub(crate) fn line_key(line: u32) -> Vec<u8> {
    [LINES, &line.to_be_bytes()].concat()
}

fn fork_key(snapshot: SnapshotId) -> Vec<u8> {
    [FORKS, &snapshot.0.to_be_bytes()].concat()
}

/// The snapshot of an entry `s`, and the version of its fork at which its next branch will be.
pub(crate) fn decode_fork(key: &[u8], value: &[u8]) -> Option<(SnapshotId, SnapshotId)> {
    let snapshot = u64::from_be_bytes(key.strip_prefix(FORKS)?.try_into().ok()?);
    let number = |at: usize| Some(u32::from_le_bytes(*value.get(at..)?.first_chunk()?));
    Some((SnapshotId(snapshot), SnapshotId::of(number(0)?, number(4)?)))
}

impl Transaction<'_> {
    /// Where a line begins; none if it is gone, which is compared by the commit.
    fn line(&mut self, line: u32) -> Result<Option<Line>, Stop> {
        let key = line_key(line);
        let bytes = match self.catalog_recall(&key)? {
            Some(bytes) => Some(bytes),
            None => self.catalog_get(&key)?,
        };
        Ok(bytes.as_deref().and_then(Line::decode))
    }

    /// Whether a line is there, whatever the proxy remembers of it; the commit compares that.
    pub(crate) fn has_line(&mut self, line: u32) -> Result<bool, Stop> {
        Ok(line == 0 || self.catalog_get(&line_key(line))?.is_some())
    }

    /// How a line came to be. None if it is gone: then nothing on it can be seen any more, and the
    /// commit compares that (MV1 lines-stay).
    pub(crate) fn lineage(&mut self, line: u32) -> Result<Option<Arc<Lineage>>, Stop> {
        if line == 0 {
            return Ok(Some(self.first_lineage()));
        }
        if let Some(known) = self.known_lineage(line) {
            return Ok(Some(known));
        }
        let Some(Line {
            mut parent,
            descendants_max,
            ..
        }) = self.line(line)?
        else {
            return Ok(None);
        };
        let mut up = Vec::new();
        let mut above = loop {
            up.push(parent);
            if parent.line() == 0 {
                break Vec::new();
            }
            if let Some(known) = self.known_lineage(parent.line()) {
                break known.above.clone();
            }
            match self.line(parent.line())? {
                Some(line) => parent = line.parent,
                // One is remembered from another time than the other.
                None => return Err(Stop::Conflict),
            }
        };
        above.extend(up.into_iter().rev());
        assert!(above.is_sorted(), "lines are numbered as they are made");
        let lineage = Lineage {
            above,
            descendants_max,
        };
        Ok(Some(self.know_lineage(line, lineage)))
    }

    /// How a version came to be; none if its line is gone.
    pub(crate) fn ancestry(&mut self, version: SnapshotId) -> Result<Option<Ancestry>, Stop> {
        let lineage = self.lineage(version.line())?;
        Ok(lineage.map(|lineage| Ancestry { version, lineage }))
    }

    /// Where two views part, as a view: the lowest version that both come from. It can be read
    /// while both are there.
    pub fn parting(&mut self, one: View, other: View) -> Result<View, Stop> {
        let (first, second) = (self.ancestry(one.snapshot)?, self.ancestry(other.snapshot)?);
        let (Some(first), Some(second)) = (first, second) else {
            return Err(Error::NoSnapshot.into());
        };
        let at = first.common(&second);
        for view in [one, other] {
            if at == view.snapshot {
                return Ok(view);
            }
        }
        // One of the two leaves the line there.
        let left = [&first, &second]
            .into_iter()
            .find_map(|way| way.left_at(at));
        let left = self
            .line(left.ok_or(Stop::Conflict)?)?
            .ok_or(Stop::Conflict)?;
        let snapshot = match self.line(at.line())? {
            Some(fork) if fork.is_fork => fork.parent,
            _ => at,
        };
        Ok(View {
            snapshot,
            root: left.root,
            kind: Kind::Parting,
        })
    }

    /// Begins a line below `parent`: its tip is a copy of the root of `from`, which is the same as
    /// `parent`.
    pub(crate) fn begin_line(
        &mut self,
        head: &mut Head,
        parent: SnapshotId,
        from: View,
        descendants_max: u8,
    ) -> Result<View, Stop> {
        let snapshot = SnapshotId::of(self.take_line(head)?, 1);
        let line = Line {
            parent,
            root: from.root,
            descendants_max,
            is_fork: false,
        };
        self.catalog_put(&line_key(snapshot.line()), line.encode())?;
        let root = self.copy_root(from, snapshot)?;
        let kind = Kind::Snapshot;
        Ok(View {
            snapshot,
            root,
            kind,
        })
    }

    fn take_line(&mut self, head: &mut Head) -> Result<u32, Stop> {
        let line = head.next_line;
        head.next_line = line.checked_add(1).ok_or(Error::Exhausted)?;
        Ok(line)
    }

    /// The next version on the fork of a snapshot, for one branch.
    pub(crate) fn next_of_fork(&mut self, head: &mut Head, from: View) -> Result<SnapshotId, Stop> {
        let key = fork_key(from.snapshot);
        let fork = self.catalog_get(&key)?;
        let fork = fork.and_then(|value| decode_fork(&key, &value));
        let at = if let Some((_, at)) = fork {
            at
        } else {
            let line = self.take_line(head)?;
            let begins = Line {
                parent: from.snapshot,
                root: from.root,
                descendants_max: self.descendants_max(from.snapshot)?,
                is_fork: true,
            };
            self.catalog_put(&line_key(line), begins.encode())?;
            SnapshotId::of(line, 1)
        };
        let next = at.next()?;
        let value = [at.line().to_le_bytes(), (next.0 as u32).to_le_bytes()];
        self.catalog_put(&key, value.concat())?;
        Ok(at)
    }

    /// Removes a line that is seen by nobody. Its entry must be there.
    pub(crate) fn remove_line(&mut self, line: u32, record: Line) -> Result<(), Stop> {
        self.catalog_remove(&line_key(line))?;
        if record.is_fork {
            self.catalog_remove(&fork_key(record.parent))?;
        }
        Ok(())
    }

    /// Ids in the descendant set of a node that is made at `version`, at most.
    pub(crate) fn descendants_max(&mut self, version: SnapshotId) -> Result<u8, Stop> {
        let lineage = self.lineage(version.line())?;
        // Its line was there when something below it was read.
        Ok(lineage.ok_or(Stop::Conflict)?.descendants_max)
    }

    /// Copies the root of a version as that of another.
    pub(crate) fn copy_root(&mut self, from: View, to: SnapshotId) -> Result<Address, Stop> {
        let page = read_root(self, from)?;
        let root = self.allocate(from.root.memnode)?;
        let mut copy = PageEdit::of(page);
        copy.become_copy(root.generation, to);
        self.put_page(root, copy);
        Ok(root)
    }
}
