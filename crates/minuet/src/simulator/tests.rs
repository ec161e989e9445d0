//! Seeds that hold, and planted faults that do not.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::world::{Planted, World, compares_inner_nodes};
use crate::fault::{Fault, plant};

/// Transactions of a seed, here.
const TRANSACTIONS: usize = 300;

/// Seeds that hold.
const SEEDS: u64 = 60;

/// Seeds that a planted fault may take: a repeated request mostly fails its comparisons.
const SEEDS_MAX: u64 = 300;

#[test]
fn seeds_hold() {
    let seeds = std::env::var("PANDO_MINUET_SEEDS")
        .ok()
        .and_then(|seeds| seeds.parse().ok());
    let (mut adopted, mut borrowed) = (0, 0);
    for seed in 0..seeds.unwrap_or(SEEDS) {
        match World::new(seed, TRANSACTIONS, Planted::Nothing).run() {
            Ok(report) => {
                adopted += report.adopted;
                borrowed += report.borrowed;
            }
            Err(violation) => panic!("{violation}"),
        }
    }
    assert!(adopted > 0, "large merges come to their end");
    assert!(borrowed > 0, "snapshots are shared");
}

/// The first seed that shows a fault, by a violation or a broken assertion.
fn found(fault: Option<Fault>, planted: Planted) -> Option<u64> {
    plant(fault);
    let shows = |seed: &u64| {
        let run = || World::new(*seed, TRANSACTIONS, planted).run();
        !matches!(catch_unwind(AssertUnwindSafe(run)), Ok(Ok(_)))
    };
    let seed = (0..SEEDS_MAX).find(shows);
    plant(None);
    seed
}

#[test]
fn planted_faults_are_found() {
    for fault in [
        Fault::FenceCheck,
        Fault::CopiedCheck,
        Fault::OneTip,
        Fault::VersionFloor,
        Fault::OneRead,
        Fault::Abandoned,
        Fault::Generation,
        Fault::OldTip,
        Fault::DiffUnseen,
        Fault::EarlyFree,
        Fault::LeaseIgnored,
        Fault::LeaseUnchecked,
        Fault::DiffSkip,
        Fault::MergeBlind,
        Fault::BranchCopied,
        Fault::Forwarding,
        Fault::DescendantBound,
        Fault::OneBranch,
        Fault::CatalogStale,
        Fault::PartingFreed,
        Fault::BorrowEarly,
        Fault::BorrowLast,
        Fault::LargeFreed,
    ] {
        let seed = found(Some(fault), Planted::Nothing);
        println!("{fault:?}: {seed:?}");
        assert!(seed.is_some(), "{fault:?} is not found");
    }
    for planted in [
        Planted::LostVote,
        Planted::Repeated,
        Planted::Unretired,
        Planted::Overtaken,
    ] {
        let seed = found(None, planted);
        println!("{planted:?}: {seed:?}");
        assert!(seed.is_some(), "{planted:?} is not found");
    }
}

#[test]
fn compared_inner_nodes_make_up_for_what_a_traversal_checks() {
    let first = |fault, compares: bool| {
        plant(Some(fault));
        let mut seeds = (0..8 * SEEDS).filter(|seed| compares_inner_nodes(*seed) == compares);
        let shows = |seed: &u64| {
            let run = || World::new(*seed, TRANSACTIONS, Planted::Nothing).run();
            !matches!(catch_unwind(AssertUnwindSafe(run)), Ok(Ok(_)))
        };
        let seed = seeds.by_ref().take(SEEDS as usize).find(shows);
        plant(None);
        seed
    };
    assert_eq!(first(Fault::OnlyPaths, true), None);
    assert!(first(Fault::OnlyPaths, false).is_some());
    assert!(first(Fault::PathUnseen, true).is_some());
    assert!(first(Fault::OneTable, true).is_some());
}

#[test]
fn an_old_hint_of_a_slot_that_is_written_is_no_error() {
    World::new(170, 1000, Planted::Nothing).run().unwrap();
}

#[test]
fn an_old_hint_of_a_slot_on_the_way_is_given_up() {
    World::new(130, 1000, Planted::Nothing).run().unwrap();
}

#[test]
fn transactions_do_not_abort_each_other_for_ever() {
    World::new(104_602, 1000, Planted::Nothing).run().unwrap();
}
