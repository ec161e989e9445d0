//! Fuzz targets: functions of bytes that panic when an oracle is violated.
//!
//! cargo-fuzz calls them from `fuzz/` at the root of the repository; a seeded loop in the tests of
//! this module calls them in `cargo test`. The oracles: no input panics; however a stream is split
//! into reads, it yields the same requests or replies and the same error; memory stays within what
//! has arrived; numbers survive printing. Compiled for tests and under `cfg(fuzzing)` only.

use crate::command::{answer, key_uses, keys, resolve};
use crate::number::{IntegerText, format_f64, parse_f64, parse_i64, parse_u64};
use crate::{
    ArgumentRange, Decoded, Decoder, DecoderLimits, ProtocolError, Reply, ReplyError, Request,
    RespVersion, Value, ValueDecoder, pattern,
};

mod memcached;

pub use memcached::{memcached_datagrams, memcached_requests};

/// Limits so small that short inputs reach them.
const LIMITS: DecoderLimits = DecoderLimits {
    arguments_max: 40,
    bulk_bytes_max: 300,
    inline_bytes_max: 64,
    request_bytes_max: usize::MAX,
};

/// Most memory of an unfinished request if there is a bound: some of those that [`LIMITS`] allow
/// exceed it.
const REQUEST_BYTES_MAX: usize = 200;

/// Where a stream is split: pieces whose lengths follow from a seed.
#[derive(Clone)]
struct Cuts(u64);

impl Cuts {
    /// Takes the seed from the first bytes of `data`; returns the rest.
    fn from_data(data: &[u8]) -> (Self, &[u8]) {
        match data.split_first_chunk() {
            Some((seed, rest)) => (Self(u64::from(u32::from_le_bytes(*seed))), rest),
            None => (Self(0), data),
        }
    }

    /// The next number: a step of splitmix64.
    fn random(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Cuts the next piece off `rest`: often a byte or two, sometimes many.
    fn piece<'d>(&mut self, rest: &mut &'d [u8]) -> &'d [u8] {
        let bytes_max = [1, 2, 7, 50, 1000][self.random() as usize % 5];
        let len = 1 + self.random() as usize % bytes_max;
        let (piece, later) = rest.split_at(len.min(rest.len()));
        *rest = later;
        piece
    }
}

/// A decoder of requests under test.
trait RequestDecoder {
    fn next(
        &mut self,
        input: &mut [u8],
        from: usize,
        arguments: &mut Vec<ArgumentRange>,
    ) -> Result<Decoded, ProtocolError>;

    fn heap_bytes(&self) -> usize;
}

impl RequestDecoder for Decoder {
    fn next(
        &mut self,
        input: &mut [u8],
        from: usize,
        arguments: &mut Vec<ArgumentRange>,
    ) -> Result<Decoded, ProtocolError> {
        Decoder::next(self, input, from, arguments)
    }

    fn heap_bytes(&self) -> usize {
        Decoder::heap_bytes(self)
    }
}

/// The requests of a stream and the error that ends it.
type Stream = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

/// Decodes what arrives in pieces, in a buffer whose unconsumed bytes are moved now and then.
fn receive(
    decoder: &mut impl RequestDecoder,
    data: &[u8],
    mut cuts: Option<Cuts>,
    unfinished_bytes_max: usize,
) -> Stream {
    let (mut buffer, mut start, mut rest) = (Vec::new(), 0, data);
    let mut requests = Vec::new();
    while !rest.is_empty() {
        let piece = match &mut cuts {
            Some(cuts) => cuts.piece(&mut rest),
            None => std::mem::take(&mut rest),
        };
        buffer.extend_from_slice(piece);
        let (mut ranges, mut from) = (Vec::new(), start);
        start = loop {
            let first = ranges.len();
            match decoder.next(&mut buffer, from, &mut ranges) {
                Ok(Decoded::Request { arguments, end }) => {
                    assert_eq!(ranges.len(), first + arguments);
                    assert!(arguments > 0 && from < end && end <= buffer.len());
                    let request = Request::new(&buffer, &ranges[first..]);
                    requests.push(request.args_from(0).map(<[u8]>::to_vec).collect());
                    from = end;
                }
                Ok(Decoded::TooLong { end }) => {
                    assert_eq!(ranges.len(), first + 1);
                    assert!(from < end && end <= buffer.len());
                    // A complete request has at least one argument.
                    requests.push(Vec::new());
                    from = end;
                }
                Ok(Decoded::Incomplete {
                    start,
                    bytes_missing,
                }) => {
                    assert!(buffer.len() - start + decoder.heap_bytes() <= unfinished_bytes_max);
                    assert!(from <= start && start <= buffer.len() && bytes_missing > 0);
                    assert_eq!(ranges.len(), first);
                    break start;
                }
                Err(error) => {
                    assert_eq!(ranges.len(), first);
                    return (requests, Some(error));
                }
            }
        };
        // An argument takes at least six bytes; a vector at most doubles.
        assert!(decoder.heap_bytes() <= 16 * 1024 + 3 * data.len());
        if cuts.as_mut().is_none_or(|cuts| cuts.random() & 1 == 0) {
            buffer.drain(..start);
            start = 0;
        }
    }
    (requests, None)
}

fn requests_with<D: RequestDecoder>(data: &[u8], decoder: impl Fn(bool) -> D) {
    let (mut cuts, data) = Cuts::from_data(data);
    let authenticated = !cuts.random().is_multiple_of(8);
    let whole = receive(&mut decoder(authenticated), data, None, usize::MAX);
    let pieces = receive(&mut decoder(authenticated), data, Some(cuts), usize::MAX);
    assert_eq!(whole, pieces);
}

/// Requests, with a bound on incomplete ones: the bound holds, and all other requests and the error
/// are the same as without it.
fn bounded_requests_with<D: RequestDecoder>(data: &[u8], decoder: impl Fn(usize) -> D) {
    let (cuts, data) = Cuts::from_data(data);
    let (whole, error) = receive(&mut decoder(usize::MAX), data, None, usize::MAX);
    let bound = REQUEST_BYTES_MAX;
    let mut bounded = receive(&mut decoder(bound), data, Some(cuts), bound);
    // One that is cut short by the end of the data may also be refused.
    if bounded.0.len() == whole.len() + 1 {
        assert_eq!(bounded.0.pop(), Some(Vec::new()));
    }
    assert_eq!((bounded.0.len(), bounded.1), (whole.len(), error));
    for (bounded, whole) in bounded.0.iter().zip(&whole) {
        assert!(bounded.is_empty() || bounded == whole);
    }
}

/// Requests: the same however the stream is split.
pub fn requests(data: &[u8]) {
    requests_with(data, |authenticated| {
        let mut decoder = Decoder::new(LIMITS);
        decoder.set_authenticated(authenticated);
        decoder
    });
    bounded_requests_with(data, |request_bytes_max| {
        Decoder::new(DecoderLimits {
            request_bytes_max,
            ..LIMITS
        })
    });
}

/// Replies: the same however the stream is split.
pub fn replies(data: &[u8]) {
    fn receive(data: &[u8], mut cuts: Option<Cuts>) -> (Vec<Value>, Option<ReplyError>) {
        let (mut decoder, mut values, mut rest) = (ValueDecoder::new(), Vec::new(), data);
        while !rest.is_empty() {
            let mut input = match &mut cuts {
                Some(cuts) => cuts.piece(&mut rest),
                None => std::mem::take(&mut rest),
            };
            loop {
                match decoder.next(&mut input) {
                    Ok(Some(value)) => values.push(value),
                    Ok(None) => break,
                    Err(error) => return (values, Some(error)),
                }
            }
            assert!(input.is_empty());
        }
        (values, None)
    }
    let (cuts, data) = Cuts::from_data(data);
    assert_eq!(receive(data, None), receive(data, Some(cuts)));
}

/// Commands: every request is resolved or refused, and its keys are arguments.
pub fn commands(data: &[u8]) {
    let (mut buffer, mut ranges, mut from) = (data.to_vec(), Vec::new(), 0);
    let mut decoder = Decoder::new(LIMITS);
    while let Ok(Decoded::Request { end, .. }) = decoder.next(&mut buffer, from, &mut ranges) {
        from = end;
        let request = Request::new(&buffer, &ranges);
        match resolve(request) {
            Ok(spec) => {
                assert!(spec.accepts(request.len()));
                assert!(keys(spec, request).all(|index| index < request.len()));
                assert_eq!(keys(spec, request).count(), key_uses(spec, request).count());
            }
            Err(refusal) => assert!(refusal.text(request).starts_with(b"ERR ")),
        }
        for version in [RespVersion::Resp2, RespVersion::Resp3] {
            let mut out = Vec::new();
            answer(request, &mut Reply::new(&mut out, version));
            let mut input = &out[..];
            let value = ValueDecoder::new().next(&mut input);
            assert!(matches!(value, Ok(Some(_))) && input.is_empty());
        }
        ranges.clear();
    }
}

/// Patterns: a match begins with the literal prefix, and remains a match when case is ignored.
pub fn patterns(data: &[u8]) {
    let Some((split, rest)) = data.split_first() else {
        return;
    };
    let (glob, text) = rest.split_at(usize::from(*split).min(rest.len()));
    let ignoring_case = pattern::matches_ignoring_case(glob, text);
    if pattern::matches(glob, text) {
        assert!(text.starts_with(&pattern::literal_prefix(glob)));
        // What is not in `[^a]` may be in it when case is ignored.
        assert!(ignoring_case || glob.contains(&b'['));
    }
}

/// Numbers: a parsed number is printed, and parsed again, unchanged.
pub fn numbers(data: &[u8]) {
    if let Some(value) = parse_i64(data) {
        assert_eq!(IntegerText::of(value).as_bytes(), data);
    }
    if let Some(value) = parse_u64(data) {
        assert_eq!(IntegerText::of_unsigned(value).as_bytes(), data);
    }
    if let Some(value) = parse_f64(data) {
        assert!(!value.is_nan());
        let printed = format_f64(value);
        assert_eq!(parse_f64(printed.as_bytes()), Some(value), "{printed}");
    }
}

#[cfg(test)]
mod tests;
