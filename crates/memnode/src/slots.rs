//! The slots of a memnode.
//!
//! A slot holds bytes or is free. A free slot is one of zero bytes, and no absent one: its sequence
//! stays. Sequences increase by one here; a store that gives each write a version of its own serves
//! as well, since nobody relies on more than MN1 sequences-increase.
//!
//! A host that shares its memnode among threads says which bytes are *latched*
//! ([`crate::Memnode::latching`]). Slots of such bytes can be changed through a shared reference,
//! each under its latch:
//!
//! | slot | changed by | read by |
//! |---|---|---|
//! | latched | whoever has the memnode for itself, or holds the slot's latch | under the latch, shared |
//! | any other | whoever has the memnode for itself | anybody |
//!
//! A host may keep something beside the bytes of a slot without a latch: what it derived from them,
//! or what they stand for.
//!
//! - **SL1 latched-by-bytes** A slot is latched if and only if its bytes are of the kind that the
//!   host named. Every write of a minitransaction restores that.
//! - **SL2 latches-in-order** Who holds latches takes another one only behind them, in the order of
//!   addresses, or one of a slot that nobody else can find, so none waits in a circle.
//! - **SL3 beside-of-present** What lies beside a slot is gone when its bytes are changed, or
//!   whoever changes them sees to it ([`crate::Memnode::edit_both`]): both change through the
//!   memnode alone.

use std::any::Any;
use std::ops::Deref;
use std::ptr;
use std::sync::{OnceLock, PoisonError, TryLockError};

use pando_sync::shim::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::minitransaction::{Bytes, Write};
use crate::{Sequence, Slot};

/// What a slot holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotState {
    /// Which state this is.
    pub sequence: Sequence,
    /// Its bytes; none if it is free.
    pub bytes: Bytes,
}

impl SlotState {
    /// Whether it may be allocated.
    pub fn is_free(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// What a host keeps beside a slot.
#[derive(Debug)]
pub enum Beside {
    /// Bytes, which may be asked for ahead.
    Bytes(Bytes),
    /// Anything else, boxed twice, so that a slot is no larger for it.
    Other(Box<Box<dyn Any + Send + Sync>>),
}

/// A slot, with its latch or without.
#[derive(Debug)]
enum Held {
    Alone(SlotState, OnceLock<Beside>),
    Latched(RwLock<SlotState>),
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Held>() <= 48, "few slots share a line");

impl Default for Held {
    fn default() -> Self {
        Self::alone(SlotState::default())
    }
}

impl Clone for Held {
    fn clone(&self) -> Self {
        let state = self.see().state().clone();
        match self {
            Self::Alone(..) => Self::alone(state),
            Self::Latched(_) => Self::Latched(RwLock::new(state)),
        }
    }
}

impl Held {
    fn alone(state: SlotState) -> Self {
        Self::Alone(state, OnceLock::new())
    }

    #[inline]
    fn see(&self) -> Seen<'_> {
        match self {
            Self::Alone(state, _) => Seen::Alone(state),
            // A panic under a latch is that of a closure, before its change.
            Self::Latched(state) => {
                Seen::Latched(state.read().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }

    /// The state, to be changed (SL3).
    fn state_mut(&mut self) -> &mut SlotState {
        match self {
            Self::Alone(state, beside) => {
                beside.take();
                state
            }
            Self::Latched(state) => state.get_mut().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// What lies beside it, if its host may take long to drop that.
    fn take_other(&mut self) -> Option<Beside> {
        match self {
            Self::Alone(_, beside) => beside.take().filter(|it| matches!(it, Beside::Other(_))),
            Self::Latched(_) => None,
        }
    }

    /// Restores SL1.
    fn latch_by(&mut self, is_latched: Option<Latching>) {
        let wanted = is_latched.is_some_and(|is_latched| is_latched(&self.state_mut().bytes));
        if wanted != matches!(self, Self::Latched(_)) {
            let state = std::mem::take(self.state_mut());
            *self = if wanted {
                Self::Latched(RwLock::new(state))
            } else {
                Self::alone(state)
            };
        }
    }
}

/// Which bytes are latched.
pub(crate) type Latching = fn(&[u8]) -> bool;

/// A slot that is read; of a latched one, what it holds stays until this is dropped.
#[derive(Debug)]
pub enum Seen<'s> {
    /// One that nobody changes while there are references to the memnode.
    Alone(&'s SlotState),
    /// One whose latch is held.
    Latched(RwLockReadGuard<'s, SlotState>),
}

impl<'s> Seen<'s> {
    /// What a slot without a latch holds, for as long as the memnode is borrowed.
    #[inline]
    pub fn lasting(self) -> Option<&'s [u8]> {
        match self {
            Self::Alone(state) => Some(&state.bytes),
            Self::Latched(_) => None,
        }
    }

    /// The whole state.
    #[inline]
    pub fn state(&self) -> &SlotState {
        match self {
            Self::Alone(state) => state,
            Self::Latched(state) => state,
        }
    }
}

impl Deref for Seen<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.state().bytes
    }
}

/// A slot whose latch is held, to be changed. Its length stays.
#[derive(Debug)]
pub struct Latch<'s> {
    state: RwLockWriteGuard<'s, SlotState>,
}

impl Latch<'_> {
    /// Which state this is.
    #[inline]
    pub fn sequence(&self) -> Sequence {
        self.state.sequence
    }

    /// What it holds, to be changed, as a minitransaction of one phase does that compares what was
    /// read under this latch (MN1 sequences-increase).
    pub fn edit(&mut self) -> &mut [u8] {
        self.state.sequence.0 += 1;
        Bytes::make_mut(&mut self.state.bytes)
    }

    /// The same, for bytes that no comparison covers: the sequence stays.
    pub fn mark(&mut self) -> &mut [u8] {
        Bytes::make_mut(&mut self.state.bytes)
    }
}

impl Deref for Latch<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.state.bytes
    }
}

/// All slots that were ever written. Those above are free and at sequence 0.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    states: Vec<Held>,
    latching: Option<Latching>,
    /// What lay beside slots that were written since.
    gone: Gone,
}

/// No copy of a memnode has it, as it has nothing beside its slots.
#[derive(Debug, Default)]
struct Gone(Vec<Beside>);

impl Clone for Gone {
    fn clone(&self) -> Self {
        Self::default()
    }
}

fn index_of(slot: Slot) -> usize {
    usize::try_from(slot.0).unwrap_or(usize::MAX)
}

impl Slots {
    pub(crate) fn new(latching: Option<Latching>) -> Self {
        Self {
            states: Vec::new(),
            latching,
            gone: Gone::default(),
        }
    }

    pub(crate) fn get(&self, slot: Slot) -> SlotState {
        self.see(slot)
            .map_or_else(SlotState::default, |seen| seen.state().clone())
    }

    pub(crate) fn count(&self) -> usize {
        self.states.len()
    }

    /// Where the state of a slot is, to be asked for.
    #[inline]
    pub(crate) fn place(&self, slot: Slot) -> *const u8 {
        let held = self.states.get(index_of(slot));
        held.map_or(ptr::null(), |held| ptr::from_ref(held).cast())
    }

    /// What lies beside a slot without a latch, or the place for it (SL3).
    #[inline]
    pub(crate) fn beside(&self, slot: Slot) -> Option<&OnceLock<Beside>> {
        match self.states.get(index_of(slot))? {
            Held::Alone(_, beside) => Some(beside),
            Held::Latched(_) => None,
        }
    }

    /// What lay beside slots that were written since the last call, and is no bytes.
    pub(crate) fn take_gone(&mut self) -> Vec<Beside> {
        std::mem::take(&mut self.gone.0)
    }

    /// Where the bytes of a slot are now, to be asked for, or those beside it; null if somebody
    /// changes them, or there are none.
    pub(crate) fn content_place(&self, slot: Slot) -> *const u8 {
        match self.states.get(index_of(slot)) {
            Some(Held::Latched(state)) => match state.try_read() {
                Ok(state) => state.bytes.as_ptr(),
                Err(TryLockError::Poisoned(state)) => state.into_inner().bytes.as_ptr(),
                Err(TryLockError::WouldBlock) => ptr::null(),
            },
            Some(Held::Alone(_, beside)) => match beside.get() {
                Some(Beside::Bytes(bytes)) => bytes.as_ptr(),
                Some(Beside::Other(_)) | None => ptr::null(),
            },
            None => ptr::null(),
        }
    }

    /// A slot that was ever written.
    #[inline]
    pub(crate) fn see(&self, slot: Slot) -> Option<Seen<'_>> {
        self.states.get(index_of(slot)).map(Held::see)
    }

    /// The latch of a slot that has one.
    pub(crate) fn latch(&self, slot: Slot) -> Option<Latch<'_>> {
        match self.states.get(index_of(slot))? {
            Held::Alone(..) => None,
            Held::Latched(state) => Some(Latch {
                state: state.write().unwrap_or_else(PoisonError::into_inner),
            }),
        }
    }

    /// Changes the bytes of a slot in use, in place unless they are shared.
    pub(crate) fn edit<R>(&mut self, slot: Slot, edit: impl FnOnce(&mut [u8]) -> R) -> R {
        let state = self.states[index_of(slot)].state_mut();
        assert!(!state.is_free(), "{slot:?} is in use");
        state.sequence.0 += 1;
        edit(Bytes::make_mut(&mut state.bytes))
    }

    /// The same, with the bytes beside it, which stay (SL3).
    pub(crate) fn edit_both<R>(
        &mut self,
        slot: Slot,
        edit: impl FnOnce(&mut [u8], Option<&mut Bytes>) -> R,
    ) -> R {
        let (state, beside) = match &mut self.states[index_of(slot)] {
            Held::Alone(state, beside) => match beside.get_mut() {
                Some(Beside::Bytes(bytes)) => (state, Some(bytes)),
                Some(Beside::Other(_)) | None => (state, None),
            },
            Held::Latched(state) => {
                let state = state.get_mut().unwrap_or_else(PoisonError::into_inner);
                (state, None)
            }
        };
        assert!(!state.is_free(), "{slot:?} is in use");
        state.sequence.0 += 1;
        edit(Bytes::make_mut(&mut state.bytes), beside)
    }

    /// Changes one byte, which no sequence covers.
    pub(crate) fn mark(&mut self, slot: Slot, at: usize, byte: u8) {
        let state = self.states[index_of(slot)].state_mut();
        Bytes::make_mut(&mut state.bytes)[at] = byte;
    }

    pub(crate) fn bytes_len(&self, slot: Slot) -> usize {
        self.see(slot).map_or(0, |seen| seen.len())
    }

    /// The slots that were ever written, with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, Seen<'_>)> {
        (0..).map(Slot).zip(self.states.iter().map(Held::see))
    }

    /// Those in use among `count` slots from `from`, with their first `prefix` bytes, and the slot
    /// after them, if there are more.
    pub(crate) fn list(
        &self,
        from: Slot,
        count: u32,
        prefix: u32,
    ) -> (Vec<(Slot, SlotState)>, Option<Slot>) {
        let first = index_of(from).min(self.states.len());
        let end = first.saturating_add(count as usize).min(self.states.len());
        let seen = self.states[first..end].iter().map(Held::see).zip(from.0..);
        let used = seen.filter(|(seen, _)| !seen.state().is_free());
        let listed = used.map(|(seen, slot)| {
            let shown = seen.len().min(prefix as usize);
            let shown = SlotState {
                sequence: seen.state().sequence,
                bytes: seen[..shown].into(),
            };
            (Slot(slot), shown)
        });
        let next = (end < self.states.len()).then_some(Slot(end as u64));
        (listed.collect(), next)
    }

    /// Applies a write that fits.
    pub(crate) fn apply(&mut self, write: &Write) {
        let index = usize::try_from(write.slot().0).expect("a bounded slot");
        if self.states.len() <= index {
            self.states.resize_with(index + 1, Held::default);
        }
        let held = &mut self.states[index];
        self.gone.0.extend(held.take_other());
        let state = held.state_mut();
        state.sequence.0 += 1;
        match write {
            Write::Whole(_, bytes) => state.bytes = bytes.clone(),
            Write::Patch(_, pieces) => {
                let target = Bytes::make_mut(&mut state.bytes);
                for piece in pieces {
                    piece.apply(target);
                }
            }
            Write::Add { at, by, .. } => {
                let target = &mut Bytes::make_mut(&mut state.bytes)[*at as usize..][..8];
                let number = u64::from_le_bytes(target.try_into().expect("eight bytes"));
                target.copy_from_slice(&number.wrapping_add(*by).to_le_bytes());
            }
            Write::Free(_) => state.bytes = Bytes::default(),
        }
        held.latch_by(self.latching);
    }
}
