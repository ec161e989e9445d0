//! The names of removed keys, for those who have the trees as they were.
//!
//! Whoever has the trees of the end of an epoch lacks the values of later versions, which say so
//! themselves, and must know which keys have gone. A version that is kept for each of them would
//! tell, too, but it keeps every value that is replaced. Names are less, and serve all of them.
//!
//! They are a tree that only the engine knows:
//!
//! | key | value |
//! |---|---|
//! | none | 8 bytes each: behind which epoch all names are here, how many bytes they take |
//! | an epoch, and a number, big-endian | of each removed key: 4 bytes for the length of its place, and the place |
//!
//! Names of the open epochs are in memory, and become *pieces* with the commit. The oldest pieces
//! go when there are more bytes than there may be.
//!
//! - **CQ1 named-with** A removal and its name are made durable by the same commit, and the name is
//!   in a piece of that commit's epoch: at least that of the removal.
//! - **CQ2 known-gap** When names are given up, for whatever reason, the epoch behind which all are
//!   here rises, in the same commit, to that of the newest name that may be missing.
//!
//! A key that is named may be there again: the reader looks.

use std::ops::{Bound, ControlFlow};
use std::sync::Mutex;

use pando_engine::{Key, TreeId};
use pando_sync::{LogEpoch, lock};

use super::session::sound;
use super::{CLEANING, Cdds, State, place_of};
use crate::canary::{self, Fault};
use crate::limits::{
    NAMED_AT_ONCE_MAX, NAMED_POOL_SHARE, NAMES_BYTES, NAMES_FORGOTTEN_AT_ONCE,
    NAMES_GIVEN_UP_AT_ONCE,
};
use crate::{Direction, Error};

/// The number of their tree.
pub(super) const REMOVED: TreeId = TreeId(CLEANING.0 - 1);

/// Bytes of a length.
const LENGTH_BYTES: usize = size_of::<u32>();

/// What is remembered of removed keys.
#[derive(Debug)]
pub(super) struct Removed {
    /// Behind which epoch all names are here; none: they are not remembered.
    since: Option<LogEpoch>,
    /// Of all pieces.
    bytes: u64,
    bytes_max: u64,
    open: Mutex<Open>,
}

/// The names of the open epochs.
#[derive(Debug, Default)]
struct Open {
    names: Vec<u8>,
    /// There were too many.
    lost: bool,
}

impl Default for Removed {
    fn default() -> Self {
        Self {
            since: None,
            bytes: 0,
            bytes_max: u64::MAX,
            open: Mutex::default(),
        }
    }
}

impl Removed {
    /// A key is being removed. The caller has the state, shared or for itself.
    #[inline]
    pub(super) fn name(&self, place: &[u8]) {
        if self.since.is_none() || canary::has(Fault::Unnamed) {
            return;
        }
        let mut open = lock(&self.open);
        if open.names.len() >= NAMED_AT_ONCE_MAX {
            *open = Open {
                names: Vec::new(),
                lost: true,
            };
        }
        if !open.lost {
            let length = place.len() as u32;
            open.names.extend_from_slice(&length.to_le_bytes());
            open.names.extend_from_slice(place);
        }
    }
}

/// Where a reading of names goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamesRead(LogEpoch, u32);

impl NamesRead {
    /// Before the first that was removed behind an epoch.
    #[must_use]
    pub fn behind(epoch: LogEpoch) -> Self {
        Self(epoch, u32::MAX)
    }

    fn place(self) -> Vec<u8> {
        let key = [&self.0.0.to_be_bytes()[..], &self.1.to_be_bytes()].concat();
        place_of(REMOVED, &key)
    }

    fn of(place: &[u8]) -> Option<Self> {
        let (epoch, number) = place
            .strip_prefix(&REMOVED.0.to_be_bytes())?
            .split_first_chunk()?;
        let epoch = LogEpoch(u64::from_be_bytes(*epoch));
        Some(Self(epoch, u32::from_be_bytes(number.try_into().ok()?)))
    }
}

/// Cuts the next name off.
fn split(names: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = names.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

/// The first of these names, about as many as a piece has, and the rest.
fn split_piece(names: &[u8]) -> (&[u8], &[u8]) {
    let mut end = 0;
    while end < NAMES_BYTES
        && let Some((name, _)) = split(&names[end..])
    {
        end += LENGTH_BYTES + name.len();
    }
    names.split_at(end)
}

impl State {
    /// Reads what the pool says of names.
    pub(super) fn read_removed(&mut self) -> Result<(), Error> {
        let noted = self.tree.get(&place_of(REMOVED, b""))?;
        let noted = noted.and_then(|noted| noted.as_chunks().0.first_chunk());
        let noted = noted.map(|words| words.map(u64::from_le_bytes));
        let removed = &mut self.removed;
        (removed.since, removed.bytes) = match noted {
            Some([since, bytes]) => (Some(LogEpoch(since)), bytes),
            None => (None, 0),
        };
        removed.open = Mutex::default();
        Ok(())
    }

    /// Writes the names of the open epochs, with the commit (CQ1 named-with).
    pub(super) fn write_removed(&mut self) -> Result<(), Error> {
        let Some(since) = self.removed.since else {
            return Ok(());
        };
        let before = (since, self.removed.bytes);
        let open = self.removed.open.get_mut();
        let open = std::mem::take(open.unwrap_or_else(std::sync::PoisonError::into_inner));
        let mut pieces = 0;
        let named = self.put_names(&open.names, &mut pieces);
        match named {
            Ok(()) if !open.lost => {}
            Ok(()) | Err(Error::Full(_)) => self.note_gap(self.tree.open),
            Err(error) => return Err(error),
        }
        self.forget_oldest(NAMES_FORGOTTEN_AT_ONCE + pieces as usize)?;
        if (self.removed.since, self.removed.bytes) == (Some(before.0), before.1) {
            return Ok(());
        }
        self.note_removed()
    }

    /// CQ2 known-gap: all names up to this epoch may be missing.
    fn note_gap(&mut self, epoch: LogEpoch) {
        if !canary::has(Fault::GapUnknown) {
            self.removed.since = self.removed.since.max(Some(epoch));
        }
    }

    fn put_names(&mut self, mut names: &[u8], pieces: &mut u32) -> Result<(), Error> {
        while !names.is_empty() {
            let (piece, rest) = split_piece(names);
            let place = NamesRead(self.tree.open, *pieces).place();
            self.tree.put(&place, piece)?;
            self.removed.bytes += piece.len() as u64;
            *pieces += 1;
            names = rest;
        }
        Ok(())
    }

    /// Writes since when there are names, and how many bytes.
    fn note_removed(&mut self) -> Result<(), Error> {
        let Some(since) = self.removed.since else {
            return Ok(());
        };
        let place = place_of(REMOVED, b"");
        let words = [since.0, self.removed.bytes].map(u64::to_le_bytes);
        match self.tree.put_in_reserve(&place, words.as_flattened()) {
            Err(Error::Full(_)) => {
                // A removal needs no room. What is left goes when names are remembered again.
                self.removed.since = None;
                self.tree.remove(&place)?;
                Ok(())
            }
            noted => noted,
        }
    }

    /// Removes the oldest pieces, up to so many, while there are too many bytes, and those that
    /// nobody can use (CQ2 known-gap); returns how many.
    fn forget_oldest(&mut self, most: usize) -> Result<usize, Error> {
        let pool = self.tree.allocator.tally().bytes_max();
        let bytes_max = self.removed.bytes_max.min(pool / NAMED_POOL_SHARE);
        let mut from = NamesRead(LogEpoch::NONE, 0).place();
        for done in 0..most {
            let mut oldest = None;
            self.tree.scan(
                Bound::Included(&from),
                Direction::Forward,
                |place, names| {
                    let at = NamesRead::of(place);
                    oldest = at.map(|at| (at, place.to_vec(), names.len() as u64));
                    ControlFlow::Break(())
                },
            )?;
            let Some((at, place, bytes)) = oldest else {
                return Ok(done);
            };
            let useless = Some(at.0) <= self.removed.since;
            if !useless && self.removed.bytes <= bytes_max {
                return Ok(done);
            }
            self.tree.remove(&place)?;
            self.removed.bytes = self.removed.bytes.saturating_sub(bytes);
            self.note_gap(at.0);
            from = place;
        }
        Ok(most)
    }
}

impl Cdds {
    /// Remembers the names of removed keys from now on, unless it does: all of those behind epoch
    /// `since`. Nobody writes meanwhile.
    pub fn remember_removed(&self, since: LogEpoch) -> Result<(), Error> {
        let mut state = self.write();
        if state.removed.since.is_some() || state.removed.bytes_max == 0 {
            return Ok(());
        }
        state.tree.advance(self.clock.current())?;
        state.removed.since = Some(since);
        state.note_removed()?;
        state.tree.fence();
        self.note_written();
        Ok(())
    }

    /// Sets how many bytes of names there may be, from the next commit on. None go beyond a
    /// sixty-fourth of the pool.
    pub fn set_removed_bytes_max(&self, bytes_max: u64) {
        self.write().removed.bytes_max = bytes_max;
    }

    /// Behind which epoch the names of all removed keys are here; none: behind none.
    #[must_use]
    pub fn removed_since(&self) -> Option<LogEpoch> {
        self.read().removed.since
    }

    /// Bytes of the names of removed keys.
    #[must_use]
    pub fn removed_bytes(&self) -> u64 {
        self.read().removed.bytes
    }

    /// Forgets the wide rows that are kept in ordinary memory, from which they can be made again;
    /// whether there were any.
    pub fn forget_rows(&self) -> bool {
        self.decoded.forget_all()
    }

    /// Gives the oldest names up, some of them at a time, because there is no room for anything
    /// else; whether there were any. The room is there after the next commit.
    pub fn give_up_removed(&self) -> bool {
        let mut state = self.write();
        if state.removed.bytes == 0 {
            return false;
        }
        sound(state.tree.advance(self.clock.current()));
        let open = state.tree.open;
        state.note_gap(open);
        let forgotten = sound(state.forget_oldest(NAMES_GIVEN_UP_AT_ONCE));
        sound(state.note_removed());
        state.tree.fence();
        self.note_written();
        forgotten > 0
    }

    /// Shows the names of a piece; returns where it goes on, if it does. Only if they are
    /// all here still when the last of them were shown ([`Self::removed_since`]), none was missed.
    pub fn removed(&self, from: NamesRead, mut visit: impl FnMut(Key<'_>)) -> Option<NamesRead> {
        let state = self.write();
        let (place, mut next) = (from.place(), None);
        let shown = state.tree.scan(
            Bound::Excluded(&place),
            Direction::Forward,
            |place, names| {
                next = NamesRead::of(place);
                let mut rest = names;
                while next.is_some()
                    && let Some((name, behind)) = split(rest)
                {
                    if let Some((tree, key)) = name.split_first_chunk() {
                        visit(Key::new(TreeId(u32::from_be_bytes(*tree)), key));
                    }
                    rest = behind;
                }
                ControlFlow::Break(())
            },
        );
        sound(shown);
        next
    }
}
