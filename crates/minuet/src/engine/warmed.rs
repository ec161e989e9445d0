//! Leaves that a batch was warmed with, for the operations that follow it: they need not go down
//! the tree again.
//!
//! A leaf that was found still is the key's, or leads there, if nobody has been alone since: only
//! then are leaves merged, copied or left by a tip, and links taken away (ME4 leaves-alone). It is
//! noted with the key, so one that comes in another order, or not at all, is not mistaken for it.

use pando_engine::{Key, TreeId};
use pando_memnode::Address;

use super::State;
use super::place::Place;
use super::sight::Sight;
use super::walk::Target;
use crate::fault::{Fault, planted};

/// Longer keys are not noted.
const KEY_BYTES_NOTED: usize = 40;
/// How many notes an operation looks at: most come in order.
const LOOKS: usize = 3;

#[derive(Clone, Copy, Debug)]
struct Note {
    tree: TreeId,
    leaf: Address,
    len: u8,
    key: [u8; KEY_BYTES_NOTED],
}

/// See the module's header.
#[derive(Debug, Default)]
pub(super) struct Warmed {
    /// [`State::turns`] at that time.
    turns: u64,
    notes: Vec<Note>,
    /// The note that was used last.
    at: usize,
}

impl Warmed {
    /// Forgets what it has, and notes leaves as they are now.
    pub(super) fn begin(&mut self, turns: u64) {
        self.turns = turns;
        self.notes.clear();
        self.at = 0;
    }

    /// Notes the leaf of a key.
    pub(super) fn note(&mut self, key: Key<'_>, leaf: Address) {
        let mut noted = [0; KEY_BYTES_NOTED];
        if let Some(bytes) = noted.get_mut(..key.bytes.len()) {
            bytes.copy_from_slice(key.bytes);
            self.notes.push(Note {
                tree: key.tree,
                leaf,
                len: key.bytes.len() as u8,
                key: noted,
            });
        }
    }

    /// The leaf of a key that is noted next.
    #[inline]
    fn recall(&mut self, turns: u64, key: Key<'_>) -> Option<Address> {
        let rest = self.notes.get(self.at..)?;
        if self.turns != turns && !planted(Fault::WarmedTurns) {
            return None;
        }
        let is_of = |note: &Note| {
            let is_long = usize::from(note.len) == key.bytes.len();
            is_long && note.tree == key.tree && note.key[..key.bytes.len()] == *key.bytes
        };
        let ahead = rest.iter().take(LOOKS).position(is_of)?;
        self.at += ahead;
        Some(self.notes[self.at].leaf)
    }
}

impl State {
    /// The leaf of a key, which is at this place of a tip or of what a tree is at present, or one
    /// whose links lead there (ME6 links-lead-on).
    #[inline]
    pub(super) fn leaf_of(
        &self,
        key: Key<'_>,
        (sight, place): (&Sight, &Place<'_>),
        warmed: &mut Warmed,
    ) -> Address {
        let noted = warmed.recall(self.turns, key);
        noted.unwrap_or_else(|| self.near(sight, Target::At(place.entry())))
    }
}

#[cfg(test)]
mod tests {
    use pando_engine::{BodyRef, Engine, Point, Snapshots, StringRef};

    use super::super::tests::{open, put};
    use super::*;
    use crate::fault::plant;

    /// Whether a session that was warmed reads what another one has written since, in leaves that
    /// were split or copied meanwhile, whatever the order of its reads.
    fn reads_what_is_there() -> bool {
        const KEYS: u32 = 300;
        let (clock, engine) = open(1);
        let (mut session, mut other) = (engine.session().unwrap(), engine.session().unwrap());
        let trees = [engine.create_tree(), engine.create_tree()];
        let key = |number: u32| number.wrapping_mul(0x9e37_79b9).to_be_bytes();
        let mut random = fastrand::Rng::with_seed(3);
        let mut is_right = true;
        for round in 0..40_u32 {
            let keys: Vec<_> = (0..50).map(|_| key(random.u32(0..KEYS))).collect();
            let named = |at: usize| Key::new(trees[at % 2], &keys[at]);
            let warmed: Vec<_> = (0..keys.len()).map(named).collect();
            session.warm(&warmed);
            match round % 3 {
                0 => _ = engine.freeze(clock.end_all()).unwrap(),
                1 => (0..KEYS).for_each(|number| {
                    put(&mut other, trees[0], &key(number), &[1; 90]);
                }),
                _ => {}
            }
            for (at, named) in warmed.iter().enumerate().filter(|(at, _)| at % 5 < 3) {
                let value = [round as u8, at as u8];
                put(&mut other, named.tree, named.bytes, &value);
                let is_it = |value: Option<pando_engine::ValueRef<'_>>| {
                    let Some(BodyRef::String(string)) = value.map(|value| value.body) else {
                        return false;
                    };
                    matches!(string, StringRef::Flat(_)) && string == &[round as u8, at as u8][..]
                };
                is_right &= session.get(*named, is_it);
            }
        }
        is_right
    }

    #[test]
    fn a_leaf_that_was_warmed_is_not_used_when_it_is_another_keys() {
        assert!(reads_what_is_there());
    }

    #[test]
    fn canary_a_leaf_from_before_somebody_was_alone_is_found() {
        plant(Some(Fault::WarmedTurns));
        let is_right = reads_what_is_there();
        plant(None);
        assert!(!is_right);
    }
}
