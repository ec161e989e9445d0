//! The bound of descendant sets, looked at whenever a memnode has written.

use std::collections::BTreeMap;

use pando_memnode::{MinitransactionId, Request, Slot, SlotState, Write};

use super::super::audit::{Lines, decode_line, is_bounded};
use super::{Violation, World};
use crate::catalog::{HEAD, Leaf};
use crate::line::line_key;
use crate::page;
use crate::snapshot::FIXED_SLOTS;

/// What the oracle knows of a memnode.
#[derive(Clone, Default)]
pub(super) struct Bounds {
    /// Lines that the memnode's catalog has.
    lines: Lines,
    /// What is to be written when it is decided.
    prepared: BTreeMap<MinitransactionId, Vec<Slot>>,
}

impl Bounds {
    /// The slots that a request may change at once.
    pub(super) fn written_by(&mut self, request: &Request) -> Vec<Slot> {
        match request {
            Request::Execute { items, .. } => items.writes.iter().map(Write::slot).collect(),
            Request::Prepare { id, items, .. } => {
                let slots = items.writes.iter().map(Write::slot).collect();
                self.prepared.insert(*id, slots);
                Vec::new()
            }
            Request::Decide { id, .. } => self.prepared.remove(id).unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    fn read_leaf(&mut self, state: &SlotState) {
        let Some(leaf) = Leaf::decode(&state.bytes) else {
            return;
        };
        let is_above = |key: &[u8]| leaf.high.as_deref().is_some_and(|high| high <= key);
        self.lines.retain(|line, _| {
            let key = line_key(*line);
            key < leaf.low || is_above(&key)
        });
        let entries = leaf.entries.iter();
        let lines = entries.filter_map(|(key, value)| decode_line(key, value));
        self.lines.extend(lines);
    }
}

impl World {
    /// Looks at these slots of a memnode.
    pub(super) fn check_bounds_of(
        &mut self,
        which: usize,
        slots: &[Slot],
    ) -> Result<(), Violation> {
        let node = &mut self.nodes[which];
        let states: Vec<_> = slots
            .iter()
            .map(|slot| (*slot, node.memnode.slot(*slot)))
            .collect();
        self.check_states(which, &states)
    }

    /// Looks at all slots of a memnode.
    pub(super) fn check_bounds(&mut self, which: usize) -> Result<(), Violation> {
        let used = self.nodes[which].memnode.used_slots();
        let states: Vec<_> = used
            .map(|(slot, seen)| (slot, seen.state().clone()))
            .collect();
        self.check_states(which, &states)
    }

    fn check_states(
        &mut self,
        which: usize,
        states: &[(Slot, SlotState)],
    ) -> Result<(), Violation> {
        let bounds = &mut self.nodes[which].bounds;
        for (slot, state) in states {
            if *slot > HEAD && slot.0 < FIXED_SLOTS {
                bounds.read_leaf(state);
            }
        }
        let pages = states.iter().filter(|(slot, _)| slot.0 >= FIXED_SLOTS);
        let mut pages = pages.filter_map(|(_, state)| page::header(&state.bytes));
        let checked = pages
            .try_for_each(|page| is_bounded(&page, &bounds.lines, self.config.descendants_max));
        checked.map_err(|what| self.violation(what))
    }
}
