//! Settings of snapshots.

use super::error::Expected;
use super::field::{integer, print, set, text};
use super::setting::Setting;
use super::value::{MemoryShare, parse_memory_share};

/// See [`super::Config`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotConfig {
    /// `snapshots-max`: most snapshots at a time; 64, the default, at most.
    pub max: usize,
    /// `snapshots-memory`: limit of what is kept only for snapshots; a share refers to the
    /// machine's memory if `maxmemory` is 0. Default 25 %.
    pub memory: MemoryShare,
    /// `snapshot-staleness`: how old a snapshot may be that SNAPSHOT USE RECENT and SNAPSHOT READ
    /// RECENT share. Default 0: it is never older than the request.
    pub staleness_ms: u64,
    /// `snapshot-lease`: after how long without a command SNAPSHOT USE RECENT ends; 0 is never.
    /// Default 300.
    pub lease_s: u64,
}

impl Default for SnapshotConfig {
    fn default() -> Self {
        Self {
            max: pando_db::limits::SNAPSHOTS_MAX,
            memory: MemoryShare::Percent(25),
            staleness_ms: 0,
            lease_s: pando_db::limits::LEASE_MS / 1000,
        }
    }
}

/// In the order of `--help`.
pub(super) static SETTINGS: &[Setting] = &[
    Setting::new(
        "snapshots-max",
        "Most snapshots (SNAPSHOT CREATE) at a time",
        |config| print(config.snapshots.max),
        |config, value| {
            let snapshots_max = pando_db::limits::SNAPSHOTS_MAX as i64;
            set(&mut config.snapshots.max, integer(value, 0, snapshots_max))
        },
    )
    .running(),
    Setting::new(
        "snapshots-memory",
        "Bytes of memory, or percentage of maxmemory (of the machine's memory if that is 0), for \
         values kept only for snapshots. Beyond it the oldest snapshot is dropped; if all are \
         held, writes that would have to keep another value are refused. 0 is no limit",
        |config| print(config.snapshots.memory),
        |config, value| {
            let share = text(value).and_then(parse_memory_share);
            set(
                &mut config.snapshots.memory,
                share.ok_or(Expected::MemoryShare),
            )
        },
    )
    .running(),
    Setting::new(
        "snapshot-staleness",
        "Milliseconds that a snapshot may be old which SNAPSHOT USE RECENT and SNAPSHOT READ \
         RECENT share. 0: it shows all that was done before it was asked for, and is shared only \
         by those who asked before it was made",
        |config| print(config.snapshots.staleness_ms),
        |config, value| {
            set(
                &mut config.snapshots.staleness_ms,
                integer(value, 0, i64::from(i32::MAX)),
            )
        },
    )
    .running(),
    Setting::new(
        "snapshot-lease",
        "Seconds without a command in it after which a connection loses the snapshot that SNAPSHOT \
         USE RECENT has given it; 0 is never, as long as it is connected",
        |config| print(config.snapshots.lease_s),
        |config, value| {
            set(
                &mut config.snapshots.lease_s,
                integer(value, 0, i64::from(i32::MAX)),
            )
        },
    )
    .running(),
];
