//! Blocked clients: who waits for a value of which type at which key (BLPOP and the like).
//!
//! A blocking command that finds nothing enters the lines of its keys (`pando_sync::WaitingLines`)
//! and looks once more: WQ1 no-lost-wake. Its request then waits ([`crate::Wait`]) and is executed
//! again when it is woken: a key of its type was written and it is first in line, or its time is
//! over. No gate and no pin is held meanwhile. Every write of such a value announces it, by the one
//! write path (K2 one-write-path), so it does not matter which command wrote it. A change of trees
//! (SWAPDB, a copy of the primary's) announces what is waited for there.
//!
//! A key may have several lines ([`Line`]): what one client reads from a stream is there for
//! others, too, and each group of a stream has what it has not had. A write announces to all.
//!
//! Invariants:
//! - **BL1 present-to-the-first** A blocking command takes nothing from a key while somebody is
//!   ahead of it in that key's line (WQ2 first-come). Other commands do: LPOP after LPUSH gets the
//!   element, though a client is blocked.
//! - **BL2 announced-when-visible** A write is announced when others can see it: in a run that is
//!   repeated, when it counts (RR1 effects-once).
//! - **BL3 everyone-leaves** A ticket is given back when its command is answered, or its client has
//!   gone; what is left at the key then goes to the next in line.
//! - **BL4 first-written-first** Of several keys, a command that has waited takes from the one for
//!   which it was woken, if that still has something, else from the first as they are named. A key
//!   that holds something of another type has nothing for it.
//!
//! Deliberately absent: sleeping and waking, which are the host's ([`crate::Database::on_ready`]).

use std::fmt;
use std::sync::OnceLock;

use pando_engine::{BodyRef, RowTag, StreamId, StreamRef, TypeTag, ValueRef};
use pando_sync::{Ticket, WaitingLines};

use crate::clock::Microseconds;

/// What is waited for: a value of a type at a key of a database.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) index: usize,
    pub(crate) tag: u8,
    pub(crate) key: Box<[u8]>,
    /// Last, so that all lines of a key follow each other.
    pub(crate) line: Line,
}

/// One of the lines of a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Line {
    /// The only one: what is there is taken.
    Only,
    /// That of a group of a stream.
    Group(Box<[u8]>),
    /// That of one client, which takes nothing.
    Own(u64),
}

impl Place {
    pub(crate) fn new(index: usize, tag: TypeTag, key: &[u8]) -> Self {
        Self {
            index,
            tag: tag as u8,
            key: key.into(),
            line: Line::Only,
        }
    }

    pub(crate) fn with(self, line: Line) -> Self {
        Self { line, ..self }
    }

    fn is_at(&self, other: &Self) -> bool {
        (self.index, self.tag, &self.key) == (other.index, other.tag, &other.key)
    }
}

/// The types whose waiting clients a change of a key concerns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Awaited {
    /// There is such a value.
    pub(crate) value: Option<TypeTag>,
    /// A stream has something new, or has lost a group, or is no longer there.
    pub(crate) stream: bool,
}

impl Awaited {
    #[inline]
    pub(crate) fn by_change(old: Option<&ValueRef<'_>>, new: Option<&ValueRef<'_>>) -> Self {
        let tag = |value: Option<&ValueRef<'_>>| value.map(ValueRef::tag);
        let (was, is) = (tag(old), tag(new));
        Self {
            value: is.filter(|tag| matches!(tag, TypeTag::List | TypeTag::SortedSet)),
            stream: (was == Some(TypeTag::Stream) || is == Some(TypeTag::Stream))
                && StreamRef::differ_to_readers(old.and_then(stream), new.and_then(stream)),
        }
    }

    /// Whether there are such clients' types.
    #[inline]
    pub(crate) fn any(self) -> bool {
        self.value.is_some() || self.stream
    }

    #[inline]
    pub(crate) fn types(self) -> impl Iterator<Item = TypeTag> {
        let stream = self.stream.then_some(TypeTag::Stream);
        self.value.into_iter().chain(stream)
    }
}

fn stream<'v>(value: &ValueRef<'v>) -> Option<StreamRef<'v>> {
    match value.body {
        BodyRef::Row(RowTag::Stream, row) => Some(StreamRef::new(row)),
        _ => None,
    }
}

/// A command's place in line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum InLine {
    /// It does not wait (in EXEC, for instance), and takes what is there.
    #[default]
    Aside,
    /// It would be the last one.
    New,
    /// It has this ticket.
    At(Ticket),
}

/// A client's wait for keys.
#[derive(Debug)]
pub(crate) struct Blocked {
    pub(crate) ticket: Ticket,
    pub(crate) until: Option<Microseconds>,
    /// Why it waits no longer, whatever the keys hold.
    pub(crate) ended: Option<Ended>,
    /// See [`StreamWait::Behind`](crate::progress::StreamWait::Behind).
    pub(crate) behind: Vec<StreamId>,
}

/// How a wait for keys has ended without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its time is over, or CLIENT UNBLOCK says so.
    Timeout,
    /// CLIENT UNBLOCK with ERROR.
    Error,
    /// The server follows another one now; its client is disconnected.
    RoleChanged,
}

pub(crate) type Wake = Box<dyn Fn(u64) + Send + Sync>;

/// All blocked clients of a database.
#[derive(Default)]
pub(crate) struct Lines {
    pub(crate) waiting: WaitingLines<Place>,
    pub(crate) wake: OnceLock<Wake>,
}

impl Lines {
    fn wake(&self, client: u64) {
        if let Some(wake) = self.wake.get() {
            wake(client);
        }
    }

    /// A value was written; others can see it. All lines of the key are told.
    #[inline]
    pub(crate) fn announce(&self, place: impl FnOnce() -> Place) {
        let wake = |client| self.wake(client);
        self.waiting.announce_each(place, Place::is_at, wake);
    }

    /// There may be something for the first in this line.
    pub(crate) fn announce_in_line(&self, place: Place) {
        self.waiting.announce(|| place, |client| self.wake(client));
    }

    /// These databases have other trees.
    pub(crate) fn announce_all(&self, indexes: &[usize]) {
        for place in self.waiting.places(|it| indexes.contains(&it.index)) {
            self.announce_in_line(place);
        }
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lines").field(&self.waiting.len()).finish()
    }
}
