//! The duties of every engine, as tests: `pando_engine::conformance_suite!(MyEngine);`
//!
//! The macro makes one `#[test]` for each check. There are two kinds of checks. Sequential ones run
//! generated operations and compare each answer, each call of a closure or hook and each version
//! with a model (a `BTreeMap`). Concurrent ones run threads and check what must hold in every
//! interleaving: no increment is lost, values are whole, scans and walks miss no permanent key,
//! commits of a key form one chain, per-key histories are linearizable.
//!
//! Everything generated follows from one seed, which every failure prints. Set
//! `PANDO_CONFORMANCE_SEED` to repeat a run or to make another one (thread interleavings are the
//! machine's), and `PANDO_CONFORMANCE_EFFORT` to a number above its default to run longer.
//!
//! The checks require more than the contract's letter:
//! - versions are exactly those of V1 version-draw;
//! - `get_many` and `update_many` process the keys in order;
//! - after `maintain` has returned 0 with no session pinned, tombstones below the horizon are gone.
//!
//! Every check has canaries: engines that are broken in one way each, which the suite must reject.

mod bulk;
#[cfg(test)]
mod canaries;
mod concurrent;

mod emptying;
mod keys;
mod limits;
pub mod linearizability;
mod marks;

mod model;
mod restore;
mod sequences;
mod snapshots;
mod subject;
mod values;

use std::fmt;
use std::sync::Arc;

use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::{Engine, EpochClock, LogEpoch};

/// The parameters of a run of the suite.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Everything generated follows from it.
    pub seed: u64,
    /// Multiplies the generated cases and the rounds of threads.
    pub effort: u32,
    /// Most attempts to make a failing sequence of operations smaller.
    pub shrink_attempts_max: u32,
}

/// How an engine failed.
#[derive(Debug)]
pub struct Failure {
    check: &'static str,
    seed: u64,
    what: String,
}

impl Plan {
    const SEED: u64 = 0x70a4_d0c0_4f0a_0001;

    const EFFORT: u64 = 8;

    /// The usual plan, with the seed and the effort from the environment, if set (decimal, or
    /// hexadecimal after `0x`).
    ///
    /// # Panics
    /// When a variable holds something else.
    #[must_use]
    pub fn from_environment() -> Self {
        let number = |name: &str, default: u64| {
            let Ok(text) = std::env::var(name) else {
                return default;
            };
            let parsed = match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16),
                None => text.parse(),
            };
            parsed.unwrap_or_else(|error| panic!("{name} {text:?}: {error}"))
        };
        Self {
            seed: number("PANDO_CONFORMANCE_SEED", Self::SEED),
            effort: number("PANDO_CONFORMANCE_EFFORT", Self::EFFORT) as u32,
            shrink_attempts_max: 4_000,
        }
    }

    /// A runner of this many generated cases, times the effort, for the check of this name.
    fn runner(&self, check: &str, cases: u32) -> TestRunner {
        let config = Config {
            cases: cases * self.effort,
            max_shrink_iters: self.shrink_attempts_max,
            failure_persistence: None,
            ..Config::default()
        };
        let mut seed = [0; 32];
        let mut rng = self.rng(check);
        seed.fill_with(|| rng.u8(..));
        TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
    }

    /// A generator for the check, or the thread of a check, of this name.
    fn rng(&self, name: &str) -> fastrand::Rng {
        let name = name.bytes().fold(0_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        fastrand::Rng::with_seed(self.seed ^ name)
    }

    fn failure(&self, check: &'static str, what: impl Into<String>) -> Failure {
        Failure {
            check,
            seed: self.seed,
            what: what.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { check, seed, what } = self;
        write!(f, "{check} (PANDO_CONFORMANCE_SEED={seed:#x}): {what}")
    }
}

impl std::error::Error for Failure {}

/// An engine at epoch 1 and its clock.
fn open<E: Engine>() -> (Arc<EpochClock>, Arc<E>) {
    let clock = Arc::new(EpochClock::starting_at(LogEpoch(1)));
    let engine = E::open(Arc::clone(&clock), E::Options::default());
    (clock, engine.expect("default options suit everywhere"))
}

fn session<E: Engine<Session: Subject>>(engine: &Arc<E>) -> E::Session {
    engine
        .session()
        .expect("a few sessions are within every engine's bound")
}

/// Runs a check as a test does.
///
/// # Panics
/// When the engine fails it.
pub fn pass(check: fn(&Plan) -> Result<(), Failure>) {
    if let Err(failure) = check(&Plan::from_environment()) {
        panic!("{failure}");
    }
}

pub use bulk::bulk_loads;
pub use concurrent::{
    commits_form_a_chain, histories_are_linearizable, increments_are_not_lost,
    reads_miss_no_permanent_key, scans_miss_no_permanent_key, trees_come_and_go, values_are_whole,
    walks_miss_no_permanent_key,
};
pub use emptying::moves_are_unnoticed;
pub use limits::{
    a_pin_ends_with_its_scope, misuse_is_refused, misuse_of_restores_is_refused,
    samples_reach_every_key, sessions_are_bounded,
};
pub use marks::marks_stay_and_sweeps_pass_every_key;
pub use restore::{
    boundaries_cut_evenly, restored_trees_keep_their_numbers, restores_keep_the_newest,
};
pub use sequences::operation_sequences;
pub use snapshots::{
    large_values_are_handed_over, snapshots_stand, snapshots_stand_on,
    sums_are_exact_at_every_snapshot, sums_are_exact_on,
};
pub use subject::{Subject, SubjectAt, list_by_walking};

/// Makes a module `conformance` with one test for each check of the suite, for an ordered engine;
/// its further capabilities (`emptying`, `restore`, `snapshots`) are named after it.
#[macro_export]
macro_rules! conformance_suite {
    ($engine:ty $(, $capability:ident)*) => {
        mod conformance {
            #[allow(unused_imports)]
            use super::*;

            $crate::conformance_suite! { @point $engine }
            $crate::conformance_suite! { @tests $engine:
                boundaries_cut_evenly
            }
            $($crate::conformance_suite! { @$capability $engine })*
        }
    };
    // Checks for every engine; listings replace scans on unordered ones.
    (@point $engine:ty) => {
        $crate::conformance_suite! { @tests $engine:
            operation_sequences
            bulk_loads
            sessions_are_bounded
            a_pin_ends_with_its_scope
            misuse_is_refused
            samples_reach_every_key
            marks_stay_and_sweeps_pass_every_key
            increments_are_not_lost
            commits_form_a_chain
            values_are_whole
            reads_miss_no_permanent_key
            scans_miss_no_permanent_key
            histories_are_linearizable
            trees_come_and_go
        }
    };
    // Checks for an engine with exact versions.
    (@restore $engine:ty) => {
        $crate::conformance_suite! { @tests $engine:
            restores_keep_the_newest
            restored_trees_keep_their_numbers
            misuse_of_restores_is_refused
        }
    };
    // Checks for an engine that moves values.
    (@emptying $engine:ty) => {
        $crate::conformance_suite! { @tests $engine:
            moves_are_unnoticed
        }
    };
    // Checks for an engine with snapshots.
    (@snapshots $engine:ty) => {
        $crate::conformance_suite! { @tests $engine:
            snapshots_stand
            large_values_are_handed_over
            sums_are_exact_at_every_snapshot
        }
    };
    (@tests $engine:ty: $($check:ident)*) => {
        $(
            #[test]
            fn $check() {
                $crate::conformance::pass($crate::conformance::$check::<$engine>);
            }
        )*
    };
}

/// The suite for an unordered engine, whose sessions, named second, implement
/// [`Walk`](crate::Walk): the checks for every engine (scans become walks, see `subject`), and the
/// checks of walks. Further capabilities (`emptying`, `restore`, `snapshots`) are named last.
#[macro_export]
macro_rules! unordered_conformance_suite {
    ($engine:ty, $session:ty $(, $capability:ident)*) => {
        impl $crate::conformance::Subject for $session {
            const ORDERED: bool = false;

            fn list(
                &mut self,
                tree: $crate::TreeId,
                from: ::std::ops::Bound<&[u8]>,
                direction: $crate::Direction,
                visit: impl FnMut(&[u8], $crate::ValueRef<'_>) -> ::std::ops::ControlFlow<()>,
            ) {
                let step = |cursor, visit: &mut dyn FnMut(&[u8], $crate::ValueRef<'_>)| {
                    $crate::Walk::walk(self, tree, cursor, visit)
                };
                $crate::conformance::list_by_walking(step, false, from, direction, visit);
            }
        }

        impl $crate::conformance::SubjectAt for $session {
            fn list_at(
                &mut self,
                at: $crate::Snapshot,
                tree: $crate::TreeId,
                from: ::std::ops::Bound<&[u8]>,
                direction: $crate::Direction,
                visit: impl FnMut(&[u8], $crate::ValueRef<'_>) -> ::std::ops::ControlFlow<()>,
            ) {
                let step = |cursor, visit: &mut dyn FnMut(&[u8], $crate::ValueRef<'_>)| {
                    $crate::WalkAt::walk_at(self, at, tree, cursor, visit)
                };
                $crate::conformance::list_by_walking(step, true, from, direction, visit);
            }
        }

        mod conformance {
            #[allow(unused_imports)]
            use super::*;

            $crate::conformance_suite! { @point $engine }
            $crate::conformance_suite! { @tests $engine:
                walks_miss_no_permanent_key
            }
            $($crate::conformance_suite! { @$capability $engine })*
        }
    };
}
