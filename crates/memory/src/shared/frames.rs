//! Blocks of one length, in chunks of 2 MiB that are one huge page each.
//!
//! - **MQ1 frames-of-chunks** Of a chunk that is mapped, bit `i` of `used` is set if and only if
//!   somebody has the frame at `i * FRAME_BYTES`.
//!
//! The lowest chunks that have room are filled first, so that those that many frames have left
//! become empty; an empty one returns to the system, but one. What is used counts as such
//! ([`count_elsewhere`]), as the program's allocator counts it.
//!
//! Deliberately absent: frames of each thread's own. Pages are made and freed rarely, and copying
//! one takes longer than the lock.

use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::count_elsewhere;
use crate::pool::{Mapping, Pages};

/// Bytes of a frame: a page of 4 KiB, 16 before it, and up to a whole line. Pages that begin at
/// different lines of their sets are not in each other's way in the caches.
pub(super) const FRAME_BYTES: usize = 4096 + 64;
const CHUNK_BYTES: usize = 2 << 20;
const FRAMES: usize = CHUNK_BYTES / FRAME_BYTES;
const WORDS: usize = FRAMES.div_ceil(64);
const _: () = assert!(FRAME_BYTES.is_multiple_of(64));

struct Chunk {
    mapping: Mapping,
    used: [u64; WORDS],
    count: usize,
}

/// Chunks, by address.
struct Chunks {
    all: BTreeMap<usize, Chunk>,
    /// Those that have a free frame.
    with_room: BTreeSet<usize>,
    /// One that has no other.
    empty: Option<usize>,
}

static CHUNKS: Mutex<Chunks> = Mutex::new(Chunks {
    all: BTreeMap::new(),
    with_room: BTreeSet::new(),
    empty: None,
});

fn chunks() -> MutexGuard<'static, Chunks> {
    // Nothing panics half way through a change.
    CHUNKS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Chunks {
    fn take(&mut self) -> NonNull<u8> {
        let at = self.with_room.first().copied().unwrap_or_else(|| {
            let mapping = Mapping::new(CHUNK_BYTES, Pages::Huge);
            let at = mapping.start().addr().get();
            assert!(
                at.is_multiple_of(CHUNK_BYTES),
                "a frame's chunk follows from its address"
            );
            let (used, count) = ([0; WORDS], 0);
            self.all.insert(
                at,
                Chunk {
                    mapping,
                    used,
                    count,
                },
            );
            self.with_room.insert(at);
            at
        });
        let chunk = self.all.get_mut(&at).expect("it has room");
        let word = chunk.used.iter().position(|word| *word != u64::MAX);
        let word = word.expect("it has room");
        let bit = chunk.used[word].trailing_ones() as usize;
        chunk.used[word] |= 1 << bit;
        chunk.count += 1;
        if chunk.count == FRAMES {
            self.with_room.remove(&at);
        }
        if self.empty == Some(at) {
            self.empty = None;
        }
        let index = 64 * word + bit;
        assert!(index < FRAMES, "the lowest bits are free first");
        // SAFETY: within the chunk, which is mapped (MQ1).
        unsafe { chunk.mapping.start().add(FRAME_BYTES * index) }
    }

    fn give(&mut self, frame: NonNull<u8>) {
        let at = frame.addr().get() & !(CHUNK_BYTES - 1);
        let index = (frame.addr().get() - at) / FRAME_BYTES;
        let chunk = self
            .all
            .get_mut(&at)
            .expect("a frame's chunk is mapped (MQ1)");
        let (word, bit) = (index / 64, 1 << (index % 64));
        assert!(
            chunk.used[word] & bit != 0,
            "a frame is given back once (MQ1)"
        );
        chunk.used[word] &= !bit;
        chunk.count -= 1;
        self.with_room.insert(at);
        if chunk.count == 0
            && let Some(other) = self.empty.replace(at)
        {
            self.with_room.remove(&other);
            self.all.remove(&other);
        }
    }
}

/// A frame that is nobody else's, aligned to a line.
pub(super) fn take() -> NonNull<u8> {
    count_elsewhere(FRAME_BYTES as isize);
    chunks().take()
}

/// Gives a frame back.
///
/// # Safety
/// It was taken, and nobody uses it any more.
pub(super) unsafe fn give(frame: NonNull<u8>) {
    chunks().give(frame);
    count_elsewhere(-(FRAME_BYTES as isize));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MQ1 frames-of-chunks; a chunk that is empty returns to the system, but one.
    #[test]
    fn frames_are_apart_and_their_chunks_go() {
        let mut chunks = Chunks {
            all: BTreeMap::new(),
            with_room: BTreeSet::new(),
            empty: None,
        };
        let mut taken: Vec<_> = (0..3 * FRAMES).map(|_| chunks.take()).collect();
        assert_eq!((chunks.all.len(), chunks.with_room.len()), (3, 0));
        for (number, frame) in (0_u64..).zip(&taken) {
            // SAFETY: a frame that was taken.
            unsafe { frame.cast::<u64>().write(number) };
        }
        for (number, frame) in (0_u64..).zip(&taken) {
            // SAFETY: as above.
            assert_eq!(unsafe { frame.cast::<u64>().read() }, number);
        }
        let mut random = fastrand::Rng::with_seed(1);
        random.shuffle(&mut taken);
        let rest = taken.split_off(2 * FRAMES);
        for frame in taken {
            chunks.give(frame);
        }
        let low = *chunks.with_room.first().unwrap();
        let again: Vec<_> = (0..10).map(|_| chunks.take()).collect();
        assert!(
            again
                .iter()
                .all(|frame| frame.addr().get() & !(CHUNK_BYTES - 1) == low)
        );
        for frame in rest.into_iter().chain(again) {
            chunks.give(frame);
        }
        assert_eq!((chunks.all.len(), chunks.with_room.len()), (1, 1));
        assert!(chunks.empty.is_some());
    }

    #[test]
    #[should_panic(expected = "given back once")]
    fn a_frame_is_not_given_back_twice() {
        let mut chunks = Chunks {
            all: BTreeMap::new(),
            with_room: BTreeSet::new(),
            empty: None,
        };
        let frame = chunks.take();
        chunks.give(frame);
        chunks.give(frame);
    }
}
