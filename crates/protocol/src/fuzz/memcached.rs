//! The fuzz target of the memcached decoder and of the readers of its lines.

use super::Cuts;
use crate::memcached::arguments::{self, Arithmetic, Store, Touch};
use crate::memcached::meta::{self, Meta};
use crate::memcached::{DecodeError, Decoder, DecoderLimits, KEY_BYTES_MAX, Line, Verb, datagram};
use crate::{ArgumentRange, Decoded};

/// Limits so small that short inputs reach them.
pub(super) const LIMITS: DecoderLimits = DecoderLimits {
    item_bytes_max: 40,
    line_bytes_max: 300,
    get_line_bytes_max: 600,
};

/// A decoder under test.
pub(super) trait LineDecoder {
    fn next(
        &mut self,
        input: &[u8],
        from: usize,
        arguments: &mut Vec<ArgumentRange>,
    ) -> Result<Decoded, DecodeError>;
}

impl LineDecoder for Decoder {
    fn next(
        &mut self,
        input: &[u8],
        from: usize,
        arguments: &mut Vec<ArgumentRange>,
    ) -> Result<Decoded, DecodeError> {
        Decoder::next(self, input, from, arguments)
    }
}

/// The requests of a stream, data first, and whether a line without an end terminated it.
type Stream = (Vec<Vec<Vec<u8>>>, bool);

fn receive(decoder: &mut impl LineDecoder, data: &[u8], mut cuts: Option<Cuts>) -> Stream {
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
            match decoder.next(&buffer, from, &mut ranges) {
                Ok(Decoded::Request { arguments, end }) => {
                    assert_eq!(ranges.len(), first + arguments);
                    assert!(arguments > 0 && from < end && end <= buffer.len());
                    let within = |range: &ArgumentRange| {
                        let start = range.start as usize;
                        from <= start && start + range.len as usize <= end
                    };
                    assert!(ranges[first..].iter().all(within));
                    let line = Line::of_ranges(&buffer, &ranges[first..]);
                    read(line);
                    let data = line.data().unwrap_or(Ok(&[])).unwrap_or(b"!");
                    let words = std::iter::once(data).chain(line.words_from(0));
                    requests.push(words.map(<[u8]>::to_vec).collect());
                    from = end;
                }
                Ok(Decoded::TooLong { .. }) => {
                    unreachable!("an item that is too large is one without data")
                }
                Ok(Decoded::Incomplete {
                    start,
                    bytes_missing,
                }) => {
                    assert!(from <= start && start <= buffer.len() && bytes_missing > 0);
                    assert_eq!(ranges.len(), first);
                    // Data that are too large are not kept.
                    assert!(buffer.len() - start <= 600 + 40 + 2);
                    break start;
                }
                Err(_) => {
                    assert_eq!(ranges.len(), first);
                    return (requests, true);
                }
            }
        };
        if cuts.as_mut().is_none_or(|cuts| cuts.random() & 1 == 0) {
            buffer.drain(..start);
            start = 0;
        }
    }
    (requests, false)
}

/// Parses a line in every way that an executor may; what is accepted keeps its bounds.
fn read(line: Line<'_>) {
    let verb = line.verb();
    let stored = Store::parse(verb, line);
    if let Ok(store) = stored {
        assert!(store.key.len() <= KEY_BYTES_MAX && !store.key.is_empty());
    }
    if let Some(Ok(data)) = line.data() {
        assert!(verb.stores() && data.len() <= LIMITS.item_bytes_max);
        assert_eq!(arguments::announced(verb, line), Some(data.len()));
    }
    let mut room = [0; KEY_BYTES_MAX];
    let meta = Meta::parse(verb, line, &mut room).map(|meta| {
        assert!(meta.key.len() <= KEY_BYTES_MAX);
        meta.flags().count()
    });
    let classic = [
        Arithmetic::parse(line).err(),
        Touch::parse(line).err(),
        arguments::delete(line).err(),
        arguments::get(line).err(),
        arguments::gat(line).err(),
        arguments::flush_all(line).err(),
        arguments::verbosity(line).err(),
        arguments::cache_memlimit(line).err(),
        meta::debug(line, &mut [0; KEY_BYTES_MAX]).err(),
        meta.err(),
    ];
    for error in classic.into_iter().flatten() {
        assert!(
            error == "ERROR" || error.starts_with("CLIENT_ERROR "),
            "{error}"
        );
    }
    if let Some(word) = verb.first_key() {
        assert!(word > 0);
    }
    assert!(verb == Verb::Unknown || !line.is_empty());
}

pub(super) fn lines_with<D: LineDecoder>(data: &[u8], decoder: impl Fn() -> D) {
    let (cuts, data) = Cuts::from_data(data);
    let whole = receive(&mut decoder(), data, None);
    let pieces = receive(&mut decoder(), data, Some(cuts));
    assert_eq!(whole, pieces);
}

/// Splits a reply into datagrams.
pub(super) type Cutter = fn(u16, &[u8]) -> Vec<Vec<u8>>;

pub(super) fn datagrams_with(data: &[u8], cut: Cutter) {
    if let Some((id, commands)) = datagram::request(data) {
        assert_eq!(data.len(), datagram::HEADER_BYTES + commands.len());
        assert!(data.ends_with(commands));
        let single: Vec<u8> = [id.to_be_bytes(), [0, 0], [0, 1]].concat();
        assert_eq!(data[..6], single);
    }
    let (cuts, reply) = Cuts::from_data(data);
    let reply = reply.repeat(1 + cuts.0 as usize % 100);
    let sent = cut(7, &reply);
    let bytes: usize = sent.iter().map(Vec::len).sum();
    assert_eq!(bytes, datagram::bytes_of(reply.len()));
    assert!(datagram::payload_within(bytes) >= reply.len());
    let mut joined = Vec::new();
    for (sequence, datagram) in sent.iter().enumerate() {
        assert!(datagram.len() <= datagram::DATAGRAM_BYTES_MAX);
        let numbers = [7, sequence as u16, sent.len() as u16, 0].map(u16::to_be_bytes);
        assert_eq!(datagram[..8], numbers.concat());
        assert!(datagram.len() > 8);
        joined.extend_from_slice(&datagram[8..]);
        // Only a reply of a single datagram could be mistaken for a request.
        assert_eq!(datagram::request(datagram).is_some(), sent.len() == 1);
    }
    assert_eq!(joined, reply);
}

/// Frames of datagrams: every request can be parsed, and a reply is what its datagrams contain.
pub fn memcached_datagrams(data: &[u8]) {
    datagrams_with(data, |id, reply| {
        let datagrams = datagram::reply(id, reply);
        datagrams
            .map(|(header, payload)| [&header, payload].concat())
            .collect()
    });
}

/// memcached requests: the same however the stream is split, and every one can be parsed.
pub fn memcached_requests(data: &[u8]) {
    lines_with(data, || Decoder::new(LIMITS));
}
