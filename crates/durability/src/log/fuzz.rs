//! The entry point of the fuzz target, for cargo-fuzz and a seeded loop in the tests.

use std::path::Path;

use pando_sync::LogEpoch;

use super::frame::{FRAME_ALIGNMENT, Mark, split_group};
use super::scan::{Walk, scan_segment};
use super::segment::Header;
use crate::limits::{BLOCK_BYTES, SEGMENT_BYTES_MAX};

/// Parses any bytes as a header, a mark, groups, and the frames after a good header: nothing
/// panics, and everything found is within the file.
pub fn segment(data: &[u8]) {
    let path = Path::new("log-0000-00000001-00000000.pando");
    let _ = Header::parse(data, path);
    let header = Header {
        identity: 0,
        log: 0,
        incarnation: 1,
        ordinal: 0,
        first: 0,
        salt: 0,
        bytes: SEGMENT_BYTES_MAX,
        durable: LogEpoch(0),
    };
    let mut bytes = header.encode().to_vec();
    bytes.resize(BLOCK_BYTES, 0);
    bytes.extend_from_slice(data);
    let header = Header::parse(&bytes, path).expect("it was encoded");
    let segment = scan_segment(&bytes, &header, path);
    assert!(segment.end <= bytes.len().next_multiple_of(FRAME_ALIGNMENT) as u64);
    assert!(segment.next >= segment.frames as u64);
    let mut walk = Walk::new(&bytes, 0, 0);
    while let Some((_, frame, _)) = walk.step() {
        payload(frame.payload);
    }
    payload(data);
}

fn payload(bytes: &[u8]) {
    let _ = Mark::parse(bytes);
    let mut rest = bytes;
    while let Some((_, _, more)) = split_group(rest) {
        rest = more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::frame::{FrameKind, encode};
    use pando_io::file::AlignedBuffer;

    #[test]
    fn seeded_bytes_and_flipped_frames_do_no_harm() {
        let mut rng = fastrand::Rng::with_seed(4);
        for _ in 0..2000 {
            let mut buffer = AlignedBuffer::new(4096);
            for sequence in 0..rng.u64(..6) {
                let bytes: Vec<u8> = (0..rng.usize(..90)).map(|_| rng.u8(..)).collect();
                let kind = [FrameKind::Groups, FrameKind::Mark, FrameKind::Proof];
                let what = (kind[rng.usize(..3)], sequence, LogEpoch(rng.u64(..)));
                encode(&mut buffer, 0, what, (&bytes, &[]));
            }
            let mut data = buffer.as_slice().to_vec();
            for _ in 0..rng.usize(..4) {
                if let Some(byte) = data.len().checked_sub(1).map(|last| rng.usize(..=last)) {
                    data[byte] = rng.u8(..);
                }
            }
            data.truncate(rng.usize(..=data.len()));
            segment(&data);
        }
    }
}
