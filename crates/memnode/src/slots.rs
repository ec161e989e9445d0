//! The slots of a memnode.
//!
//! A slot holds bytes or is free. A free slot is one of zero bytes, and no absent one: its sequence
//! stays. Sequences increase by one here; a store that gives each write a version of its own serves
//! as well, since nobody relies on more than MN1 sequences-increase.

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

/// All slots that were ever written. Those above are free and at sequence 0.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    states: Vec<SlotState>,
}

impl Slots {
    pub(crate) fn get(&self, slot: Slot) -> SlotState {
        let index = usize::try_from(slot.0).unwrap_or(usize::MAX);
        self.states.get(index).cloned().unwrap_or_default()
    }

    pub(crate) fn count(&self) -> usize {
        self.states.len()
    }

    pub(crate) fn bytes(&self, slot: Slot) -> &[u8] {
        let index = usize::try_from(slot.0).unwrap_or(usize::MAX);
        self.states.get(index).map_or(&[], |state| &state.bytes)
    }

    /// Changes the bytes of a slot in use, in place unless they are shared.
    pub(crate) fn edit<R>(&mut self, slot: Slot, edit: impl FnOnce(&mut Bytes) -> R) -> R {
        let index = usize::try_from(slot.0).expect("a slot in use");
        let state = &mut self.states[index];
        let (edited, bytes) = (edit(&mut state.bytes), state.bytes.len());
        assert!(bytes > 0, "{slot:?} stays in use");
        state.sequence.0 += 1;
        edited
    }

    /// Changes one byte, which no sequence covers.
    pub(crate) fn mark(&mut self, slot: Slot, at: usize, byte: u8) {
        let index = usize::try_from(slot.0).expect("a slot in use");
        Bytes::make_mut(&mut self.states[index].bytes)[at] = byte;
    }

    pub(crate) fn bytes_len(&self, slot: Slot) -> usize {
        let index = usize::try_from(slot.0).unwrap_or(usize::MAX);
        self.states.get(index).map_or(0, |state| state.bytes.len())
    }

    /// The slots that were ever written, with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, &SlotState)> {
        (0..).map(Slot).zip(&self.states)
    }

    /// Those in use among `count` slots from `from`, with their first `prefix` bytes, and the slot
    /// after them, if there are more.
    pub(crate) fn list(
        &self,
        from: Slot,
        count: u32,
        prefix: u32,
    ) -> (Vec<(Slot, SlotState)>, Option<Slot>) {
        let first = usize::try_from(from.0).unwrap_or(usize::MAX);
        let first = first.min(self.states.len());
        let end = first.saturating_add(count as usize).min(self.states.len());
        let used = self.states[first..end]
            .iter()
            .zip(from.0..)
            .filter(|(state, _)| !state.is_free());
        let listed = used.map(|(state, slot)| {
            let shown = state.bytes.len().min(prefix as usize);
            let shown = SlotState {
                sequence: state.sequence,
                bytes: state.bytes[..shown].into(),
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
            self.states.resize(index + 1, SlotState::default());
        }
        let state = &mut self.states[index];
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
    }
}
