//! Identifiers of commands, by who runs them and by family; a container (CLIENT, CONFIG, …) has one
//! for all its subcommands.
//!
//! | [`CommandId`] | who runs it |
//! |---|---|
//! | `Keyspace` | a handler of its family, on the keyspace of the client's database |
//! | `Connection` | the turn itself: it changes the database's state of a connection |
//! | `Host` | whatever embeds the database |
//!
//! The code that runs commands matches a family's enum without a catch-all arm, so a command
//! without a handler does not compile. The families are in `table/`, beside their commands'
//! entries.

use super::table::{
    BitmapCommand, ConnectionCommand, DatabaseCommand, GeoCommand, HashCommand, HostCommand,
    HyperloglogCommand, KeyCommand, ListCommand, OrderedCommand, SetCommand, SortedCommand,
    StreamCommand, StringCommand,
};

/// Names a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CommandId {
    /// Runs on the keyspace.
    Keyspace(KeyspaceCommand),
    /// Runs on the database's state of a connection.
    Connection(ConnectionCommand),
    /// Is the host's.
    Host(HostCommand),
}

/// Names a command on the keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each variant is the family of its name")]
pub enum KeyspaceCommand {
    String(StringCommand),
    Hash(HashCommand),
    Key(KeyCommand),
    Bitmap(BitmapCommand),
    Hyperloglog(HyperloglogCommand),
    Ordered(OrderedCommand),
    List(ListCommand),
    Set(SetCommand),
    Sorted(SortedCommand),
    Geo(GeoCommand),
    Stream(StreamCommand),
    Database(DatabaseCommand),
}

impl CommandId {
    /// How many there are.
    pub(super) const COUNT: usize = (FIRST_STREAM + StreamCommand::COUNT) as usize;

    /// Its place in [`super::all`].
    #[must_use]
    pub const fn number(self) -> u8 {
        use KeyspaceCommand as K;
        match self {
            Self::Connection(command) => command as u8,
            Self::Host(command) => FIRST_HOST + command as u8,
            Self::Keyspace(K::Database(command)) => FIRST_DATABASE + command as u8,
            Self::Keyspace(K::String(command)) => FIRST_STRING + command as u8,
            Self::Keyspace(K::Bitmap(command)) => FIRST_BITMAP + command as u8,
            Self::Keyspace(K::Hyperloglog(command)) => FIRST_HYPERLOGLOG + command as u8,
            Self::Keyspace(K::Key(command)) => FIRST_KEY + command as u8,
            Self::Keyspace(K::Hash(command)) => FIRST_HASH + command as u8,
            Self::Keyspace(K::Ordered(command)) => FIRST_ORDERED + command as u8,
            Self::Keyspace(K::List(command)) => FIRST_LIST + command as u8,
            Self::Keyspace(K::Set(command)) => FIRST_SET + command as u8,
            Self::Keyspace(K::Sorted(command)) => FIRST_SORTED + command as u8,
            Self::Keyspace(K::Geo(command)) => FIRST_GEO + command as u8,
            Self::Keyspace(K::Stream(command)) => FIRST_STREAM + command as u8,
        }
    }
}

const FIRST_HOST: u8 = ConnectionCommand::COUNT;
const FIRST_DATABASE: u8 = FIRST_HOST + HostCommand::COUNT;
const FIRST_STRING: u8 = FIRST_DATABASE + DatabaseCommand::COUNT;
const FIRST_BITMAP: u8 = FIRST_STRING + StringCommand::COUNT;
const FIRST_HYPERLOGLOG: u8 = FIRST_BITMAP + BitmapCommand::COUNT;
const FIRST_KEY: u8 = FIRST_HYPERLOGLOG + HyperloglogCommand::COUNT;
const FIRST_HASH: u8 = FIRST_KEY + KeyCommand::COUNT;
const FIRST_ORDERED: u8 = FIRST_HASH + HashCommand::COUNT;
const FIRST_LIST: u8 = FIRST_ORDERED + OrderedCommand::COUNT;
const FIRST_SET: u8 = FIRST_LIST + ListCommand::COUNT;
const FIRST_SORTED: u8 = FIRST_SET + SetCommand::COUNT;
const FIRST_GEO: u8 = FIRST_SORTED + SortedCommand::COUNT;
const FIRST_STREAM: u8 = FIRST_GEO + GeoCommand::COUNT;

/// Declares a family: its commands in the order of its table, and its place in [`CommandId`].
macro_rules! family {
    ($(#[$meta:meta])* $name:ident in Keyspace($family:ident) { $($command:ident,)+ }) => {
        $crate::command::id::family!(@declare $(#[$meta])* $name { $($command,)+ } |command| {
            let command = $crate::command::KeyspaceCommand::$family(command);
            $crate::command::CommandId::Keyspace(command)
        });
    };
    ($(#[$meta:meta])* $name:ident in $runner:ident { $($command:ident,)+ }) => {
        $crate::command::id::family!(@declare $(#[$meta])* $name { $($command,)+ } |command| {
            $crate::command::CommandId::$runner(command)
        });
    };
    (@declare
        $(#[$meta:meta])* $name:ident { $($command:ident,)+ } |$self:ident| $id:block
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "each variant is the command of its name")]
        pub enum $name {
            $($command,)+
        }

        impl $name {
            /// How many commands the family has.
            pub(in crate::command) const COUNT: u8 = [$($name::$command,)+].len() as u8;

            /// The command's identifier.
            #[must_use]
            pub const fn id(self) -> $crate::command::CommandId {
                let $self = self;
                $id
            }
        }
    };
}
pub(super) use family;
