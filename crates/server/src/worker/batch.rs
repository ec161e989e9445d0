//! What a turn has read and decoded: segments of input, and the next batch of requests.
//!
//! A segment is one connection's input in a turn: bytes in the arena, the worker's read buffer, or
//! those kept by its [`Input`]. Requests are ranges of a segment; nothing is copied. The arena is
//! large enough for many small reads, so the requests of one turn are close together.
//!
//! Invariants:
//! - **BA1** Segments are decoded in the order in which they were read, each from its front, and a
//!   batch is executed in its own order: a connection's requests are never reordered.
//! - **BA2** Bytes of a segment do not move before [`Gathering::take_segments`]; ranges stay valid.
//!
//! Deliberately absent: sockets and the database (`super::turn`).

use std::io;

use pando_db::Client;
use pando_io::Stream;
use pando_protocol::command::Resolver;
use pando_protocol::resp::Decoded;
use pando_protocol::{ArgumentRange, Request};

use super::connection::Connection;
use super::connections::Connections;
use super::input::Input;
use super::wire::{Resolved, WireDecoder};
use crate::limits;

/// Where the bytes of a segment are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the arena, from `start` to `end`.
    Arena { start: usize, end: usize },
    /// In the connection's input.
    Kept,
}

/// Bytes of one connection; offsets are relative to their beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) slot: usize,
    pub(crate) place: Place,
    /// Everything before this offset is executed.
    pub(crate) executed: usize,
    /// Everything before this offset is decoded.
    pub(crate) decoded: usize,
    /// How many bytes the decoder lacks at the end; 0 before it got there.
    pub(crate) bytes_missing: usize,
    /// It was read in this turn.
    pub(crate) fresh: bool,
    /// The waiting requests of the input are in a batch, or were.
    waiting_taken: bool,
}

/// One request of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Its segment, or its datagram.
    pub(crate) segment: usize,
    /// The request's command.
    pub(crate) resolved: Resolved,
    /// Its ranges.
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// The offset after it in its segment.
    pub(crate) end: usize,
    /// It is in the connection's list of waiting requests.
    pub(crate) waiting: bool,
}

/// See the module's header. Its memory is reused in every turn.
#[derive(Debug)]
pub(crate) struct Gathering {
    arena: Box<[u8]>,
    arena_used: usize,
    segments: Vec<Segment>,
    /// The segment that is decoded next.
    next_segment: usize,
    entries: Vec<Entry>,
    ranges: Vec<ArgumentRange>,
    resolver: Resolver,
}

impl Gathering {
    pub(crate) fn new() -> Self {
        Self {
            arena: vec![0; limits::ARENA_BYTES].into_boxed_slice(),
            arena_used: 0,
            segments: Vec::new(),
            next_segment: 0,
            entries: Vec::new(),
            ranges: Vec::new(),
            resolver: Resolver::default(),
        }
    }

    /// Whether the turn has anything to decode.
    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Whether the arena is full, so that the turn reads no more.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.arena_used + limits::READ_BYTES > self.arena.len()
    }

    /// Reads into the arena, which is not full, and makes a segment of the result. Returns the
    /// number of bytes and whether there may be more. One system call.
    #[inline]
    pub(crate) fn read(&mut self, slot: usize, stream: &Stream) -> io::Result<(usize, bool)> {
        let start = self.arena_used;
        let window = &mut self.arena[start..start + limits::READ_BYTES];
        let count = stream.read(window)?;
        if count > 0 {
            let end = start + count;
            // The next read begins on a cache line of its own.
            self.arena_used = end.next_multiple_of(64);
            self.segments.push(Segment {
                slot,
                place: Place::Arena { start, end },
                executed: 0,
                decoded: 0,
                bytes_missing: 0,
                fresh: true,
                waiting_taken: true,
            });
        }
        Ok((count, count == limits::READ_BYTES))
    }

    /// Reads into the arena, which is not full, and discards the result.
    pub(crate) fn read_away(&mut self, stream: &Stream) -> io::Result<(usize, bool)> {
        let window = &mut self.arena[self.arena_used..self.arena_used + limits::READ_BYTES];
        let count = stream.read(window)?;
        Ok((count, count == limits::READ_BYTES))
    }

    /// Makes a segment of a connection's kept input; `fresh` if some of it was just read.
    pub(crate) fn add_kept(&mut self, slot: usize, input: &Input, fresh: bool) {
        let (executed, decoded) = input.progress();
        self.segments.push(Segment {
            slot,
            place: Place::Kept,
            executed,
            decoded,
            bytes_missing: 0,
            fresh,
            waiting_taken: false,
        });
    }

    /// Decodes the next batch; returns whether there is one. An incomplete request takes at most
    /// `request_bytes_max` of memory, or is refused.
    pub(crate) fn gather(
        &mut self,
        connections: &mut Connections,
        request_bytes_max: usize,
    ) -> bool {
        self.entries.clear();
        self.ranges.clear();
        while let Some(segment) = self.segments.get_mut(self.next_segment) {
            let connection = connections.get_mut(segment.slot);
            if let Some(connection) = connection.filter(|connection| connection.is_open()) {
                let decoding = Decoding {
                    index: self.next_segment,
                    segment,
                    connection,
                    request_bytes_max,
                    arena: &mut self.arena,
                    entries: &mut self.entries,
                    ranges: &mut self.ranges,
                    resolver: &mut self.resolver,
                };
                if !decoding.run() {
                    return true;
                }
            }
            self.next_segment += 1;
        }
        !self.entries.is_empty()
    }

    /// The batch that was gathered.
    pub(crate) fn batch(&mut self) -> Batch<'_> {
        Batch {
            entries: &self.entries,
            ranges: &self.ranges,
            segments: &mut self.segments,
            arena: &self.arena,
        }
    }

    /// Passes all segments with their arena bytes to `settle`, and forgets them (BA2).
    pub(crate) fn take_segments(&mut self, mut settle: impl FnMut(&Segment, &[u8])) {
        // BA1: what is not decoded now would be decoded after what comes later.
        debug_assert_eq!(self.next_segment, self.segments.len());
        for segment in self.segments.drain(..) {
            let bytes = match segment.place {
                Place::Arena { start, end } => &self.arena[start..end],
                Place::Kept => &[],
            };
            settle(&segment, bytes);
        }
        self.next_segment = 0;
        self.arena_used = 0;
        self.ranges.clear();
        self.ranges.shrink_to(limits::RANGES_KEPT_MAX);
    }
}

/// The requests of a batch, with their source.
#[derive(Debug)]
pub(crate) struct Batch<'g> {
    pub(crate) entries: &'g [Entry],
    pub(crate) ranges: &'g [ArgumentRange],
    pub(crate) segments: &'g mut [Segment],
    pub(crate) arena: &'g [u8],
}

impl Segment {
    /// Whether its next request is the first that its connection has in this turn of the loop.
    #[inline]
    pub(crate) fn is_untouched(&self) -> bool {
        self.fresh && self.executed == 0 && self.place != Place::Kept
    }

    /// When its requests arrived: in this turn of the loop, or before, with what was kept.
    #[inline]
    pub(crate) fn arrived_ns(&self, now_ns: u64, before_ns: u64) -> u64 {
        if self.fresh { now_ns } else { before_ns }
    }

    /// Its bytes; `kept` are those kept by the connection's input.
    #[inline]
    pub(crate) fn bytes<'b>(&self, arena: &'b [u8], kept: &'b [u8]) -> &'b [u8] {
        match self.place {
            Place::Arena { start, end } => &arena[start..end],
            Place::Kept => kept,
        }
    }
}

impl Entry {
    /// The ranges of its arguments among those of the batch.
    #[inline]
    pub(crate) fn ranges<'b>(&self, ranges: &'b [ArgumentRange]) -> &'b [ArgumentRange] {
        &ranges[self.first as usize..][..self.count as usize]
    }

    /// The request; `bytes` are its segment's.
    #[inline]
    pub(crate) fn request<'b>(&self, ranges: &'b [ArgumentRange], bytes: &'b [u8]) -> Request<'b> {
        Request::new(bytes, self.ranges(ranges))
    }
}

impl Batch<'_> {
    /// The keys to prefetch for the batch, with their databases: one per request, or none.
    pub(crate) fn keys<'b>(
        &'b self,
        connections: &'b Connections,
        databases: usize,
    ) -> impl Iterator<Item = Option<(usize, &'b [u8])>> {
        let (mut last, mut bytes, mut client, mut database) = (usize::MAX, &[][..], None, None);
        self.entries.iter().map(move |entry| {
            if entry.segment != last {
                last = entry.segment;
                let segment = &self.segments[last];
                let connection = connections.get(segment.slot);
                client = connection.map(|connection| &connection.client);
                database = client.map(Client::index);
                let kept = connection.map_or(&[][..], |connection| connection.input.bytes());
                bytes = segment.bytes(self.arena, kept);
            }
            let request = entry.request(self.ranges, bytes);
            let Some(key) = entry.resolved.key(request) else {
                let selected = entry.resolved.selects(request);
                let selected = selected.filter(|selected| *selected < databases);
                database = selected
                    .and_then(|of| Some(client?.index_of(of)))
                    .or(database);
                return None;
            };
            Some((database?, key))
        })
    }
}

/// The decoding of one segment into the batch.
struct Decoding<'g> {
    index: usize,
    segment: &'g mut Segment,
    connection: &'g mut Connection,
    request_bytes_max: usize,
    arena: &'g mut [u8],
    entries: &'g mut Vec<Entry>,
    ranges: &'g mut Vec<ArgumentRange>,
    resolver: &'g mut Resolver,
}

impl Decoding<'_> {
    /// Appends requests until the segment is used up (true) or the batch is full (false). An
    /// unauthenticated client gets one request per batch, since the limits of the next one depend
    /// on it.
    fn run(self) -> bool {
        let Self {
            index,
            segment,
            connection,
            request_bytes_max,
            arena,
            entries,
            ranges,
            resolver,
        } = self;
        let authenticated = connection.client.authenticated;
        if !segment.waiting_taken {
            segment.waiting_taken = true;
            take_waiting(index, segment.place, connection, entries, ranges, resolver);
        }
        if connection.input.error.is_some() {
            return true;
        }
        let (kept, decoder) = connection.input.kept();
        // What MULTI has queued counts together with what it is about to queue.
        let queued_bytes = connection.client.heap_bytes();
        decoder.set_request_bytes_max(request_bytes_max.saturating_sub(queued_bytes));
        let bytes = match segment.place {
            Place::Arena { start, end } => &mut arena[start..end],
            Place::Kept => kept,
        };
        loop {
            if entries.len() >= limits::BATCH_REQUESTS_MAX {
                return false;
            }
            let first = ranges.len();
            let decoded = decoder.next(bytes, segment.decoded, ranges);
            let request = Request::new(bytes, &ranges[first..]);
            let (resolved, end) = match decoded {
                Ok(Decoded::Request { end, .. }) => (decoder.resolve(request, resolver), end),
                Ok(Decoded::TooLong { end }) => (WireDecoder::resolve_too_long(request), end),
                Ok(Decoded::Incomplete {
                    start,
                    bytes_missing,
                }) => {
                    segment.decoded = start;
                    segment.bytes_missing = bytes_missing;
                    return true;
                }
                Err(error) => {
                    connection.input.error = Some(error);
                    return true;
                }
            };
            // A decoder that does not go on would keep the worker here for ever.
            debug_assert!(segment.decoded < end && end <= bytes.len());
            segment.decoded = end;
            entries.push(Entry {
                segment: index,
                resolved,
                first: first as u32,
                count: (ranges.len() - first) as u32,
                end,
                waiting: false,
            });
            if !authenticated {
                return false;
            }
        }
    }
}

/// Puts the waiting requests of the connection's input into the batch; they stay in its list until
/// they are executed. Their number is bounded by one read.
fn take_waiting(
    index: usize,
    place: Place,
    connection: &Connection,
    entries: &mut Vec<Entry>,
    ranges: &mut Vec<ArgumentRange>,
    resolver: &mut Resolver,
) {
    debug_assert_eq!(place, Place::Kept);
    let (requests, waiting_ranges) = connection.input.waiting();
    let mut first = ranges.len();
    ranges.extend(waiting_ranges);
    for (count, end, too_long) in requests {
        let arguments = &ranges[first..first + count];
        let request = Request::new(connection.input.bytes(), arguments);
        entries.push(Entry {
            segment: index,
            resolved: if too_long {
                WireDecoder::resolve_too_long(request)
            } else {
                connection.input.decoder.resolve(request, resolver)
            },
            first: first as u32,
            count: count as u32,
            end,
            waiting: true,
        });
        first += count;
    }
}
