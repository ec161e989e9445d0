//! cas tokens: what `gets` returns, and `cas` and the meta flag `C` compare with.
//!
//! A client may choose the token of what it writes (`E`): it is kept with the value, on disk too,
//! until the next change. Any other token is the version of the value plus an offset that belongs
//! to the tree, both of 64 bits. Versions of one (tree, key) never repeat and only grow, and so do
//! its tokens. Versions of two trees do repeat (FLUSHALL installs a fresh tree, SWAPDB another
//! one), and so would those of a server that lost its last writes in a crash. The offset is
//! therefore drawn from the tree's number and from a number that every opening of a database draws
//! anew, and that every SNAPSHOT ROLLBACK and every large BRANCH MERGE changes: a token read from
//! another tree, or before one of these, matches by chance only, about once in 2^62 times. Clients
//! of memcached expect no more of a restart: there it forgets everything.
//! (Epochs that begin beyond any that a crash can have lost would keep tokens across a restart, but
//! the log, its scan and every checkpoint would have to allow gaps.)
//!
//! An offset is above 0 and at most 2^62, and versions stay below 2^62 for the first 2^34 epochs:
//! until then no token is 0, which means "none" to clients, and all fit in 63 bits, the limit of
//! some clients' integers. Nothing else distinguishes tokens from versions: only this module makes
//! them.

use std::num::NonZero;
use std::sync::atomic::Ordering;

use pando_engine::{TreeId, ValueRef, ValueVersion};

use crate::keyspace::Keyspace;

/// Makes the tokens of one tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tokens {
    offset: u64,
}

impl Tokens {
    /// Those of the keyspace's tree, as long as the caller holds a gate.
    #[inline]
    pub(super) fn of(keyspace: &Keyspace<'_>) -> Self {
        let rollbacks = &keyspace.database.snapshots.rollbacks;
        let seed = keyspace
            .options()
            .seed
            .wrapping_add(rollbacks.load(Ordering::Relaxed));
        Self::new(seed, keyspace.view.tree())
    }

    #[inline]
    fn new(seed: u64, tree: TreeId) -> Self {
        let spread = u64::from(tree.0).wrapping_mul(SPREAD);
        Self {
            offset: fastrand::Rng::with_seed(seed ^ spread).u64(1..=1 << 62),
        }
    }

    /// The token of an item.
    #[inline]
    pub(super) fn of_value(self, value: &ValueRef<'_>) -> u64 {
        self.token(value.version, value.attributes.token)
    }

    /// The token of an item of this version, unless a client has `chosen` it.
    #[inline]
    pub(super) fn token(self, version: ValueVersion, chosen: Option<NonZero<u64>>) -> u64 {
        match chosen {
            Some(token) => token.get(),
            None => version.to_bits().wrapping_add(self.offset),
        }
    }
}

/// An odd number whose multiples are far apart.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use pando_engine::LogEpoch;

    use super::*;

    #[test]
    fn a_token_belongs_to_a_tree_of_one_opening() {
        let version = ValueVersion::first_of(LogEpoch(3));
        let mut met = std::collections::BTreeSet::new();
        for seed in [0, 1, 2, u64::MAX] {
            for tree in (0..200).chain([u32::MAX]) {
                let tokens = Tokens::new(seed, TreeId(tree));
                assert!(met.insert(tokens.token(version, None)), "{seed} {tree}");
                assert!(tokens.token(version, None) > 0 && tokens.token(version, None) >> 63 == 0);
            }
        }
    }

    /// `ms` and `md` with `I` compare which of two is older.
    #[test]
    fn tokens_of_a_tree_grow_with_versions() {
        let tokens = Tokens::new(7, TreeId(5));
        let first = ValueVersion::first_of(LogEpoch(3));
        let second = ValueVersion::after(Some(first), LogEpoch(3));
        let third = ValueVersion::after(Some(second), LogEpoch((1 << 34) - 1));
        assert!(tokens.token(first, None) < tokens.token(second, None));
        assert!(tokens.token(second, None) < tokens.token(third, None));
        assert!(tokens.token(third, None) >> 63 == 0);
    }
}
