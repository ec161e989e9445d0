//! Client settings that commands change by plain assignment, together.

use pando_protocol::RespVersion;

use crate::acknowledge::{Durability, Replicated};
use crate::snapshots::Lease;

/// Whether a client wants replies (CLIENT REPLY).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyMode {
    /// Every reply is sent.
    #[default]
    On,
    /// No reply is sent until it is turned on again.
    Off,
    /// The reply of the next command is not sent.
    SkipNext,
    /// The reply of this command is not sent.
    Skip,
}

/// A client's settings at one time, to be restored when a run does not count.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) database: usize,
    pub(crate) base: usize,
    pub(crate) protocol: RespVersion,
    pub(crate) authenticated: bool,
    pub(crate) reply_mode: ReplyMode,
    pub(crate) no_touch: bool,
    pub(crate) durability: Durability,
    pub(crate) replicated: Option<Replicated>,
    pub(crate) answered_keys: usize,
    pub(crate) uses: Option<Lease>,
}
