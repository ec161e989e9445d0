//! Blocks of one length, in chunks of 2 MiB that are one huge page each.
//!
//! - **MQ1 frames-of-chunks** Of a chunk that is mapped, bit `i` of `used` is set if and only if
//!   somebody has the frame at `i * FRAME_BYTES`.
//! - **MQ2 empties-apart** A chunk of which nobody has a frame is in `empty`, any other that has
//!   room in `with_room`.
//!
//! The lowest chunks that have room are filled first, so that those that many frames have left
//! become empty. Some empty ones stay, one for each [`CHUNKS_PER_EMPTY`], and the others return to
//! the system. What is used counts as such ([`count_elsewhere`]), as the program's allocator counts
//! it.
//!
//! The system clears memory when it is first written to, which takes longer than all that a change
//! of a page needs besides: milliseconds for a chunk where a host under the system has to find the
//! memory, too. So from [`CHUNKS_PER_EMPTY`] chunks on a thread keeps empty ones that it has
//! written to. It waits until one is taken.
//!
//! Deliberately absent: frames of each thread's own. Pages are made and freed rarely, and copying
//! one takes longer than the lock.

use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::count_elsewhere;
use crate::pool::{Mapping, Pages};

/// Bytes of a frame: a page of 4 KiB, 16 before it, and up to a whole line. Pages that begin at
/// different lines of their sets are not in each other's way in the caches.
pub(super) const FRAME_BYTES: usize = 4096 + 64;
const CHUNK_BYTES: usize = 2 << 20;
const FRAMES: usize = CHUNK_BYTES / FRAME_BYTES;
const WORDS: usize = FRAMES.div_ceil(64);
const _: () = assert!(FRAME_BYTES.is_multiple_of(64));

/// Chunks for each empty one that is kept ready.
const CHUNKS_PER_EMPTY: usize = 16;
/// Empty chunks that are kept ready, at most.
const EMPTY_MAX: usize = 8;

struct Chunk {
    mapping: Mapping,
    used: [u64; WORDS],
    count: usize,
}

impl Chunk {
    fn map() -> Self {
        let mapping = Mapping::new(CHUNK_BYTES, Pages::Huge);
        assert!(
            mapping.start().addr().get().is_multiple_of(CHUNK_BYTES),
            "a frame's chunk follows from its address"
        );
        Self {
            mapping,
            used: [0; WORDS],
            count: 0,
        }
    }
}

/// Chunks, by address.
struct Chunks {
    all: BTreeMap<usize, Chunk>,
    /// Those that have free frames, and others.
    with_room: BTreeSet<usize>,
    /// Those that have no others.
    empty: BTreeSet<usize>,
    /// A thread keeps empty chunks ready.
    has_keeper: bool,
}

static CHUNKS: Mutex<Chunks> = Mutex::new(Chunks::new());
/// An empty chunk was taken.
static TAKEN: Condvar = Condvar::new();

fn chunks() -> MutexGuard<'static, Chunks> {
    // Nothing panics half way through a change.
    CHUNKS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Chunks {
    const fn new() -> Self {
        Self {
            all: BTreeMap::new(),
            with_room: BTreeSet::new(),
            empty: BTreeSet::new(),
            has_keeper: false,
        }
    }

    /// Empty chunks that are to be ready.
    fn wanted(&self) -> usize {
        (self.all.len() / CHUNKS_PER_EMPTY).min(EMPTY_MAX)
    }

    /// Has an empty chunk.
    fn add(&mut self, chunk: Chunk) {
        let at = chunk.mapping.start().addr().get();
        self.all.insert(at, chunk);
        self.empty.insert(at);
    }

    /// A frame, and whether its chunk was empty.
    fn take(&mut self) -> (NonNull<u8>, bool) {
        let with_room = self.with_room.first().copied();
        let at = with_room.unwrap_or_else(|| {
            if self.empty.is_empty() {
                self.add(Chunk::map());
            }
            let at = self.empty.pop_first().expect("one was added");
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
        let index = 64 * word + bit;
        assert!(index < FRAMES, "the lowest bits are free first");
        // SAFETY: within the chunk, which is mapped (MQ1).
        let frame = unsafe { chunk.mapping.start().add(FRAME_BYTES * index) };
        (frame, with_room.is_none())
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
        if chunk.count > 0 {
            self.with_room.insert(at);
            return;
        }
        self.with_room.remove(&at);
        self.empty.insert(at);
        // As many again, or one that comes and goes would be mapped each time.
        while self.empty.len() > (2 * self.wanted()).max(1) {
            let last = self.empty.pop_last().expect("several");
            self.all.remove(&last);
        }
    }
}

/// Keeps as many empty chunks as are wanted, for as long as the program runs.
fn keep_ready() {
    let mut chunks = chunks();
    loop {
        while chunks.empty.len() >= chunks.wanted() {
            chunks = TAKEN.wait(chunks).unwrap_or_else(PoisonError::into_inner);
        }
        drop(chunks);
        let chunk = Chunk::map();
        chunk.mapping.touch();
        chunks = self::chunks();
        chunks.add(chunk);
    }
}

/// A frame that is nobody else's, aligned to a line.
pub(super) fn take() -> NonNull<u8> {
    count_elsewhere(FRAME_BYTES as isize);
    let mut chunks = chunks();
    let (frame, was_empty) = chunks.take();
    if was_empty && chunks.empty.len() < chunks.wanted() {
        if chunks.has_keeper {
            TAKEN.notify_one();
        } else {
            let keeper = thread::Builder::new().name("frames".into());
            // Without one, whoever needs a chunk writes to it first.
            chunks.has_keeper = keeper.spawn(keep_ready).is_ok();
        }
    }
    frame
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
        let mut chunks = Chunks::new();
        let mut taken: Vec<_> = (0..3 * FRAMES).map(|_| chunks.take().0).collect();
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
        let again: Vec<_> = (0..10).map(|_| chunks.take().0).collect();
        assert!(
            again
                .iter()
                .all(|frame| frame.addr().get() & !(CHUNK_BYTES - 1) == low)
        );
        for frame in rest.into_iter().chain(again) {
            chunks.give(frame);
        }
        assert_eq!((chunks.all.len(), chunks.empty.len()), (1, 1));
        assert!(chunks.with_room.is_empty(), "MQ2");
    }

    /// MQ2 empties-apart; as many as are wanted are kept ready, and twice as many stay.
    #[test]
    fn some_empty_chunks_are_ready_and_some_stay() {
        const CHUNKS: usize = 2 * CHUNKS_PER_EMPTY;
        let mut chunks = Chunks::new();
        let taken: Vec<_> = (0..CHUNKS * FRAMES).map(|_| chunks.take()).collect();
        assert_eq!(
            taken.iter().filter(|(_, was_empty)| *was_empty).count(),
            CHUNKS
        );
        assert_eq!((chunks.wanted(), chunks.empty.len()), (2, 0));
        chunks.add(Chunk::map());
        let (last, was_empty) = chunks.take();
        assert!(was_empty && chunks.empty.is_empty());
        for frame in taken.into_iter().map(|(frame, _)| frame).chain([last]) {
            chunks.give(frame);
            assert!(chunks.empty.is_disjoint(&chunks.with_room), "MQ2");
            assert!(chunks.empty.len() <= (2 * chunks.wanted()).max(1));
        }
        assert_eq!((chunks.all.len(), chunks.empty.len()), (1, 1));
    }

    #[test]
    #[should_panic(expected = "given back once")]
    fn a_frame_is_not_given_back_twice() {
        let mut chunks = Chunks::new();
        let (frame, _) = chunks.take();
        chunks.give(frame);
        chunks.give(frame);
    }
}
