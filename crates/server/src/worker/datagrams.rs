//! memcached's commands over UDP: this worker's sockets, on its own port.
//!
//! A turn reads the waiting datagrams, up to the arena's end, executes them in batches like
//! requests of connections, and sends the replies when no gate is held. No state about a peer is
//! kept from one datagram to the next: each must carry the password, and half a request is
//! forgotten. What the kernel cannot buffer is lost, as datagrams may be.
//!
//! The sender's address may be forged, and it receives the replies. So:
//!
//! - Anything but a single-datagram request gets no reply, nor do words that are not a command: the
//!   reply of another server that arrives here causes no second one, and no two servers talk for
//!   ever.
//! - A reply is bounded. For a peer on another host the bound is a multiple of the bytes it has
//!   sent, by a setting which is 0 unless somebody has raised it; at 0 only loopback addresses are
//!   listened on. A loopback peer cannot be forged from outside: it gets up to
//!   [`limits::UDP_REPLY_BYTES_MAX`]. A request whose reply does not fit gets an error. If that
//!   does not fit either, it gets no reply, and the rest of its datagram is not executed.
//!
//! Invariants:
//! - **UD1** All datagrams that answer one datagram together have no more bytes than its bound.
//! - **UD2** A reply that waits for the disk is in `held`, its epoch known to [`super::holding`];
//!   `held` is bounded, and replies beyond the bound are lost.
//!
//! Deliberately absent: several datagrams per system call, which needs `unsafe` or another crate.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use pando_db::{Client, Database, LogEpoch, Progress, Wait};
use pando_io::{DATAGRAM_BYTES_MAX, DatagramSocket, Interest, Poller, Ready, Token};
use pando_protocol::ArgumentRange;
use pando_protocol::memcached::{Decoder, DecoderLimits, Line, Reply, Verb, datagram, error};
use pando_protocol::resp::Decoded;
use tracing::warn;

use super::batch::Entry;
use super::holding::Holding;
use super::wire::{ReplyPlace, Resolved};
use super::{WAKER, Worker};
use crate::host::WorkerHost;
use crate::limits;
use crate::protection;
use crate::registry::{ClientOrigin, ClientRecord, WireProtocol};
use crate::settings::Settings;
use crate::statistics::WorkerStatistics;

/// A socket, and whether it may have something to read (PO1 read-until-short).
#[derive(Debug)]
struct Bound {
    socket: DatagramSocket,
    readable: bool,
}

/// A request datagram in the arena.
#[derive(Debug)]
struct Received {
    socket: usize,
    peer: SocketAddr,
    id: u16,
    /// Most bytes of its replies, without frames (UD1).
    reply_bytes_max: usize,
}

/// The replies to a datagram, in `out`.
#[derive(Debug)]
struct Answer {
    datagram: usize,
    start: usize,
    end: usize,
    /// What it waits for, if anything.
    epoch: LogEpoch,
    /// The last epoch whose writes it reveals, if any.
    written: LogEpoch,
}

impl Answer {
    /// A request of the datagram was executed for `client`, its reply written up to `end`.
    fn follow(
        &mut self,
        end: usize,
        client: &mut Client,
        holding: &mut Holding,
        database: &Database,
    ) {
        let epoch = client.awaits();
        if end > self.end && holding.must_wait(epoch, database) {
            self.epoch = epoch;
        }
        self.end = end;
        self.written = self.written.max(client.unacknowledged());
        client.acknowledged();
    }
}

/// A reply that waits for the disk (UD2).
#[derive(Debug)]
struct Held {
    epoch: LogEpoch,
    socket: usize,
    peer: SocketAddr,
    id: u16,
    reply: Box<[u8]>,
}

/// See the module's header. Its memory is reused in every turn.
#[derive(Debug)]
pub(crate) struct Datagrams {
    sockets: Vec<Bound>,
    arena: Box<[u8]>,
    received: Vec<Received>,
    entries: Vec<Entry>,
    ranges: Vec<ArgumentRange>,
    answers: Vec<Answer>,
    out: Vec<u8>,
    held: VecDeque<Held>,
    held_bytes: usize,
    /// The client of a datagram, while it is executed.
    client: Client,
    record: ClientRecord,
    /// Bytes that another host gets per byte that it sends.
    reply_ratio: usize,
    item_bytes_max: usize,
}

/// The poller's token of a socket; those of connections count from 0.
fn token(index: usize) -> Token {
    Token(WAKER.0 - 1 - index)
}

/// Most bytes, without frames, of the reply to a datagram of this many bytes (UD1).
fn reply_bytes_max(peer: SocketAddr, sent_bytes: usize, reply_ratio: usize) -> usize {
    let bytes_max = if peer.ip().is_loopback() {
        limits::UDP_REPLY_BYTES_MAX
    } else {
        limits::UDP_REPLY_BYTES_MAX.min(reply_ratio * sent_bytes)
    };
    datagram::payload_within(bytes_max)
}

impl Datagrams {
    fn is_empty(&self) -> bool {
        self.received.is_empty()
    }

    /// Records a report of the poller; returns whether it concerns one of these sockets.
    pub(crate) fn note(&mut self, ready: Ready) -> bool {
        let index = (WAKER.0 - 1).checked_sub(ready.token.0);
        let Some(bound) = index.and_then(|index| self.sockets.get_mut(index)) else {
            return false;
        };
        bound.readable |= ready.readable;
        true
    }

    /// Whether a socket may have something to read.
    pub(crate) fn has_input(&self) -> bool {
        self.sockets.iter().any(|bound| bound.readable)
    }

    /// Reads waiting datagrams until the arena is full, and finds the commands; in protected mode
    /// other hosts get no reply.
    fn read(&mut self, is_protected: bool, statistics: &WorkerStatistics) {
        self.entries.clear();
        self.ranges.clear();
        let mut used = 0;
        for index in 0..self.sockets.len() {
            while self.sockets[index].readable && used + DATAGRAM_BYTES_MAX <= self.arena.len() {
                let window = &mut self.arena[used..used + DATAGRAM_BYTES_MAX];
                match self.sockets[index].socket.receive(window) {
                    Ok(Some((bytes, peer))) => {
                        statistics.reads.add(1);
                        statistics.input_bytes.add(bytes as u64);
                        let end = used + bytes;
                        let refused = is_protected && !protection::is_local(peer.ip());
                        if refused || !self.take(index, peer, used, end) {
                            statistics.protocol_errors.add(1);
                        }
                        // An empty one uses space too, so that their number is bounded.
                        used = (end + 1).next_multiple_of(64);
                    }
                    Ok(None) => self.sockets[index].readable = false,
                    Err(error) => {
                        warn!(%error, "cannot receive datagrams");
                        self.sockets[index].readable = false;
                    }
                }
            }
        }
    }

    /// Finds the commands of a datagram in the arena; returns whether it has one.
    fn take(&mut self, socket: usize, peer: SocketAddr, start: usize, end: usize) -> bool {
        let Some((id, commands)) = datagram::request(&self.arena[start..end]) else {
            return false;
        };
        let commands = end - commands.len()..end;
        let reply_bytes_max = reply_bytes_max(peer, end - start, self.reply_ratio);
        let mut decoder = Decoder::new(DecoderLimits::of_items(self.item_bytes_max));
        let mut from = commands.start;
        let entries = self.entries.len();
        while let Ok(Decoded::Request { arguments, end }) =
            decoder.next(&self.arena[..commands.end], from, &mut self.ranges)
        {
            let first = self.ranges.len() - arguments;
            let line = Line::of_ranges(&self.arena, &self.ranges[first..]);
            let verb = line.verb();
            if verb == Verb::Unknown {
                break;
            }
            self.entries.push(Entry {
                segment: self.received.len(),
                resolved: Resolved::Memcached(verb),
                first: first as u32,
                count: arguments as u32,
                end,
                waiting: false,
            });
            from = end;
        }
        let some = self.entries.len() > entries;
        if some {
            self.received.push(Received {
                socket,
                peer,
                id,
                reply_bytes_max,
            });
        }
        some
    }

    /// Begins the reply to a datagram, whose sender is unauthenticated.
    fn begin_answer(&mut self, datagram: usize, settings: &Settings) {
        self.client.authenticated = !settings.requires_password();
        self.client.durability = settings.durability();
        self.answers.push(Answer {
            datagram,
            start: self.out.len(),
            end: self.out.len(),
            epoch: LogEpoch::NONE,
            written: LogEpoch::NONE,
        });
    }

    /// Sends a reply; it is lost if the kernel does not take it.
    fn send_one(
        sockets: &[Bound],
        statistics: &WorkerStatistics,
        (socket, peer, id): (usize, SocketAddr, u16),
        reply: &[u8],
    ) {
        let mut frame = [0; datagram::DATAGRAM_BYTES_MAX];
        for (header, payload) in datagram::reply(id, reply) {
            let bytes = header.len() + payload.len();
            frame[..header.len()].copy_from_slice(&header);
            frame[header.len()..bytes].copy_from_slice(payload);
            if !sockets[socket].socket.send(&frame[..bytes], peer) {
                return;
            }
            statistics.writes.add(1);
            statistics.output_bytes.add(bytes as u64);
        }
    }

    /// Holds what would acknowledge too much if sent now, as for connections
    /// ([`Worker::hold_late`]).
    fn hold_late(&mut self, database: &Database) {
        let latest = self.answers.iter().map(|answer| answer.written).max();
        if latest.is_some_and(|epoch| epoch > LogEpoch::NONE && !database.may_acknowledge(epoch)) {
            let durable = database.durable();
            for answer in &mut self.answers {
                if answer.written > durable && answer.end > answer.start {
                    answer.epoch = answer.epoch.max(answer.written);
                }
            }
        }
    }

    /// Sends the replies, or keeps them until they may be sent.
    fn send(&mut self, statistics: &WorkerStatistics, holding: &mut Holding) {
        for answer in self.answers.drain(..) {
            let Received {
                socket,
                peer,
                id,
                reply_bytes_max,
            } = self.received[answer.datagram];
            let reply = &self.out[answer.start..answer.end];
            // UD1.
            debug_assert!(reply.len() <= reply_bytes_max);
            if answer.epoch == LogEpoch::NONE {
                Self::send_one(&self.sockets, statistics, (socket, peer, id), reply);
            } else if self.held_bytes + reply.len() <= limits::UDP_HELD_BYTES_MAX
                && self.held.len() < limits::UDP_HELD_MAX
            {
                self.held_bytes += reply.len();
                self.held.push_back(Held {
                    epoch: answer.epoch,
                    socket,
                    peer,
                    id,
                    reply: reply.into(),
                });
                holding.add_datagrams(answer.epoch);
            }
        }
        self.received.clear();
        self.out.clear();
        self.out.shrink_to(limits::POOLED_BUFFER_BYTES_MAX);
    }

    /// Sends the replies that wait for this epoch or an earlier one; returns what is waited for
    /// now. Epochs are in order: a client's never decreases.
    pub(crate) fn release(
        &mut self,
        durable: LogEpoch,
        statistics: &WorkerStatistics,
    ) -> Option<LogEpoch> {
        while let Some(held) = self.held.front() {
            if held.epoch > durable {
                return Some(held.epoch);
            }
            let to = (held.socket, held.peer, held.id);
            Self::send_one(&self.sockets, statistics, to, &held.reply);
            self.held_bytes -= held.reply.len();
            self.held.pop_front();
        }
        debug_assert_eq!(self.held_bytes, 0);
        None
    }
}

impl Worker {
    /// Also serves these sockets; another host gets `reply_ratio` bytes per byte that it sends.
    pub(crate) fn watch_datagrams(
        &mut self,
        sockets: Vec<DatagramSocket>,
        reply_ratio: usize,
    ) -> io::Result<()> {
        let Some(first) = sockets.first() else {
            return Ok(());
        };
        let origin = ClientOrigin {
            worker: self.index,
            descriptor: -1,
            address: "udp".into(),
            local_address: first.address()?.to_string(),
            unix_socket: false,
            protocol: WireProtocol::Memcached,
        };
        for (index, socket) in sockets.iter().enumerate() {
            add(&self.poller, socket, index)?;
        }
        let bound = |socket| Bound {
            socket,
            readable: true,
        };
        self.datagrams = Some(Box::new(Datagrams {
            sockets: sockets.into_iter().map(bound).collect(),
            arena: vec![0; limits::UDP_ARENA_BYTES].into_boxed_slice(),
            received: Vec::new(),
            entries: Vec::new(),
            ranges: Vec::new(),
            answers: Vec::new(),
            out: Vec::new(),
            held: VecDeque::new(),
            held_bytes: 0,
            client: Client::new(0, false),
            record: ClientRecord::new(0, origin, self.shared.now_ms()),
            reply_ratio,
            item_bytes_max: self.wire_limits.item_bytes_max,
        }));
        Ok(())
    }

    /// Reads waiting datagrams; returns whether there is something to execute.
    pub(super) fn read_datagrams(&mut self) -> bool {
        let Some(datagrams) = &mut self.datagrams else {
            return false;
        };
        if datagrams.has_input() {
            let is_protected = self.shared.settings.is_protected();
            datagrams.read(is_protected, self.recorder.statistics());
        }
        !datagrams.is_empty()
    }

    /// Executes what was read, in batches like requests of connections.
    pub(super) fn execute_datagrams(&mut self) {
        let Some(mut datagrams) = self.datagrams.take() else {
            return;
        };
        if !datagrams.is_empty() {
            let mut entry = 0;
            while entry < datagrams.entries.len() {
                entry = self.execute_some(&mut datagrams, entry);
            }
        }
        self.datagrams = Some(datagrams);
    }

    /// Executes a batch under one gate and pin; returns where the next one begins.
    fn execute_some(&mut self, datagrams: &mut Datagrams, from: usize) -> usize {
        let end = datagrams
            .entries
            .len()
            .min(from + limits::BATCH_REQUESTS_MAX);
        let mut turn = self.session.turn();
        let requests = datagrams.entries[from..end].iter();
        turn.warm(requests.map(|entry| {
            let request = entry.request(&datagrams.ranges, &datagrams.arena);
            Some((0, entry.resolved.key(request)?))
        }));
        let mut next = from;
        while next < end {
            let datagram = datagrams.entries[next].segment;
            if datagrams.answers.last().map(|last| last.datagram) != Some(datagram) {
                datagrams.begin_answer(datagram, &self.shared.settings);
            }
            let Datagrams {
                arena,
                received,
                entries,
                ranges,
                answers,
                out,
                client,
                record,
                ..
            } = &mut *datagrams;
            let Some(answer) = answers.last_mut() else {
                break;
            };
            let start = out.len();
            let end_max = answer.start + received[datagram].reply_bytes_max;
            let entry = &entries[next];
            let request = entry.request(ranges, arena);
            let place = ReplyPlace {
                out,
                end_max,
                pause_at: usize::MAX,
            };
            let host =
                &mut WorkerHost::new(&self.shared, &mut self.recorder, record, self.arrived_ns);
            turn.go_to(next - from);
            let progress = entry
                .resolved
                .execute(&mut turn, client, request, place, host);
            if matches!(progress, Progress::Waits(Wait::Leave { .. } | Wait::Away)) {
                // Nobody waits for a datagram.
                Reply::new(out).line(error::PAUSED);
            }
            let fits = out.len() <= end_max;
            if !fits {
                out.truncate(start);
            }
            answer.follow(out.len(), client, &mut self.holding, &self.shared.database);
            next += 1;
            if !fits || !matches!(progress, Progress::Done) {
                let rest = entries[next..].iter();
                next += rest.take_while(|entry| entry.segment == datagram).count();
            }
        }
        next
    }

    /// Sends the replies of this turn. No gate is held.
    pub(super) fn send_datagrams(&mut self) {
        if let Some(datagrams) = &mut self.datagrams
            && !datagrams.is_empty()
        {
            datagrams.hold_late(&self.shared.database);
            datagrams.send(self.recorder.statistics(), &mut self.holding);
        }
    }
}

fn add(poller: &Poller, socket: &DatagramSocket, index: usize) -> io::Result<()> {
    poller.add(socket, token(index), Interest::Read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ud1_another_host_gets_a_multiple_of_what_it_has_sent() {
        let bound = |peer: &str, sent_bytes, ratio| {
            let peer = peer.parse().expect("an address");
            reply_bytes_max(peer, sent_bytes, ratio)
        };
        let whole = datagram::payload_within(limits::UDP_REPLY_BYTES_MAX);
        for here in ["127.0.0.1:5000", "127.9.9.9:5000", "[::1]:5000"] {
            assert_eq!(bound(here, 15, 0), whole);
        }
        for there in [
            "192.0.2.1:5000",
            "[2001:db8::1]:5000",
            "[::ffff:127.0.0.1]:5000",
        ] {
            assert_eq!(bound(there, 15, 0), 0);
            for (sent_bytes, ratio) in [(15, 3), (700, 2), (1400, 1), (1400, 50), (65_535, 1000)] {
                let payload = bound(there, sent_bytes, ratio);
                assert!(datagram::bytes_of(payload) <= ratio * sent_bytes);
                assert!(payload <= whole);
            }
            assert_eq!(bound(there, 65_535, 1000), whole);
        }
    }
}
