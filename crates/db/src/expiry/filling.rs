//! Filling the index from the list that a pool keeps, a little at a time: a start and a rollback
//! serve at once, however many keys have a deadline.
//!
//! The list is in order of deadlines, so what is due comes first. Until all of it has been gone
//! through, INFO counts too few keys with a deadline; whoever evicts by the index fills it, too.
//!
//! Whoever changes a deadline meanwhile reconciles it as ever, wherever the position is, and what
//! is filled in is the deadline that the key has while the mutex is held, as X1 one-entry asks for.
//! So a key that is met twice, or was removed since it was read, does no harm (X3 filled-behind).
//!
//! | field | writer | lock | reader |
//! |---|---|---|---|
//! | `position` | whoever fills, under its own gate; a rollback, under all | its mutex, before those of shards | the same |
//! | `goes_on` | the same | `Relaxed`: a hint | whoever may fill |

use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use pando_cdds::{Cdds, Listed};
use pando_engine::{Deadline, Key, TreeId};
use pando_sync::lock;

use super::{EntryKey, ExpiryIndex, Of};
use crate::limits;
use crate::store::StoreSession;

/// How far the index has been filled.
#[derive(Debug, Default)]
pub(crate) struct Filling {
    goes_on: AtomicBool,
    position: Mutex<Option<Position>>,
}

#[derive(Debug)]
struct Position {
    of: Of,
    behind: Option<(TreeId, Deadline, EntryKey)>,
}

impl Position {
    fn at_first(of: Of) -> Self {
        Self { of, behind: None }
    }

    /// The next entries that the pool lists.
    fn read(&self, engine: &Cdds) -> Vec<(TreeId, Deadline, EntryKey)> {
        let listed = match self.of {
            Of::Key => Listed::Keys,
            Of::Field => Listed::Fields,
        };
        let behind = self.behind.as_ref();
        let behind = behind.map(|(tree, deadline, key)| (*deadline, Key::new(*tree, key)));
        let mut met = Vec::new();
        let read = engine.deadlines(listed, behind, |deadline, key| {
            met.push((key.tree, deadline, EntryKey::from_slice(key.bytes)));
            if met.len() < limits::FILLED_ENTRIES_MAX {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        read.unwrap_or_else(|error| panic!("the pool is not to be trusted: {error}"));
        met
    }
}

impl Filling {
    /// Begins, or begins anew: the index is empty.
    pub(crate) fn begin(&self) {
        *lock(&self.position) = Some(Position::at_first(Of::Key));
        self.goes_on.store(true, Ordering::Relaxed);
    }

    /// Whether entries may be missing.
    #[inline]
    pub(crate) fn goes_on(&self) -> bool {
        self.goes_on.load(Ordering::Relaxed)
    }

    /// Fills in up to `limits::FILLED_ENTRIES_MAX` entries; how many it has looked at, or one where
    /// it goes on without. The caller holds a gate.
    pub(crate) fn step(
        &self,
        engine: &Cdds,
        index: &ExpiryIndex,
        store: &mut StoreSession,
    ) -> usize {
        let mut position = lock(&self.position);
        let Some(at) = &mut *position else {
            return 0;
        };
        let mut met = at.read(engine);
        enter(index, store, at.of, &met);
        let count = met.len().max(1);
        *position = match (met.pop(), at.of) {
            (Some(last), of) => Some(Position {
                of,
                behind: Some(last),
            }),
            (None, Of::Key) => Some(Position::at_first(Of::Field)),
            (None, Of::Field) => {
                self.goes_on.store(false, Ordering::Relaxed);
                None
            }
        };
        count
    }
}

/// Fills in what was read of the list.
fn enter(
    index: &ExpiryIndex,
    store: &mut StoreSession,
    of: Of,
    met: &[(TreeId, Deadline, EntryKey)],
) {
    for (tree, _, key) in met {
        index.reconcile(store, Key::new(*tree, key), (of, None));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::Milliseconds;
    use crate::commands::testing::{START_MS, Shell};
    use crate::session_state::SessionState;
    use crate::{EngineKind, Options, Place, PoolOptions};
    use pando_cdds::Simulated;

    const KEYS: usize = 3 * limits::FILLED_ENTRIES_MAX + 5;

    /// A database whose background threads have ended.
    fn open(memory: &Arc<Simulated>) -> Shell {
        let pool = PoolOptions {
            place: Place::Simulated(Arc::clone(memory)),
            ..PoolOptions::default()
        };
        let options = Options {
            engine: EngineKind::Cdds,
            pool,
            ..Options::default()
        };
        Shell::on_disk(options, START_MS).expect("a pool")
    }

    /// The same with `KEYS` keys that have deadlines, and a hash whose field has one.
    fn filled(memory: &Arc<Simulated>) -> Shell {
        let mut shell = open(memory);
        for key in 0..KEYS {
            shell.line(&format!("SET k{key} v PX {}", 1000 + key));
        }
        shell.check(&[
            ("HSET h f v", ":1"),
            ("HPEXPIRE h 5000 FIELDS 1 f", "*1 :1"),
        ]);
        shell
    }

    /// All deadlines of an index that are due before the end of time, in order.
    fn listed(index: &ExpiryIndex) -> Listed {
        let due = index
            .keys
            .take_due(Milliseconds(u64::MAX), &mut 0, usize::MAX);
        let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
        let mut listed: Vec<_> = due.iter().map(|(_, at, key)| (*at, text(key))).collect();
        listed.sort_unstable();
        listed
    }

    type Enter = fn(&ExpiryIndex, &mut StoreSession, Of, &[(TreeId, Deadline, EntryKey)]);
    type Listed = Vec<(Deadline, String)>;

    /// What is listed, and what should be, after changes beside the filling.
    fn changed_beside(enter: Enter) -> [Listed; 2] {
        let mut shell = filled(&Arc::new(Simulated::new(4 << 20)));
        let database = Arc::clone(&shell.database);
        let engine = database.store.pooled().expect("a pool");
        let (index, tree) = (ExpiryIndex::new(), database.tree(0));
        // Read, and then changed before it is filled in.
        let mut position = Position::at_first(Of::Key);
        let met = position.read(engine);
        assert_eq!(met.len(), limits::FILLED_ENTRIES_MAX);
        let old = |key: u64| Some(Deadline(START_MS + 1000 + key));
        shell.check(&[
            ("PERSIST k1", ":1"),
            ("PEXPIRE k2 77777", ":1"),
            ("DEL k3", ":1"),
            ("SET late v PX 88888", "+OK"),
        ]);
        let mut turn = shell.turn();
        let session = turn.session_mut();
        // One whose session has not yet reconciled when it is filled in, and the others.
        let reconcile = |session: &mut SessionState, key: &[u8], replaced| {
            session.reconcile(&index, Key::new(tree, key), (Of::Key, replaced));
        };
        reconcile(session, b"k1", old(1));
        reconcile(session, b"late", None);
        enter(&index, &mut session.store, Of::Key, &met);
        reconcile(session, b"k2", old(2));
        reconcile(session, b"k3", old(3));
        position.behind = met.last().cloned();
        loop {
            let mut met = position.read(engine);
            enter(&index, &mut session.store, Of::Key, &met);
            position.behind = match met.pop() {
                None => break,
                last => last,
            };
        }
        drop(turn);
        let mut expected: Vec<_> = (0..KEYS as u64)
            .filter(|key| ![1, 2, 3].contains(key))
            .map(|key| (Deadline(START_MS + 1000 + key), format!("k{key}")))
            .collect();
        expected.push((Deadline(START_MS + 77_777), "k2".into()));
        expected.push((Deadline(START_MS + 88_888), "late".into()));
        [listed(&index), expected]
    }

    #[test]
    fn what_changes_beside_it_has_one_entry() {
        let [listed, expected] = changed_beside(enter);
        assert_eq!(listed, expected);
    }

    #[test]
    fn canary_deadlines_are_filled_in_as_they_were_read() {
        let [listed, expected] = changed_beside(|index, _, of, met| {
            for (tree, deadline, key) in met {
                let entry = || Some(*deadline);
                index.by(of).reconcile(Key::new(*tree, key), None, entry);
            }
        });
        assert_ne!(listed, expected);
    }

    /// How many keys and hashes are listed when all are.
    fn fill(shell: &mut Shell) -> (u64, u64) {
        let database = Arc::clone(&shell.database);
        let mut steps = 0;
        while database.is_listing_deadlines() {
            let looked_at = database.fill_expiry_index(shell.turn().session_mut());
            assert!(looked_at <= limits::FILLED_ENTRIES_MAX);
            steps += 1;
        }
        assert!(steps > 4, "a little at a time: {steps}");
        (database.expiring_keys(), database.expiring_hashes(0))
    }

    #[test]
    fn a_rollback_lists_deadlines_later() {
        let memory = Arc::new(Simulated::new(4 << 20));
        let mut shell = filled(&memory);
        let created = shell.line("SNAPSHOT CREATE s PERSIST");
        assert!(!created.starts_with('-'), "{created}");
        shell.check(&[
            ("PERSIST k1", ":1"),
            ("DEL h", ":1"),
            ("SET late v PX 5", "+OK"),
        ]);
        let rolled_back = shell.line("SNAPSHOT ROLLBACK s");
        assert!(!rolled_back.starts_with('-'), "{rolled_back}");
        assert_eq!(shell.database.expiring_keys(), 0);
        assert!(shell.database.is_listing_deadlines());
        // What is due is hidden before it is listed.
        shell.pass_ms(1001);
        shell.check(&[("GET k1", "$-1"), ("GET k2", "$1 v"), ("EXISTS late", ":0")]);
        let present = fill(&mut shell);
        assert!((KEYS as u64 - 2..=KEYS as u64).contains(&present.0) && present.1 == 1);
    }

    #[test]
    fn a_start_lists_deadlines_later() {
        let memory = Arc::new(Simulated::new(4 << 20));
        let mut shell = filled(&memory);
        shell.database.end_epoch();
        drop(shell);
        shell = open(&memory);
        shell.database.expiry.filling.begin();
        assert_eq!(fill(&mut shell), (KEYS as u64, 1));
    }

    /// Keys are found to be evicted before all are listed, and writes are not refused for want of
    /// them.
    #[test]
    fn eviction_lists_deadlines_itself() {
        let memory = Arc::new(Simulated::new(4 << 20));
        let mut shell = filled(&memory);
        shell.line("SNAPSHOT CREATE s PERSIST");
        shell.line("SNAPSHOT ROLLBACK s");
        shell.line("SNAPSHOT DROP s");
        assert_eq!(shell.database.expiring_keys(), 0);
        for policy in [
            crate::EvictionPolicy::VolatileTtl,
            crate::EvictionPolicy::VolatileLru,
        ] {
            shell.database.set_eviction_policy(policy);
            shell.database.expiry.filling.begin();
            let before = shell.database.expiring_keys();
            let database = Arc::clone(&shell.database);
            database.set_max_memory(1);
            let evicted = crate::eviction::evict(&database, shell.turn().session_mut());
            assert!(
                !evicted.exhausted,
                "{policy:?}: {evicted:?}, {before} listed"
            );
        }
    }
}
