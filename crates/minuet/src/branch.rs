//! Branches: writable versions, their names, and what is done with them.
//!
//! Follows §5. A branch has a tip, which is the last version on its line. To make a snapshot of it,
//! the next version of the line becomes the tip (`create_snapshot`). To make a branch from it, both
//! is done: the version that was the tip stays behind as it is, the branch goes on on its line, and
//! the new one begins another line there. From a snapshot, the new one begins a line on the
//! snapshot's fork (`line`). Nothing but the root is copied; everything is one transaction at all
//! memnodes.
//!
//! Departs from the paper, whose mainline is the way along the first branch of each version: here
//! it is a branch like others, the one that the catalog names.
//!
//! | key in the catalog | what it has, little-endian |
//! |---|---|
//! | `b`, branch (4, big-endian) | its tip (8), the tip's root (18), its name |
//! | `n`, name | the branch (4) |
//!
//! The first branch's tip is in a slot of its own (`snapshot`), so that a database without branches
//! needs no catalog to be read.

#[cfg(test)]
mod tests;

use crate::SnapshotId;
use crate::catalog::Head;
use crate::error::{Error, Stop};
use crate::fault::{Fault, planted};
use crate::limits::{BRANCHES_MAX, DESCENDANTS_MAX, DESCENDANTS_MIN, NAME_BYTES_MAX};
use crate::page::ADDRESS_BYTES;
use crate::snapshot::{Kind, View};
use crate::transaction::Transaction;

/// A branch. It keeps its id over resets and other names; no other ever has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BranchId(pub u32);

impl BranchId {
    /// The branch that is founded with the tree.
    pub const FIRST: Self = Self(0);
}

/// What is known of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Which it is.
    pub id: BranchId,
    /// Its name.
    pub name: Vec<u8>,
    /// Its tip.
    pub tip: View,
    /// The version that its line begins at; none of the first.
    pub parent: Option<SnapshotId>,
    /// Ids in a descendant set of its nodes, at most.
    pub descendants_max: u8,
    /// Whether new connections use it.
    pub is_mainline: bool,
}

/// What a branch is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The tip of a branch, as it is.
    Branch(BranchId),
    /// A snapshot that is kept.
    Snapshot(View),
}

/// Bytes of an entry `b` before the name.
const TIP_BYTES: usize = 8 + ADDRESS_BYTES;
/// The name of the first branch, at first.
const FIRST_NAME: &[u8] = b"main";
const BRANCHES: &[u8] = b"b";
const NAMES: &[u8] = b"n";

fn branch_key(branch: BranchId) -> Vec<u8> {
    [BRANCHES, &branch.0.to_be_bytes()].concat()
}

fn name_key(name: &[u8]) -> Vec<u8> {
    [NAMES, name].concat()
}

/// The branch of an entry `b` and its tip as the catalog has it.
pub(crate) fn decode_entry(key: &[u8], value: &[u8]) -> Option<View> {
    let id = u32::from_be_bytes(key.strip_prefix(BRANCHES)?.try_into().ok()?);
    View::decode(value, Kind::Tip(BranchId(id)))
}

fn check_name(name: &[u8]) -> Result<(), Error> {
    if (1..=NAME_BYTES_MAX).contains(&name.len()) {
        Ok(())
    } else {
        Err(Error::BadName { bytes: name.len() })
    }
}

impl Transaction<'_> {
    /// Founds the catalog, with the first branch.
    pub(crate) fn found_branches(&mut self) -> Result<(), Stop> {
        let head = Head {
            next_line: 1,
            next_branch: 1,
            branches: 1,
            mainline: BranchId::FIRST.0,
            changes: 0,
        };
        self.found_catalog(head)?;
        self.put_name(BranchId::FIRST, FIRST_NAME)?;
        let entry = [&[0; TIP_BYTES], FIRST_NAME].concat();
        self.catalog_put(&branch_key(BranchId::FIRST), entry)
    }

    fn put_name(&mut self, branch: BranchId, name: &[u8]) -> Result<(), Stop> {
        self.catalog_put(&name_key(name), branch.0.to_le_bytes().to_vec())
    }

    pub(crate) fn tip_in_catalog(&mut self, branch: BranchId) -> Result<View, Stop> {
        let entry = self.entry(branch)?;
        Ok(View::decode(&entry, Kind::Tip(branch)).ok_or(Error::NoBranch)?)
    }

    fn entry(&mut self, branch: BranchId) -> Result<Vec<u8>, Stop> {
        let key = branch_key(branch);
        if planted(Fault::CatalogStale)
            && let Some(entry) = self.catalog_recall(&key)?
        {
            return Ok(entry);
        }
        let entry = self.catalog_get(&key)?;
        entry.ok_or_else(|| Error::NoBranch.into())
    }

    pub(crate) fn set_tip_in_catalog(&mut self, branch: BranchId, tip: View) -> Result<(), Stop> {
        let key = branch_key(branch);
        let entry = self.catalog_get(&key)?.ok_or(Error::NoBranch)?;
        let entry = [&tip.encode()[..], &entry[TIP_BYTES..]].concat();
        self.catalog_put(&key, entry)
    }

    /// The branch of a name.
    pub fn branch(&mut self, name: &[u8]) -> Result<BranchId, Stop> {
        let found = self.catalog_get(&name_key(name))?;
        let id = found.and_then(|id| Some(u32::from_le_bytes(id.try_into().ok()?)));
        id.map(BranchId).ok_or_else(|| Error::NoBranch.into())
    }

    /// The branch that new connections use.
    pub fn mainline(&mut self) -> Result<BranchId, Stop> {
        Ok(BranchId(self.head()?.mainline))
    }

    /// Makes a branch the one that new connections use.
    pub fn set_mainline(&mut self, name: &[u8]) -> Result<(), Stop> {
        let BranchId(mainline) = self.branch(name)?;
        let head = self.head()?;
        self.set_head(Head { mainline, ..head });
        Ok(())
    }

    /// What is known of a branch.
    pub fn branch_info(&mut self, id: BranchId) -> Result<Branch, Stop> {
        let mut entry = self.entry(id)?;
        let name = entry.split_off(TIP_BYTES);
        let tip = self.tip_of(id)?;
        let lineage = self.lineage(tip.snapshot.line())?.ok_or(Stop::Conflict)?;
        Ok(Branch {
            id,
            name,
            tip,
            parent: lineage.above.last().copied(),
            descendants_max: lineage.descendants_max,
            is_mainline: self.mainline()? == id,
        })
    }

    /// Names of branches and the branches, in order, up to `limit` of them from `from` on.
    pub fn branches(
        &mut self,
        from: &[u8],
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, BranchId)>, Stop> {
        let named = self.catalog_scan(NAMES, &name_key(from), limit)?;
        let branch = |(key, id): (Vec<u8>, Vec<u8>)| {
            let id = u32::from_le_bytes(id.try_into().ok()?);
            Some((key[NAMES.len()..].to_vec(), BranchId(id)))
        };
        Ok(named.into_iter().filter_map(branch).collect())
    }

    /// How many branches there are.
    pub fn branch_count(&mut self) -> Result<u32, Stop> {
        Ok(self.head()?.branches)
    }

    /// Makes a branch. Descendant sets of its nodes have `descendants_max` ids at most: fewer of
    /// them make smaller sets and more copies (§5.2).
    pub fn create_branch(
        &mut self,
        name: &[u8],
        origin: Origin,
        descendants_max: u8,
    ) -> Result<BranchId, Stop> {
        check_name(name)?;
        if !(DESCENDANTS_MIN..=DESCENDANTS_MAX).contains(&descendants_max) {
            return Err(Error::BadDescendants { descendants_max }.into());
        }
        if self.catalog_get(&name_key(name))?.is_some() {
            return Err(Error::NameTaken.into());
        }
        let mut head = self.head()?;
        if head.branches as usize >= BRANCHES_MAX {
            return Err(Error::TooManyBranches.into());
        }
        let branch = BranchId(head.next_branch);
        head.next_branch = branch.0.checked_add(1).ok_or(Error::Exhausted)?;
        head.branches += 1;
        head.changes += 1;
        let tip = match origin {
            Origin::Branch(of) => {
                let from = self.tip_of(of)?;
                let tip = self.begin_line(&mut head, from.snapshot, from, descendants_max)?;
                self.advance(from)?;
                tip
            }
            Origin::Snapshot(from) => self.leave_snapshot(&mut head, from, descendants_max)?,
        };
        self.set_head(head);
        self.put_name(branch, name)?;
        let tip = View {
            kind: Kind::Tip(branch),
            ..tip
        };
        self.catalog_put(&branch_key(branch), [&tip.encode()[..], name].concat())?;
        Ok(branch)
    }

    /// Begins a line at a snapshot's fork.
    fn leave_snapshot(
        &mut self,
        head: &mut Head,
        from: View,
        descendants_max: u8,
    ) -> Result<View, Stop> {
        if from.is_tip() {
            return Err(Error::NoSnapshot.into());
        }
        self.require_kept(from)?;
        let parent = self.next_of_fork(head, from)?;
        self.begin_line(head, parent, from, descendants_max)
    }

    /// The tip stays behind, and the next version of its line becomes the tip (Figure 6).
    pub(crate) fn advance(&mut self, tip: View) -> Result<View, Stop> {
        let snapshot = tip.snapshot.next()?;
        let root = self.copy_root(tip, snapshot)?;
        let kind = tip.kind;
        self.set_tip(View {
            snapshot,
            root,
            kind,
        })?;
        Ok(View {
            kind: Kind::Snapshot,
            ..tip
        })
    }

    /// A branch's tip stays behind as a version that is not kept, until nobody needs it. What is
    /// seen changes with it, and so does the head (MG3 live-is-current).
    pub(crate) fn leave_tip(&mut self, branch: BranchId) -> Result<View, Stop> {
        let tip = self.tip_of(branch)?;
        let mut head = self.head()?;
        head.changes += 1;
        self.set_head(head);
        self.advance(tip)
    }

    /// Drops a branch, not the mainline. Its snapshots stay as long as they are kept, and so do
    /// branches that were made from it.
    pub fn drop_branch(&mut self, name: &[u8]) -> Result<(), Stop> {
        let branch = self.branch(name)?;
        let mut head = self.head()?;
        if branch.0 == head.mainline {
            return Err(Error::Mainline.into());
        }
        head.branches -= 1;
        head.changes += 1;
        self.set_head(head);
        if branch == BranchId::FIRST {
            self.drop_first_tip()?;
        }
        self.catalog_remove(&name_key(name))?;
        self.catalog_remove(&branch_key(branch))
    }

    /// Gives a branch another name.
    pub fn rename_branch(&mut self, name: &[u8], new: &[u8]) -> Result<(), Stop> {
        check_name(new)?;
        let branch = self.branch(name)?;
        if name == new {
            return Ok(());
        }
        if self.catalog_get(&name_key(new))?.is_some() {
            return Err(Error::NameTaken.into());
        }
        let mut entry = self.entry(branch)?;
        entry.truncate(TIP_BYTES);
        entry.extend(new);
        self.catalog_put(&branch_key(branch), entry)?;
        self.catalog_remove(&name_key(name))?;
        self.put_name(branch, new)
    }

    /// Makes a branch what a snapshot was, on a line of its own. Views of its former tip are
    /// [`Error::Outdated`], and what is written from now on has versions above all that it had.
    pub fn reset_branch(&mut self, name: &[u8], to: View) -> Result<View, Stop> {
        let branch = self.branch(name)?;
        let old = self.tip_of(branch)?;
        let descendants_max = self.descendants_max(old.snapshot)?;
        let mut head = self.head()?;
        head.changes += 1;
        let tip = self.leave_snapshot(&mut head, to, descendants_max)?;
        self.set_head(head);
        let tip = View {
            kind: old.kind,
            ..tip
        };
        self.set_tip(tip)?;
        Ok(tip)
    }

    /// Makes a branch what another one is, on a line that leaves that one's there; the other one is
    /// dropped. Views of either's former tip fail; the former tip of the first stays as long as
    /// somebody needs it.
    pub fn adopt_branch(&mut self, branch: BranchId, other: &[u8]) -> Result<BranchId, Stop> {
        let dropped = self.branch(other)?;
        let (old, from) = (self.tip_of(branch)?, self.tip_of(dropped)?);
        let descendants_max = self.descendants_max(old.snapshot)?;
        if dropped == branch {
            return Err(Error::NoBranch.into());
        }
        self.drop_branch(other)?;
        // Above the former tip, whichever of the two lines is older.
        let mut head = self.head()?;
        let tip = self.begin_line(&mut head, from.snapshot, from, descendants_max)?;
        self.set_head(head);
        self.set_tip(View {
            kind: old.kind,
            ..tip
        })?;
        Ok(dropped)
    }
}
