//! What `appendonly`, `appendfsync` and `save` mean for durability.
//!
//! Redis has snapshots and a log, each on or off; here one log also does the work of snapshots. At
//! a start the three are evaluated together, after everything else:
//!
//! | `appendonly` | `save` | `appendfsync` | `durability` |
//! |---|---|---|---|
//! | yes, or not given | not empty, or not given | `always` | `sync` |
//! | the same | the same | `everysec`, or not given | `interval` |
//! | the same | the same | `no` | `interval`: acknowledged writes are kept at least as well |
//! | yes | empty | any | as above |
//! | no, or not given | empty | any | `none`: Redis keeps nothing either |
//! | no | not empty, or not given | any | `interval`: more than snapshots keep |
//!
//! If `durability` itself is given, it applies, and the three mean nothing. A remark reports any
//! difference from what the file says.

use std::collections::BTreeMap;

use pando_db::Durability;

use super::Config;
use super::error::{Expected, Origin};
use super::field::{switch, text};
use super::setting::Setting;

/// The three.
pub(super) const NAMES: [&str; 3] = ["appendonly", "appendfsync", "save"];

/// What `appendfsync` may be.
pub(super) const FSYNC: Expected = Expected::OneOf(&["always", "everysec", "no"]);

/// The settings given at the start, with their values and the place of the last one.
pub(super) type Given = BTreeMap<&'static str, (Vec<u8>, Origin)>;

/// The name that Redis has for much the same.
pub(super) const fn fsync_of(mode: Durability) -> &'static str {
    match mode {
        Durability::None => "no",
        Durability::Interval => "everysec",
        Durability::Sync => "always",
    }
}

/// The meaning of a value of `appendfsync` while the server runs.
pub(super) fn mode_of(value: &[u8]) -> Option<Durability> {
    let named = |mode: &Durability| fsync_of(*mode).as_bytes().eq_ignore_ascii_case(value);
    Durability::ALL.into_iter().find(named)
}

/// The points of `save`: pairs of seconds and changes.
pub(super) fn points(value: &[u8]) -> Result<String, Expected> {
    let words = text(value).ok_or(Expected::SavePoints)?;
    let words: Vec<&str> = words.split_ascii_whitespace().collect();
    let numbers = words.iter().all(|word| word.parse::<u32>().is_ok());
    if numbers && words.len().is_multiple_of(2) {
        Ok(words.join(" "))
    } else {
        Err(Expected::SavePoints)
    }
}

/// What is wrong with the value of one of the three, which are checked when they are read and
/// settled later; `None` for other settings.
pub(super) fn check(setting: &Setting, value: &[u8]) -> Option<Result<(), Expected>> {
    Some(match setting.name {
        "appendonly" => switch(value).map(drop),
        "appendfsync" => mode_of(value).map(drop).ok_or(FSYNC),
        "save" => points(value).map(drop),
        _ => return None,
    })
}

/// Applies the three to `config`, whose other settings have all been read.
pub(super) fn settle(config: &mut Config, given: &Given) {
    let value = |name| given.get(name).map(|(value, _)| value.as_slice());
    let (only, fsync, save) = (value("appendonly"), value("appendfsync"), value("save"));
    if only.is_none() && fsync.is_none() && save.is_none() {
        return;
    }
    config.save_points = save.and_then(|value| points(value).ok());
    let saves = config.save_points.as_deref() != Some("");
    let appends = only.and_then(|value| switch(value).ok());
    let asked = fsync.and_then(mode_of);
    let (mode, remark) = match (appends, saves) {
        (Some(false) | None, false) => (Durability::None, None),
        (Some(false), true) => (
            Durability::Interval,
            Some("appendonly no: the log is kept all the same, it does what save asks for"),
        ),
        (Some(true) | None, _) => match asked {
            Some(Durability::Sync) => (Durability::Sync, None),
            Some(Durability::None) => (
                Durability::Interval,
                Some("appendfsync no: the log is written as for everysec"),
            ),
            _ => (Durability::Interval, None),
        },
    };
    if value("durability").is_none() {
        config.durability = mode;
        config.remarks.extend(remark.map(|remark| {
            format!("{remark} (durability interval; durability none keeps nothing)")
        }));
    } else if config.durability != mode {
        config.remarks.push(format!(
            "durability {} holds; appendonly, appendfsync and save say something else",
            config.durability.name()
        ));
    }
}
