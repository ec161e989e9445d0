//! Frames, which the log consists of, and the groups inside them.
//!
//! A frame begins at a multiple of 8 bytes; the bytes after its payload, up to the next one, are
//! zeros. Numbers are little-endian.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | CRC32C of everything from offset 4 to the payload's end, begun with the salt's low half |
//! | 4 | 4 | bytes of the payload |
//! | 8 | 8 | sequence: one more than that of the frame before, in one log of one incarnation |
//! | 16 | 8 | epoch |
//! | 24 | 4 | marker: the salt's high half |
//! | 28 | 1 | kind: 1 groups, 2 closing mark, 3 proof |
//! | 29 | 3 | zeros |
//! | 32 | … | payload |
//!
//! *Groups*: each is 4 bytes, `length << 2 | part`, and that many bytes. Part 0 is a whole group. A
//! group that is too long for a frame comes as first (1), middle (2, any number) and last (3), with
//! nothing else in between in this log.
//!
//! *Closing mark* of an epoch, in each log that took part:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | wall clock when the epoch was closed, in ms since 1970 |
//! | 8 | 8 | the epoch before that has anything in a log (0: none) |
//! | 16 | 8 | the newest epoch known to be durable that has anything in a log |
//! | 24 | 4 | number of participants |
//! | 28 | 4 | zeros |
//! | 32 | 24 each | log (4), zeros (4), sequences of its first and last frame of the epoch (8 + 8) |
//!
//! *Proof*, written when the server ends or is idle, and into the last block of a segment when
//! something in the next one is durable (there with the next one's first sequence): 8 bytes, the
//! newest epoch that is durable and has anything in a log.
//!
//! Invariants:
//! - **LF1** The salt is random and new each time a segment is begun, so bytes from a recycled
//!   segment's earlier use are not valid frames of its present one.
//! - **LF2** No input makes parsing panic or read past its bytes.

use pando_io::file::AlignedBuffer;
use pando_sync::{LogEpoch, Milliseconds};

/// Bytes of a frame before its payload.
pub(crate) const FRAME_HEADER_BYTES: usize = 32;
/// Bytes before each group.
pub(crate) const GROUP_HEADER_BYTES: usize = 4;
/// Frames begin at a multiple of this.
pub(crate) const FRAME_ALIGNMENT: usize = 8;

const BYTES_AT: usize = 4;
const SEQUENCE_AT: usize = 8;
const EPOCH_AT: usize = 16;
const MARKER_AT: usize = 24;
const KIND_AT: usize = 28;
const ZEROS_AT: usize = 29;
const MARK_FIXED_BYTES: usize = 32;
const PARTICIPANT_BYTES: usize = 24;

const _: () = assert!(ZEROS_AT + 3 == FRAME_HEADER_BYTES);
const _: () = assert!(FRAME_HEADER_BYTES.is_multiple_of(FRAME_ALIGNMENT));

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Groups,
    Mark,
    Proof,
}

impl FrameKind {
    fn byte(self) -> u8 {
        match self {
            Self::Groups => 1,
            Self::Mark => 2,
            Self::Proof => 3,
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Groups, Self::Mark, Self::Proof]
            .into_iter()
            .find(|kind| kind.byte() == byte)
    }
}

/// A frame whose checksum holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: FrameKind,
    pub(crate) sequence: u64,
    pub(crate) epoch: LogEpoch,
    pub(crate) payload: &'a [u8],
}

impl Frame<'_> {
    /// Bytes that it takes in the segment.
    pub(crate) fn bytes(&self) -> usize {
        frame_bytes(self.payload.len())
    }
}

/// Bytes that a frame with this much payload takes in the segment.
pub(crate) fn frame_bytes(payload: usize) -> usize {
    (FRAME_HEADER_BYTES + payload).next_multiple_of(FRAME_ALIGNMENT)
}

pub(crate) fn number32(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

pub(crate) fn number64(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

/// Adds a frame to the next write. The payload comes in two pieces, so a piece of a long group gets
/// its header without a copy.
pub(crate) fn encode(
    buffer: &mut AlignedBuffer,
    salt: u64,
    (kind, sequence, epoch): (FrameKind, u64, LogEpoch),
    payload: (&[u8], &[u8]),
) {
    let from = buffer.len();
    let bytes = payload.0.len() + payload.1.len();
    let mut header = [0; FRAME_HEADER_BYTES];
    header[BYTES_AT..SEQUENCE_AT].copy_from_slice(&(bytes as u32).to_le_bytes());
    header[SEQUENCE_AT..EPOCH_AT].copy_from_slice(&sequence.to_le_bytes());
    header[EPOCH_AT..MARKER_AT].copy_from_slice(&epoch.0.to_le_bytes());
    header[MARKER_AT..KIND_AT].copy_from_slice(&((salt >> 32) as u32).to_le_bytes());
    header[KIND_AT] = kind.byte();
    buffer.push(&header);
    buffer.push(payload.0);
    buffer.push(payload.1);
    let frame = &mut buffer.as_mut_slice()[from..];
    let checksum = crc32c::crc32c_append(salt as u32, &frame[BYTES_AT..]);
    frame[..BYTES_AT].copy_from_slice(&checksum.to_le_bytes());
    debug_assert!(parse(frame, salt).is_some_and(|frame| frame.kind == kind));
    buffer.pad(FRAME_ALIGNMENT);
}

/// The frame at the beginning of `bytes`, if there is one.
pub(crate) fn parse(bytes: &[u8], salt: u64) -> Option<Frame<'_>> {
    if bytes.len() < FRAME_HEADER_BYTES || number32(bytes, MARKER_AT) != (salt >> 32) as u32 {
        return None;
    }
    let end = FRAME_HEADER_BYTES.checked_add(number32(bytes, BYTES_AT) as usize)?;
    let frame = bytes.get(..end)?;
    let checksum = crc32c::crc32c_append(salt as u32, &frame[BYTES_AT..]);
    if checksum != number32(frame, 0) || frame[ZEROS_AT..FRAME_HEADER_BYTES] != [0; 3] {
        return None;
    }
    Some(Frame {
        kind: FrameKind::from_byte(frame[KIND_AT])?,
        sequence: number64(frame, SEQUENCE_AT),
        epoch: LogEpoch(number64(frame, EPOCH_AT)),
        payload: &frame[FRAME_HEADER_BYTES..],
    })
}

/// Which part of a group a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    First,
    Middle,
    Last,
}

impl Part {
    pub(crate) const ALL: [Self; 4] = [Self::Whole, Self::First, Self::Middle, Self::Last];
}

/// The four bytes before a group, or a part of one.
pub(crate) fn group_header(bytes: usize, part: Part) -> [u8; GROUP_HEADER_BYTES] {
    let length = u32::try_from(bytes).expect("a part fits in a frame");
    assert!(length < 1 << 30, "a part fits in a frame");
    (length << 2 | part as u32).to_le_bytes()
}

/// The first group in a payload, and the rest. `None`: the payload is malformed.
pub(crate) fn split_group(payload: &[u8]) -> Option<(Part, &[u8], &[u8])> {
    if payload.len() < GROUP_HEADER_BYTES {
        return None;
    }
    let header = number32(payload, 0);
    let end = GROUP_HEADER_BYTES.checked_add((header >> 2) as usize)?;
    let group = payload.get(GROUP_HEADER_BYTES..end)?;
    Some((Part::ALL[(header & 3) as usize], group, &payload[end..]))
}

/// What one log wrote in an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Participant {
    pub(crate) log: u32,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// The mark that closes an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) wall_ms: Milliseconds,
    pub(crate) previous: LogEpoch,
    pub(crate) durable: LogEpoch,
    pub(crate) participants: Vec<Participant>,
}

impl Mark {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let bytes = MARK_FIXED_BYTES + PARTICIPANT_BYTES * self.participants.len();
        let mut payload = Vec::with_capacity(bytes);
        for field in [self.wall_ms.0, self.previous.0, self.durable.0] {
            payload.extend_from_slice(&field.to_le_bytes());
        }
        payload.extend_from_slice(&(self.participants.len() as u64).to_le_bytes());
        for participant in &self.participants {
            payload.extend_from_slice(&u64::from(participant.log).to_le_bytes());
            payload.extend_from_slice(&participant.first.to_le_bytes());
            payload.extend_from_slice(&participant.last.to_le_bytes());
        }
        debug_assert_eq!(Self::parse(&payload).as_ref(), Some(self));
        payload
    }

    /// `None`: the payload is malformed.
    pub(crate) fn parse(payload: &[u8]) -> Option<Self> {
        let rest = payload.get(MARK_FIXED_BYTES..)?;
        let count = number64(payload, 24);
        if !rest.len().is_multiple_of(PARTICIPANT_BYTES)
            || count != (rest.len() / PARTICIPANT_BYTES) as u64
        {
            return None;
        }
        let participant = |bytes: &[u8]| {
            Some(Participant {
                log: u32::try_from(number64(bytes, 0)).ok()?,
                first: number64(bytes, 8),
                last: number64(bytes, 16),
            })
        };
        let participants: Option<Vec<_>> = rest
            .chunks_exact(PARTICIPANT_BYTES)
            .map(participant)
            .collect();
        Some(Self {
            wall_ms: Milliseconds(number64(payload, 0)),
            previous: LogEpoch(number64(payload, 8)),
            durable: LogEpoch(number64(payload, 16)),
            participants: participants?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: u64 = 0x0123_4567_89ab_cdef;

    fn encoded(kind: FrameKind, sequence: u64, epoch: u64, payload: &[u8]) -> Vec<u8> {
        let mut buffer = AlignedBuffer::new(4096);
        encode(
            &mut buffer,
            SALT,
            (kind, sequence, LogEpoch(epoch)),
            (&payload[..1], &payload[1..]),
        );
        buffer.as_slice().to_vec()
    }

    #[test]
    fn the_bytes_of_a_frame_are_these() {
        let mut payload = group_header(5, Part::Whole).to_vec();
        payload.extend_from_slice(b"pando");
        let bytes = encoded(FrameKind::Groups, 0x11, 0x22, &payload);
        let golden: &[u8] = &[
            0x3f, 0x70, 0xae, 0x70, 9, 0, 0, 0, 0x11, 0, 0, 0, 0, 0, 0, 0, 0x22, 0, 0, 0, 0, 0, 0,
            0, 0x67, 0x45, 0x23, 0x01, 1, 0, 0, 0, 20, 0, 0, 0, b'p', b'a', b'n', b'd', b'o', 0, 0,
            0, 0, 0, 0, 0,
        ];
        assert_eq!(bytes, golden, "{bytes:02x?}");
        let frame = parse(&bytes, SALT).unwrap();
        assert_eq!(
            (frame.sequence, frame.epoch, frame.bytes()),
            (0x11, LogEpoch(0x22), 48)
        );
        assert_eq!(
            split_group(frame.payload),
            Some((Part::Whole, &b"pando"[..], &[][..]))
        );
    }

    #[test]
    fn the_bytes_of_a_mark_are_these() {
        let mark = Mark {
            wall_ms: Milliseconds(1),
            previous: LogEpoch(2),
            durable: LogEpoch(3),
            participants: vec![Participant {
                log: 4,
                first: 5,
                last: 6,
            }],
        };
        let bytes = mark.encode();
        let mut golden = [0; 56];
        for (at, byte) in [(0, 1), (8, 2), (16, 3), (24, 1), (32, 4), (40, 5), (48, 6)] {
            golden[at] = byte;
        }
        assert_eq!(bytes, golden);
        assert_eq!(Mark::parse(&bytes), Some(mark));
        assert_eq!(Mark::parse(&bytes[..55]), None);
        assert_eq!(Mark::parse(&bytes[..32]), None, "the count is checked");
    }

    #[test]
    fn a_frame_with_a_flipped_bit_or_another_salt_is_none() {
        let bytes = encoded(FrameKind::Mark, 7, 9, b"payload");
        assert!(parse(&bytes, SALT).is_some());
        for salt in [SALT ^ 1, SALT ^ 1 << 40] {
            assert_eq!(parse(&bytes, salt), None, "LF1");
        }
        for bit in 0..(FRAME_HEADER_BYTES + 7) * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse(&flipped, SALT), None, "bit {bit}");
        }
        for end in 0..FRAME_HEADER_BYTES + 7 {
            assert_eq!(parse(&bytes[..end], SALT), None, "LF2");
        }
    }
}
