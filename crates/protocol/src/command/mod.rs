//! The command table: every command as data.

mod id;

pub use id::CommandId;
