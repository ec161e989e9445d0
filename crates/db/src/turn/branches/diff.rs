//! BRANCH DIFF: the keys whose values differ between two branches or snapshots, in slices.
//!
//! The engine says which keys may differ, at a cost that follows what has changed; here their
//! values are compared, by what a client can see of them. The branches may be written meanwhile:
//! like SCAN, it shows what differs all the time, and may or may not show the rest.

use pando_engine::{BodyRef, NewValue, Snapshot, StringRef, TreeId, ValueRef, ValueVersion};
use pando_protocol::{Reply, Request, number};

use super::{Named, Turn};
use crate::client::Client;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::limits;
use crate::progress::{Handled, Progress, Slice};
use crate::store::StoreSession;
use crate::view::View;

/// One of the two that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Side {
    pub(super) view: View,
    /// The index of the database, of a branch.
    index: Option<usize>,
}

impl Side {
    /// The tree, and the snapshot at which it is read.
    pub(super) fn place(self) -> (TreeId, Option<Snapshot>) {
        let at = self.view.moment().map(|moment| moment.snapshot);
        (self.view.tree(), at)
    }

    /// The value that it has for a key.
    pub(super) fn value(
        self,
        keyspace: &mut Keyspace<'_>,
        key: &[u8],
    ) -> Option<NewValue<'static>> {
        let used = std::mem::replace(&mut keyspace.view, self.view);
        let value = keyspace.look(key, |value| value.map(|value| value.hand_over()));
        keyspace.view = used;
        value
    }

    /// A tree at present.
    pub(super) fn of_tree(tree: TreeId) -> Self {
        Self {
            view: View::present(tree),
            index: None,
        }
    }
}

/// Keys with a prefix that may differ between two sides, from a key on, about `limit` of them, and
/// where to go on.
pub(super) fn differing(
    keyspace: &mut Keyspace<'_>,
    sides: [Side; 2],
    prefix: &[u8],
    from: &[u8],
    limit: usize,
) -> pando_minuet::engine::Differing {
    let StoreSession::Minuet(session) = &mut keyspace.session.store else {
        unreachable!("the engine has branches");
    };
    let places = sides.map(Side::place);
    session.differing(places, prefix, from, limit)
}

fn bytes_of(string: StringRef<'_>) -> std::borrow::Cow<'_, [u8]> {
    match string {
        StringRef::Flat(bytes) => bytes.into(),
        StringRef::Chunked(_) => {
            let mut bytes = Vec::with_capacity(string.len());
            string.for_each_piece(0..string.len(), |piece| bytes.extend_from_slice(piece));
            bytes.into()
        }
    }
}

/// Whether two strings are the same. O(1) if they share all nodes.
pub(super) fn same_string(one: StringRef<'_>, other: StringRef<'_>) -> bool {
    let share = match (one, other) {
        (StringRef::Chunked(one), StringRef::Chunked(other)) => one.is_same(other),
        _ => false,
    };
    share || one.len() == other.len() && bytes_of(one) == bytes_of(other)
}

/// Rows are compared but for the nodes that they share.
fn same_value(one: &ValueRef<'_>, other: &ValueRef<'_>) -> bool {
    let attributes = |value: &ValueRef<'_>| (value.attributes.deadline, value.attributes.flags);
    attributes(one) == attributes(other)
        && match (one.body, other.body) {
            (BodyRef::String(one), BodyRef::String(other)) => same_string(one, other),
            (BodyRef::Row(tag, one), BodyRef::Row(other_tag, other)) => {
                let mut is_same = tag == other_tag && one.len() == other.len();
                if is_same {
                    one.changed_since(other, &mut |_, _| is_same = false);
                }
                is_same
            }
            _ => false,
        }
}

/// Whether two values, or their absences, are the same to clients.
pub(super) fn same(one: Option<&NewValue<'_>>, other: Option<&NewValue<'_>>) -> bool {
    // Which versions they have does not matter.
    let version = ValueVersion::from_bits(0);
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => same_value(&one.view(version), &other.view(version)),
        _ => false,
    }
}

/// How a key differs.
fn kind(before: bool, after: bool) -> &'static str {
    match (before, after) {
        (false, _) => "added",
        (_, false) => "removed",
        _ => "changed",
    }
}

/// A comparison on its way.
#[derive(Clone, Debug)]
struct Work {
    sides: [Side; 2],
    prefix: Box<[u8]>,
    from: Vec<u8>,
    limit: usize,
    /// Without the keys.
    counts: bool,
    count: usize,
    found: Vec<(Vec<u8>, &'static str)>,
}

impl Work {
    fn answer(&mut self, next: Option<&[u8]>, reply: &mut Reply<'_>) {
        if self.counts {
            return reply.count(self.count);
        }
        reply.array(2);
        match next {
            Some(next) => reply.bulk(next),
            None => reply.null(),
        }
        reply.array(self.found.len());
        for (key, kind) in &self.found {
            reply.array(2);
            reply.bulk(key);
            reply.bulk(*kind);
        }
    }
}

impl Slice for Work {
    fn step(&mut self, keyspace: &mut Keyspace<'_>, reply: &mut Reply<'_>) -> bool {
        keyspace.observe_all();
        let database = keyspace.database;
        let stands = |side: &Side| match (side.index, side.view.moment()) {
            (Some(index), _) => database.tree(index) == side.view.tree(),
            (None, Some(moment)) => {
                let list = database.snapshots.list();
                list.iter().any(|snapshot| snapshot.moment == moment)
            }
            (None, None) => true,
        };
        if !self.sides.iter().all(stands) {
            reply.error(CommandError::BranchChanged.text());
            return true;
        }
        let limit = limits::DIFFERENCES_PER_SLICE;
        let found = differing(keyspace, self.sides, &self.prefix, &self.from, limit);
        for key in found.keys {
            let [before, after] = self.sides.map(|side| side.value(keyspace, &key));
            if same(before.as_ref(), after.as_ref()) {
                continue;
            }
            if self.count == self.limit {
                self.answer(Some(&key), reply);
                return true;
            }
            self.count += 1;
            if !self.counts {
                self.found
                    .push((key, kind(before.is_some(), after.is_some())));
            }
        }
        let Some(next) = found.next else {
            self.answer(None, reply);
            return true;
        };
        self.from = next;
        false
    }

    fn again(&self) -> Box<dyn Slice> {
        Box::new(self.clone())
    }
}

impl Turn<'_> {
    /// A branch or a snapshot, of which a database is compared.
    pub(super) fn side(&self, named: &Named, database: usize) -> Side {
        match named {
            Named::Branch(branch) => {
                let index = self.database.base_of(branch.id) + database;
                Side {
                    view: View::present(self.database.tree(index)),
                    index: Some(index),
                }
            }
            Named::Snapshot(snapshot) => Side {
                view: snapshot.view(database),
                index: None,
            },
        }
    }

    /// BRANCH DIFF a b [PREFIX prefix] [FROM key] [LIMIT n] [COUNT]
    pub(super) fn diff_branches(
        &mut self,
        client: &Client,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Handled {
        let names = [request.arg(2), request.arg(3)];
        let (mut prefix, mut from, mut counts) = (&[][..], &[][..], false);
        let mut limit = None;
        let mut at = 4;
        while at < request.len() {
            if request.is(at, "COUNT") {
                counts = true;
                at += 1;
                continue;
            }
            let value = request.get(at + 1).ok_or(CommandError::Syntax)?;
            if request.is(at, "PREFIX") {
                prefix = value;
            } else if request.is(at, "FROM") {
                from = value;
            } else if request.is(at, "LIMIT") {
                let number = number::parse_i64(value).ok_or(CommandError::NotAnInteger)?;
                if number <= 0 {
                    return Err(CommandError::NotPositive);
                }
                limit = Some(number);
            } else {
                return Err(CommandError::Syntax);
            }
            at += 2;
        }
        let limit = match limit {
            Some(limit) => usize::try_from(limit).unwrap_or(usize::MAX),
            None if counts => usize::MAX,
            None => limits::DIFFERENCES_RETURNED as usize,
        };
        let mut sides = Vec::new();
        for name in names {
            let named = self.branch_or_snapshot(name)?;
            sides.push(self.side(&named, client.database));
        }
        let mut work = Work {
            sides: [sides[0], sides[1]],
            prefix: prefix.into(),
            from: from.to_vec(),
            limit,
            counts,
            count: 0,
            found: Vec::new(),
        };
        if work.step(&mut self.keyspace(client.index()), reply) {
            return Ok(Progress::Done);
        }
        Ok(Progress::in_slices(work))
    }
}
