//! Which commands are special to a turn.

use pando_protocol::command::CommandId;

/// Commands that are not queued by MULTI.
#[inline]
pub(super) fn runs_inside_multi(id: CommandId) -> bool {
    matches!(
        id,
        CommandId::Exec
            | CommandId::Discard
            | CommandId::Multi
            | CommandId::Watch
            | CommandId::Quit
            | CommandId::Reset
    )
}

/// Commands that CLIENT PAUSE does not hold back: those that end a connection's wait or the pause.
#[inline]
pub(super) fn ignores_pause(id: CommandId) -> bool {
    matches!(
        id,
        CommandId::Client | CommandId::Quit | CommandId::Reset | CommandId::Shutdown
    )
}

/// Commands that ask about a key and do not use its value.
#[inline]
pub(super) fn only_asks(id: CommandId) -> bool {
    matches!(
        id,
        CommandId::Exists
            | CommandId::Expiretime
            | CommandId::Object
            | CommandId::Pexpiretime
            | CommandId::Pttl
            | CommandId::Ttl
            | CommandId::Type
    )
}

/// Commands of the host that may write files.
#[inline]
pub(super) fn waits_for_disk(id: CommandId) -> bool {
    matches!(
        id,
        CommandId::Bgrewriteaof
            | CommandId::Bgsave
            | CommandId::Config
            | CommandId::Save
            | CommandId::Shutdown
    )
}

/// Commands that touch several keys, or all, and are seen whole by every other command.
#[inline]
pub(super) fn needs_all_gates(id: CommandId) -> bool {
    matches!(
        id,
        CommandId::Mset
            | CommandId::Msetnx
            | CommandId::Rename
            | CommandId::Renamenx
            | CommandId::Copy
            | CommandId::Move
            | CommandId::Bitop
            | CommandId::Swapdb
            | CommandId::Flushdb
            | CommandId::Flushall
    )
}
