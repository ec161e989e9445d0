//! From the root to a leaf (Figure 5, with the checks of §4.2).
//!
//! | check | what it finds |
//! |---|---|
//! | the page is one, of the address's generation | the slot was freed, and perhaps used again |
//! | made at the view's version or above it, not copied on the way to it | the wrong version |
//! | the fences hold the key | the node was split, merged or never right |
//! | a child is one lower than its parent | a root that grew or shrank |
//!
//! If one fails, the transaction starts over, without what it had cached on the way.
//!
//! A node that was copied to a version above the view's says where that copy is, if it was a
//! discretionary one (§5.2, `discretion`). The traversal then goes on there: the copy is the same,
//! and made at a version below the node's, so this comes to an end.

use std::ops::Deref;

use pando_memnode::{Address, Bytes};

use super::DATA;
use crate::error::Stop;
use crate::fault::{Fault, planted};
use crate::lineage::Ancestry;
use crate::page::{Copied, Page};
use crate::snapshot::{Kind, View};
use crate::transaction::Transaction;

/// A node on the way.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) address: Address,
    pub(super) page: Page,
    /// Where its parent points to: the node, or one of which it is a discretionary copy.
    pub(super) entry: Address,
    /// The child that was taken; of a leaf 0.
    pub(super) child: usize,
}

/// Whether a node is what a version has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// It is.
    Here,
    /// It was; a copy there is the same.
    There(Copied),
    /// It is not.
    Nowhere,
}

/// Whether the version of `ancestry` has a node (§4.2, §5.2): it was made at that version or above,
/// and not copied to one from there on.
pub(crate) fn route<B: Deref<Target = [u8]>>(page: &Page<B>, ancestry: &Ancestry) -> Route {
    let (created, version) = (page.created(), ancestry.version);
    let is_above = |at| {
        if planted(Fault::BranchCopied) {
            at <= version
        } else {
            ancestry.has(at)
        }
    };
    if !is_above(created) {
        return Route::Nowhere;
    }
    // A copy of a copy, perhaps of one of many.
    if let Some(far) = page.far().filter(|far| is_above(far.at)) {
        return Route::There(far);
    }
    match page.copies().find(|copied| is_above(copied.at)) {
        None => Route::Here,
        Some(_) if planted(Fault::CopiedCheck) => Route::Here,
        Some(copied) if copied.to.is_some() => Route::There(copied),
        Some(_) => Route::Nowhere,
    }
}

/// How a version came to be. If it is gone, so is what a view of it can read.
pub(super) fn ancestry_of(transaction: &mut Transaction<'_>, view: View) -> Result<Ancestry, Stop> {
    match transaction.ancestry(view.snapshot)? {
        Some(ancestry) => Ok(ancestry),
        None => Err(misled(transaction, view)?),
    }
}

/// What was read is of no use. Of a snapshot, nothing is freed while it is kept: what is wrong is
/// in the cache.
fn misled(transaction: &mut Transaction<'_>, view: View) -> Result<Stop, Stop> {
    match view.kind {
        Kind::Snapshot => transaction.require_kept(view)?,
        Kind::Tip(_) | Kind::Parting => {}
    }
    Ok(Stop::Conflict)
}

/// The nodes from the root to the leaf that is responsible for `key`.
pub(super) fn traverse(
    transaction: &mut Transaction<'_>,
    view: View,
    key: &[u8],
) -> Result<Vec<Step>, Stop> {
    transaction.require_current(view)?;
    let mut way = Way::new(transaction, view)?;
    let mut path: Vec<Step> = Vec::new();
    let mut entry = view.root;
    loop {
        let parent = path.last().map(|step| step.page.height());
        let visited = way.visit(entry, parent);
        let is_believed = |page: &Page| {
            page.covers(key)
                || planted(Fault::FenceCheck)
                || (page.height() > 0 && believes_paths(view))
        };
        let (address, page) = match visited {
            Ok((address, page)) if is_believed(&page) => (address, page),
            Ok(_) | Err(Stop::Conflict) => {
                // Its parent may have led here wrongly. If that was led to wrongly itself, the next
                // attempt finds out.
                let above = path.last().map(|step: &Step| [step.address, step.entry]);
                let nodes = way
                    .met
                    .clone()
                    .into_iter()
                    .chain(above.into_iter().flatten());
                way.transaction.suspect(nodes);
                return Err(Stop::Conflict);
            }
            Err(stop) => return Err(stop),
        };
        let is_leaf = page.height() == 0;
        let child = if is_leaf { 0 } else { page.child_for(key) };
        let next = (!is_leaf).then(|| page.child(child));
        path.push(Step {
            address,
            page,
            entry,
            child,
        });
        let Some(next) = next else {
            return Ok(path);
        };
        entry = next;
    }
}

/// Whether traversals rely on comparisons of inner nodes alone.
fn believes_paths(view: View) -> bool {
    view.is_tip() && (planted(Fault::OnlyPaths) || planted(Fault::PathUnseen))
}

/// Reads the root of a version; the commit compares it.
pub(crate) fn read_root(transaction: &mut Transaction<'_>, view: View) -> Result<Page, Stop> {
    let bytes = transaction.read(view.root)?;
    match Page::parse(&bytes, view.root, DATA) {
        Some(page) if page.is_root() => Ok(page),
        _ => Err(misled(transaction, view)?),
    }
}

/// Whether a node may be one below a node of the height `parent`, or a root.
fn below(parent: Option<u8>) -> impl Fn(&Page) -> bool {
    move |page| match parent {
        Some(parent) => parent == page.height().saturating_add(1),
        None => page.height() > 0,
    }
}

/// Ways to the nodes of a version.
pub(super) struct Way<'t, 'a> {
    transaction: &'t mut Transaction<'a>,
    view: View,
    ancestry: Ancestry,
    /// The nodes by which the last visit went.
    met: Vec<Address>,
}

impl<'t, 'a> Way<'t, 'a> {
    pub(super) fn new(transaction: &'t mut Transaction<'a>, view: View) -> Result<Self, Stop> {
        if view.kind == Kind::Snapshot && !planted(Fault::LetGo) {
            // Of one that was let go, what was cached before may fit what is there now.
            transaction.require_kept(view)?;
        }
        let ancestry = ancestry_of(transaction, view)?;
        Ok(Self {
            transaction,
            view,
            ancestry,
            met: Vec::new(),
        })
    }

    /// Reads the node that a node of the height `parent` points to, or the root, and checks it, its
    /// fences aside.
    pub(super) fn visit(
        &mut self,
        entry: Address,
        parent: Option<u8>,
    ) -> Result<(Address, Page), Stop> {
        let is_tip = self.view.is_tip();
        let is_compared = parent == Some(1) && is_tip;
        let (address, page) = self.arrive(entry, below(parent), |transaction, address| {
            if is_compared {
                return transaction.read(address);
            }
            let bytes = if is_tip {
                transaction.path_read(address)?
            } else {
                transaction.dirty_read(address)?
            };
            if parent != Some(1) {
                transaction.keep_cached(address);
            }
            Ok(bytes)
        })?;
        Ok((address, page))
    }

    /// As `visit`, but what the node says is so in the version: of a tip, because the commit
    /// compares it, of a snapshot, because it was read after the snapshot was made.
    pub(super) fn visit_exactly(
        &mut self,
        entry: Address,
        parent: Option<u8>,
    ) -> Result<(Address, Page), Stop> {
        let is_compared = self.view.is_tip() && !planted(Fault::DiffUnseen);
        self.arrive(entry, below(parent), |transaction, address| {
            if is_compared {
                transaction.read(address)
            } else {
                transaction.fresh_read(address)
            }
        })
    }

    /// Reads the head of a large value; the commit compares it.
    pub(super) fn visit_head(&mut self, entry: Address) -> Result<(Address, Page), Stop> {
        self.arrive(entry, |page| page.body().is_some(), Transaction::read)
    }

    /// Goes to where the version has the node.
    fn arrive(
        &mut self,
        entry: Address,
        is_such: impl Fn(&Page) -> bool,
        mut read: impl FnMut(&mut Transaction<'a>, Address) -> Result<Bytes, Stop>,
    ) -> Result<(Address, Page), Stop> {
        let mut address = entry;
        let mut made = None;
        self.met.clear();
        loop {
            self.met.push(address);
            let bytes = read(self.transaction, address)?;
            let fits =
                |page: &Page| made.is_none_or(|made| made == page.created()) && is_such(page);
            let page = Page::parse(&bytes, address, DATA).filter(fits);
            let route = page.as_ref().map(|page| route(page, &self.ancestry));
            match (page, route) {
                (Some(page), Some(Route::Here)) => return Ok((address, page)),
                (Some(page), Some(Route::Nowhere)) if believes_paths(self.view) => {
                    return Ok((address, page));
                }
                (Some(page), Some(Route::There(copied))) => {
                    let (slot, generation) = copied.to.expect("a copy to go to");
                    debug_assert!(copied.at > page.created(), "copies are made further on");
                    made = Some(copied.at);
                    address = Address {
                        slot,
                        generation,
                        ..address
                    };
                }
                _ => return Err(misled(self.transaction, self.view)?),
            }
        }
    }
}
