//! MULTI: the queue of requests that EXEC runs.
//!
//! States and transitions: *none* → `Transaction::default` (MULTI) → queueing → *none* (EXEC,
//! DISCARD, RESET). A request that is refused while queueing marks the transaction
//! ([`Transaction::refuse`]); EXEC then runs nothing.

use pando_protocol::command::{CommandSpec, Flag};
use pando_protocol::{Request, RequestBuffer};

use crate::error::CommandError;
use crate::limits;
use crate::settings::Settings;

/// One queued request.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) spec: &'static CommandSpec,
    pub(crate) request: RequestBuffer,
    /// Its reply, if it must not be executed again (RR3 hosts-once).
    pub(crate) answered: Option<Answered>,
}

/// The reply of a command that was executed in a run that did not count.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) reply: Box<[u8]>,
    /// Its client's, behind it.
    pub(crate) settings: Settings,
    pub(crate) closes: bool,
}

/// What MULTI has queued.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    queue: Vec<Queued>,
    bytes: usize,
    refused: bool,
    writes: bool,
    needs_memory: bool,
}

impl Transaction {
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.bytes
    }

    /// Queues a request, within the bounds of `limits.rs` and the memory that a request may take.
    pub(crate) fn queue(
        &mut self,
        spec: &'static CommandSpec,
        request: Request<'_>,
        request_bytes_max: usize,
    ) -> Result<(), CommandError> {
        // Checked before the request is copied: it may be large.
        if self.bytes.saturating_add(request.bytes()) > request_bytes_max {
            self.refused = true;
            return Err(CommandError::OutOfMemory);
        }
        if self.queue.len() == limits::TRANSACTION_REQUESTS_MAX
            || self.bytes + request.bytes() > limits::TRANSACTION_BYTES_MAX
        {
            self.refused = true;
            return Err(CommandError::TransactionTooLarge);
        }
        let request = RequestBuffer::from(request);
        self.bytes += request.heap_bytes() + size_of::<Queued>();
        self.writes |= spec.flags.has(Flag::Write);
        self.needs_memory |= spec.flags.has(Flag::DenyOom);
        self.queue.push(Queued {
            spec,
            request,
            answered: None,
        });
        Ok(())
    }

    /// Records that a request was refused: EXEC will abort.
    pub(crate) fn refuse(&mut self) {
        self.refused = true;
    }

    /// Whether EXEC must abort.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused
    }

    /// Whether a queued request writes.
    pub(crate) fn writes(&self) -> bool {
        self.writes
    }

    /// Whether a queued request may take more memory.
    pub(crate) fn needs_memory(&self) -> bool {
        self.needs_memory
    }

    /// The queued requests, in order.
    pub(crate) fn requests(&mut self) -> &mut [Queued] {
        &mut self.queue
    }

    /// The same, to look at.
    pub(crate) fn queued(&self) -> &[Queued] {
        &self.queue
    }
}
