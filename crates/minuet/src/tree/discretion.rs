//! Notes of copies in old nodes, and discretionary copies that keep them few.
//!
//! Follows §5.2. A node that was made at x and copied to versions C below x is what a version t has
//! if t comes from x and from no member of C. C is kept small: if it would have more members than
//! x's branch allows, two of them come from the same child of x, since a version goes on in two
//! ways at most (MV2 two-ways-on). Let z be the lowest version where two members part. A copy is
//! made at z; its set are the members below z, and in the node's set z stands for these.
//!
//! **What the paper leaves open.** It says that the result is as if the node had been copied at z
//! before. But then z's parent of the node would point to the copy, and so would what was copied of
//! that parent in versions below z. Parents in versions below z point to the old node; there may be
//! any number of them, and nobody knows where. So the node forwards: its note of z says where the
//! copy is. A traversal below z goes on there (`traverse`), whatever parent led it. A note of an
//! ordinary copy needs no address: who makes that changes the parent, and the versions below
//! inherit the parent. So from there on no parent leads to the old node, and whoever comes to it by
//! what was cached is to start over.
//!
//! Nodes that forward need not be seen by any version themselves. The collection keeps a node while
//! a way leads by it (`collect`). And a node that forwards to a node that forwards, and so on, has
//! a note of the last one besides: else a branch, made from a snapshot together with very many
//! others, came by the copies of all.
//!
//! The head of a large value is such a node too (`large`). Its discretionary copies have the same
//! body, which is the first one's: that one is there as long as any of them is needed.
//!
//! Invariants:
//! - **MF1 copies-are-bounded** A node's set has at most as many members as the branch allows on
//!   whose line it was made. None comes from another, and all come from where the node was made.
//! - **MF2 forwarders-lead-on** Let a parent in version t point to a node. If t comes from a member
//!   of the node's set, the note of that member has an address, and there is a copy with the same
//!   fences, cells and floor, made at that member, of which the same is true.
//! - **MF3 old-nodes-stay** A version that has others below it is never written. So a node and its
//!   discretionary copies stay the same, and a parent that points to either has the same child.

use pando_memnode::Address;

use super::traverse::Step;
use crate::error::Stop;
use crate::fault::{Fault, planted};
use crate::lineage::lowest_parting;
use crate::page::{Copied, PageEdit};
use crate::snapshot::{SnapshotId, View};
use crate::transaction::Transaction;

/// Notes in an old node that it is not the tip's any more (MB3 old-nodes-say-so).
pub(super) fn note_copied(
    transaction: &mut Transaction<'_>,
    tip: View,
    step: &Step,
) -> Result<(), Stop> {
    let mut old = transaction.take_page(step.address, step.page.clone());
    let mut copies: Vec<_> = old.page().copies().collect();
    let max = usize::from(transaction.descendants_max(old.page().created())?);
    let at = tip.snapshot;
    copies.push(Copied { at, to: None });
    let spared = usize::from(planted(Fault::DescendantBound));
    let mut far = None;
    if copies.len() > max + spared {
        let versions: Vec<_> = copies.iter().map(|copied| copied.at).collect();
        let kept = Kept::of(transaction, old.page().created(), &versions)?;
        let below = kept.below(&copies);
        copies = kept.stay(&copies);
        if let Some(at) = kept.further {
            let copied = copy_further_on(transaction, step.address, &old, (at, &below))?;
            copies.push(copied);
            far = Some(copied);
        }
    }
    assert!(
        copies.len() <= max + spared,
        "the descendant set is bounded"
    );
    old.set_copies(&copies);
    transaction.put_page(step.address, old);
    if let Some(far) = far.filter(|_| step.entry != step.address) {
        note_far(transaction, step.entry, far);
    }
    Ok(())
}

/// How the notes of a node are kept few when it is copied once more than it may note.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    /// Which of the versions it was copied to stay in its set.
    stay: Vec<usize>,
    /// Where a discretionary copy is made, if one is, which stands for those below.
    pub(crate) further: Option<SnapshotId>,
    below: Vec<usize>,
}

impl Kept {
    /// Of a node that was made at `created` and copied to `versions`.
    ///
    /// Copies to versions whose lines are gone are forgotten: no way leads there any more. What the
    /// proxy remembers of lines does not say so. A snapshot whose fork is gone may have got
    /// another, and would seem to go on in three ways.
    pub(crate) fn of(
        transaction: &mut Transaction<'_>,
        created: SnapshotId,
        versions: &[SnapshotId],
    ) -> Result<Self, Stop> {
        let max = usize::from(transaction.descendants_max(created)?);
        let spared = usize::from(planted(Fault::DescendantBound));
        let mut stay: Vec<_> = (0..versions.len()).collect();
        if stay.len() > max + spared {
            stay.clear();
            for (index, version) in versions.iter().enumerate() {
                if transaction.has_line(version.line())? {
                    stay.push(index);
                }
            }
        }
        if stay.len() <= max + spared {
            return Ok(Self {
                stay,
                further: None,
                below: Vec::new(),
            });
        }
        let mut ancestries = Vec::new();
        for index in &stay {
            let ancestry = transaction.ancestry(versions[*index])?;
            ancestries.push(ancestry.ok_or(Stop::Conflict)?);
        }
        let at = lowest_parting(&ancestries).expect("more than one copy");
        let of = stay.into_iter().zip(ancestries);
        let (below, stay): (Vec<_>, Vec<_>) = of.partition(|(_, ancestry)| ancestry.has(at));
        assert!(
            at > created && below.len() >= 2,
            "two copies lie below one child of the node's version"
        );
        let index = |(index, _)| index;
        Ok(Self {
            stay: stay.into_iter().map(index).collect(),
            further: Some(at),
            below: below.into_iter().map(index).collect(),
        })
    }

    /// Those of the copies that stay in the node's set.
    pub(crate) fn stay(&self, copies: &[Copied]) -> Vec<Copied> {
        self.stay.iter().map(|index| copies[*index]).collect()
    }

    /// Those that a discretionary copy has in its set.
    pub(crate) fn below(&self, copies: &[Copied]) -> Vec<Copied> {
        self.below.iter().map(|index| copies[*index]).collect()
    }
}

/// Makes a copy of a node at a version where two of its copies part, and that stands for those
/// below.
fn copy_further_on(
    transaction: &mut Transaction<'_>,
    address: Address,
    old: &PageEdit,
    (at, below): (SnapshotId, &[Copied]),
) -> Result<Copied, Stop> {
    let copy = transaction.allocate(address.memnode)?;
    let mut page = PageEdit::of(old.page().clone());
    page.become_discretionary(copy.generation, at);
    page.set_copies(below);
    transaction.put_page(copy, page);
    let to = (!planted(Fault::Forwarding)).then_some((copy.slot, copy.generation));
    Ok(Copied { at, to })
}

/// Notes at the node where ways come in which copy was made last.
fn note_far(transaction: &mut Transaction<'_>, entry: Address, far: Copied) {
    // The way here led by it, so it was read.
    let Some(page) = transaction.page_that_was_read(entry) else {
        return;
    };
    let mut edit = transaction.take_page(entry, page);
    edit.set_far(far);
    transaction.put_page(entry, edit);
}
