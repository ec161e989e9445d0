//! Datagrams of memcached's UDP protocol: a frame header, then bytes as over TCP.
//!
//! | offset | size | field | requests | replies |
//! |---|---|---|---|---|
//! | 0 | 2 | id | the client's choice | the request's |
//! | 2 | 2 | sequence | 0 | 0, 1, … |
//! | 4 | 2 | count | 1 | datagrams of this reply |
//! | 6 | 2 | reserved | any | 0 |
//!
//! Numbers are big-endian. A request is one datagram; it may hold several commands, whose replies
//! follow each other in one reply. A datagram of a reply has at most 1400 bytes, including its
//! header, so that it crosses an Ethernet unfragmented.
//!
//! Deliberately absent: requests of several datagrams, which memcached does not accept either.

/// Bytes of the frame header.
pub const HEADER_BYTES: usize = 8;

/// Most bytes of a reply's datagram, the header included.
pub const DATAGRAM_BYTES_MAX: usize = 1400;

/// Most bytes of a reply in one of its datagrams.
pub const PAYLOAD_BYTES_MAX: usize = DATAGRAM_BYTES_MAX - HEADER_BYTES;

/// Longest reply that a header can count, in bytes.
pub const REPLY_BYTES_MAX: usize = PAYLOAD_BYTES_MAX * u16::MAX as usize;

const SEQUENCE: usize = 2;
const COUNT: usize = 4;
const RESERVED: usize = 6;

const _: () = assert!(RESERVED + 2 == HEADER_BYTES);
// What fits within a bound takes no more than the bound, headers included.
const _: () = {
    let mut bytes = 0;
    while bytes <= 2 * DATAGRAM_BYTES_MAX {
        assert!(bytes_of(payload_within(bytes)) <= bytes);
        bytes += 1;
    }
};

/// A request's id and its commands; `None` for a datagram that is not a single-datagram request,
/// which gets no reply.
#[must_use]
pub fn request(datagram: &[u8]) -> Option<(u16, &[u8])> {
    let (header, commands) = datagram.split_first_chunk::<HEADER_BYTES>()?;
    let field = |offset| u16::from_be_bytes([header[offset], header[offset + 1]]);
    (field(SEQUENCE) == 0 && field(COUNT) == 1).then(|| (field(0), commands))
}

/// How many datagrams a reply of this many bytes has.
#[must_use]
pub const fn count_of(reply_bytes: usize) -> usize {
    reply_bytes.div_ceil(PAYLOAD_BYTES_MAX)
}

/// Bytes of all datagrams of such a reply, including their headers.
#[must_use]
pub const fn bytes_of(reply_bytes: usize) -> usize {
    reply_bytes + count_of(reply_bytes) * HEADER_BYTES
}

/// The longest reply whose datagrams have at most this many bytes.
#[must_use]
pub const fn payload_within(bytes: usize) -> usize {
    let rest = (bytes % DATAGRAM_BYTES_MAX).saturating_sub(HEADER_BYTES);
    bytes / DATAGRAM_BYTES_MAX * PAYLOAD_BYTES_MAX + rest
}

/// The datagrams of a reply of at most [`REPLY_BYTES_MAX`] bytes: the header and payload of each.
/// An empty reply has none.
pub fn reply(
    id: u16,
    reply: &[u8],
) -> impl ExactSizeIterator<Item = ([u8; HEADER_BYTES], &[u8])> + '_ {
    debug_assert!(reply.len() <= REPLY_BYTES_MAX);
    let count = count_of(reply.len()) as u16;
    let payloads = reply.chunks(PAYLOAD_BYTES_MAX).enumerate();
    payloads.map(move |(sequence, payload)| {
        let mut header = [0; HEADER_BYTES];
        header[..SEQUENCE].copy_from_slice(&id.to_be_bytes());
        header[SEQUENCE..COUNT].copy_from_slice(&(sequence as u16).to_be_bytes());
        header[COUNT..RESERVED].copy_from_slice(&count.to_be_bytes());
        (header, payload)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_one_datagram() {
        let datagram = b"\x12\x34\0\0\0\x01\xff\xffmn\r\n";
        assert_eq!(request(datagram), Some((0x1234, &b"mn\r\n"[..])));
        assert_eq!(request(&datagram[..8]), Some((0x1234, &b""[..])));
        for len in 0..HEADER_BYTES {
            assert_eq!(request(&datagram[..len]), None);
        }
        for bad in [
            b"\0\0\0\x01\0\x01\0\0",
            b"\0\0\0\0\0\x02\0\0",
            b"\0\0\0\0\0\0\0\0",
            b"\0\0\x01\0\0\x01\0\0",
            b"\0\0\0\0\x01\x01\0\0",
        ] {
            assert_eq!(request(bad), None);
        }
    }

    #[test]
    fn what_fits_is_as_long_as_can_be() {
        for bytes in 0..5000 {
            let payload = payload_within(bytes);
            assert!(payload == 0 || bytes_of(payload) <= bytes);
            assert!(bytes_of(payload + 1) > bytes);
        }
    }

    #[test]
    fn a_reply_is_cut_into_datagrams_that_count_themselves() {
        assert_eq!(reply(7, b"").len(), 0);
        let small: Vec<_> = reply(0x1234, b"MN\r\n").collect();
        assert_eq!(small, [(*b"\x12\x34\0\0\0\x01\0\0", &b"MN\r\n"[..])]);
        for (bytes, count) in [(1392, 1), (1393, 2), (2784, 2), (2785, 3), (400_000, 288)] {
            let whole: Vec<u8> = (0..bytes).map(|byte| byte as u8).collect();
            assert_eq!(count_of(bytes), count);
            let (mut joined, mut sent) = (Vec::new(), 0);
            for (sequence, (header, payload)) in reply(9, &whole).enumerate() {
                let [high, low] = (sequence as u16).to_be_bytes();
                let [count_high, count_low] = (count as u16).to_be_bytes();
                assert_eq!(header, [0, 9, high, low, count_high, count_low, 0, 0]);
                assert!(HEADER_BYTES + payload.len() <= DATAGRAM_BYTES_MAX);
                sent += HEADER_BYTES + payload.len();
                joined.extend_from_slice(payload);
            }
            assert_eq!((joined, sent), (whole, bytes_of(bytes)));
        }
    }
}
