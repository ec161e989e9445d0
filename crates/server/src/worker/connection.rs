//! One connection: its socket, its client, its input and its output.
//!
//! Phases:
//!
//! ```text
//! Ready ─── a request waits ──► Waiting ─── `Worker::resume` ──► Ready
//!   │                              │
//!   └──── finish, peer closed ─────┴──► Closing ── output sent ──► Lingering ─ closed, due ─► gone
//! ```
//! What a request may wait for, and how each wait ends, is one table in [`super::waiting`].
//!
//! Invariants:
//! - **CO1 ready-and-heard** Requests are executed, and the socket is read, only while `Ready` with
//!   little output waiting: a client that does not read is not read from. So a client's requests
//!   are executed in order, whatever one of them waits for.
//! - **CO2** `readable` holds from a report of the poller to a short read (the poller's
//!   PO1 read-until-short).
//!
//! An idle connection holds no buffer: it costs about 800 bytes, including its record and place in
//! the tables.
//!
//! Deliberately absent: the order between connections (`super`).

use std::sync::Arc;

use pando_db::{Client, LogEpoch, Wait};
use pando_io::Stream;

use super::input::Input;
use super::output::Output;
use super::waiting::Waiting;
use super::wire::{WireDecoder, WireLimits};
use crate::limits;
use crate::registry::{BufferSizes, ClientFlag, ClientRecord};
use crate::shared::Shared;

/// A connection's state; see the module's header.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Its requests are executed as they arrive.
    Ready,
    /// One of its requests waits.
    Waiting(Waiting),
    /// Nothing more is executed; the connection ends when its output is sent.
    Closing,
    /// Everything is sent, and the peer was told so; its further input is discarded, so that the
    /// last reply is not lost to a reset.
    Lingering,
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) client: Client,
    pub(crate) record: Arc<ClientRecord>,
    pub(crate) input: Input,
    pub(crate) output: Output,
    pub(crate) phase: Phase,
    /// When the oldest bytes that are not executed were read, in nanoseconds since the start.
    pub(crate) arrived_ns: u64,
    /// When the phase times out; identifies the current timer.
    pub(crate) due_ns: u64,
    /// When the output exceeded the soft limit; 0 when it does not.
    pub(crate) crowded_since_ms: u64,
    pub(crate) flags: Flags,
}

/// The loop's notes on a connection.
#[derive(Clone, Copy, Debug, Default)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a note of its own, not a state"
)]
pub(crate) struct Flags {
    /// The socket may have something to read (CO2).
    pub(crate) readable: bool,
    /// The peer sends nothing more; a short read is not the last one.
    pub(crate) read_closed: bool,
    /// It is in the queue of connections with something to do.
    pub(crate) queued: bool,
    /// It is in the list of connections whose output is sent at the end of the turn.
    pub(crate) touched: bool,
    /// It is in the list of connections with replies or a WAITAOF that wait for the disk, or for
    /// those of replicas.
    pub(crate) holding: bool,
    /// The poller reports when the socket can be written.
    pub(crate) awaits_writable: bool,
    /// The decoder treats the client as authenticated.
    decoder_authenticated: bool,
    /// The record says that buffers hold something.
    sizes_noted: bool,
}

impl Flags {
    /// Whether the decoder must be told about the client's authentication.
    #[inline]
    pub(crate) fn decoder_lags(self, client: &Client) -> bool {
        self.decoder_authenticated != client.authenticated
    }
}

impl Phase {
    /// Whether the diagram in the module's header leads from this phase to that one.
    fn may_become(&self, next: &Self) -> bool {
        match self {
            Self::Ready => matches!(next, Self::Waiting(_) | Self::Closing),
            Self::Waiting(_) => matches!(next, Self::Ready | Self::Closing),
            Self::Closing => matches!(next, Self::Lingering),
            Self::Lingering => false,
        }
    }

    fn wait(&self) -> Option<&Wait> {
        match self {
            Self::Waiting(waiting) => Some(&waiting.wait),
            Self::Ready | Self::Closing | Self::Lingering => None,
        }
    }
}

impl Connection {
    pub(crate) fn new(
        stream: Stream,
        record: Arc<ClientRecord>,
        authenticated: bool,
        limits: WireLimits,
    ) -> Self {
        let decoder = WireDecoder::new(record.origin().protocol, limits, authenticated);
        let flags = Flags {
            decoder_authenticated: authenticated,
            ..Flags::default()
        };
        Self {
            stream,
            client: Client::new(record.id(), authenticated),
            record,
            input: Input::new(decoder),
            output: Output::default(),
            phase: Phase::Ready,
            arrived_ns: 0,
            due_ns: 0,
            crowded_since_ms: 0,
            flags,
        }
    }

    /// Whether its requests may be executed (CO1).
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Ready)
            && self.output.pending() < limits::OUTPUT_PAUSE_BYTES
            && !self.record.is_killed()
    }

    /// Whether a turn would do something for it.
    pub(crate) fn has_work(&self) -> bool {
        match self.phase {
            Phase::Ready => self.is_open() && (self.flags.readable || !self.input.is_hungry()),
            Phase::Lingering => self.flags.readable,
            _ => false,
        }
    }

    /// Tells the decoder when the client has authenticated, or no longer is.
    #[inline]
    pub(crate) fn follow_authentication(&mut self) {
        if self.flags.decoder_lags(&self.client) {
            self.flags.decoder_authenticated = self.client.authenticated;
            self.record.observe(&self.client);
            self.input
                .decoder
                .set_authenticated(self.client.authenticated);
        }
    }

    /// Enters a phase, and records whether the client waits.
    pub(crate) fn enter(&mut self, phase: Phase) {
        assert!(self.phase.may_become(&phase));
        let wait = phase.wait();
        self.record.set_flag(ClientFlag::Blocked, wait.is_some());
        if matches!(
            wait,
            Some(Wait::Disk { .. } | Wait::Replicas { .. } | Wait::Keys(_))
        ) {
            self.record.begin_wait();
        } else {
            self.record.end_wait();
        }
        if matches!(phase, Phase::Closing | Phase::Lingering) {
            self.record.set_flag(ClientFlag::Closing, true);
            self.input.discard();
        }
        self.phase = phase;
    }

    /// What one of its requests waits for.
    pub(crate) fn wait(&self) -> Option<&Wait> {
        self.phase.wait()
    }

    /// Whether it waits for something that nobody needs once the peer has gone. A long command is
    /// finished, and so is an errand: they may write.
    pub(crate) fn waits_in_vain(&self) -> bool {
        let in_vain = |wait: &Wait| !matches!(wait, Wait::Others(_) | Wait::Errand);
        self.flags.read_closed && self.wait().is_some_and(in_vain)
    }

    /// The log epochs that its output, and the connection itself, wait for.
    pub(crate) fn awaits(&self) -> impl Iterator<Item = LogEpoch> {
        let phase = match self.wait() {
            Some(Wait::Disk { epoch, .. }) => Some(*epoch),
            _ => None,
        };
        let output = self.output.awaits().map(|mark| mark.epoch);
        output.into_iter().chain(phase)
    }

    /// Records what its buffers hold, and charges its requests, if they hold something or did so
    /// before.
    #[inline]
    pub(crate) fn note_sizes(&mut self, shared: &Shared) {
        if self.flags.sizes_noted
            || !self.input.is_empty()
            || self.output.pending() > 0
            || self.client.queued_requests().is_some()
        {
            self.note_sizes_of_some(shared);
        }
    }

    #[cold]
    fn note_sizes_of_some(&mut self, shared: &Shared) {
        let input_bytes = if self.input.is_empty() {
            0
        } else {
            self.input.held_bytes()
        };
        let request_bytes = input_bytes + self.client.heap_bytes();
        if request_bytes != self.record.request_bytes() {
            shared.charge(&self.record, request_bytes);
        }
        let (query_bytes, query_free_bytes) = self.input.sizes();
        self.record.set_buffers(BufferSizes {
            query_bytes,
            query_free_bytes,
            output_bytes: self.output.pending(),
            output_capacity_bytes: self.output.capacity(),
        });
        self.flags.sizes_noted = request_bytes > 0 || self.output.pending() > 0;
    }
}
