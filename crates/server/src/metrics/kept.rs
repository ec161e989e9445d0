//! The part of the page about data on disk: the log, checkpoints, the free space. A server without
//! a log omits it.

use pando_db::{Database, LogState, LogStatistics, Room};

use super::{Page, print_seconds};
use crate::shared::Shared;

/// Bounds of buckets of times, as powers of two of a nanosecond: 16 µs to 17 s, a factor of 4 each.
const TIME_EXPONENTS: std::ops::RangeInclusive<usize> = 14..=34;

pub(super) fn families(page: &mut Page, shared: &Shared) {
    let database = &shared.database;
    let Some(log) = database.log_statistics() else {
        return;
    };
    state(page, database);
    log_figures(page, &log);
    write_times(page, &log);
    checkpoints(page, shared);
    directories(page, database);
}

fn state(page: &mut Page, database: &Database) {
    let age = database.oldest_write_age();
    page.single(
        "pando_log_oldest_write_seconds",
        "gauge",
        "Age of the oldest write that is not durable yet; 0: all are.",
        print_seconds(age.0 * 1000),
    );
    page.family(
        "pando_log_state",
        "gauge",
        "1 for the state that the log is in: open, full (writes are refused), failed (the server \
         ends).",
    );
    let state = match database.log_state() {
        Some(LogState::Full { .. }) => "full",
        Some(LogState::Failed { .. }) => "failed",
        _ => "open",
    };
    for name in ["open", "full", "failed"] {
        page.sample("", &[("state", name)], u8::from(name == state));
    }
}

fn log_figures(page: &mut Page, log: &LogStatistics) {
    for (name, kind, help, value) in [
        (
            "pando_log_pending_bytes",
            "gauge",
            "Bytes handed over to the log and not durable yet.",
            log.pending_bytes as u64,
        ),
        (
            "pando_log_open_epoch",
            "gauge",
            "The epoch that is written in now.",
            log.closed.next().0,
        ),
        (
            "pando_log_durable_epoch",
            "gauge",
            "The newest epoch that is durable, with all before it.",
            log.durable.0,
        ),
        (
            "pando_log_live_bytes",
            "gauge",
            "Bytes of log that a start would read, until a checkpoint makes them superfluous.",
            log.live_bytes,
        ),
        (
            "pando_log_segments",
            "gauge",
            "Files that hold them.",
            log.segments as u64,
        ),
        (
            "pando_log_free_files",
            "gauge",
            "Files of the log that were made ahead or wait for their next use.",
            log.free_files as u64,
        ),
        (
            "pando_log_held_bytes",
            "gauge",
            "Bytes of superfluous log that are held for replicas (replica-log-hold).",
            log.held_bytes,
        ),
        (
            "pando_log_written_bytes_total",
            "counter",
            "Bytes written to the log.",
            log.written_bytes,
        ),
        (
            "pando_log_failed_writes_total",
            "counter",
            "Writes and files of the log that failed and were replaced.",
            log.failed_writes,
        ),
    ] {
        page.single(name, kind, help, value);
    }
}

fn write_times(page: &mut Page, log: &LogStatistics) {
    page.family(
        "pando_log_sync_seconds",
        "histogram",
        "Time from the beginning of a write to the log until it is durable.",
    );
    let times = &log.write_times;
    for exponent in TIME_EXPONENTS.step_by(2) {
        let le = print_seconds(1 << exponent);
        page.sample("_bucket", &[("le", &le)], times.below(exponent));
    }
    page.sample("_bucket", &[("le", "+Inf")], times.total());
    page.sample("_sum", &[], print_seconds(log.write_ns));
    page.sample("_count", &[], times.total());
}

fn checkpoints(page: &mut Page, shared: &Shared) {
    let keeper = shared.keeper.figures();
    for (name, kind, help, value) in [
        (
            "pando_checkpoints_total",
            "counter",
            "Checkpoints taken.",
            keeper.taken,
        ),
        (
            "pando_checkpoint_failures_total",
            "counter",
            "Checkpoints that failed.",
            keeper.failed,
        ),
        (
            "pando_checkpoint_last_failed",
            "gauge",
            "Whether the last checkpoint failed.",
            u64::from(keeper.error.is_some()),
        ),
        (
            "pando_checkpoint_running",
            "gauge",
            "Whether a checkpoint is being taken.",
            u64::from(keeper.running_for.is_some()),
        ),
    ] {
        page.single(name, kind, help, value);
    }
    let help = "When the last checkpoint was complete, in seconds since the Unix epoch; 0: there \
                is none.";
    let completed_ms = shared.last_checkpoint().unwrap_or_default().0;
    let completed = print_seconds(completed_ms * 1_000_000);
    page.single(
        "pando_checkpoint_last_timestamp_seconds",
        "gauge",
        help,
        completed,
    );
    let last = shared.database.last_checkpoint().unwrap_or_default();
    let help = "How long the last checkpoint since the start took; 0: there is none.";
    let took = print_seconds(last.took_us * 1000);
    page.single(
        "pando_checkpoint_last_duration_seconds",
        "gauge",
        help,
        took,
    );
    let help = "Bytes of the last checkpoint since the start.";
    page.single("pando_checkpoint_last_bytes", "gauge", help, last.bytes);
    let help = "Keys in the last checkpoint since the start.";
    page.single("pando_checkpoint_last_keys", "gauge", help, last.entries);
}

fn directories(page: &mut Page, database: &Database) {
    let directories = database.directories();
    let mut family = |name, help, value: fn(&Room) -> u64| {
        page.family(name, "gauge", help);
        for (directory, room) in &directories {
            if let Some(room) = room {
                let directory = directory.to_string_lossy();
                page.sample("", &[("directory", &*directory)], value(room));
            }
        }
    };
    family(
        "pando_directory_free_bytes",
        "Bytes that may still be written to the volume of a directory.",
        |room| room.free,
    );
    family(
        "pando_directory_size_bytes",
        "Bytes that the volume of a directory has.",
        |room| room.total,
    );
}
