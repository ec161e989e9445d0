//! What can be wrong with a command, in Redis' words.

use thiserror::Error;

/// A command's refusal; its text is the error reply, code included.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the error text says it")]
pub enum CommandError {
    // Dispatch.
    #[error("ERR no such command, or not with these arguments")]
    Unresolved,
    #[error("ERR wrong number of arguments for '{command}' command")]
    Arity { command: &'static str },
    #[error("NOAUTH Authentication required.")]
    Unauthenticated,
    #[error("OOM command not allowed when used memory > 'maxmemory'.")]
    OutOfMemory,
    #[error("ERR this command needs a server; the database is embedded")]
    NoHost,

    // Any command.
    #[error("WRONGTYPE Operation against a key holding the wrong kind of value")]
    WrongType,
    #[error("ERR syntax error")]
    Syntax,
    #[error("ERR value is not an integer or out of range")]
    NotAnInteger,
    #[error("ERR value is not a valid float")]
    NotAFloat,
    #[error("ERR value is out of range")]
    OutOfRange,
    #[error("ERR no such key")]
    NoSuchKey,
    #[error("ERR DB index is out of range")]
    DatabaseIndex,
    #[error("ERR invalid DB index")]
    DatabaseIndexSyntax,
    #[error("ERR invalid first DB index")]
    FirstDatabaseIndex,
    #[error("ERR invalid second DB index")]
    SecondDatabaseIndex,
    #[error("ERR key is longer than key_bytes_max ({key_bytes} bytes, at most {key_bytes_max})")]
    KeyTooLong {
        key_bytes: usize,
        key_bytes_max: usize,
    },
    #[error("ERR string exceeds maximum allowed size (proto-max-bulk-len)")]
    StringTooLong,

    // Transactions.
    #[error("ERR MULTI calls can not be nested")]
    NestedMulti,
    #[error("ERR EXEC without MULTI")]
    ExecWithoutMulti,
    #[error("ERR DISCARD without MULTI")]
    DiscardWithoutMulti,
    #[error("ERR WATCH inside MULTI is not allowed")]
    WatchInsideMulti,
    #[error("EXECABORT Transaction discarded because of previous errors.")]
    ExecAborted,
    #[error(
        "EXECABORT Transaction discarded because of: OOM command not allowed when used memory > \
         'maxmemory'."
    )]
    ExecOutOfMemory,
    #[error("ERR Command not allowed inside a transaction")]
    NotInTransaction,
    #[error("ERR too many commands or bytes queued in a transaction")]
    TransactionTooLarge,
    #[error("ERR too many watched keys")]
    TooManyWatched,

    // Strings and hashes.
    #[error("ERR increment or decrement would overflow")]
    IncrementOverflow,
    #[error("ERR increment would produce NaN or Infinity")]
    IncrementNotFinite,
    #[error("ERR invalid expire time in '{command}' command")]
    InvalidExpireTime { command: &'static str },

    // Hashes.
    #[error("ERR hash value is not an integer")]
    HashValueNotAnInteger,
    #[error("ERR value is out of range, value must between {least} and {most}")]
    CountBetween { least: i64, most: i64 },
    #[error(
        "ERR field is longer than field_bytes_max ({field_bytes} bytes, at most {field_bytes_max})"
    )]
    FieldTooLong {
        field_bytes: usize,
        field_bytes_max: usize,
    },
    #[error("ERR the reply would be longer than {reply_bytes_max} bytes")]
    ReplyTooLong { reply_bytes_max: usize },
}
