//! Engines that are broken in one way each: the suite must reject every one of them.

mod faulty;

use super::{Failure, Plan};
use crate::{Amendment, Attributes, NewValue, ValueRef};
use faulty::{Fault, FaultyEngine};

/// The checks that reject the broken engines must accept their sound twin.
#[test]
fn the_sound_engine_passes() {
    type Sound = FaultyEngine<{ Fault::Nothing as u8 }>;
    let checks = [
        super::operation_sequences::<Sound>,
        super::bulk_loads::<Sound>,
        super::sessions_are_bounded::<Sound>,
        super::a_pin_ends_with_its_scope::<Sound>,
        super::misuse_is_refused::<Sound>,
        super::misuse_of_restores_is_refused::<Sound>,
        super::samples_reach_every_key::<Sound>,
        super::marks_stay_and_sweeps_pass_every_key::<Sound>,
        super::moves_are_unnoticed::<Sound>,
        super::increments_are_not_lost::<Sound>,
        super::commits_form_a_chain::<Sound>,
        super::values_are_whole::<Sound>,
        super::reads_miss_no_permanent_key::<Sound>,
        super::scans_miss_no_permanent_key::<Sound>,
        super::histories_are_linearizable::<Sound>,
        super::trees_come_and_go::<Sound>,
        super::restores_keep_the_newest::<Sound>,
        super::restored_trees_keep_their_numbers::<Sound>,
        super::boundaries_cut_evenly::<Sound>,
        super::walks_miss_no_permanent_key::<Sound>,
    ];
    for check in checks {
        if let Err(failure) = check(&Plan {
            effort: EFFORT,
            ..Plan::from_environment()
        }) {
            panic!("{failure}");
        }
    }
}

/// What the engine with this fault makes of an amendment.
fn amended<const FAULT: u8>(
    amendment: &Amendment<'_>,
    old: Option<ValueRef<'_>>,
) -> NewValue<'static> {
    let amended = amendment.applied_to(old.as_ref());
    if FAULT == Fault::AmendmentDropsAttributes as u8 {
        return amended.with(Attributes::default());
    }
    amended
}

const EFFORT: u32 = 2;

/// Races may go well: this many seeds are tried before a check counts as blind.
const ATTEMPTS: u64 = 10;

fn refuses(check: fn(&Plan) -> Result<(), Failure>) -> bool {
    (0..ATTEMPTS).any(|seed| {
        check(&Plan {
            seed,
            effort: EFFORT,
            shrink_attempts_max: 0,
        })
        .is_err()
    })
}

/// For each fault, a check that must reject it.
macro_rules! canaries {
    ($($test:ident: $fault:ident, $check:ident;)*) => {
        $(
            #[test]
            fn $test() {
                type Broken = FaultyEngine<{ Fault::$fault as u8 }>;
                assert!(refuses(super::$check::<Broken>), "{:?} passes", Fault::$fault);
            }
        )*
    };
}

canaries! {
    lost_updates_in_counters: LostUpdate, increments_are_not_lost;
    lost_updates_in_chains: LostUpdate, commits_form_a_chain;
    lost_updates_in_histories: LostUpdate, histories_are_linearizable;
    closures_that_do_not_run: ClosureNotRunOnDroppedTree, operation_sequences;
    stale_reads: StaleRead, histories_are_linearizable;
    stale_reads_of_one_reader: StaleRead, values_are_whole;
    torn_reads: TornRead, values_are_whole;
    values_that_change_under_a_reader: ValueChangesUnderReader, values_are_whole;
    lost_attributes: AttributesLost, operation_sequences;
    amendments_without_attributes: AmendmentDropsAttributes, operation_sequences;
    probes_without_deadline: ProbeWithoutDeadline, operation_sequences;
    hooks_skipped: HookSkippedForRemoval, operation_sequences;
    hooks_skipped_beside_others: HookSkippedForRemoval, commits_form_a_chain;
    hooks_twice: HookTwice, operation_sequences;
    hooks_twice_in_counters: HookTwice, increments_are_not_lost;
    hooks_without_the_old_value: HookWithoutOldValue, operation_sequences;
    hooks_outside_the_lock: HookAfterUnlock, commits_form_a_chain;
    keeps_that_commit: KeepCommits, operation_sequences;
    keeps_that_commit_beside_others: KeepCommits, commits_form_a_chain;
    removals_of_nothing: AbsentRemovalCommits, operation_sequences;
    versions_that_restart: VersionRestartsAfterRemoval, operation_sequences;
    versions_that_restart_beside_others: VersionRestartsAfterRemoval, commits_form_a_chain;
    versions_that_stand: VersionOfTheEpochOnly, operation_sequences;
    versions_that_stand_in_counters: VersionOfTheEpochOnly, increments_are_not_lost;
    tombstones_purged_too_early: PurgedTooEarly, operation_sequences;
    tombstones_never_purged: NeverPurged, bulk_loads;
    purges_of_living_keys: PurgeTakesLivingKeys, operation_sequences;
    purges_of_living_keys_beside_others: PurgeTakesLivingKeys, commits_form_a_chain;
    steps_beyond_the_bound: MaintainExceedsSteps, operation_sequences;
    scans_out_of_order: ScanUnsorted, operation_sequences;
    scans_out_of_order_beside_others: ScanUnsorted, scans_miss_no_permanent_key;
    scans_that_repeat: ScanRepeatsKey, bulk_loads;
    scans_that_repeat_beside_others: ScanRepeatsKey, scans_miss_no_permanent_key;
    keys_hidden_for_a_moment: KeyHiddenForAMoment, reads_miss_no_permanent_key;
    scans_by_position: ScanByPosition, scans_miss_no_permanent_key;
    scans_that_skip: ScanSkipsKey, operation_sequences;
    scans_that_skip_beside_others: ScanSkipsKey, scans_miss_no_permanent_key;
    scans_that_take_the_excluded_key: ScanTakesExcludedKey, operation_sequences;
    backward_scans_without_bound: BackwardScanIgnoresBound, operation_sequences;
    scans_of_removed_keys: ScanShowsRemoved, bulk_loads;
    scans_without_break: ScanIgnoresBreak, operation_sequences;
    walks_that_skip: WalkSkipsKey, walks_miss_no_permanent_key;
    walks_that_repeat_at_rest: WalkRepeatsKey, walks_miss_no_permanent_key;
    walks_by_position: WalkByPosition, walks_miss_no_permanent_key;
    samples_that_miss_a_key: SampleMissesLast, samples_reach_every_key;
    samples_of_nothing: SampleOfEmptyTree, operation_sequences;
    marks_that_are_lost: MarksLost, marks_stay_and_sweeps_pass_every_key;
    marks_that_start_at_0: MarkStartsAt0, marks_stay_and_sweeps_pass_every_key;
    sweeps_that_skip: SweepSkipsKey, marks_stay_and_sweeps_pass_every_key;
    sweeps_without_end: SweepNeverEnds, marks_stay_and_sweeps_pass_every_key;
    moves_that_draw_versions: MoveDrawsVersion, moves_are_unnoticed;
    moves_that_lose_marks: MoveLosesMark, moves_are_unnoticed;
    counts_of_tombstones: LenCountsTombstones, operation_sequences;
    dropped_trees_that_stay: DroppedTreeStays, trees_come_and_go;
    drops_of_all_trees: DropTakesAllTrees, trees_come_and_go;
    trees_that_share_keys: TreesShareKeys, operation_sequences;
    keys_without_trailing_zeros: TrailingZerosIgnored, operation_sequences;
    keys_that_are_cut: KeysCutAt255, operation_sequences;
    keys_that_are_cut_in_samples: KeysCutAt255, samples_reach_every_key;
    batched_reads_out_of_order: GetManyReversed, operation_sequences;
    batched_updates_out_of_order: UpdateManyReversed, operation_sequences;
    misuse_stored: MisuseStored, misuse_is_refused;
    misuse_restored: MisuseStored, misuse_of_restores_is_refused;
    sessions_without_bound: SessionsUnbounded, sessions_are_bounded;
    sessions_that_never_return: SessionsNeverReturn, sessions_are_bounded;
    pins_that_never_end: PinsNeverEnd, a_pin_ends_with_its_scope;
    restores_of_older_versions: RestoreTakesOlder, restores_keep_the_newest;
    restores_without_tombstones: RestoreForgetsTombstone, restores_keep_the_newest;
    restored_numbers_given_again: RestoredTreeGivenAgain, restored_trees_keep_their_numbers;
    restored_trees_emptied: RestoreEmptiesTree, restored_trees_keep_their_numbers;
    boundaries_out_of_order: BoundariesUnsorted, boundaries_cut_evenly;
    boundaries_by_first_byte: BoundariesByFirstByte, boundaries_cut_evenly;
}
