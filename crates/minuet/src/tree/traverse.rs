//! From the root to a leaf (Figure 5, with the checks of §4.2).
//!
//! | check | what it finds |
//! |---|---|
//! | the page is one, of the address's generation | the slot was freed, and perhaps used again |
//! | made at or before the view's snapshot, not copied by then | the wrong version |
//! | the fences hold the key | the node was split, merged or never right |
//! | a child is one lower than its parent | a root that grew or shrank |
//!
//! If one fails, the transaction starts over, without what it had cached on the way.

use pando_memnode::{Address, Bytes};

use super::DATA;
use crate::error::Stop;
use crate::fault::{Fault, planted};
use crate::page::Page;
use crate::snapshot::View;
use crate::transaction::Transaction;

/// A node on the way.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) address: Address,
    pub(super) page: Page,
    /// The child that was taken; of a leaf 0.
    pub(super) child: usize,
}

/// The nodes from the root to the leaf that is responsible for `key`.
pub(super) fn traverse(
    transaction: &mut Transaction<'_>,
    view: View,
    key: &[u8],
) -> Result<Vec<Step>, Stop> {
    transaction.require_current(view)?;
    let mut path: Vec<Step> = Vec::new();
    let mut address = view.root;
    loop {
        let parent = path.last().map(|step| step.page.height());
        let page = visit(transaction, view, address, parent)?;
        if !page.covers(key) && !planted(Fault::FenceCheck) {
            return Err(Stop::Conflict);
        }
        if page.height() == 0 {
            path.push(Step {
                address,
                page,
                child: 0,
            });
            return Ok(path);
        }
        let child = page.child_for(key);
        let next = page.child(child);
        path.push(Step {
            address,
            page,
            child,
        });
        address = next;
    }
}

/// Reads the root, to change it.
pub(super) fn visit_root(transaction: &mut Transaction<'_>, view: View) -> Result<Page, Stop> {
    visit(transaction, view, view.root, None)
}

/// Reads a node below one of the height `parent`, or the root, and checks it, its fences aside.
pub(super) fn visit(
    transaction: &mut Transaction<'_>,
    view: View,
    address: Address,
    parent: Option<u8>,
) -> Result<Page, Stop> {
    let bytes = if parent == Some(1) && view.tip {
        transaction.read(address)?
    } else {
        transaction.dirty_read(address)?
    };
    let page = checked(transaction, view, &bytes, (address, parent))?;
    if parent != Some(1) {
        transaction.keep_cached(address);
    }
    Ok(page)
}

/// As `visit`, but what the node says is so in the version: of the tip, because the commit compares
/// it, of a snapshot, because it was read after the snapshot was made.
pub(super) fn visit_exactly(
    transaction: &mut Transaction<'_>,
    view: View,
    address: Address,
    parent: Option<u8>,
) -> Result<Page, Stop> {
    let bytes = if view.tip {
        transaction.read(address)?
    } else {
        transaction.fresh_read(address)?
    };
    checked(transaction, view, &bytes, (address, parent))
}

/// The page that was read, if it can be the node that is looked for.
fn checked(
    transaction: &mut Transaction<'_>,
    view: View,
    bytes: &Bytes,
    (address, parent): (Address, Option<u8>),
) -> Result<Page, Stop> {
    let page = Page::parse(bytes, address, DATA);
    let fits = |page: &Page| {
        let fits = parent.map_or(page.height() > 0, |parent| page.height() + 1 == parent);
        fits && view.contains(page)
    };
    let Some(page) = page.filter(fits) else {
        // Of a snapshot, nothing is freed while it is kept: what is wrong is in the cache.
        if !view.tip {
            transaction.require_kept(view)?;
        }
        return Err(Stop::Conflict);
    };
    Ok(page)
}
