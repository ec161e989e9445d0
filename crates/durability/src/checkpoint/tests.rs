//! Round trips, golden bytes, damage of every byte, crashes at every call, in one directory and in
//! several.

use pando_sync::Milliseconds;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::*;
use crate::disk::{Access, Disk, SimulatedDisk};

type Entries = Vec<(u32, Vec<u8>, Vec<u8>)>;

fn directory() -> PathBuf {
    PathBuf::from("/data")
}

fn disk() -> Arc<SimulatedDisk> {
    let disk = Arc::new(SimulatedDisk::new());
    for name in ["/data", "/a", "/b", "/c"] {
        disk.create_directory(Path::new(name))
            .expect("there is power");
    }
    disk
}

/// Everything in one directory.
fn one() -> Directories {
    Directories::one(directory())
}

/// Parts in several.
fn several(parts: &[&str]) -> Directories {
    Directories {
        parts: parts.iter().map(PathBuf::from).collect(),
        piece_bytes: 2000,
        ..one()
    }
}

fn part_path(directory: &Path, start: u64, part: u32) -> PathBuf {
    directory.join(part_name(LogEpoch(start), part))
}

/// Two trees in three chunks, a large value among them.
fn entries(seed: u8) -> Entries {
    let mut entries = Entries::new();
    for tree in [3, 9] {
        for number in 0..200_u32 {
            let key = format!("key-with-a-common-prefix-{number:05}").into_bytes();
            let length = if number == 77 {
                300_000
            } else {
                number as usize
            };
            entries.push((tree, key, vec![seed ^ number as u8; length]));
        }
    }
    entries
}

fn write(
    disk: &Arc<SimulatedDisk>,
    start: u64,
    entries: &Entries,
) -> Result<Manifest, CheckpointError> {
    write_to(&one(), disk, start, entries)
}

fn write_to(
    directories: &Directories,
    disk: &Arc<SimulatedDisk>,
    start: u64,
    entries: &Entries,
) -> Result<Manifest, CheckpointError> {
    let parts = write_parts(directories, disk, start, entries)?;
    let epochs = (LogEpoch(start), LogEpoch(start + 2));
    publish(
        &**disk,
        directories,
        epochs,
        Milliseconds(1234),
        parts,
        b"about",
    )
}

fn write_parts(
    directories: &Directories,
    disk: &Arc<SimulatedDisk>,
    start: u64,
    entries: &Entries,
) -> Result<Vec<PartSummary>, CheckpointError> {
    let mut parts = Vec::new();
    for thread in 0..2 {
        let mut writer = PartsWriter::create(&**disk, directories, LogEpoch(start), thread)?;
        let tree = [3, 9][thread as usize];
        for half in 0..2 {
            writer.part().begin_chunk(tree, true);
            let own = entries.iter().filter(|entry| entry.0 == tree);
            for (_, key, value) in own.skip(half * 100).take(100) {
                if value.len() > 1000 {
                    writer.part().large_entry(key, |out| {
                        value.chunks(777).for_each(|piece| out.write(piece));
                        Ok(())
                    })?;
                } else {
                    writer.part().entry(key, value);
                }
                if writer.part().is_full() {
                    writer.flush()?;
                }
            }
            writer.part().end_chunk();
        }
        parts.extend(writer.finish()?);
    }
    Ok(parts)
}

fn read(disk: &dyn Disk, manifest: &Manifest) -> Result<Entries, CheckpointError> {
    read_from(&one(), disk, manifest)
}

/// In the order in which they were written.
fn read_from(
    directories: &Directories,
    disk: &dyn Disk,
    manifest: &Manifest,
) -> Result<Entries, CheckpointError> {
    let mut entries = Entries::new();
    verify(disk, directories, manifest, |tree, entry| {
        entries.push((tree, entry.key.to_vec(), entry.value.to_vec()));
        Ok(())
    })?;
    entries.sort();
    Ok(entries)
}

#[test]
fn what_was_written_is_read() {
    let disk = disk();
    let written = write(&disk, 5, &entries(1)).expect("the disk works");
    assert_eq!((written.entries(), written.chunks.len()), (400, 4));
    let mut found = found(&*disk, &directory()).expect("the disk works");
    let (start, manifest) = found.pop().expect("there is one");
    let manifest = manifest.expect("it is whole");
    assert_eq!((start, found.len()), (LogEpoch(5), 0));
    assert_eq!(manifest, written);
    assert_eq!(manifest.about, b"about");
    assert_eq!(read(&*disk, &manifest).expect("it is whole"), entries(1));
    // Keys take what is not their predecessor's.
    let values: usize = entries(1).iter().map(|entry| entry.2.len()).sum();
    assert!(
        manifest.bytes() < values as u64 + 400 * 8 + 2_000,
        "{}",
        manifest.bytes()
    );
}

#[test]
fn golden_bytes() {
    let manifest = Manifest {
        start: LogEpoch(5),
        end: LogEpoch(7),
        wall_ms: Milliseconds(9),
        parts: vec![(1, 2, 300)],
        chunks: vec![Chunk {
            tree: 1,
            sorted: true,
            entries: 4,
            bytes: 8,
            part: 1,
            first_block: 2,
            offset: 32,
        }],
        about: b"about".to_vec(),
    };
    let bytes = manifest.encode();
    assert_eq!(bytes[..16], *b"PANDOMAN\x02\0\0\0\xe5=\x87 ");
    assert_eq!(bytes.len(), 16 + 24 + 4 + 16 + 4 + 40 + 5);
    assert_eq!(
        super::block::file_header(1, LogEpoch(2), 3),
        *b"PANDOCPT\x02\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\x9c-\xeap"
    );
}

/// CP3 checked-before-shown: a flipped bit anywhere is found, whether the file is read for its
/// entries or not.
#[test]
fn a_flipped_bit_is_found() {
    let disk = disk();
    let entries: Entries = entries(1)
        .into_iter()
        .filter(|entry| entry.2.len() < 20)
        .collect();
    write(&disk, 5, &entries).expect("the disk works");
    for (path, bytes) in disk.files() {
        for offset in 0..bytes {
            let copy = disk.copy();
            assert!(copy.flip(&path, offset, (offset % 8) as u8));
            let mut found = found(&copy, &directory()).expect("the disk works");
            let (_, manifest) = found.pop().expect("there is one");
            let result = manifest.and_then(|manifest| read(&copy, &manifest));
            assert!(result.is_err(), "{} at {offset}", path.display());
        }
    }
}

#[test]
fn cut_foreign_and_swapped_files_are_found() {
    let disk = disk();
    write(&disk, 5, &entries(1)).expect("the disk works");
    write(&disk, 8, &entries(2)).expect("the disk works");
    let refused = |copy: &SimulatedDisk| {
        let found = found(copy, &directory()).expect("the disk works");
        let newest = found.into_iter().next().expect("there are two").1;
        newest.and_then(|manifest| read(copy, &manifest)).is_err()
    };
    assert!(!refused(&disk.copy()));
    let part = |start, number| part_path(&directory(), start, number);
    let contents = |path: &Path| disk.contents(path).expect("it is there");
    let manifest = manifest_path(&directory(), LogEpoch(8));
    for (path, bytes) in [
        (part(8, 0), contents(&part(5, 0))),
        (part(8, 0), contents(&part(8, 1))),
        (part(8, 1), b"something else".to_vec()),
        (part(8, 1), Vec::new()),
        (
            manifest.clone(),
            contents(&manifest_path(&directory(), LogEpoch(5))),
        ),
        (manifest.clone(), b"PANDOMAN\x02\0\0\0abcdefgh".to_vec()),
        (manifest.clone(), b"PANDO".to_vec()),
    ] {
        let copy = disk.copy();
        copy.put(&path, &bytes);
        assert!(refused(&copy), "{} {}", path.display(), bytes.len());
    }
    for path in [part(8, 0), manifest] {
        let whole = contents(&path);
        for cut in [1, 100, whole.len() / 2, whole.len() - 1] {
            let copy = disk.copy();
            copy.put(&path, &whole[..whole.len() - cut]);
            assert!(refused(&copy), "{} without {cut}", path.display());
        }
    }
    let copy = disk.copy();
    copy.remove(&part(8, 1)).expect("it is there");
    assert!(refused(&copy));
}

/// Cuts the power at every call of a checkpoint, and of the removal of the one before it, by
/// `run`; what a crash showed that should not be.
fn crashes_of(
    (before, now): (&Directories, &Directories),
    run: impl Fn(&Arc<SimulatedDisk>) -> Result<(), CheckpointError>,
) -> Result<(), String> {
    let first = disk();
    write_to(before, &first, 5, &entries(1)).expect("the disk works");
    let whole = Arc::new(first.copy());
    let begin = whole.call_count();
    run(&whole).expect("the disk works");
    let calls = whole.call_count() - begin;
    assert!(calls > 10, "{calls}");
    for call in 0..=calls {
        for seed in [call as u64 % 3, 3] {
            let disk = Arc::new(first.copy());
            disk.fail_at(disk.call_count() + call, crate::disk::Fault::PowerLoss);
            let ended = run(&disk);
            assert!(ended.is_err() || call == calls);
            let disk = disk.crash(seed);
            let found = found(&disk, &directory()).expect("the disk works");
            let (start, manifest) = found.into_iter().next().expect("one is there");
            let expected = entries(if start == LogEpoch(5) { 1 } else { 2 });
            let at = |error| format!("call {call}, seed {seed}: {error}");
            let manifest = manifest.map_err(|error| at(error.to_string()))?;
            let read = read_from(now, &disk, &manifest);
            let read = read.map_err(|error| at(error.to_string()))?;
            assert_eq!(read, expected, "call {call}, seed {seed}");
            assert!(start == LogEpoch(8) || call < calls);
            // A start removes what is left, and no more.
            remove_unfinished(&disk, now).expect("the disk works");
            assert!(unfinished(&disk, now).expect("the disk works").is_empty());
            read_from(now, &disk, &manifest).expect("it is still there");
        }
    }
    Ok(())
}

/// CP1 parts-first: whatever the power takes, the newest manifest that is there is whole, and the
/// older checkpoint stays until the newer one counts.
#[test]
fn a_crash_at_any_call_leaves_a_whole_checkpoint() {
    let three = several(&["/a", "/b", "/c"]);
    let others = Directories {
        former: vec!["/c".into()],
        ..several(&["/data", "/a"])
    };
    let others_first = several(&["/c", "/data"]);
    for (before, now) in [(&one(), &one()), (&three, &three), (&others_first, &others)] {
        crashes_of((before, now), |disk| {
            write_to(now, disk, 8, &entries(2))?;
            remove_others(&**disk, now, &[LogEpoch(8)])
        })
        .unwrap_or_else(|what| panic!("{what}"));
    }
}

#[test]
fn canary_a_directory_that_is_not_synced_before_the_manifest() {
    let three = several(&["/a", "/b", "/c"]);
    for missed in 0..3 {
        let mut synced = three.clone();
        synced.parts.remove(missed);
        let noticed = crashes_of((&three, &three), |disk| {
            let parts = write_parts(&three, disk, 8, &entries(2))?;
            publish(
                &**disk,
                &synced,
                (LogEpoch(8), LogEpoch(10)),
                Milliseconds(1234),
                parts,
                b"about",
            )?;
            remove_others(&**disk, &three, &[LogEpoch(8)])
        });
        let what = noticed.expect_err("a part may be missing");
        assert!(what.contains("missing"), "{what}");
    }
}

/// Each directory takes an equal share, but for some pieces, though one value is most of it.
#[test]
fn parts_are_spread_evenly() {
    let (disk, three) = (disk(), several(&["/a", "/b", "/c"]));
    let entries: Entries = (0..30_000_u32)
        .map(|number| {
            (
                3 + 6 * (number / 15_000),
                number.to_be_bytes().to_vec(),
                vec![7; 40],
            )
        })
        .collect();
    let manifest = write_to(&three, &disk, 5, &entries).expect("the disk works");
    let bytes = |place: &Path| -> u64 {
        let files = disk.files().into_iter();
        let files = files.filter(|(path, _)| path.starts_with(place));
        files.map(|(_, bytes)| bytes).sum()
    };
    let taken: Vec<u64> = three.parts.iter().map(|it| bytes(it)).collect();
    let (least, most) = (taken.iter().min(), taken.iter().max());
    let spread = most.expect("three") - least.expect("three");
    assert!(spread <= 4 * three.piece_bytes, "{taken:?}");
    assert_eq!(taken.iter().sum::<u64>(), manifest.bytes());
    // Whoever reads chunk by chunk reads from all of them.
    let homes = manifest
        .chunks
        .iter()
        .take(6)
        .map(|chunk| three.home(chunk.part));
    let homes: std::collections::BTreeSet<_> = homes.collect();
    assert_eq!(homes.len(), 3);
}

#[test]
fn parts_are_found_wherever_they_are_or_named() {
    let (disk, three) = (disk(), several(&["/a", "/b", "/c"]));
    let manifest = write_to(&three, &disk, 5, &entries(1)).expect("the disk works");
    // In another order, and a directory that is used no more.
    let now = Directories {
        former: vec!["/a".into()],
        ..several(&["/c", "/b", "/data"])
    };
    let read = |disk: &SimulatedDisk| read_from(&now, disk, &manifest);
    assert_eq!(read(&disk).expect("all are there"), entries(1));
    let moved = part_path(Path::new("/b"), 5, 1);
    let bytes = disk.contents(&moved).expect("it is there");
    disk.remove(&moved).expect("it is there");
    let text = read(&disk).expect_err("one is missing").to_string();
    for word in ["0005-0001.part", "/data", "/a", "/b", "/c", "mounted"] {
        assert!(text.contains(word), "{text}");
    }
    disk.put(&part_path(&directory(), 5, 1), &bytes);
    assert_eq!(read(&disk).expect("it was moved"), entries(1));
    // A directory of which nothing is left is no other error.
    let gone = Directories {
        former: vec!["/a".into(), "/nowhere".into()],
        ..now.clone()
    };
    assert_eq!(
        read_from(&gone, &*disk, &manifest).expect("as before"),
        entries(1)
    );
    remove_others(&*disk, &gone, &[]).expect("the disk works");
    assert_eq!(disk.files(), []);
}

#[test]
fn older_checkpoints_and_leftovers_go() {
    let disk = disk();
    for start in [5, 8, 11] {
        write(&disk, start, &entries(start as u8)).expect("the disk works");
    }
    let leftover = part_path(&directory(), 9, 0);
    disk.create(&leftover, Access::Write)
        .expect("the disk works");
    disk.put(&unfinished_path(&directory(), LogEpoch(9)), b"half");
    disk.put(&directory().join("something-else"), b"stays");
    remove_others(&*disk, &one(), &[LogEpoch(8), LogEpoch(11)]).expect("the disk works");
    let names = disk.list(&directory()).expect("the disk works");
    assert_eq!(names.len(), 2 * 3 + 1, "{names:?}");
    let starts: Vec<LogEpoch> = found(&*disk, &directory())
        .expect("the disk works")
        .into_iter()
        .map(|(start, _)| start)
        .collect();
    assert_eq!(starts, [LogEpoch(11), LogEpoch(8)]);
}

#[test]
fn a_full_disk_is_an_error() {
    let disk = disk();
    disk.set_capacity(Some(100_000));
    assert!(matches!(
        write(&disk, 5, &entries(1)),
        Err(CheckpointError::Disk { .. })
    ));
}
