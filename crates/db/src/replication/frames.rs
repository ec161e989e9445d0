//! Messages in frames, as a carrier sends them: bounded pieces with checksums, in order.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | CRC32C of everything from offset 4 on, begun with the frame's number in the stream |
//! | 4 | 1 | 1: the message ends here; 0: it goes on in the next frame |
//! | 5 | … | the next bytes of the message |
//!
//! A frame that is lost, repeated or damaged fails its checksum, since its number differs.

use super::ReplicationError;
use crate::durable::bytes::malformed;
use crate::limits;

const HEAD_BYTES: usize = 5;

/// Cuts messages into frames.
#[derive(Debug, Default)]
pub struct Framer {
    number: u32,
}

impl Framer {
    /// Gives the frames of a message, which is these bytes one behind the other, to `send`: each
    /// with its length, behind what `begin` puts into a buffer for that length. Stops when `send`
    /// returns `false`.
    pub fn frames(
        &mut self,
        (mut first, mut rest): (&[u8], &[u8]),
        begin: impl Fn(usize) -> Vec<u8>,
        mut send: impl FnMut(Vec<u8>, usize) -> bool,
    ) -> bool {
        while first.len() + rest.len() > 0 {
            let here = first.len().min(limits::REPLICATION_FRAME_BYTES);
            let there = rest.len().min(limits::REPLICATION_FRAME_BYTES - here);
            let bytes = HEAD_BYTES + here + there;
            let mut out = begin(bytes);
            let start = out.len();
            out.extend_from_slice(&[0; HEAD_BYTES]);
            out.extend_from_slice(&first[..here]);
            out.extend_from_slice(&rest[..there]);
            (first, rest) = (&first[here..], &rest[there..]);
            let frame = &mut out[start..];
            frame[4] = u8::from(first.len() + rest.len() == 0);
            let checksum = crc32c::crc32c_append(self.number, &frame[4..]);
            frame[..4].copy_from_slice(&checksum.to_le_bytes());
            self.number = self.number.wrapping_add(1);
            if !send(out, bytes) {
                return false;
            }
        }
        true
    }
}

/// Joins frames to messages.
#[derive(Debug, Default)]
pub struct Joiner {
    number: u32,
    message: Vec<u8>,
    complete: bool,
}

impl Joiner {
    /// Takes the next frame; returns the message that it completes, if it does. A message in one
    /// frame is not copied.
    pub fn take<'f>(&'f mut self, frame: &'f [u8]) -> Result<Option<&'f [u8]>, ReplicationError> {
        if std::mem::take(&mut self.complete) {
            self.message.clear();
        }
        let Some((checksum, rest)) = frame.split_first_chunk::<4>() else {
            return Ok(malformed("a frame is too short")?);
        };
        if crc32c::crc32c_append(self.number, rest) != u32::from_le_bytes(*checksum) {
            return Ok(malformed("a frame's checksum is not that of its bytes")?);
        }
        self.number = self.number.wrapping_add(1);
        let Some((&ends, piece)) = rest.split_first() else {
            return Ok(malformed("a frame is too short")?);
        };
        if self.message.len() + piece.len() > limits::REPLICATION_MESSAGE_BYTES_MAX {
            return Ok(malformed("a message is longer than any that is sent")?);
        }
        if ends != 0 && self.message.is_empty() {
            return Ok(Some(piece));
        }
        self.message.extend_from_slice(piece);
        self.complete = ends != 0;
        Ok(self.complete.then_some(&self.message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(messages: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut framer, mut frames) = (Framer::default(), Vec::new());
        for (at, message) in messages.iter().enumerate() {
            let begin = |bytes: usize| format!("{bytes} ").into_bytes();
            let parts = message.split_at(at.min(message.len()));
            assert!(framer.frames(parts, begin, |frame, bytes| {
                let begun = begin(bytes);
                assert_eq!(frame[..begun.len()], begun);
                frames.push(frame[begun.len()..].to_vec());
                true
            }));
        }
        frames
    }

    #[test]
    fn messages_come_out_as_they_went_in() {
        let long = vec![7; 3 * limits::REPLICATION_FRAME_BYTES + 1];
        let frames = framed(&[b"short", &long, b"x"]);
        assert_eq!(frames.len(), 6);
        assert_eq!(
            frames[0],
            [0xdd, 0x37, 0xab, 0x9d, 1, b's', b'h', b'o', b'r', b't'],
            "the bytes of a frame are these: {:02x?}",
            frames[0]
        );
        let mut joiner = Joiner::default();
        let mut found = Vec::new();
        for frame in &frames {
            let message = joiner.take(frame).expect("it is whole");
            found.extend(message.map(<[u8]>::to_vec));
        }
        assert_eq!(found, [b"short".to_vec(), long, b"x".to_vec()]);
    }

    #[test]
    fn what_is_lost_repeated_cut_or_flipped_is_noticed() {
        let frames = framed(&[b"first", b"second"]);
        assert!(Joiner::default().take(&frames[1]).is_err(), "lost");
        let mut joiner = Joiner::default();
        joiner.take(&frames[0]).expect("it is whole");
        assert!(joiner.take(&frames[0]).is_err(), "repeated");
        for end in 0..frames[0].len() {
            assert!(Joiner::default().take(&frames[0][..end]).is_err(), "cut");
        }
        for bit in 0..frames[0].len() * 8 {
            let mut flipped = frames[0].clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Joiner::default().take(&flipped).is_err(), "bit {bit}");
        }
    }
}
