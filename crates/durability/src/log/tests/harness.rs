//! A small workload, and the rules for what may be found after it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastrand::Rng;

use pando_sync::{LogEpoch, Milliseconds};

use crate::disk::{Disk, SimulatedDisk};
use crate::log::{Log, LogCut, LogError, LogOptions, LogScan, LogSession, ScanOptions, WaveSize};

pub(super) const IDENTITY: u128 = 0x5eed;
/// Room for three blocks beside the header and the last one.
pub(super) const SEGMENT_BYTES: u64 = 20 * 1024;
/// Numbers in a record: group, place in the group, records of the group, length of the filling.
const RECORD_HEADER_BYTES: usize = 32;

pub(super) fn directories() -> Vec<PathBuf> {
    vec![PathBuf::from("/logs/a"), PathBuf::from("/logs/b")]
}

pub(super) fn disk() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    for directory in directories() {
        disk.create_directory(&directory).unwrap();
    }
    disk
}

pub(super) fn options(logs: usize) -> LogOptions {
    LogOptions {
        directories: directories(),
        logs,
        segment_bytes: SEGMENT_BYTES,
        identity: IDENTITY,
        pending_bytes_max: 1 << 20,
        checkpoints: None,
        checkpoint_bytes: 0,
        threads: false,
    }
}

pub(super) fn scan(disk: &Arc<dyn Disk>) -> Result<LogScan, LogError> {
    let options = ScanOptions {
        threads: 1,
        sync: true,
    };
    LogScan::read(disk, &directories(), options)
}

/// What a test knows of what it wrote.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    /// Groups by epoch: number and records.
    pub(super) epochs: Epochs,
    /// Epochs that an earlier recovery left out: they must not come back.
    pub(super) dropped: BTreeSet<u64>,
    /// The newest epoch that was acknowledged.
    pub(super) acknowledged: u64,
    /// Where the newest checkpoint begins, and what it noted.
    pub(super) from: u64,
    pub(super) written: u64,
    next_group: u64,
}

/// What recovery found: the groups by epoch, and the cut.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) cut: LogCut,
    pub(super) epochs: Epochs,
}

fn filling(group: u64, place: u64, at: usize) -> u8 {
    (group as usize * 31 + place as usize * 7 + at) as u8
}

impl Model {
    /// Writes a group of `records` records of about `bytes` bytes into the session.
    pub(super) fn write(
        &mut self,
        session: &mut LogSession,
        epoch: u64,
        records: u64,
        bytes: usize,
    ) {
        let group = self.next_group;
        self.next_group += 1;
        write_group(session, group, 0..records, records, bytes);
        session.end_group(LogEpoch(epoch));
        self.epochs.entry(epoch).or_default().insert(group, records);
    }

    /// Says what is wrong with what was found, if anything is: everything acknowledged is there,
    /// epochs are there whole and without a hole, and nothing else is.
    pub(super) fn verdict(&self, found: &Found) -> Result<(), String> {
        for (epoch, groups) in &found.epochs {
            if self.epochs.get(epoch) != Some(groups) {
                let wrote = self.epochs.get(epoch);
                return Err(format!(
                    "epoch {epoch}: {groups:?} found, {wrote:?} written"
                ));
            }
            if self.dropped.contains(epoch) {
                return Err(format!("epoch {epoch} came back"));
            }
            if *epoch > found.cut.cutoff().0 {
                return Err(format!("epoch {epoch} is above the cutoff"));
            }
        }
        let newest = found.epochs.keys().next_back().copied().unwrap_or(0);
        let must = self.acknowledged.max(newest);
        for epoch in self.epochs.range(self.from..).map(|(epoch, _)| epoch) {
            if *epoch > must {
                break;
            }
            if !found.epochs.contains_key(epoch) && !self.dropped.contains(epoch) {
                let acknowledged = self.acknowledged;
                return Err(format!(
                    "epoch {epoch} is missing; acknowledged {acknowledged}, newest {newest}"
                ));
            }
        }
        Ok(())
    }

    /// After a recovery: what it did not find never happened.
    pub(super) fn keep(&mut self, found: &Found) {
        let newest = found
            .epochs
            .keys()
            .next_back()
            .copied()
            .unwrap_or(0)
            .max(self.from);
        let dropped = self.epochs.range(newest..).map(|(epoch, _)| *epoch);
        let dropped: Vec<_> = dropped
            .filter(|epoch| !found.epochs.contains_key(epoch))
            .collect();
        self.dropped.extend(dropped);
        self.acknowledged = self.acknowledged.max(newest);
    }

    pub(super) fn checkpoint(&mut self, log: &Log, epoch: u64) {
        self.from = epoch;
        self.written = log.durable_written().0;
    }
}

/// Appends records of a group, some of those it has.
pub(super) fn write_group(
    session: &mut LogSession,
    group: u64,
    places: std::ops::Range<u64>,
    records: u64,
    bytes: usize,
) {
    session.reserve(places.clone().count() * (RECORD_HEADER_BYTES + bytes));
    for place in places {
        session.append(|buffer| {
            for number in [group, place, records, bytes as u64] {
                buffer.extend_from_slice(&number.to_le_bytes());
            }
            buffer.extend((0..bytes).map(|at| filling(group, place, at)));
        });
    }
}

/// Reads a group back: its number and how many records it has.
pub(super) fn parse_group(mut bytes: &[u8]) -> Option<(u64, u64)> {
    let mut next_place = 0;
    let mut read = None;
    while !bytes.is_empty() {
        let number = |at: usize| {
            let field = bytes.get(8 * at..8 * at + 8)?;
            Some(u64::from_le_bytes(field.try_into().expect("eight bytes")))
        };
        let (group, place, records, length) = (number(0)?, number(1)?, number(2)?, number(3)?);
        let rest = &bytes[RECORD_HEADER_BYTES..];
        let (record, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        let filled = record.iter().enumerate();
        let right = filled
            .clone()
            .all(|(at, byte)| *byte == filling(group, place, at));
        if !right || place != next_place || read.is_some_and(|read| read != (group, records)) {
            return None;
        }
        next_place += 1;
        read = Some((group, records));
        bytes = rest;
    }
    read.filter(|(_, records)| *records == next_place)
}

/// Recovers.
pub(super) fn recover(disk: &Arc<dyn Disk>, model: &Model) -> Result<Found, LogError> {
    let cut = scan(disk)?.cut(LogEpoch(model.from), LogEpoch(model.written))?;
    read(cut, model.from)
}

/// By epoch, the groups that were found: how many records each has.
pub(super) type Epochs = BTreeMap<u64, BTreeMap<u64, u64>>;

pub(super) fn read(cut: LogCut, from: u64) -> Result<Found, LogError> {
    let mut epochs = Epochs::new();
    for mut reader in cut.logs() {
        while let Some(group) = reader.next_group()? {
            assert!(
                group.epoch >= LogEpoch(from),
                "what is below the checkpoint is left out"
            );
            // A group that is not whole gets a number that none has.
            let (number, records) = parse_group(group.records).unwrap_or((u64::MAX, 0));
            let known = epochs
                .entry(group.epoch.0)
                .or_default()
                .insert(number, records);
            assert_eq!(known, None, "group {number} is there twice");
        }
        assert_eq!(reader.bytes_read(), reader.bytes());
    }
    for (wave_bytes, piece_bytes) in [(1, 1), (700, 1), (2000, 600)] {
        let size = WaveSize {
            wave_bytes,
            piece_bytes,
        };
        let waves = read_waves(&cut, size)?;
        assert_eq!(waves, epochs, "LV1, LV2: {size:?}");
    }
    Ok(Found { cut, epochs })
}

/// What [`read`] finds, read in waves.
pub(super) fn read_waves(cut: &LogCut, size: WaveSize) -> Result<Epochs, LogError> {
    let mut epochs = Epochs::new();
    for wave in cut.waves(size) {
        let before = epochs.keys().next_back().copied();
        for mut piece in wave {
            while let Some(group) = piece.next_group()? {
                assert!(
                    before < Some(group.epoch.0),
                    "LV1: an epoch of the wave before"
                );
                let (number, records) = parse_group(group.records).unwrap_or((u64::MAX, 0));
                let groups: &mut BTreeMap<_, _> = epochs.entry(group.epoch.0).or_default();
                let known = groups.insert(number, records);
                assert_eq!(known, None, "LV1: group {number} is in two pieces");
            }
            assert_eq!(piece.bytes_read(), piece.bytes());
        }
    }
    Ok(epochs)
}

/// A log with three sessions, on whatever disk, at some epoch.
pub(super) struct Server {
    pub(super) log: Arc<Log>,
    pub(super) sessions: Vec<LogSession>,
    pub(super) epoch: u64,
}

impl Server {
    pub(super) fn start(
        disk: &Arc<dyn Disk>,
        options: LogOptions,
        cut: &LogCut,
        above: u64,
    ) -> Result<Self, LogError> {
        let log = Log::open(options, Arc::clone(disk), cut)?;
        Ok(Self {
            sessions: (0..3).map(|index| log.session(index)).collect(),
            epoch: log.durable().0.max(above) + 1,
            log,
        })
    }

    /// Ends the epoch; what has become durable is acknowledged.
    pub(super) fn tick(&mut self, model: &mut Model) {
        for session in &mut self.sessions {
            session.hand_over();
        }
        self.log
            .seal(LogEpoch(self.epoch), Milliseconds(1000 + self.epoch))
            .flush();
        self.epoch += 1;
        model.acknowledged = model.acknowledged.max(self.log.durable().0);
    }
}

/// Writes a few epochs, with groups of several sizes, recycling after a checkpoint now and then.
pub(super) fn workload(server: &mut Server, model: &mut Model, seed: u64, epochs: u64) {
    let mut rng = Rng::with_seed(seed);
    for round in 0..epochs {
        // A full log takes no writes.
        if rng.u8(..5) > 0 && server.log.is_open() {
            for _ in 0..rng.usize(1..4) {
                let session = rng.usize(..server.sessions.len());
                // Some groups need more than one frame, some more than one segment.
                let bytes = match rng.u8(..20) {
                    0 => rng.usize(4_000..20_000),
                    1..3 => rng.usize(500..2000),
                    _ => rng.usize(..80),
                };
                let records = rng.u64(1..4);
                let (session, epoch) = (&mut server.sessions[session], server.epoch);
                model.write(session, epoch, records, bytes);
                if rng.bool() {
                    session.hand_over();
                }
            }
        }
        server.tick(model);
        if round % 5 == 3 {
            server.log.rest();
        }
        let sound = server.log.is_open() && server.log.durable().next().0 == server.epoch;
        if round % 7 == 6 && sound {
            model.checkpoint(&server.log, server.epoch);
            // Recycling may fail with the disk; nothing depends on it.
            let _ = server.log.recycle_below(LogEpoch(server.epoch));
        }
    }
}

/// Starts on an empty disk, or one that was recovered, and works.
pub(super) fn run(
    disk: &Arc<dyn Disk>,
    model: &mut Model,
    logs: usize,
    seed: u64,
    epochs: u64,
) -> Result<Server, LogError> {
    let found = recover(disk, model)?;
    model.verdict(&found).unwrap();
    model.keep(&found);
    let above = model.epochs.keys().next_back().copied().unwrap_or(0);
    let above = above.max(model.acknowledged);
    let mut server = Server::start(disk, options(logs), &found.cut, above)?;
    workload(&mut server, model, seed, epochs);
    Ok(server)
}

pub(super) fn as_disk(disk: &SimulatedDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

/// The files of segments, without the free ones.
pub(super) fn log_files(disk: &SimulatedDisk) -> Vec<(PathBuf, u64)> {
    let is_log = |path: &Path| {
        path.file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("log-")
    };
    disk.files()
        .into_iter()
        .filter(|(path, _)| is_log(path))
        .collect()
}
