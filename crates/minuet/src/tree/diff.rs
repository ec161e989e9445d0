//! What differs between two versions.
//!
//! Beyond the paper. Two versions share the nodes that neither has changed. So a node that both
//! reach by one address is equal, with all below it, and is passed over unread. Both trees are
//! walked side by side in the order of keys: each side has the nodes from its root to where it is,
//! and goes back up only as far as the next key needs. The cost follows what changed.
//!
//! That holds only of nodes as they are in their versions. A node that is merely cached may point
//! to a child that has been copied since; a traversal finds that out at the child, but whoever
//! passes over the child does not. So no node is taken from the cache here.
//!
//! A node that forwards to a discretionary copy is the same as that (MF3 old-nodes-stay). So it is
//! equal for two versions of which one has it and the other its copy.
//!
//! What is not here is passed over as well, and wanted; so a wave fetches many nodes at once. The
//! next run of the program begins anew, or, if nobody can change what it reads, where the first of
//! them was missing ([`TreeId::diff_on`]).

use std::cmp::Ordering as Cmp;

use pando_memnode::Address;

use super::TreeId;
use super::traverse::Way;
use crate::error::Stop;
use crate::fault::{Fault, planted};
use crate::limits::{DIFF_LEAVES_MAX, DIFF_WANTED_MAX, DIFF_WANTED_MIN};
use crate::page::Page;
use crate::snapshot::View;
use crate::transaction::Transaction;

/// A key that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its tree.
    pub tree: TreeId,
    /// It.
    pub key: Vec<u8>,
    /// Its version and value before, if it was there.
    pub before: Option<(u64, Vec<u8>)>,
    /// Its version and value after, if it is there.
    pub after: Option<(u64, Vec<u8>)>,
}

/// A part of what differs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diffed {
    /// Keys whose values differ, in their order.
    pub changes: Vec<Change>,
    /// Where to go on, if there may be more: a tree, and a key of it.
    pub next: Option<(TreeId, Vec<u8>)>,
}

/// How far a comparison has come, for its next run.
#[derive(Debug)]
pub(crate) struct Progress {
    /// None before the first run.
    at: Option<Vec<u8>>,
    leaves: usize,
    diffed: Diffed,
    /// Places at which the next run finds nothing, at most.
    wanted_max: usize,
}

impl Progress {
    /// One that is taken along from run to run. Where few leaves have all the keys that are asked
    /// for, more would be fetched for nothing: waves begin small and grow.
    pub(crate) fn new() -> Self {
        Self {
            wanted_max: DIFF_WANTED_MIN,
            ..Self::of_one_run()
        }
    }

    fn of_one_run() -> Self {
        Self {
            at: None,
            leaves: 0,
            diffed: Diffed::default(),
            wanted_max: DIFF_WANTED_MAX,
        }
    }
}

/// Which keys are compared.
#[derive(Clone, Debug, Default)]
pub(super) struct Range {
    /// From this one, as pages have it.
    pub(super) from: Vec<u8>,
    /// Up to, not including, this one.
    pub(super) end: Option<Vec<u8>>,
}

/// One of the two versions.
struct Side {
    view: View,
    path: Vec<(Address, Page)>,
}

/// What one step found.
enum Met {
    /// The same node on both sides, which ends here.
    Same(Option<Vec<u8>>),
    /// Something that is not here, which ends there.
    Away(Option<Vec<u8>>),
    /// Two leaves that differ.
    Leaves,
}

impl TreeId {
    /// What differs between two versions of this tree, in keys with a prefix, from `from` on: up to
    /// `limit` of them, which is 1 at least. It may return fewer, and a place where to go on.
    pub fn diff(
        self,
        transaction: &mut Transaction<'_>,
        (before, after): (View, View),
        prefix: &[u8],
        from: &[u8],
        limit: usize,
    ) -> Result<Diffed, Stop> {
        let progress = &mut Progress::of_one_run();
        self.diff_on(
            transaction,
            (before, after),
            (prefix, from),
            limit,
            progress,
        )
    }

    /// The same of versions that nobody changes: a run goes on where the one before lacked a node.
    pub(crate) fn diff_on(
        self,
        transaction: &mut Transaction<'_>,
        (before, after): (View, View),
        (prefix, from): (&[u8], &[u8]),
        limit: usize,
        progress: &mut Progress,
    ) -> Result<Diffed, Stop> {
        let first = self.key(prefix.max(from), transaction)?;
        let prefix = self.key(prefix, transaction)?;
        let range = Range {
            from: first,
            end: after_prefix(prefix),
        };
        go_on(transaction, (before, after), range, limit, progress)
    }
}

/// All keys of a tree.
pub(super) fn range_of(tree: TreeId, transaction: &Transaction<'_>) -> Result<Range, Stop> {
    let from = tree.key(b"", transaction)?;
    let end = after_prefix(from.clone());
    Ok(Range { from, end })
}

/// The first key after all that begin with `prefix`.
fn after_prefix(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = prefix.pop() {
        if last < u8::MAX {
            prefix.push(last + 1);
            return Some(prefix);
        }
    }
    None
}

/// The tree and the key of it that a key in pages stands for.
fn split_key(full: &[u8]) -> (TreeId, Vec<u8>) {
    let mut tree = [0; 4];
    // A fence may be shorter than a tree's number.
    let len = full.len().min(4);
    tree[..len].copy_from_slice(&full[..len]);
    (TreeId(u32::from_be_bytes(tree)), full[len..].to_vec())
}

/// The lower of two keys, of which none is the highest.
fn lower(one: Option<Vec<u8>>, other: Option<Vec<u8>>) -> Option<Vec<u8>> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// What differs in a range, over all trees.
pub(super) fn diff(
    transaction: &mut Transaction<'_>,
    views: (View, View),
    range: Range,
    limit: usize,
) -> Result<Diffed, Stop> {
    go_on(
        transaction,
        views,
        range,
        limit,
        &mut Progress::of_one_run(),
    )
}

/// The same, from where `progress` is, which is taken along up to the first node that is not here.
fn go_on(
    transaction: &mut Transaction<'_>,
    (before, after): (View, View),
    range: Range,
    limit: usize,
    progress: &mut Progress,
) -> Result<Diffed, Stop> {
    for view in [before, after] {
        transaction.require_current(view)?;
    }
    let side = |view| Side {
        view,
        path: Vec::new(),
    };
    let (mut one, mut other) = (side(before), side(after));
    let Progress {
        at: begun,
        leaves,
        diffed,
        wanted_max,
    } = progress;
    let mut at = begun.get_or_insert(range.from).clone();
    let mut away = 0;
    loop {
        let met = descend(transaction, &mut one, &mut other, &at)?;
        let end = match met {
            Met::Same(end) => end,
            Met::Away(end) => {
                away += 1;
                end
            }
            Met::Leaves => {
                let (old, new) = (&one.leaf(), &other.leaf());
                let high = |page: &Page| page.high().map(<[u8]>::to_vec);
                let end = if planted(Fault::DiffSkip) {
                    high(old)
                } else {
                    lower(high(old), high(new))
                };
                // Behind a gap they are compared when it is filled.
                if away == 0 {
                    *leaves += 1;
                    let until = lower(end.clone(), range.end.clone());
                    let rest = compare(old, new, (&at, until.as_deref()), limit, diffed);
                    if let Some(key) = rest {
                        diffed.next = Some(split_key(&key));
                        break;
                    }
                }
                end
            }
        };
        match end {
            Some(end) if range.end.as_ref().is_none_or(|last| end < *last) => at = end,
            _ => break,
        }
        if away == 0 {
            *begun = Some(at.clone());
        }
        if *leaves >= DIFF_LEAVES_MAX {
            diffed.next = Some(split_key(&at));
            break;
        }
        if away >= *wanted_max {
            *wanted_max = DIFF_WANTED_MAX.min(2 * away);
            break;
        }
    }
    if away > 0 {
        return Err(Stop::Away);
    }
    Ok(std::mem::take(diffed))
}

/// Goes down on both sides towards `key`, until they meet or end.
fn descend(
    transaction: &mut Transaction<'_>,
    one: &mut Side,
    other: &mut Side,
    key: &[u8],
) -> Result<Met, Stop> {
    let roots = [one.go_up(transaction, key), other.go_up(transaction, key)];
    for root in roots {
        match root {
            Err(Stop::Away) => return Ok(Met::Away(None)),
            root => root?,
        }
    }
    loop {
        let ((old, old_page), (new, new_page)) = (one.top(), other.top());
        if old == new {
            return Ok(Met::Same(old_page.high().map(<[u8]>::to_vec)));
        }
        let heights = (old_page.height(), new_page.height());
        if heights == (0, 0) {
            return Ok(Met::Leaves);
        }
        let left = (heights.0 >= heights.1).then(|| old_page.child_for(key));
        let right = (heights.1 >= heights.0).then(|| new_page.child_for(key));
        if let (Some(left), Some(right)) = (left, right) {
            let same = old_page.same_children(left, new_page, right);
            if same > 0 {
                return Ok(Met::Same(old_page.child_end(left + same - 1)));
            }
        }
        let mut ends = None;
        for (side, child) in [(&mut *one, left), (&mut *other, right)] {
            if let Some(child) = child
                && !side.go_down(transaction, child, key)?
            {
                let end = side.top().1.child_end(child);
                ends = Some(match ends {
                    Some(other) => lower(other, end),
                    None => end,
                });
            }
        }
        if let Some(end) = ends {
            return Ok(Met::Away(end));
        }
    }
}

impl Side {
    fn top(&self) -> (Address, &Page) {
        let (address, page) = self.path.last().expect("the root at least");
        (*address, page)
    }

    fn leaf(&self) -> Page {
        self.top().1.clone()
    }

    /// Goes up to the lowest node that covers `key`, or starts at the root.
    fn go_up(&mut self, transaction: &mut Transaction<'_>, key: &[u8]) -> Result<(), Stop> {
        while self.path.last().is_some_and(|(_, page)| !page.covers(key)) {
            self.path.pop();
        }
        if self.path.is_empty() {
            let mut way = Way::new(transaction, self.view)?;
            let (root, page) = way.visit_exactly(self.view.root, None)?;
            self.push(root, page, key)?;
        }
        Ok(())
    }

    fn push(&mut self, address: Address, page: Page, key: &[u8]) -> Result<(), Stop> {
        // Most of its cells are compared.
        page.ask();
        if !page.covers(key) {
            return Err(Stop::Conflict);
        }
        self.path.push((address, page));
        Ok(())
    }

    /// Goes to the child for `key`; returns whether it is here.
    fn go_down(
        &mut self,
        transaction: &mut Transaction<'_>,
        index: usize,
        key: &[u8],
    ) -> Result<bool, Stop> {
        let page = self.top().1;
        let (child, height) = (page.child(index), page.height());
        let mut way = Way::new(transaction, self.view)?;
        match way.visit_exactly(child, Some(height)) {
            Ok((child, page)) => self.push(child, page, key).map(|()| true),
            Err(Stop::Away) => Ok(false),
            Err(stop) => Err(stop),
        }
    }
}

/// Compares the entries of two leaves between two keys. Returns the first key beyond the limit.
/// Most entries are the same: nothing of them is copied.
fn compare(
    old: &Page,
    new: &Page,
    (from, until): (&[u8], Option<&[u8]>),
    limit: usize,
    diffed: &mut Diffed,
) -> Option<Vec<u8>> {
    let (mut left, left_end) = entries_between(old, from, until);
    let (mut right, right_end) = entries_between(new, from, until);
    // Both are responsible for `from`, so prefixes of one length are the same.
    let has_one_prefix = old.prefix_len() == new.prefix_len();
    loop {
        if has_one_prefix {
            let same = old.same_entries(left, new, right);
            let same = same.min(left_end - left).min(right_end - right);
            (left, right) = (left + same, right + same);
        }
        let order = match (left < left_end, right < right_end) {
            (false, false) => return None,
            (true, false) => Cmp::Less,
            (false, true) => Cmp::Greater,
            (true, true) if has_one_prefix => old.suffix(left).cmp(new.suffix(right)),
            (true, true) => old.key(left).cmp(&new.key(right)),
        };
        let before = order.is_le().then(|| old.entry(left));
        let after = order.is_ge().then(|| new.entry(right));
        let (old_index, new_index) = (left, right);
        left += usize::from(before.is_some());
        right += usize::from(after.is_some());
        if before.map(|(_, value)| value) == after.map(|(_, value)| value) {
            continue;
        }
        let key = match before {
            Some(_) => old.key(old_index),
            None => new.key(new_index),
        };
        if diffed.changes.len() == limit {
            return Some(key);
        }
        let (tree, key) = split_key(&key);
        let owned = |(version, value): (u64, &[u8])| (version, value.to_vec());
        diffed.changes.push(Change {
            tree,
            key,
            before: before.map(owned),
            after: after.map(owned),
        });
    }
}

/// The places of a leaf's entries between two keys that it is responsible for, or ends at.
fn entries_between(page: &Page, from: &[u8], until: Option<&[u8]>) -> (usize, usize) {
    let place = |key: &[u8]| page.find(key).unwrap_or_else(|index| index);
    let end = until.filter(|until| page.covers(until));
    let first = if from == page.low() { 0 } else { place(from) };
    (first, end.map_or(page.count(), place))
}
