//! Checkpoints: the entries of all trees at about one time, and the manifest that makes them count.
//!
//! | file | what it is |
//! |---|---|
//! | `checkpoint-START-PART.part` | entries, in checked blocks (`block`); one file per writer and directory |
//! | `checkpoint-START.manifest` | the chunks, their places and epochs (`manifest`) |
//! | `checkpoint-START.new` | a manifest that is not complete |
//!
//! START is the log epoch, in sixteen hexadecimal digits, at whose beginning the checkpoint began.
//! Writes of earlier epochs are in it. It may also hold writes of later epochs, up to the one in
//! which it ended, so the log must be replayed over it from START on.
//!
//! Manifests are in one directory, parts in one or several (`directories`), as on the several disks
//! of Masstree's paper (§5).
//!
//! A writer makes, in this order: the part files, each synced; their directories synced; the
//! manifest under another name, synced; its rename; its directory synced. Only then are older
//! checkpoints removed.
//!
//! Invariants:
//! - **CP1 parts-first** A manifest is renamed into place after everything it names is durable, in
//!   whatever directories. Part files without a manifest are left from a crash or an abandoned
//!   checkpoint.
//! - **CP2 end-is-durable** The end epoch that a manifest states is durable in the log before the
//!   rename, so no checkpoint shows what a crash has undone; or the checkpoint needs no log
//!   (CW2 end-after-scan).
//! - **CP3 checked-before-shown** Nothing of a damaged file is shown: a block is checked before its
//!   entries are.
//! - **CP4 bounded-buffer** A writer buffers a bounded number of bytes, whatever the entries: large
//!   ones are split.
//!
//! Deliberately absent: the meaning of an entry's key and value.

mod block;
mod cursor;
mod directories;
mod error;
mod manifest;
mod parts;
mod reader;
mod writer;

pub use directories::{Directories, is_part};
pub use error::CheckpointError;
pub use manifest::{Chunk, Found, Manifest, found, remove_others, remove_unfinished, unfinished};
pub use parts::PartsWriter;
pub use reader::{Entry, read_chunk, verify};
pub use writer::{LargeValue, PartSummary, PartWriter, place, publish};

use std::path::{Path, PathBuf};

use pando_sync::LogEpoch;

fn part_name(start: LogEpoch, part: u32) -> String {
    format!("checkpoint-{:016x}-{part:04x}.part", start.0)
}

fn manifest_path(directory: &Path, start: LogEpoch) -> PathBuf {
    directory.join(format!("checkpoint-{:016x}.manifest", start.0))
}

fn unfinished_path(directory: &Path, start: LogEpoch) -> PathBuf {
    directory.join(format!("checkpoint-{:016x}.new", start.0))
}

/// The start epoch in the name of a checkpoint's file, and whether it is a manifest.
fn parse_name(name: &str) -> Option<(LogEpoch, bool)> {
    let rest = name.strip_prefix("checkpoint-")?;
    let (start, kind) = rest.split_at_checked(16)?;
    let start = LogEpoch(u64::from_str_radix(start, 16).ok()?);
    let is_part = kind.starts_with('-') && kind.strip_suffix(".part").is_some();
    match kind {
        ".manifest" => Some((start, true)),
        ".new" => Some((start, false)),
        _ if is_part => Some((start, false)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
