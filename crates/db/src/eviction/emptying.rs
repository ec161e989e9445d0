//! Emptying memory: values that lie in it are moved, or evicted when memory is short.
//!
//! Where sizes of values change, blocks of the old sizes become free here and there, and their
//! memory serves no other size before its neighbours are free too. So engines choose parts of their
//! memory that are to be emptied, and a hand passes all values once and deals with those that lie
//! there: a value that the policy would spare is moved if there is a free block of its size
//! elsewhere, and evicted otherwise. What is evicted is then memory, not holes.
//!
//! | field | writer | lock | reader |
//! |---|---|---|---|
//! | `Emptier` | one session at a time | a mutex that nobody waits for | the same |

use pando_engine::{Hand, Key, Point, TreeId};

use super::judge::Verdict;
use super::{EvictionPolicy, Evictor, Victim};
use crate::database::Database;
use crate::keyspace::is_expired;
use crate::limits;
use crate::session::SessionState;

/// How far the hand has come.
#[derive(Debug, Default)]
pub(crate) struct Emptier {
    /// Memory is being emptied, as far as this hand knows.
    active: bool,
    /// The database that the hand is in.
    index: usize,
    hand: Hand,
}

impl Emptier {
    /// The tree that the hand is in, or the next one that holds keys.
    fn tree(&mut self, database: &Database) -> Option<TreeId> {
        let mut indexes = self.index..database.databases();
        let index = indexes.find(|index| database.store.len(database.tree(*index)) > 0)?;
        if index != self.index {
            self.index = index;
            self.hand = Hand::default();
        }
        Some(database.tree(index))
    }
}

/// What a call of [`empty`] has done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Emptied {
    /// Values passed, or more.
    pub(crate) steps: usize,
    /// Keys evicted.
    pub(crate) keys: usize,
}

/// Whether keys may be evicted because of where they lie. Which deadline is near does not depend on
/// that.
fn takes_by_place(policy: EvictionPolicy) -> bool {
    !matches!(
        policy,
        EvictionPolicy::NoEviction | EvictionPolicy::VolatileTtl
    )
}

/// Passes up to `limits::EMPTY_STEPS_MAX` values; `short`: memory is short, so that they may be
/// evicted if the policy may take them (EV1, EV2). The caller holds a gate.
pub(crate) fn empty(
    database: &Database,
    session: &mut SessionState,
    evictor: &mut Evictor,
    short: bool,
) -> Emptied {
    let mut emptied = Emptied::default();
    // Another session does it.
    let Ok(mut emptier) = database.eviction.emptier.try_lock() else {
        return emptied;
    };
    if !session.store.begin_emptying(short) {
        emptier.active = false;
        return emptied;
    }
    if !emptier.active {
        *emptier = Emptier {
            active: true,
            ..Emptier::default()
        };
    }
    let policy = database.eviction_policy();
    let evicts = short && takes_by_place(policy);
    let now = session.now_us / 1000;
    let mut found = Vec::new();
    while emptied.steps < limits::EMPTY_STEPS_MAX && emptied.keys < limits::EVICT_KEYS_MAX {
        let Some(tree) = emptier.tree(database) else {
            session.store.end_emptying();
            emptier.active = false;
            break;
        };
        let judge = &mut evictor.judge;
        let window = limits::EVICT_WINDOW;
        let visit = |key: &[u8], value: pando_engine::ValueRef<'_>| {
            let mut mark = value.mark.get();
            let mut spare = !is_expired(&value.attributes, now);
            let expires = value.attributes.deadline.is_some();
            if evicts && spare && (expires || !policy.is_volatile()) {
                match judge.pass(policy.tracking(), mark) {
                    Verdict::Pass(lower) => {
                        mark = lower;
                        value.mark.set(lower);
                    }
                    Verdict::Take => spare = false,
                }
            }
            found.push((Victim::swept(tree, key, mark), spare));
        };
        let ended = session
            .store
            .sweep_emptying(tree, &mut emptier.hand, window, visit);
        emptied.steps += window;
        for (victim, spare) in found.drain(..) {
            let moved = spare && session.store.relocate(Key::new(victim.tree, &victim.key));
            if !moved && evicts {
                emptied.keys += usize::from(victim.evict(database, session, policy));
            }
        }
        if ended {
            emptier.hand = Hand::default();
            emptier.index += 1;
        }
    }
    emptied
}
