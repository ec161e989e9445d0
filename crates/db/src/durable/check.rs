//! Looking at the files of a database offline: what is there, and whether it is whole.

use std::fmt::Write as _;

use pando_durability::checkpoint;
use pando_durability::disk::{DirectoryLock, LockError};
use pando_durability::log::{LogScan, ScanOptions};

use super::bytes::{Input, Malformed};
use super::options::DurabilityOptions;
use super::recover::{RecoveryError, found_checkpoints};
use super::{identity, record, value};

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Sentences, one for each thing that was looked at.
    pub findings: Vec<String>,
    /// Whether a server would start from these files without a loss.
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

/// Reads every file of a database: each block's checksum, each value, each record. Changes nothing.
/// Refuses directories that a server is using.
pub fn check(options: &DurabilityOptions) -> Result<CheckReport, RecoveryError> {
    let disk = &*options.disk;
    let directory = &options.data_directory;
    let mut report = CheckReport {
        findings: Vec::new(),
        sound: true,
    };
    let _lock = match DirectoryLock::take(disk, directory) {
        Ok(lock) => Some(lock),
        Err(error @ LockError::Held { .. }) => return Err(error.into()),
        // Files that may only be read can be looked at all the same.
        Err(LockError::Io { .. }) => None,
    };
    match identity::read(disk, directory) {
        Ok(Some(identity)) => report.say(format!("database {identity:032x}")),
        Ok(None) => report.say("no identity: the directory holds no database, or it went".into()),
        Err(_) => report.complain("identity.pando cannot be read".into()),
    }
    let mut notes = Vec::new();
    let found = found_checkpoints(disk, directory, &mut notes)?;
    for note in notes {
        report.complain(note);
    }
    let mut usable = Vec::new();
    for (manifest, about) in &found {
        let start = manifest.start;
        let mut values = 0_u64;
        let checked = checkpoint::verify(disk, directory, manifest, |_, entry| {
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
                usable.push((start, about.written));
            }
            Err(error) => report.complain(format!("checkpoint {start}: {error}")),
        }
    }
    check_log(options, &usable, &mut report)?;
    Ok(report)
}

fn check_entry(bytes: &[u8]) -> Result<(), Malformed> {
    let mut input = Input(bytes);
    input.fixed()?;
    value::take_value(&mut input)?.build()?;
    Ok(())
}

fn check_log(
    options: &DurabilityOptions,
    usable: &[(u64, u64)],
    report: &mut CheckReport,
) -> Result<(), RecoveryError> {
    let scan = ScanOptions {
        threads: options.recovery_threads.max(1),
        sync: false,
    };
    let scan = match LogScan::read(&options.disk, &options.searched_directories(), scan) {
        Ok(scan) => scan,
        Err(error) => {
            report.complain(error.to_string());
            return Ok(());
        }
    };
    for segment in scan.segments() {
        let mut line = format!(
            "{}: log {}, {} frames up to epoch {}",
            segment.path.display(),
            segment.log,
            segment.frames,
            segment.last_epoch
        );
        for damage in &segment.damage {
            // A gap may be a torn tail: whether it matters, the cut below says.
            let _ = write!(line, ", a gap at offset {}", damage.offset);
        }
        report.say(line);
    }
    let (from, written) = usable.first().copied().unwrap_or((0, 0));
    let cut = match scan.cut(from, written) {
        Ok(cut) => cut,
        Err(error) => {
            report.complain(error.to_string());
            return Ok(());
        }
    };
    let mut records = 0_u64;
    for mut log in cut.logs() {
        loop {
            let group = match log.next_group() {
                Ok(Some(group)) => group,
                Ok(None) => break,
                Err(error) => {
                    report.complain(error.to_string());
                    return Ok(());
                }
            };
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
    let (cutoff, torn) = (cut.cutoff(), cut.torn().len());
    report.say(format!(
        "the log counts up to epoch {cutoff}: {records} records from epoch {from} on; {torn} \
         epochs at its end are torn and were not acknowledged as durable"
    ));
    Ok(())
}
