//! Large values, in slots of their own.
//!
//! A large value is a *head* and a *body* at one memnode. An entry of a leaf holds the head's
//! address, however its owner writes that. The body never changes, so whoever has the address may
//! keep its bytes, and what an owner in the same process keeps beside them. The head's created-at
//! and copied-to say which versions have the value, as those of a node do: it is made in the
//! version that is written, and whoever takes its address out of a leaf frees both if they were
//! made in this version, or else notes in the head that this version does not have it any more
//! (MB3 old-nodes-say-so). So the collection frees values as it does nodes.

use pando_memnode::{Address, Bytes};

use super::DATA;
use super::discretion::note_copied;
use super::traverse::{Step, Way};
use crate::error::Stop;
use crate::fault::{Fault, planted};
use crate::page::{self, BODY_FORMAT, HEADER_BYTES, Page, PageEdit};
use crate::snapshot::View;
use crate::transaction::Transaction;

/// What a body begins with, so that it is no page, whatever it holds.
pub(crate) const BODY_HEADER: [u8; 1] = [BODY_FORMAT];

/// A body that holds these bytes.
pub(crate) fn body(bytes: &[u8]) -> Bytes {
    [&BODY_HEADER[..], bytes].concat().into()
}

/// Writes a large value, and returns the addresses of its head and its body.
pub(crate) fn store(
    transaction: &mut Transaction<'_>,
    view: View,
    bytes: &Bytes,
) -> Result<(Address, Address), Stop> {
    debug_assert!(view.is_tip() && bytes.starts_with(&BODY_HEADER));
    let place = transaction.place();
    let (head, body) = (transaction.allocate(place)?, transaction.allocate(place)?);
    let page = page::head(DATA, head.generation, view.snapshot, body);
    transaction.put_page(head, PageEdit::whole(page));
    transaction.put_bytes(body, bytes.clone());
    Ok((head, body))
}

/// Takes a large value out of the version that is written: nothing there leads to it any more.
pub(crate) fn retire(
    transaction: &mut Transaction<'_>,
    view: View,
    head: Address,
) -> Result<(), Stop> {
    let (address, page) = Way::new(transaction, view)?.visit_head(head)?;
    let body = page.body().ok_or(Stop::Conflict)?;
    if page.created() == view.snapshot || planted(Fault::LargeFreed) {
        transaction.free(address);
        transaction.free_unchanged(body);
        return Ok(());
    }
    let step = Step {
        address,
        page,
        entry: head,
        child: 0,
    };
    note_copied(transaction, view, &step)
}

/// Where the bytes of the large value are that a version has by this entry.
#[cfg(any(test, feature = "simulator"))]
pub(crate) fn find(
    transaction: &mut Transaction<'_>,
    view: View,
    head: Address,
) -> Result<Address, Stop> {
    let (_, page) = Way::new(transaction, view)?.visit_head(head)?;
    page.body().ok_or(Stop::Conflict)
}

/// Where the bytes of the large value are whose head this is.
pub(crate) fn body_of(head: &[u8]) -> Option<Address> {
    (head.len() == HEADER_BYTES).then(|| Page::of_slot(head).body())?
}
