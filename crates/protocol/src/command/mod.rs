//! The command table: every command as data.
//!
//! [`lookup`] finds a command by name. [`resolve`] also finds its subcommand and refuses what
//! cannot be run. One file of `table/` per family holds the data.

mod answer;
mod argument;
mod execution;
mod id;
mod index;
mod keys;
mod reference;
mod resolve;
mod spec;
mod syntax;
mod table;
mod unbuilt;

pub use answer::answer;
pub use argument::{Argument, ArgumentKind};
pub use execution::{GateNeed, Rule, Rules};
pub use id::{CommandId, KeyspaceCommand};
pub use index::{all, lookup, spec};
pub use keys::{
    KeyAccess, KeyEffect, KeyEffects, KeySpec, KeyUse, Keys, first_key, key_uses, keys,
    names_one_key,
};
pub use reference::reference;
pub use resolve::{Refusal, Resolver, resolve};
pub use spec::{Categories, Category, Change, CommandSpec, Deprecation, Flag, Flags, Group};
pub use table::{
    BitmapCommand, ConnectionCommand, DatabaseCommand, GeoCommand, HashCommand, HostCommand,
    HyperloglogCommand, KeyCommand, ListCommand, OrderedCommand, SetCommand, SortedCommand,
    StreamCommand, StringCommand,
};
pub use unbuilt::{is_unbuilt, told};
