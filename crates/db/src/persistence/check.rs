//! Inspecting the files of a database offline: what exists, and whether it is whole.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::PathBuf;

use pando_durability::checkpoint;
use pando_durability::disk::{self, DirectoryLock};
use pando_durability::log::{LogCut, LogError, LogScan, ScanOptions};

use super::identity;
use super::places::{self, Kept};
use super::recover::{RecoveryError, found_checkpoints, refuse_foreign, refuse_parts_alone};
use crate::durable::bytes::{Input, Malformed};
use crate::durable::options::DurabilityOptions;
use crate::durable::{record, value};
use pando_engine::LogEpoch;

/// The findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Sentences, one for each thing inspected.
    pub findings: Vec<String>,
    /// Whether a server would start from these files without loss.
    pub sound: bool,
}

impl CheckReport {
    fn say(&mut self, finding: String) {
        self.findings.push(finding);
    }

    fn complain(&mut self, finding: String) {
        self.sound = false;
        self.findings.push(finding);
    }
}

/// Refuses a data directory without any sign of a database: no identity, no checkpoint, no log. For
/// callers that only read: [`crate::Database::open`] would begin one there.
pub fn expect_database(options: &DurabilityOptions) -> Result<(), RecoveryError> {
    let path = options.data_directory.clone();
    let names = match options.disk.list(&path) {
        Ok(names) => names,
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(RecoveryError::Disk { path, error }),
    };
    let shows = |name: &String| {
        let name = name.as_str();
        let file = name.starts_with("checkpoint-0") || name.starts_with("log-0");
        name == identity::NAME || file
    };
    if names.iter().any(shows) {
        Ok(())
    } else {
        Err(RecoveryError::NoDatabase { path })
    }
}

/// Reads every file of a database: each block's checksum, each value, each record. Changes nothing.
/// Refuses directories that a server is using, and those without a database.
pub fn check(options: &DurabilityOptions) -> Result<CheckReport, RecoveryError> {
    let disk = &*options.disk;
    let directory = &options.data_directory;
    let mut report = CheckReport {
        findings: Vec::new(),
        sound: true,
    };
    let _lock = DirectoryLock::take_to_read(disk, directory)?;
    let mut identity = None;
    match identity::read(disk, directory) {
        Ok(Some(found)) => {
            report.say(format!("database {found:032x}"));
            identity = Some(found);
        }
        Ok(None) => report.say("no identity: the directory holds no database, or it went".into()),
        Err(failure) => report.complain(RecoveryError::from(failure).to_string()),
    }
    let mut locked = BTreeMap::new();
    let logs = directories(Kept::Log, options, &mut locked, &mut report)?;
    let parts = directories(Kept::Parts, options, &mut locked, &mut report)?;
    let searched: Vec<_> = [directory.clone()].into_iter().chain(logs).collect();
    let files = places::checkpoint_files(options, parts);
    expect_database(options)?;
    let mut notes = Vec::new();
    let found = found_checkpoints(disk, directory, &mut notes)?;
    let mut basis = Basis {
        from: None,
        written: LogEpoch::NONE,
        any: !found.is_empty() || !notes.is_empty(),
    };
    for note in notes {
        report.complain(note);
    }
    for (manifest, about) in &found {
        let start = manifest.start;
        basis.written = basis.written.max(about.written);
        if *identity.get_or_insert(about.identity) != about.identity {
            let path = directory.clone();
            report.complain(RecoveryError::Foreign { path, start }.to_string());
        }
        let mut values = 0_u64;
        let checked = checkpoint::verify(disk, &files, manifest, |_, entry| {
            values += 1;
            check_entry(entry.value).map_err(|error| error.what)
        });
        match checked {
            Ok(()) => {
                let (bytes, end) = (manifest.bytes(), manifest.end);
                report.say(format!(
                    "checkpoint {start}: epochs up to {start} to {end}, {values} keys, \
                     {bytes} bytes, whole"
                ));
                basis.from = basis.from.or(Some(start));
            }
            Err(error) => report.complain(error.to_string()),
        }
    }
    if let Err(error) = refuse_foreign(disk, &files, identity) {
        report.complain(error.to_string());
    }
    check_log(options, (&searched, &files), &basis, identity, &mut report);
    Ok(report)
}

/// What recovery would apply the log to.
struct Basis {
    /// The start of the newest whole checkpoint.
    from: Option<LogEpoch>,
    /// The newest epoch that a whole manifest knows to have been durable.
    written: LogEpoch,
    /// Whether there are checkpoints, whole or not.
    any: bool,
}

/// The directories besides the data directory that may hold files of this kind and that a server
/// has used. `locked` were locked before.
fn directories(
    kept: Kept,
    options: &DurabilityOptions,
    locked: &mut BTreeMap<PathBuf, Option<DirectoryLock>>,
    report: &mut CheckReport,
) -> Result<Vec<PathBuf>, RecoveryError> {
    let (disk, data) = (&*options.disk, &options.data_directory);
    let noted = kept.path(data);
    let before = places::read(kept, disk, data).unwrap_or_else(|error| {
        report.complain(format!("{}: {error}", noted.display()));
        Vec::new()
    });
    let mut known = kept.configured(options);
    let sorted = places::sort(kept, disk, &before, &known);
    let (there, missing) = sorted.unwrap_or_else(|(path, error)| {
        report.complain(format!("{}: {error}", path.display()));
        (before, Vec::new())
    });
    for path in missing {
        let (noted, what) = (noted.clone(), kept.what());
        report.complain(RecoveryError::EmptyDirectory { what, path, noted }.to_string());
    }
    let others = there.into_iter().filter(|path| !known.contains(path));
    let others: Vec<_> = others.collect();
    known.extend(others);
    let mut searched = Vec::new();
    for path in known {
        match disk::was_used(disk, &path) {
            Ok(true) => {}
            // A server would begin to use it.
            Ok(false) => continue,
            Err(error) => {
                report.complain(format!("{}: {error}", path.display()));
                continue;
            }
        }
        if !locked.contains_key(&path) {
            let lock = DirectoryLock::take_to_read(disk, &path)?;
            locked.insert(path.clone(), lock);
        }
        searched.push(path);
    }
    Ok(searched)
}

fn check_entry(bytes: &[u8]) -> Result<(), Malformed> {
    let mut input = Input(bytes);
    input.fixed()?;
    if input.is_empty() {
        // Of a branch: the key was removed.
        return Ok(());
    }
    value::take_value(&mut input)?.build()?;
    Ok(())
}

/// The files of unfinished checkpoints: a start removes them, if there is anything else to start
/// from.
fn check_unfinished(
    options: &DurabilityOptions,
    files: &checkpoint::Directories,
    basis: &Basis,
    scan: &LogScan,
    report: &mut CheckReport,
) -> Result<(), RecoveryError> {
    let disk = &*options.disk;
    if !basis.any {
        refuse_parts_alone(disk, files, scan)?;
    }
    for path in checkpoint::unfinished(disk, files)? {
        let path = path.display();
        report.say(format!(
            "{path}: of a checkpoint that was not completed; a start removes it"
        ));
    }
    Ok(())
}

fn say_segments(scan: &LogScan, report: &mut CheckReport) {
    for segment in scan.segments() {
        let mut line = format!(
            "{}: log {}, {} frames up to epoch {}",
            segment.path.display(),
            segment.log,
            segment.frames,
            segment.last_epoch
        );
        for damage in &segment.damage {
            // A gap may be a torn tail: the cut says whether it matters.
            let _ = write!(line, ", a gap at offset {}", damage.offset);
        }
        report.say(line);
    }
}

/// Reads every record that counts; returns how many there are.
fn check_records(cut: &LogCut, report: &mut CheckReport) -> Result<u64, LogError> {
    let mut records = 0;
    for mut log in cut.logs() {
        while let Some(group) = log.next_group()? {
            let mut input = Input(group.records);
            while !input.is_empty() {
                if let Err(error) = record::take(&mut input) {
                    let (path, offset) = (group.path.display(), group.offset);
                    report.complain(format!("{path} at offset {offset}: {error}"));
                    break;
                }
                records += 1;
            }
        }
    }
    Ok(records)
}

fn check_log(
    options: &DurabilityOptions,
    (searched, files): (&[PathBuf], &checkpoint::Directories),
    basis: &Basis,
    identity: Option<u128>,
    report: &mut CheckReport,
) {
    let scan = ScanOptions {
        threads: options.recovery_threads.max(1),
        sync: false,
    };
    let scan = match LogScan::read(&options.disk, searched, scan) {
        Ok(scan) => scan,
        Err(error) => {
            report.complain(error.to_string());
            return;
        }
    };
    say_segments(&scan, report);
    if let (Some(found), Some(identity)) = (scan.identity(), identity)
        && found != identity
    {
        let path = scan.segments()[0].path.display();
        report.complain(format!("{path}: it belongs to another database"));
    }
    if let Err(error) = check_unfinished(options, files, basis, &scan, report) {
        report.complain(error.to_string());
    }
    let from = basis.from.unwrap_or_default();
    if basis.from.is_some() && scan.segments().is_empty() {
        report.complain(format!(
            "there is no log: what was written since epoch {from} is there in part or not at all"
        ));
        return;
    }
    let cut = match scan.cut(from, basis.written) {
        Ok(cut) => cut,
        Err(error) => {
            report.complain(error.to_string());
            return;
        }
    };
    if basis.from.is_none() && basis.any && cut.epochs().is_empty() {
        let (path, notes) = (options.data_directory.clone(), Vec::new());
        report.complain(RecoveryError::NoCheckpoint { path, notes }.to_string());
    }
    let records = match check_records(&cut, report) {
        Ok(records) => records,
        Err(error) => {
            report.complain(error.to_string());
            return;
        }
    };
    let (cutoff, torn) = (cut.cutoff(), cut.torn().len());
    report.say(format!(
        "the log counts up to epoch {cutoff}: {records} records from epoch {from} on; {torn} \
         epochs at its end are torn and were not acknowledged as durable"
    ));
}
