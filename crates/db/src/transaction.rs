//! MULTI: the queue of requests that EXEC runs.
//!
//! States and transitions: *none* → `Transaction::default` (MULTI) → queueing → *none* (EXEC,
//! DISCARD, RESET). A request that is refused while queueing marks the transaction
//! ([`Transaction::refuse`]); EXEC then runs nothing.

use std::mem::take;
use std::ops::Range;

use pando_protocol::command::{CommandSpec, Flag};
use pando_protocol::{Request, RequestBuffer};

use crate::error::CommandError;
use crate::limits;
use crate::settings::Settings;

/// Bytes of requests that are kept together, about: most transactions need no more.
const TOGETHER_BYTES: usize = 4096;
/// Memory of one that a session keeps for the next.
const KEPT_BYTES: usize = 2 * TOGETHER_BYTES;

/// One queued request.
#[derive(Debug)]
pub(crate) struct Queued {
    spec: &'static CommandSpec,
    /// Which of the buffers has it, and its arguments there.
    buffer: usize,
    arguments: Range<usize>,
    /// Its reply, if it must not be executed again (RR3 hosts-once).
    answered: Option<Box<Answered>>,
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
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is of what is queued, and none rules out another"
)]
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    queue: Vec<Queued>,
    /// The arguments of requests, in order; several have one buffer, unless they are large.
    buffers: Vec<RequestBuffer>,
    /// Bytes of the queue, and of the buffers but the last.
    bytes: usize,
    refused: bool,
    writes: bool,
    needs_memory: bool,
    needs_gates: bool,
    takes_time: bool,
    /// Notifications for the host when the run counts.
    pub(crate) notes: Vec<Note>,
}

/// A queued command that has run.
#[derive(Debug)]
pub(crate) struct Note {
    pub(crate) index: usize,
    /// Its client's, behind it.
    pub(crate) database: usize,
    pub(crate) reply_bytes: usize,
    pub(crate) error: Option<CommandError>,
}

impl Transaction {
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.bytes + self.buffers.last().map_or(0, RequestBuffer::heap_bytes)
    }

    /// Queues a request, within the bounds of `limits.rs` and the memory that a request may take.
    pub(crate) fn queue(
        &mut self,
        spec: &'static CommandSpec,
        request: Request<'_>,
        request_bytes_max: usize,
    ) -> Result<(), CommandError> {
        // Checked before the request is copied: it may be large.
        let held = self.heap_bytes();
        let bytes = held.saturating_add(request.span_bytes());
        if bytes > request_bytes_max {
            self.refused = true;
            return Err(CommandError::OutOfMemory);
        }
        if self.queue.len() == limits::TRANSACTION_REQUESTS_MAX
            || bytes > limits::TRANSACTION_BYTES_MAX
        {
            self.refused = true;
            return Err(CommandError::TransactionTooLarge);
        }
        let is_full = |buffer: &RequestBuffer| {
            buffer.heap_bytes().saturating_add(request.span_bytes()) > TOGETHER_BYTES
        };
        if self.buffers.last().is_none_or(is_full) {
            self.bytes = held;
            let (bytes, arguments) = (request.span_bytes().max(256), request.len().max(24));
            self.buffers
                .push(RequestBuffer::with_room(bytes, arguments));
        }
        let buffer = self.buffers.len() - 1;
        let arguments = self.buffers[buffer].push(request);
        self.bytes += size_of::<Queued>();
        self.writes |= spec.flags.has(Flag::Write);
        self.needs_memory |= spec.flags.has(Flag::DenyOom);
        self.takes_time |= !spec.is_brief();
        self.queue.push(Queued {
            spec,
            buffer,
            arguments,
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

    /// EXEC cannot run it beside others.
    pub(crate) fn need_gates(&mut self) {
        self.needs_gates = true;
    }

    /// Whether EXEC waits for all gates.
    pub(crate) fn needs_gates(&self) -> bool {
        self.needs_gates || self.queue.len() > limits::RUN_REQUESTS_MAX
    }

    /// Whether EXEC takes no time worth a look at the clock: it waits for no gates, and all that is
    /// queued is brief.
    pub(crate) fn is_brief(&self) -> bool {
        !self.needs_gates() && !self.takes_time && !self.queue.is_empty()
    }

    /// A queued request.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> (&'static CommandSpec, Request<'_>) {
        self.request(&self.queue[index])
    }

    #[inline]
    fn request(&self, queued: &Queued) -> (&'static CommandSpec, Request<'_>) {
        let arguments = queued.arguments.clone();
        (queued.spec, self.buffers[queued.buffer].part(arguments))
    }

    /// All of them, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static CommandSpec, Request<'_>)> {
        self.queue.iter().map(|queued| self.request(queued))
    }

    /// Makes it an empty one, of the same memory; none if that is much.
    pub(crate) fn emptied(mut self: Box<Self>) -> Option<Box<Self>> {
        let queue = self.queue.capacity() * size_of::<Queued>();
        let notes = self.notes.capacity() * size_of::<Note>();
        if self.heap_bytes() + queue + notes > KEPT_BYTES || self.buffers.len() > 1 {
            return None;
        }
        self.queue.clear();
        self.buffers.iter_mut().for_each(RequestBuffer::clear);
        self.notes.clear();
        let (queue, buffers, notes) = (
            take(&mut self.queue),
            take(&mut self.buffers),
            take(&mut self.notes),
        );
        *self = Self {
            queue,
            buffers,
            notes,
            ..Self::default()
        };
        Some(self)
    }

    /// What a request was answered, to be kept for repetitions.
    pub(crate) fn answered(&mut self, index: usize) -> &mut Option<Box<Answered>> {
        &mut self.queue[index].answered
    }

    /// Frees memory of a request that is not needed again, nor are those before it.
    pub(crate) fn free(&mut self, index: usize) {
        let buffer = self.queue[index].buffer;
        let next = self.queue.get(index + 1).map(|queued| queued.buffer);
        if next != Some(buffer) && self.buffers.len() > 1 {
            self.buffers[buffer] = RequestBuffer::default();
        }
    }
}
