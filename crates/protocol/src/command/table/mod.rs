//! The data of the command table, one file per family: the names of its commands as an enum, and
//! below their entries, in the order of the enum.

mod bitmaps;
mod branches;
mod connection;
mod containers;
mod database;
mod geo;
mod hashes;
mod host;
mod hyperloglog;
mod keys;
mod lists;
mod ordered;
mod sets;
mod snapshots;
mod sorted;
mod streams;
mod strings;
mod unbuilt;

pub use bitmaps::BitmapCommand;
pub use connection::ConnectionCommand;
pub use database::DatabaseCommand;
pub use geo::GeoCommand;
pub use hashes::HashCommand;
pub use host::HostCommand;
pub use hyperloglog::HyperloglogCommand;
pub use keys::KeyCommand;
pub use lists::ListCommand;
pub use ordered::OrderedCommand;
pub use sets::SetCommand;
pub use sorted::SortedCommand;
pub use streams::StreamCommand;
pub use strings::StringCommand;

pub(super) use unbuilt::UNBUILT;

use super::CommandSpec;

/// The families, in the order of [`super::CommandId`]'s numbers.
pub(super) static FAMILIES: [&[CommandSpec]; 14] = [
    connection::COMMANDS,
    host::COMMANDS,
    database::COMMANDS,
    strings::COMMANDS,
    bitmaps::COMMANDS,
    hyperloglog::COMMANDS,
    keys::COMMANDS,
    hashes::COMMANDS,
    ordered::COMMANDS,
    lists::COMMANDS,
    sets::COMMANDS,
    sorted::COMMANDS,
    geo::COMMANDS,
    streams::COMMANDS,
];
