//! Opening a database: options, recovery, background threads.

use std::collections::HashSet;
use std::sync::Arc;

use pando_cdds::Cdds;
use pando_engine::{EpochClock, LogEpoch, SessionLimit, TreeId};
use thiserror::Error;

use crate::database::{Database, Parts};
use crate::durable::lineage::Lineage;
use crate::durable::standing::Standing;
#[cfg(any(test, feature = "hand-log"))]
use crate::epoch_log::HandLog;
use crate::epoch_log::{EpochLog, PoolLog};
use crate::expiry::ExpiryIndex;
use crate::grove::Grove;
use crate::options::Options;
use crate::persistence::{self, RecoveryError};
use crate::snapshots::NamedSnapshot;
use crate::store::Store;
use crate::{kept, limits, maintenance, pool};

/// Why a database cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// An option is outside its range.
    #[error("{option} is {got}, expected {expected}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// The given value.
        got: usize,
        /// The valid range.
        expected: &'static str,
    },
    /// The data on disk cannot be recovered.
    #[error(transparent)]
    Recovery(#[from] Box<RecoveryError>),
    /// The pool of persistent memory cannot be opened.
    #[error(transparent)]
    Pool(#[from] pando_cdds::Error),
    /// A snapshot that the pool keeps is none of a database.
    #[error("the pool keeps a snapshot {name:?} that no database has made")]
    Snapshot {
        /// Its name.
        name: String,
    },
    /// An engine that keeps its data itself was to be stored on disk besides.
    #[error("engine {engine} keeps its data in its pool: there is no log for it")]
    NoLog {
        /// Its name.
        engine: &'static str,
    },
    /// The background thread could not be started.
    #[error("cannot start the maintenance thread: {0}")]
    Thread(#[from] std::io::Error),
    /// No session is left for the background thread.
    #[error(transparent)]
    Session(#[from] SessionLimit),
}

/// Refuses options outside their range.
fn check_options(options: &Options) -> Result<(), OpenError> {
    check(
        "databases",
        options.databases,
        1,
        limits::DATABASES_MAX,
        "1 to 1024",
    )?;
    let sessions_max = pando_engine::limits::SESSIONS_MAX;
    check(
        "sessions_max",
        options.sessions_max,
        2,
        sessions_max,
        "2 to 1024",
    )?;
    let key_bytes_max = pando_engine::limits::KEY_BYTES_MAX;
    check(
        "key_bytes_max",
        options.key_bytes_max,
        1,
        key_bytes_max,
        "1 to 65536",
    )?;
    check(
        "retired_bytes_max",
        options.retired_bytes_max,
        limits::RETIRED_BYTES_MAX_LEAST,
        isize::MAX as usize,
        "at least 65536",
    )?;
    check(
        "memnodes",
        options.memnodes.into(),
        1,
        limits::MINUET_MEMNODES_MAX.into(),
        "1 to 64",
    )?;
    check(
        "page_bytes",
        options.page_bytes,
        limits::MINUET_PAGE_BYTES_MIN,
        limits::MINUET_PAGE_BYTES_MAX,
        "4096 to 32768",
    )?;
    Ok(())
}

impl Database {
    /// Opens an empty database and starts its maintenance thread, which ticks the log epoch, purges
    /// tombstones and removes expired keys until [`Self::close`].
    ///
    /// A database on disk ([`Options::durability`]) is recovered first.
    pub fn open(options: Options) -> Result<Arc<Self>, OpenError> {
        match options.durability.clone() {
            None if options.engine.has_pool() => Self::open_pool(options),
            Some(_) if options.engine.has_pool() => Err(OpenError::NoLog {
                engine: options.engine.name(),
            }),
            None => Self::open_empty(options, None),
            Some(durability) => {
                check_options(&options)?;
                let (options, parts) = persistence::open(options, durability)?;
                Self::assemble(options, parts).begin()
            }
        }
    }

    /// Opens an empty database whose epochs become durable when a test says so.
    #[cfg(any(test, feature = "hand-log"))]
    pub fn open_by_hand(options: Options, log: Arc<HandLog>) -> Result<Arc<Self>, OpenError> {
        Self::open_empty(options, Some(EpochLog::ByHand(log)))
    }

    fn open_empty(options: Options, log: Option<EpochLog>) -> Result<Arc<Self>, OpenError> {
        check_options(&options)?;
        let epochs = Arc::new(EpochClock::starting_at(LogEpoch(1)));
        let store = Store::open(&options, Arc::clone(&epochs))?;
        let trees = (0..options.databases)
            .map(|_| store.create_tree())
            .collect();
        let grove = Grove::new(&store);
        let parts = Parts {
            epochs,
            store,
            expiry: ExpiryIndex::new(),
            trees,
            mapping_changes: 0,
            standing: Standing::default(),
            grove,
            lineage: Lineage::begun(LogEpoch::NONE),
            hidden_trees: Vec::new(),
            log,
            durable: None,
        };
        Self::assemble(options, parts).begin()
    }

    /// Opens a database that its engine brings back. Deadlines are looked at, other keys are not.
    fn open_pool(options: Options) -> Result<Arc<Self>, OpenError> {
        check_options(&options)?;
        let epochs = Arc::new(EpochClock::starting_at(LogEpoch(1)));
        let store = Store::open(&options, Arc::clone(&epochs))?;
        let engine = Arc::clone(store.pooled().expect("the engine of this opening"));
        let noted = pool::noted_mapping(&engine)?;
        let (mapping_changes, mut trees) = noted.clone().unwrap_or_default();
        while trees.len() < options.databases {
            trees.push(store.create_tree());
        }
        if noted.is_none_or(|(_, noted)| noted != trees) {
            pool::note_mapping(&engine, mapping_changes, &trees);
        }
        let snapshots = kept_snapshots(&engine, &trees)?;
        let shown = snapshots.iter().flat_map(|snapshot| &snapshot.databases);
        let shown: HashSet<TreeId> = shown
            .map(|frozen| frozen.tree)
            .chain(trees.iter().copied())
            .collect();
        // Of a snapshot that has ended with its process, or made just before a crash.
        for tree in engine.trees() {
            if !shown.contains(&tree) {
                store.drop_tree(tree);
            }
        }
        for snapshot in &snapshots {
            let frozen = store.freeze(snapshot.epoch());
            frozen.expect("there are fewer than an engine can have");
        }
        let expiry = ExpiryIndex::new();
        expiry.filling.begin();
        let hidden_trees = trees.split_off(options.databases);
        let (standing, lineage) = past(&engine, options.follows)?;
        let durable = epochs.current().previous();
        let lasts = !matches!(options.pool.place, pando_cdds::Place::Memory);
        let clock = Arc::clone(&options.clock);
        let log = EpochLog::Pool(Arc::new(PoolLog::new(engine, clock, durable, lasts)));
        let grove = Grove::new(&store);
        let parts = Parts {
            epochs,
            store,
            expiry,
            trees,
            mapping_changes,
            standing,
            grove,
            lineage,
            hidden_trees,
            log: Some(log),
            durable: None,
        };
        let database = Self::assemble(options, parts);
        for snapshot in snapshots {
            database.snapshots.add(snapshot);
        }
        database.begin()
    }

    fn begin(self: Arc<Self>) -> Result<Arc<Self>, OpenError> {
        let session = self.open_session()?;
        self.run_in_background(maintenance::start(&self, session)?);
        Ok(self)
    }
}

/// Where the data of a pool stand in the history of others, and their own histories.
fn past(engine: &Cdds, follows: bool) -> Result<(Standing, Lineage), OpenError> {
    let noted = pool::noted_standing(engine)?;
    // One that follows nobody takes writes of its own, behind which it cannot go on.
    let standing = if follows {
        noted.clone()
    } else {
        noted.left_if_any()
    };
    if standing != noted {
        pool::note_standing(engine, &standing);
    }
    let lineage = match pool::noted_histories(engine)? {
        Some(lineage) => {
            let lineage = lineage.reopened(engine.found());
            pool::note_histories(engine, &lineage);
            lineage
        }
        None => Lineage::begun(LogEpoch::NONE),
    };
    Ok((standing, lineage))
}

/// The snapshots that a pool has kept, oldest first; `trees` are those of the present.
fn kept_snapshots(engine: &Cdds, trees: &[TreeId]) -> Result<Vec<NamedSnapshot>, OpenError> {
    let kept = engine.kept()?;
    let each = kept.iter().map(|kept| {
        let snapshot = kept::kept_snapshot(kept, trees);
        let name = || kept.name.clone();
        snapshot.ok_or_else(|| OpenError::Snapshot { name: name() })
    });
    each.collect()
}

fn check(
    option: &'static str,
    got: usize,
    least: usize,
    most: usize,
    expected: &'static str,
) -> Result<(), OpenError> {
    if (least..=most).contains(&got) {
        Ok(())
    } else {
        Err(OpenError::Option {
            option,
            got,
            expected,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Microseconds;
    use crate::commands::testing::Shell;

    fn open(change: impl FnOnce(&mut Options)) -> Result<Arc<Database>, OpenError> {
        let mut options = Options::default();
        change(&mut options);
        Database::open(options)
    }

    #[test]
    fn options_outside_their_range_are_refused() {
        let refusals = [
            open(|options| options.databases = 0),
            open(|options| options.databases = limits::DATABASES_MAX + 1),
            open(|options| options.sessions_max = 1),
            open(|options| options.sessions_max = pando_engine::limits::SESSIONS_MAX + 1),
            open(|options| options.key_bytes_max = 0),
            open(|options| options.key_bytes_max = pando_engine::limits::KEY_BYTES_MAX + 1),
            open(|options| options.retired_bytes_max = limits::RETIRED_BYTES_MAX_LEAST - 1),
            open(|options| options.retired_bytes_max = usize::MAX),
            open(|options| options.memnodes = 0),
            open(|options| options.memnodes = limits::MINUET_MEMNODES_MAX + 1),
            open(|options| options.page_bytes = limits::MINUET_PAGE_BYTES_MIN - 1),
            open(|options| options.page_bytes = limits::MINUET_PAGE_BYTES_MAX + 1),
        ];
        let named: Vec<_> = refusals
            .into_iter()
            .map(|refusal| match refusal {
                Err(OpenError::Option { option, .. }) => option,
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = [
            "databases",
            "sessions_max",
            "key_bytes_max",
            "retired_bytes_max",
            "memnodes",
            "page_bytes",
        ];
        assert!(
            named
                .chunks(2)
                .zip(expected)
                .all(|(pair, name)| pair == [name, name])
        );
    }

    /// B2 own-gate, and that a closed session leaves its counts.
    #[test]
    fn sessions_are_bounded_and_come_back() {
        let database = open(|options| options.sessions_max = 3).expect("the options are valid");
        // One is the maintenance thread's.
        let first = database.session().expect("a session is free");
        let second = database.session().expect("a session is free");
        assert_ne!(first.gate(), second.gate());
        assert!(database.session().is_err());
        let gate = first.gate();
        drop(first);
        let mut third = database.session().expect("a session has come back");
        assert_eq!(third.gate(), gate);
        third.turn().keyspace(0).exists(b"k");
        drop(third);
        assert_eq!(database.statistics().keyspace_misses, 1);
    }

    /// Tree numbers are not used twice, and an engine may keep a little of each.
    #[test]
    fn an_empty_database_keeps_its_tree() {
        let mut shell = Shell::new();
        let trees = |shell: &Shell| [0, 1].map(|index| shell.database.tree(index));
        let before = trees(&shell);
        shell.check(&[("FLUSHALL", "+OK"), ("FLUSHDB", "+OK")]);
        assert_eq!(trees(&shell), before);
        shell.check(&[("SET k 1", "+OK"), ("FLUSHALL", "+OK"), ("DBSIZE", ":0")]);
        assert!(trees(&shell)[0] != before[0] && trees(&shell)[1] == before[1]);
    }

    #[test]
    fn a_pause_grows_and_ends() {
        let shell = Shell::new();
        let database = &shell.database;
        let now_us = database.options.clock.now();
        let until = |milliseconds: u64| now_us + Microseconds(milliseconds * 1000);
        database.pause(until(10), true);
        database.pause(until(20), false);
        assert_eq!(database.paused_until(false), Some(until(20)));
        database.pause(until(5), false);
        assert_eq!(database.paused_until(true), Some(until(20)));
        shell.pass_ms(20);
        assert_eq!(database.paused_until(true), None);
        // The end is forgotten, strictness included.
        database.pause(until(30), false);
        assert_eq!(database.paused_until(false), None);
        assert_eq!(database.paused_until(true), Some(until(30)));
        database.pause(Microseconds::MAX, false);
        assert_eq!(
            database.paused_until(true),
            Some(Microseconds(u64::MAX >> 1))
        );
        database.unpause();
        assert_eq!(database.paused_until(true), None);
    }

    /// Two pauses at a time: the stricter and the longer one both count.
    #[test]
    fn concurrent_pauses_merge() {
        let shell = Shell::new();
        let database = &shell.database;
        let until = database.options.clock.now() + Microseconds(1000);
        for _ in 0..200 {
            std::thread::scope(|scope| {
                scope.spawn(|| database.pause(until, true));
                scope.spawn(|| database.pause(until + Microseconds(1), false));
            });
            assert_eq!(database.paused_until(false), Some(until + Microseconds(1)));
            database.unpause();
        }
    }
}
