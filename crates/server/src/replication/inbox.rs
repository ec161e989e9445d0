//! What a link has received and not yet taken. Frames are taken where they lie: their bytes move
//! only when the memory behind them ends.

use std::ops::Range;

use crate::limits;

/// Bytes of the longest bulk string that is a frame, with its head and end.
const BULK_BYTES_MAX: usize = 2 * pando_db::limits::REPLICATION_FRAME_BYTES + 32;

/// See the module's header.
pub(super) struct Inbox {
    bytes: Box<[u8]>,
    /// What waits.
    waiting: Range<usize>,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self {
            bytes: vec![0; BULK_BYTES_MAX + limits::REPLICATION_READ_BYTES].into(),
            waiting: 0..0,
        }
    }

    /// What waits.
    pub(super) fn waiting(&self) -> &[u8] {
        &self.bytes[self.waiting.clone()]
    }

    /// Where the next bytes go: [`limits::REPLICATION_READ_BYTES`] at least.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.bytes.len() - self.waiting.end < limits::REPLICATION_READ_BYTES {
            self.bytes.copy_within(self.waiting.clone(), 0);
            self.waiting = 0..self.waiting.len();
        }
        &mut self.bytes[self.waiting.end..]
    }

    /// So many bytes have come.
    pub(super) fn came(&mut self, count: usize) {
        self.waiting.end += count;
    }

    /// The next so many bytes are taken.
    pub(super) fn pass(&mut self, count: usize) {
        self.waiting.start += count;
        if self.waiting.is_empty() {
            self.waiting = 0..0;
        }
    }

    /// Takes the next bulk string, if all of it is here: where its bytes are until more come.
    pub(super) fn frame(&mut self) -> Result<Option<Range<usize>>, String> {
        let foreign = || "the primary has sent something that is no frame".to_owned();
        let waiting = self.waiting();
        let longest = if waiting.first() == Some(&b'-') {
            limits::REPLICATION_LINE_BYTES_MAX
        } else {
            16
        };
        let head = waiting.iter().take(longest).position(|byte| *byte == b'\n');
        let Some(end) = head else {
            return if waiting.len() < longest {
                Ok(None)
            } else {
                Err(foreign())
            };
        };
        if waiting[0] == b'-' {
            let text = String::from_utf8_lossy(&waiting[1..end]);
            return Err(format!("the primary refuses: {}", text.trim_end()));
        }
        let head = waiting[..end].strip_suffix(b"\r");
        let length = head.and_then(|head| head.strip_prefix(b"$"));
        let length = length.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        let length: usize = length.ok_or_else(foreign)?;
        let bulk = end + 1 + length + 2;
        if bulk > BULK_BYTES_MAX {
            return Err(foreign());
        }
        if waiting.len() < bulk {
            return Ok(None);
        }
        let start = self.waiting.start + end + 1;
        self.pass(bulk);
        Ok(Some(start..start + length))
    }

    /// The bytes of a frame that was taken.
    pub(super) fn at(&self, frame: Range<usize>) -> &[u8] {
        &self.bytes[frame]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(inbox: &mut Inbox, bytes: &[u8]) {
        inbox.room()[..bytes.len()].copy_from_slice(bytes);
        inbox.came(bytes.len());
    }

    /// Frames of all sizes, received in pieces of all sizes, come out as they went in.
    #[test]
    fn frames_are_found_wherever_reads_end() {
        let mut random = fastrand::Rng::with_seed(1);
        let longest = 2 * pando_db::limits::REPLICATION_FRAME_BYTES;
        let frames: Vec<Vec<u8>> = (0..60)
            .map(|index: u8| vec![index; random.usize(0..=longest)])
            .collect();
        let mut stream = Vec::new();
        for frame in &frames {
            stream.extend_from_slice(format!("${}\r\n", frame.len()).as_bytes());
            stream.extend_from_slice(frame);
            stream.extend_from_slice(b"\r\n");
        }
        let (mut inbox, mut found) = (Inbox::new(), 0);
        let mut rest = &stream[..];
        while !rest.is_empty() {
            let most = rest.len().min(inbox.room().len());
            let (piece, behind) = rest.split_at(random.usize(1..=most));
            put(&mut inbox, piece);
            rest = behind;
            while let Some(frame) = inbox.frame().expect("frames") {
                assert_eq!(inbox.at(frame), frames[found]);
                found += 1;
            }
        }
        assert_eq!(found, frames.len());
        assert!(inbox.waiting().is_empty());
    }

    #[test]
    fn what_is_no_frame_is_told() {
        let told = |bytes: &[u8]| {
            let mut inbox = Inbox::new();
            put(&mut inbox, bytes);
            inbox.frame().map(|frame| frame.is_some())
        };
        assert_eq!(told(b"$3\r\nabc\r\n"), Ok(true));
        assert_eq!(told(b"$3\r\nabc"), Ok(false));
        assert_eq!(told(b"$"), Ok(false));
        let refused = told(b"-ERR an error of some length\r\n");
        let text = "the primary refuses: ERR an error of some length";
        assert_eq!(refused, Err(text.to_owned()));
        for foreign in [
            &b"+OK\r\n"[..],
            b"$x\r\n",
            b"$99999999\r\n",
            b"0123456789abcdef",
        ] {
            assert!(told(foreign).is_err(), "{foreign:?}");
        }
    }
}
