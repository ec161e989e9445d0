//! Picking a random key (RANDOMKEY and sampling).

use std::ops::{Bound, ControlFlow};

use pando_engine::limits::SAMPLE_PASSED_MAX;
use pando_engine::{Direction, ValueRef};

use crate::counters::Counters;
use crate::find::Found;
use crate::node::{Either, Guard};
use crate::scan::Scan;
use crate::slice::{CODE_LAYER, CODE_SLICE_MAX};
use crate::tree::Tree;

/// A key of the tree and its value, chosen by `random`: a random child at every step down, and from
/// there the first key with a value, unless more than [`SAMPLE_PASSED_MAX`] tombstones are in the
/// way. Every key can be chosen; keys of small layers and sparse nodes are chosen more often than
/// others. O(log keys).
pub(crate) fn sample<'g>(
    tree: &Tree,
    random: u64,
    guard: Guard<'g>,
    counters: &Counters,
) -> Option<(Vec<u8>, ValueRef<'g>)> {
    let start = random_position(tree, random, guard);
    let (mut found, mut passed) = (None, 0);
    // From there to the end, then from the beginning.
    for start in [Bound::Included(&start[..]), Bound::Unbounded] {
        Scan::new(tree, Direction::Forward, guard, counters).run(start, |key, value| {
            found = value.map(|value| (key.to_vec(), value));
            passed += 1;
            if found.is_some() || passed >= SAMPLE_PASSED_MAX {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        if found.is_some() || passed >= SAMPLE_PASSED_MAX {
            break;
        }
    }
    found
}

/// A key at a random place, as far as it can be read without retrying: a hint.
fn random_position(tree: &Tree, random: u64, guard: Guard<'_>) -> Vec<u8> {
    let mut state = random;
    let mut pick = |count: usize| {
        // SplitMix64: each step's choice depends on all bits of the given number.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(mixed ^ mixed >> 31) * count as u128) >> 64) as usize
    };
    let mut key = Vec::new();
    let mut node = tree.root(guard);
    loop {
        let version = node.version.stable();
        match node.either() {
            Either::Interior(interior) => {
                let index = pick(interior.count() + 1);
                match interior.validated_child(index, version) {
                    Some(child) => node = child,
                    None => return key,
                }
            }
            Either::Border(border) => {
                let permutation = border.permutation();
                if permutation.count() == 0 {
                    key.extend_from_slice(&border.low().to_be_bytes());
                    return key;
                }
                let slot = permutation.slot(pick(permutation.count()));
                let slice = border.slice(slot).to_be_bytes();
                let Some((code, found)) = border.read_slot(slot, version, guard) else {
                    return key;
                };
                key.extend_from_slice(&slice[..usize::from(code.min(CODE_SLICE_MAX))]);
                match found {
                    Found::Layer(root) if code == CODE_LAYER => node = root,
                    Found::Value(block) => {
                        key.extend_from_slice(block.key_part());
                        return key;
                    }
                    _ => return key,
                }
            }
        }
    }
}
