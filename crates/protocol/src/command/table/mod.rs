//! The data of the command table, one file per family, in the order of [`CommandId`].
//!
//! [`CommandId`]: super::CommandId

mod bitmaps;
mod connection;
mod containers;
mod hashes;
mod keys;
mod ordered;
mod server;
mod strings;
mod transactions;

use super::CommandSpec;

/// The families, in the order of [`super::CommandId`].
pub(super) static FAMILIES: [&[CommandSpec]; 8] = [
    connection::COMMANDS,
    server::COMMANDS,
    transactions::COMMANDS,
    strings::COMMANDS,
    bitmaps::COMMANDS,
    keys::COMMANDS,
    hashes::COMMANDS,
    ordered::COMMANDS,
];
