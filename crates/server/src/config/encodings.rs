//! Settings of OBJECT ENCODING: at which sizes Redis changes the form of a value.
//!
//! Values are held in the same form whatever these say: the answers of OBJECT ENCODING follow, and
//! whether HSCAN, SSCAN and ZSCAN return a collection whole. Names with `ziplist` are those of
//! earlier versions.

use super::Config;
use super::error::Expected;
use super::field::{integer, memory, print, set};
use super::setting::Setting;

fn entries(field: &mut u64, value: &[u8]) -> Result<(), Expected> {
    set(field, integer(value, 0, i64::MAX))
}

fn bytes(field: &mut u64, value: &[u8]) -> Result<(), Expected> {
    set(field, memory(value, 0, i64::MAX as u64))
}

fn size(field: &mut i64, value: &[u8]) -> Result<(), Expected> {
    set(
        field,
        integer(value, i64::from(i32::MIN), i64::from(i32::MAX)),
    )
}

/// In alphabetical order.
pub(super) static SETTINGS: &[Setting] = &[
    Setting::new(
        "hash-max-listpack-entries",
        "Most fields of a hash that OBJECT ENCODING calls a listpack",
        |config: &Config| print(config.thresholds.hash_max_listpack_entries),
        |config, value| entries(&mut config.thresholds.hash_max_listpack_entries, value),
    )
    .running(),
    Setting::new(
        "hash-max-listpack-value",
        "Longest field or value, in bytes, of a hash that OBJECT ENCODING calls a listpack",
        |config: &Config| print(config.thresholds.hash_max_listpack_value),
        |config, value| bytes(&mut config.thresholds.hash_max_listpack_value, value),
    )
    .running(),
    Setting::new(
        "hash-max-ziplist-entries",
        "Most fields of a hash that OBJECT ENCODING calls a listpack",
        |config: &Config| print(config.thresholds.hash_max_listpack_entries),
        |config, value| entries(&mut config.thresholds.hash_max_listpack_entries, value),
    )
    .running()
    .foreign(),
    Setting::new(
        "hash-max-ziplist-value",
        "Longest field or value, in bytes, of a hash that OBJECT ENCODING calls a listpack",
        |config: &Config| print(config.thresholds.hash_max_listpack_value),
        |config, value| bytes(&mut config.thresholds.hash_max_listpack_value, value),
    )
    .running()
    .foreign(),
    Setting::new(
        "list-max-listpack-size",
        "Most elements of a list that OBJECT ENCODING calls a listpack; -1 to -5: 4 to 64 KiB",
        |config: &Config| print(config.thresholds.list_max_listpack_size),
        |config, value| size(&mut config.thresholds.list_max_listpack_size, value),
    )
    .running(),
    Setting::new(
        "list-max-ziplist-size",
        "Most elements of a list that OBJECT ENCODING calls a listpack; -1 to -5: 4 to 64 KiB",
        |config: &Config| print(config.thresholds.list_max_listpack_size),
        |config, value| size(&mut config.thresholds.list_max_listpack_size, value),
    )
    .running()
    .foreign(),
    Setting::new(
        "set-max-intset-entries",
        "Most members of a set that OBJECT ENCODING calls an intset",
        |config: &Config| print(config.thresholds.set_max_intset_entries),
        |config, value| entries(&mut config.thresholds.set_max_intset_entries, value),
    )
    .running(),
    Setting::new(
        "set-max-listpack-entries",
        "Most members of a set that OBJECT ENCODING calls a listpack",
        |config: &Config| print(config.thresholds.set_max_listpack_entries),
        |config, value| entries(&mut config.thresholds.set_max_listpack_entries, value),
    )
    .running(),
    Setting::new(
        "set-max-listpack-value",
        "Longest member, in bytes, of a set that OBJECT ENCODING calls a listpack",
        |config: &Config| print(config.thresholds.set_max_listpack_value),
        |config, value| bytes(&mut config.thresholds.set_max_listpack_value, value),
    )
    .running(),
    Setting::new(
        "zset-max-listpack-entries",
        "Most members of a sorted set that OBJECT ENCODING calls a listpack",
        |config: &Config| print(config.thresholds.zset_max_listpack_entries),
        |config, value| entries(&mut config.thresholds.zset_max_listpack_entries, value),
    )
    .running(),
    Setting::new(
        "zset-max-listpack-value",
        "Longest member, in bytes, of a sorted set that OBJECT ENCODING calls a listpack",
        |config: &Config| print(config.thresholds.zset_max_listpack_value),
        |config, value| bytes(&mut config.thresholds.zset_max_listpack_value, value),
    )
    .running(),
    Setting::new(
        "zset-max-ziplist-entries",
        "Most members of a sorted set that OBJECT ENCODING calls a listpack",
        |config: &Config| print(config.thresholds.zset_max_listpack_entries),
        |config, value| entries(&mut config.thresholds.zset_max_listpack_entries, value),
    )
    .running()
    .foreign(),
    Setting::new(
        "zset-max-ziplist-value",
        "Longest member, in bytes, of a sorted set that OBJECT ENCODING calls a listpack",
        |config: &Config| print(config.thresholds.zset_max_listpack_value),
        |config, value| bytes(&mut config.thresholds.zset_max_listpack_value, value),
    )
    .running()
    .foreign(),
];
