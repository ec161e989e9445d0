//! Replicas of a database with branches and lasting snapshots.

use std::ops::{Bound, ControlFlow};

use pando_durability::disk::Fault as DiskFault;
use pando_engine::{Direction, Ordered};

use super::*;
use crate::branches::NamedBranch;
use crate::commands::testing::START_MS;
use crate::durable::forks::parted;
use crate::persistence::CheckpointOptions;
use crate::store::StoreSession;

fn minuet(disk: Option<&SimulatedDisk>, follows: bool) -> Shell {
    open(disk, follows).expect("what is on disk can be recovered")
}

fn open(disk: Option<&SimulatedDisk>, follows: bool) -> Result<Shell, String> {
    let Some(disk) = disk else {
        return Ok(shell(EngineKind::Minuet));
    };
    let options = Options {
        follows,
        ..options_on(disk, EngineKind::Minuet)
    };
    let shell = Shell::on_disk(options, START_MS).map_err(|error| error.to_string())?;
    shell.database.close();
    Ok(shell)
}

/// Everything that all branches and lasting snapshots show.
pub(super) fn all_content(shell: &mut Shell) -> Vec<String> {
    let mut found = vec![shell.line("BRANCH MAIN")];
    let mut branches = shell.database.branches.all();
    branches.retain(|branch| !branch.is_hidden());
    branches.sort_by(|one, other| one.name.cmp(&other.name));
    found.extend(partings(shell, &branches));
    for branch in branches {
        let name = String::from_utf8_lossy(&branch.name).into_owned();
        let origin = String::from_utf8_lossy(&branch.origin).into_owned();
        found.push(format!("{name} from {origin} since {}", branch.created.0));
        assert_eq!(shell.line(&format!("BRANCH USE {name}")), "+OK");
        found.extend(content(shell));
        let keys: Vec<String> = (0..DATABASES)
            .map(|database| {
                shell.line(&format!("SELECT {database}"));
                shell.line("DBSIZE")
            })
            .collect();
        found.push(keys.join(" "));
        shell.line("SELECT 0");
    }
    shell.line("BRANCH USE main");
    let snapshots = shell.database.snapshots.list();
    let mut snapshots: Vec<_> = snapshots.iter().filter(|it| it.lasts).collect();
    snapshots.sort_by(|one, other| one.name.cmp(&other.name));
    for snapshot in snapshots {
        let name = String::from_utf8_lossy(&snapshot.name).into_owned();
        found.push(format!("{name} at {}", snapshot.moment.time.0));
        assert_eq!(shell.line(&format!("SNAPSHOT USE {name}")), "+OK");
        found.extend(content(shell));
    }
    shell.line("SNAPSHOT USE NONE");
    found
}

/// The keys that databases had where two branches part.
fn partings(shell: &Shell, branches: &[NamedBranch]) -> Vec<String> {
    let database = &shell.database;
    let engine = database.store.branching().expect("it has branches");
    let mut session = database.open_session().expect("a session is free");
    let StoreSession::Minuet(store) = &mut session.store else {
        unreachable!("the engine has branches");
    };
    let mut found = Vec::new();
    for (place, one) in branches.iter().enumerate() {
        for other in &branches[place + 1..] {
            let known = parted(one.forks.as_ref(), other.forks.as_ref());
            for index in 0..DATABASES {
                let [first, second] =
                    [one, other].map(|branch| database.tree(database.base_of(branch.id) + index));
                let base = engine.open_base(first, second, known.get(index).copied());
                let mut keys = Vec::new();
                if let Some(base) = base {
                    store.scan_all(base, Bound::Unbounded, Direction::Forward, |key, value| {
                        keys.extend(value.map(|_| key.to_vec()));
                        ControlFlow::Continue(())
                    });
                    engine.close_base(base);
                }
                found.push(format!("{keys:?}"));
            }
        }
    }
    database.close_session(&session);
    found
}

pub(super) fn change(shell: &mut Shell, random: &mut Rng) {
    let any = |random: &mut Rng| match random.u32(0..5) {
        0 => "main".to_owned(),
        index => format!("b{index}"),
    };
    let snapshot = |random: &mut Rng| format!("s{}", random.u32(0..3));
    let line = match random.u32(0..26) {
        0..=7 => format!("BRANCH USE {}", any(random)),
        8..=10 => format!("BRANCH CREATE {}", any(random)),
        11 => format!("BRANCH CREATE {} FROM {}", any(random), snapshot(random)),
        12 => format!("BRANCH DROP {}", any(random)),
        13 => format!("BRANCH RENAME {} {}", any(random), any(random)),
        14 => format!("BRANCH MAIN {}", any(random)),
        15 => format!("BRANCH RESET {} TO {}", any(random), snapshot(random)),
        16..=18 => {
            let how = random.choice(["OURS", "THEIRS"]).expect("there are two");
            let (from, into) = (any(random), any(random));
            format!("BRANCH MERGE {from} INTO {into} ON CONFLICT {how}")
        }
        19..=21 => format!("SNAPSHOT CREATE {} PERSIST", snapshot(random)),
        22 => format!("SNAPSHOT CREATE {}", snapshot(random)),
        _ => format!("SNAPSHOT DROP {}", snapshot(random)),
    };
    shell.line(&line);
}

/// A branch was made from a snapshot that only one side has: the replica takes a full copy.
pub(super) fn is_of_passing(error: &ReplicationError) -> bool {
    error.to_string().contains("comes from a snapshot")
}

/// A followed database and a replica, both with branches.
fn pair(disks: Option<&[SimulatedDisk; 2]>) -> Pair {
    let [up, down] = [0, 1].map(|side| minuet(disks.map(|disks| &disks[side]), side == 1));
    Pair::new(up, down)
}

/// What a run met.
#[derive(Clone, Copy, Debug, Default)]
struct Met {
    /// Branches and lasting snapshots at the ends of runs.
    kept: usize,
    copies: usize,
    /// Restarts of a replica that went on without a copy.
    resumed: usize,
}

/// `Err`: the two differ, or the replica refuses what comes.
fn run(seed: u64, on_disk: bool, is_large: bool, met: &mut Met) -> Result<(), String> {
    let mut random = Rng::with_seed(seed);
    let disks = [(); 2].map(|()| SimulatedDisk::new());
    let disks = Some(&disks).filter(|_| on_disk);
    let mut pair = pair(disks);
    // Merges of more than a few keys build a hidden branch.
    small::set(is_large.then_some(Bounds {
        keys: 2,
        slice: 3,
        near: 4,
    }));
    if random.bool() {
        let bytes_max = random.usize(0..20_000);
        pair.up.database.set_backlog_bytes_max(bytes_max);
    }
    for _ in 0..random.usize(0..30) {
        change(&mut pair.up, &mut random);
        write(&mut pair.up, &mut random);
    }
    for _ in 0..random.usize(60..250) {
        match random.u32(0..100) {
            0..=39 => write(&mut pair.up, &mut random),
            40..=50 => change(&mut pair.up, &mut random),
            51 => _ = pair.up.line("FLUSHDB"),
            52 => _ = pair.up.line("SWAPDB 0 1"),
            53..=60 => pair.up.database.end_epoch(),
            61..=62 => pair.down.database.end_epoch(),
            63..=77 => {
                pair.send();
            }
            78..=96 => match pair.deliver() {
                Err(error) if is_of_passing(&error) => pair.cut(),
                delivered => delivered.map_err(|error| error.to_string())?,
            },
            97 => pair.cut(),
            98 => _ = pair.down.session.maintain(),
            _ => {
                pair.replica.acknowledged();
            }
        }
    }
    settle(&mut pair)?;
    met.copies += pair.copies;
    let branches = pair.up.database.branches.len() - 1;
    met.kept += branches + pair.up.database.snapshots.list().len();
    same(&mut pair)?;
    let Some(disks) = disks else {
        return Ok(());
    };
    pair.down.database.end_epoch();
    let Pair { up, replica, .. } = pair;
    drop(replica);
    let down = minuet(Some(&disks[1].crash(seed)), true);
    let mut pair = Pair::new(up, down);
    same(&mut pair)?;
    for _ in 0..20 {
        change(&mut pair.up, &mut random);
        write(&mut pair.up, &mut random);
    }
    settle(&mut pair)?;
    met.resumed += usize::from(pair.copies == 0);
    same(&mut pair)
}

fn settle(pair: &mut Pair) -> Result<(), String> {
    while let Err(error) = pair.settle() {
        if !is_of_passing(&error) {
            return Err(error.to_string());
        }
        pair.cut();
    }
    Ok(())
}

fn same(pair: &mut Pair) -> Result<(), String> {
    let [up, down] = [&mut pair.up, &mut pair.down].map(all_content);
    if up == down {
        return Ok(());
    }
    Err(format!("there {up:#?}, here {down:#?}"))
}

fn runs(seeds: std::ops::Range<u64>) -> (Met, Result<(), String>) {
    let mut met = Met::default();
    let all = seeds.into_iter().try_for_each(|seed| {
        let run = run(seed, seed % 2 == 1, seed % 3 == 0, &mut met);
        small::set(None);
        run.map_err(|error| format!("seed {seed}: {error}"))
    });
    (met, all)
}

/// RB1 same-names.
#[test]
fn a_replica_has_the_branches_and_snapshots_of_what_it_follows() {
    let (met, all) = runs(0..60);
    all.unwrap_or_else(|error| panic!("{error}"));
    assert!(
        met.kept > 60 && met.copies > 80 && met.resumed > 10,
        "{met:?}"
    );
}

/// Each of these is noticed.
#[test]
fn planted_faults_are_noticed() {
    for fault in [
        Fault::ChangesMissed,
        Fault::Overtaken,
        Fault::BranchesLeft,
        Fault::SectionsMissed,
    ] {
        let (_, all) = with(fault, || runs(0..60));
        assert!(all.is_err(), "{fault:?}");
    }
}

/// A run with the end of power at this call of the replica's disk; whether the replica had
/// followed by then.
fn crash(seed: u64, call: usize) -> Result<bool, String> {
    let mut random = Rng::with_seed(seed);
    let disks = [(); 2].map(|()| SimulatedDisk::new());
    let [up, mut down] = [0, 1].map(|side| minuet(Some(&disks[side]), side == 1));
    for line in ["SET own data", "BRANCH CREATE own", "SET own other"] {
        assert!(!down.line(line).starts_with('-'));
    }
    down.database.end_epoch();
    let own = all_content(&mut down);
    let mut pair = Pair::new(up, down);
    for _ in 0..20 {
        change(&mut pair.up, &mut random);
        write(&mut pair.up, &mut random);
    }
    disks[1].fail_at(disks[1].call_count() + call, DiskFault::PowerLoss);
    // What is shown, and what a copy brings, which may be shown before the replica says so.
    let mut shown = vec![own];
    let mut durable = 0;
    for _ in 0..200 {
        if !disks[1].has_power() {
            break;
        }
        match random.u32(0..100) {
            0..=19 => write(&mut pair.up, &mut random),
            20..=34 => change(&mut pair.up, &mut random),
            35..=44 => pair.up.database.end_epoch(),
            45..=54 => pair.down.database.end_epoch(),
            55..=74 => {
                let began = pair.source.is_none();
                pair.send();
                if began {
                    shown.push(all_content(&mut pair.up));
                }
            }
            75 => {
                // Of what is half planted none is taken.
                let taken = pair.down.database.checkpoint(&CheckpointOptions::default());
                assert!(taken.is_err() || !pair.replica.is_loading());
            }
            76..=97 => {
                if pair.deliver().is_err() {
                    break;
                }
                if !pair.down.database.awaits_copy() {
                    shown.push(all_content(&mut pair.down));
                }
            }
            98 => pair.cut(),
            _ => {
                let (known, _) = pair.replica.acknowledged();
                if known.durable > crate::LogEpoch::NONE && known.durable == known.applied {
                    durable = shown.len() - 1;
                }
            }
        }
    }
    let Pair { up, replica, .. } = pair;
    drop(replica);
    let down = open(Some(&disks[1].crash(seed ^ call as u64)), true)?;
    let mut pair = Pair::new(up, down);
    let found = all_content(&mut pair.down);
    // A name, a line of the first branch, its databases' sizes.
    let is_empty = found.len() == 3 && found[2] == ":0 :0 :0";
    let is_known = shown[durable..].contains(&found) || is_empty;
    if !is_known {
        return Err(format!("call {call}: {found:#?}"));
    }
    settle(&mut pair)?;
    same(&mut pair)?;
    Ok(pair.copies == 0)
}

/// FA1 planted-whole, with its canary.
#[test]
fn a_crash_leaves_all_of_a_copy_or_nothing() {
    for fault in [Fault::Nothing, Fault::Unplanted] {
        let mut resumed = 0;
        let all = with(fault, || {
            (0..60).try_for_each(|round| {
                let went_on = crash(round, 1 + round as usize * 7 % 90);
                resumed += usize::from(went_on?);
                Ok::<(), String>(())
            })
        });
        match fault {
            Fault::Nothing => all.unwrap_or_else(|error| panic!("{error}")),
            _ => assert!(all.is_err(), "the canary"),
        }
    }
}

/// A followed server with a branch, and a replica that has had data and a checkpoint of its own.
fn before_a_copy(disks: &[SimulatedDisk; 2]) -> Pair {
    let [mut up, mut down] = [0, 1].map(|side| minuet(Some(&disks[side]), side == 1));
    for line in ["SET k v", "BRANCH CREATE trial", "SET k w"] {
        assert!(!up.line(line).starts_with('-'));
    }
    down.line("SET own data");
    let taken = down.database.checkpoint(&CheckpointOptions::default());
    taken.expect("there is room for a checkpoint");
    Pair::new(up, down)
}

/// Damages the newest of two checkpoints.
fn damage_newest(disk: &SimulatedDisk) {
    let files = disk.files().into_iter().map(|(path, _)| path);
    let manifests: Vec<_> = files
        .filter(|path| path.to_string_lossy().contains("manifest"))
        .collect();
    assert_eq!(manifests.len(), 2);
    let newest = manifests.into_iter().max().expect("there are two");
    assert!(disk.flip(&newest, 40, 1));
}

fn is_refused(disk: &SimulatedDisk) -> bool {
    let opened = open(Some(disk), true);
    opened.is_err_and(|error| error.contains("its checkpoint is damaged or gone"))
}

/// What came by a copy is in no log: without its checkpoint, an older one and the log are refused.
#[test]
fn a_copy_whose_checkpoint_is_damaged_is_not_taken_for_another() {
    let disks = [(); 2].map(|()| SimulatedDisk::new());
    let mut pair = before_a_copy(&disks);
    settle(&mut pair).expect("it follows");
    pair.up.line("SET k x");
    settle(&mut pair).expect("it follows");
    same(&mut pair).expect("it follows");
    pair.down.database.end_epoch();
    drop(pair);
    let disk = disks[1].crash(1);
    damage_newest(&disk);
    assert!(is_refused(&disk), "an older checkpoint was taken");
}

/// The power goes at this call of a copy. If the next start finds the copy's checkpoint and no
/// record that it was shown, something is written, and the checkpoint is damaged: whether an older
/// one is refused then.
fn refuses_behind_the_checkpoint(call: usize) -> Option<bool> {
    let disks = [(); 2].map(|()| SimulatedDisk::new());
    let mut pair = before_a_copy(&disks);
    let copied = all_content(&mut pair.up);
    disks[1].fail_at(disks[1].call_count() + call, DiskFault::PowerLoss);
    let _ = settle(&mut pair);
    drop(pair);
    let disk = disks[1].crash(call as u64);
    let mut down = open(Some(&disk), true).expect("it can be recovered");
    let is_shown = pando_sync::lock(&down.database.standing).epoch > crate::LogEpoch::NONE;
    if is_shown || all_content(&mut down) != copied {
        return None;
    }
    follow(&down, false, Refusal::Nothing);
    down.line("SET own more");
    down.database.end_epoch();
    drop(down);
    let disk = disk.crash(1);
    damage_newest(&disk);
    Some(is_refused(&disk))
}

/// FA1 planted-whole, with its canary: between the checkpoint of a copy and the record that it is
/// shown.
#[test]
fn a_copy_that_was_kept_and_not_shown_is_not_taken_for_another() {
    let all = || (1..120).filter_map(refuses_behind_the_checkpoint);
    let refused: Vec<bool> = all().collect();
    assert!(
        !refused.is_empty() && refused.iter().all(|it| *it),
        "{refused:?}"
    );
    let planted = crate::durable::testing::Fault::PlantingForgotten;
    let refused = crate::durable::testing::with(planted, || all().collect::<Vec<bool>>());
    assert!(refused.contains(&false), "the canary: {refused:?}");
}
