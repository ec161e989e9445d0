//! The connections' protocols, as far as the event loop is concerned: how bytes become requests,
//! and requests replies.
//!
//! Both decoders return ranges of the caller's bytes, so reading, batching and keeping the rest are
//! the same for both; the meaning of a request is decided when it is executed.

use pando_db::{Answers, Client, Progress, Turn};
use pando_protocol::command::{self, CommandId, CommandSpec, ConnectionCommand, Refusal, Resolver};
use pando_protocol::limits::UNAUTHENTICATED_BULK_BYTES_MAX;
use pando_protocol::memcached::{self, DecodeError, Line, Verb};
use pando_protocol::resp::{Decoded, ProtocolError};
use pando_protocol::{ArgumentRange, Decoder, DecoderLimits, Reply, Request, number};

use crate::host::WorkerHost;
use crate::registry::WireProtocol;

/// Bounds of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WireLimits {
    pub(crate) resp: DecoderLimits,
    /// Most data of a memcached item.
    pub(crate) item_bytes_max: usize,
}

/// Decodes the requests of one connection.
#[derive(Debug)]
pub(crate) enum WireDecoder {
    Resp(Decoder),
    Memcached {
        decoder: memcached::Decoder,
        item_bytes_max: usize,
        authenticated: bool,
        /// Nothing has arrived yet.
        fresh: bool,
    },
}

/// The first byte of every request of memcached's binary protocol, and of no line of the others.
const BINARY: u8 = 0x80;

/// What is wrong with bytes that are not a request: the connection gets an error and is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireError {
    Resp(ProtocolError),
    Memcached(memcached::DecodeError),
    /// A client of memcached's binary protocol.
    Binary,
}

/// The command of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Resolved {
    /// The command that it names, or why it cannot be run.
    Resp(Result<&'static CommandSpec, Refusal>),
    Memcached(Verb),
}

/// Where a reply is appended, and the positions that bound it in memcached's protocol.
#[derive(Debug)]
pub(crate) struct ReplyPlace<'o> {
    pub(crate) out: &'o mut Vec<u8>,
    /// A reply that would exceed this is an error instead.
    pub(crate) end_max: usize,
    /// From here on the rest of a long reply waits.
    pub(crate) pause_at: usize,
}

impl WireDecoder {
    pub(crate) fn new(protocol: WireProtocol, limits: WireLimits, authenticated: bool) -> Self {
        let mut decoder = match protocol {
            WireProtocol::Resp => Self::Resp(Decoder::new(limits.resp)),
            WireProtocol::Memcached => {
                let item_bytes_max = limits.item_bytes_max;
                let limits = memcached::DecoderLimits::of_items(item_bytes_max);
                Self::Memcached {
                    decoder: memcached::Decoder::new(limits),
                    item_bytes_max,
                    authenticated,
                    fresh: true,
                }
            }
        };
        decoder.set_authenticated(authenticated);
        decoder
    }

    /// Sets whether the client is authenticated; until then it may send only little.
    pub(crate) fn set_authenticated(&mut self, authenticated: bool) {
        match self {
            Self::Resp(decoder) => decoder.set_authenticated(authenticated),
            Self::Memcached {
                decoder,
                authenticated: is_authenticated,
                ..
            } => {
                decoder.set_authenticated(authenticated);
                *is_authenticated = authenticated;
            }
        }
    }

    /// Changes the memory limit of an incomplete request: a longer one is refused as soon as its
    /// length is known, and its bytes are discarded.
    #[inline]
    pub(crate) fn set_request_bytes_max(&mut self, bytes_max: usize) {
        match self {
            Self::Resp(decoder) => decoder.set_request_bytes_max(bytes_max),
            Self::Memcached {
                decoder,
                item_bytes_max,
                authenticated,
                ..
            } => {
                let item_bytes_max = if *authenticated {
                    *item_bytes_max
                } else {
                    UNAUTHENTICATED_BULK_BYTES_MAX.min(*item_bytes_max)
                };
                decoder.set_item_bytes_max(item_bytes_max.min(bytes_max));
            }
        }
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Resp(decoder) => decoder.heap_bytes(),
            Self::Memcached { .. } => 0,
        }
    }

    /// See the decoders.
    #[inline]
    pub(crate) fn next(
        &mut self,
        bytes: &mut [u8],
        from: usize,
        ranges: &mut Vec<ArgumentRange>,
    ) -> Result<Decoded, WireError> {
        match self {
            Self::Resp(decoder) => decoder.next(bytes, from, ranges).map_err(WireError::Resp),
            Self::Memcached { decoder, fresh, .. } => {
                if *fresh && let Some(first) = bytes.get(from) {
                    if *first == BINARY {
                        return Err(WireError::Binary);
                    }
                    *fresh = false;
                }
                decoder
                    .next(bytes, from, ranges)
                    .map_err(WireError::Memcached)
            }
        }
    }

    /// The command of a request that it has refused as too long.
    #[cold]
    pub(crate) fn resolve_too_long(request: Request<'_>) -> Resolved {
        Resolved::Resp(Err(Refusal::TooLong(command::lookup(request.arg(0)))))
    }

    /// The command of a request that it has decoded.
    #[inline]
    pub(crate) fn resolve(&self, request: Request<'_>, resolver: &mut Resolver) -> Resolved {
        match self {
            Self::Resp(_) => Resolved::Resp(resolver.resolve(request)),
            Self::Memcached { .. } => Resolved::Memcached(Line::new(request).verb()),
        }
    }
}

impl WireError {
    /// The error reply, as bytes of the connection's protocol.
    pub(crate) fn answer(self, out: &mut Vec<u8>) {
        match self {
            Self::Resp(error) => {
                let version = pando_protocol::RespVersion::Resp2;
                Reply::new(out, version).error(error.text());
            }
            Self::Memcached(DecodeError::LineTooLong) => {
                memcached::Reply::new(out).line(memcached::error::LINE_TOO_LONG);
            }
            Self::Memcached(DecodeError::NoLine | DecodeError::Http) => {}
            Self::Binary => memcached::Reply::new(out).line(memcached::error::BINARY),
        }
    }

    /// The error, for the log.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Resp(error) => error.to_string(),
            Self::Memcached(error) => error.to_string(),
            Self::Binary => "memcached's binary protocol, which is not spoken here".into(),
        }
    }
}

impl Resolved {
    /// Whether the decoder has refused it.
    pub(crate) fn is_too_long(self) -> bool {
        matches!(self, Self::Resp(Err(Refusal::TooLong(_))))
    }

    /// The first key of a request, to be prefetched. A `get` of several keys prefetches its own.
    #[inline]
    pub(crate) fn key(self, request: Request<'_>) -> Option<&[u8]> {
        match self {
            Self::Resp(resolved) => {
                let index = command::first_key(resolved.ok()?, request)?;
                Some(request.arg(index))
            }
            Self::Memcached(verb) => {
                let line = Line::new(request);
                let index = verb.first_key()?;
                let many = matches!(verb, Verb::Get | Verb::Gets) && line.len() > 2;
                if many { None } else { line.word(index) }
            }
        }
    }

    /// The database that a request selects; one behind it, or behind EXEC, will be on that.
    #[inline]
    pub(crate) fn selects(self, request: Request<'_>) -> Option<usize> {
        let Self::Resp(Ok(spec)) = self else {
            return None;
        };
        let is_select = spec.id == CommandId::Connection(ConnectionCommand::Select);
        let selected = is_select.then(|| number::parse_i64(request.arg(1)));
        usize::try_from(selected??).ok()
    }

    /// Answers a request that was carried out together with others.
    #[inline]
    pub(crate) fn answer(
        self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        request: Request<'_>,
        (out, host): (&mut Vec<u8>, &mut WorkerHost<'_>),
        answer: (&Answers, usize),
    ) -> Progress {
        let Self::Resp(Ok(spec)) = self else {
            unreachable!("it has a command that can be joined")
        };
        let mut reply = Reply::new(out, client.protocol);
        turn.answer(client, (spec, request), &mut reply, host, answer);
        Progress::Done
    }

    /// Whether it is a command that changes one short value at most, as a rule.
    #[inline]
    pub(crate) fn is_short(self) -> bool {
        matches!(self, Self::Resp(Ok(spec)) if Turn::is_short(spec))
    }

    /// Executes a request with this command.
    #[inline]
    pub(crate) fn execute(
        self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        request: Request<'_>,
        place: ReplyPlace<'_>,
        host: &mut WorkerHost<'_>,
    ) -> Progress {
        let ReplyPlace {
            out,
            end_max,
            pause_at,
        } = place;
        match self {
            Self::Resp(resolved) => {
                let mut reply = Reply::new(out, client.protocol);
                turn.execute(client, resolved, request, &mut reply, host)
            }
            Self::Memcached(verb) => {
                let mut reply = memcached::Reply::bounded(out, end_max).pausing_at(pause_at);
                turn.execute_memcached(client, verb, Line::new(request), &mut reply, host)
            }
        }
    }
}
