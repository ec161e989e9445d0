//! Errors of commands on connections or the server, in Redis' words.

use std::fmt;

use pando_db::CommandError;
use thiserror::Error;

/// A refusal; its text is the error reply, code included.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum AdminError {
    #[error(transparent)]
    Command(#[from] CommandError),

    #[error("{}", .text)]
    Given { text: Echo },

    // Connections.
    #[error("WRONGPASS invalid username-password pair or user is disabled.")]
    WrongPassword,
    #[error(
        "ERR AUTH <password> called without any password configured for the default user. Are you \
         sure your configuration is correct?"
    )]
    NoPasswordConfigured,
    #[error(
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
         AUTH <user> <pass> option can be used to authenticate the client and select the RESP \
         protocol version at the same time"
    )]
    HelloUnauthenticated,
    #[error("ERR Protocol version is not an integer or out of range")]
    ProtocolVersion,
    #[error("NOPROTO unsupported protocol version")]
    UnsupportedProtocol,
    #[error("ERR Syntax error in HELLO option '{}'", .option)]
    HelloOption { option: Echo },
    #[error("ERR {what} cannot contain spaces, newlines or special characters.")]
    ClientName { what: &'static str },
    #[error("ERR Unrecognized option '{}'", .option)]
    ClientAttribute { option: Echo },
    #[error("ERR timeout is not an integer or out of range")]
    TimeoutNotAnInteger,
    #[error("ERR timeout is negative")]
    TimeoutNegative,
    #[error("ERR CLIENT DURABILITY mode must be NONE, INTERVAL, SYNC or REPLICATED")]
    DurabilityMode,
    #[error("ERR WAITAOF can wait for one disk at most: numlocal must be 0 or 1")]
    LocalDisks,
    #[error("ERR WAITAOF cannot wait for the disk: this server keeps nothing on disk")]
    NoDisk,
    #[error("ERR CLIENT PAUSE mode must be WRITE or ALL")]
    PauseMode,
    #[error("ERR No such client")]
    NoSuchClient,
    #[error("ERR client-id should be greater than 0")]
    ClientIdNotPositive,
    #[error("ERR maxage is not an integer or out of range")]
    MaxAgeNotAnInteger,
    #[error("ERR maxage should be greater than 0")]
    MaxAgeNotPositive,
    #[error("ERR Invalid client ID")]
    ClientId,
    #[error("ERR Unknown client type '{}'", .name)]
    ClientType { name: Echo },
    #[error("ERR No such user '{}'", .name)]
    NoSuchUser { name: Echo },
    #[error("ERR argument must be a memory value")]
    NoMemoryValue,
    #[error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")]
    UnblockReason,
    #[error("ERR CLIENT TRACKING ON is not supported: this server tells no client what changes")]
    NoTracking,
    #[error(
        "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or \
         OPTOUT mode enabled"
    )]
    CachingWithoutTracking,

    // MIGRATE.
    #[error("ERR When using MIGRATE KEYS option, the key argument must be set to the empty string")]
    MigrateKeys,
    #[error("ERR MIGRATE waits for another server, which cannot be done inside MULTI")]
    MigrateInMulti,
    #[error("ERR too many keys are being migrated by other clients: try again later")]
    TooManyMigrations,
    #[error(
        "ERR a key was written again and again while it was migrated: the other server has an \
         older value of it"
    )]
    MigrateChanged,

    // The server.
    #[error(
        "ERR unknown subcommand or wrong number of arguments for '{subcommand}'. Try {command} \
         HELP."
    )]
    WrongSubcommand {
        command: &'static str,
        subcommand: Echo,
    },
    #[error("ERR Unknown option or number of arguments for CONFIG SET - '{name}'")]
    UnknownSetting { name: Echo },
    #[error("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}")]
    ConfigSet { name: Echo, reason: Echo },
    #[error("ERR The server is running without a config file")]
    NoConfigFile,
    #[error("ERR Rewriting config file: {reason}")]
    RewriteFailed { reason: Echo },
    #[error("ERR count should be greater than or equal to -1")]
    SlowlogCount,
    #[error("ERR No samples available for event '{event}'")]
    NoLatencySamples { event: Echo },
    #[error("ERR Unknown category '{name}'")]
    UnknownCategory { name: Echo },
    #[error("ERR Invalid master port")]
    MasterPort,
    #[error("ERR No failover in progress.")]
    NoFailover,
    #[error("ERR FAILOVER already in progress.")]
    FailoverRuns,
    #[error("ERR FAILOVER timeout must be greater than 0")]
    FailoverTimeout,
    #[error("ERR FAILOVER is not valid when server is a replica.")]
    FailoverOnReplica,
    #[error("ERR FAILOVER target HOST and PORT is not a replica.")]
    FailoverTarget,
    #[error("ERR FAILOVER requires connected replicas.")]
    FailoverAlone,
    #[error("BUSY another change of what keys are here is being made")]
    PlacingRuns,
    #[error(
        "NOMOVER this mover of keys is not the last that began here, or data have changed since in \
         a way that it was not told: it must begin again"
    )]
    NoMover,
    #[error("ERR a range is a number below {}", pando_ring::limits::RANGES)]
    Range,
    #[error("ERR no session of the database is free")]
    NoSession,
    #[error("ERR this server speaks another format of replication")]
    ReplicationFormat,
    #[error("ERR a server cannot follow itself, nor one that follows it")]
    ReplicationCycle,
    #[error("ERR this server follows no other: ask a replica")]
    NotAReplica,
    #[error("ERR a check runs already")]
    CheckRuns,
    #[error("ERR the link to the primary is down")]
    LinkDown,
    #[error("ERR this server has as many replicas as it can feed; follow one of them")]
    TooManyReplicas,
    #[error("ERR PREPLICATE ACK is what replicas say, and this connection is none")]
    NoReplica,
    #[error("ERR a server has from 1 to {} replicas", crate::limits::REPLICAS_MAX)]
    ReplicatedRange,
    #[error("ERR WAIT cannot be used with replica instances.")]
    WaitOnReplica,
    #[error("ERR This instance has cluster support disabled")]
    NoCluster,
    #[error("ERR nothing is kept on disk: the server was started with durability none")]
    NothingKept,
    #[error("ERR Background save already in progress")]
    SaveRuns,
    #[error("ERR the checkpoint failed: {reason}")]
    SaveFailed { reason: Echo },
    #[error("ERR No shutdown in progress.")]
    NoShutdown,
    #[error("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")]
    FunctionFlush,
    #[error("ERR library name argument was not given")]
    LibraryName,
    #[error("ERR Unknown argument {name}")]
    FunctionListArgument { name: Echo },
    #[error("ERR MONITOR isn't allowed for DENY BLOCKING client")]
    MonitorInTransaction,
}

impl AdminError {
    pub(crate) fn wrong_subcommand(command: &'static str, subcommand: &[u8]) -> Self {
        const BYTES_MAX: usize = 128;
        let shown = &subcommand[..subcommand.len().min(BYTES_MAX)];
        Self::WrongSubcommand {
            command,
            subcommand: Echo::of(shown),
        }
    }

    /// A SAVE that failed for this reason.
    pub(crate) fn save_failed(reason: &str) -> Self {
        Self::SaveFailed {
            reason: Echo::of(reason.as_bytes()),
        }
    }

    /// The error reply, with the client's own bytes unchanged.
    pub(crate) fn text(&self) -> Vec<u8> {
        self.to_string()
            .chars()
            .map(|character| character as u8)
            .collect()
    }
}

/// Bytes of a client, repeated in an error: up to a NUL, each as the character of its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Echo(String);

impl Echo {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let shown = bytes.iter().take_while(|byte| **byte != 0);
        Self(shown.copied().map(char::from).collect())
    }
}

impl fmt::Display for Echo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clients_bytes_come_back_unchanged() {
        let error = AdminError::ClientType {
            name: Echo::of(b"a\xff\x80\0b"),
        };
        assert_eq!(error.text(), b"ERR Unknown client type 'a\xff\x80'");
    }
}
