//! Slabs: the parts of a chunk, each with blocks of one class, and the header that describes them.
//!
//! | offset in a chunk | size | what |
//! |---|---|---|
//! | 32,768·n | 32,768 | slab n, 0 to 63 |
//! | the first or last bytes of one slab, its *home*, which is that much smaller | 2,112 | [`Header`] |
//!
//! A block's slab follows from its address, so a free block returns without a search, and a slab
//! whose blocks are all free can serve any class. Zeroed memory is a header of slabs without a
//! class.
//!
//! The place of the header follows from the chunk's number in the address space ([`home_of`]).
//! Headers at the same place of every chunk would fall into the same few sets of every cache: with
//! 48 chunks each block that returned to its slab waited for memory (docs/BENCHMARKS.md).
//!
//! | field | writer, under | readers |
//! |---|---|---|
//! | `Header::emptying` | the thread that begins or ends emptying: its class's depot, `Relaxed` | anybody |
//! | `Slab::class`, `free_count`, `carved` | its class's depot; class 0 to a class: who took it | the same; the choice of slabs, `Relaxed`, as a hint |
//! | the rest of `Slab` | its class's depot | the same |

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU64, Ordering};

use super::chain::Chain;
use super::chunk::Chunk;
use super::class::bytes_of_class;

/// Length of a slab, except the one with the header.
pub(super) const SLAB_BYTES: usize = 32 * 1024;

/// Slabs of a chunk: one per bit of a word.
pub(super) const SLABS: usize = Chunk::BYTES / SLAB_BYTES;

const _: () = assert!(SLABS == u64::BITS as usize);

/// What a header takes of its slab.
const HEADER_BYTES: usize = 2112;

const _: () = assert!(size_of::<Header>() <= HEADER_BYTES && HEADER_BYTES.is_multiple_of(64));
const _: () = assert!(
    SLAB_BYTES / 16 <= u16::MAX as usize,
    "free blocks are counted by 16 bits"
);

/// A chunk's header.
#[repr(C)]
pub(super) struct Header {
    /// Slabs, by their bits, whose blocks are not handed out any more.
    emptying: AtomicU64,
    /// The chunk's place among its arena's, plus 1.
    number: AtomicU64,
    reserved: [u64; 6],
    slabs: [Slab; SLABS],
}

/// One slab; see the module's header. All fields are atomics, so hints can be read at any time.
/// `Relaxed` is enough, since the depot's lock orders everything that is more than a hint.
#[repr(C)]
struct Slab {
    /// Neighbours on the list of its class's slabs that have free blocks.
    next: AtomicPtr<Slab>,
    previous: AtomicPtr<Slab>,
    free: AtomicPtr<u8>,
    free_count: AtomicU16,
    /// The round in which it could not be emptied, 0 for none.
    stuck: AtomicU16,
    /// The class and 1; 0 while it has none.
    class: AtomicU8,
    /// It is on that list.
    listed: AtomicBool,
    /// All of its blocks have been handed out once.
    carved: AtomicBool,
}

/// The slab with a chunk's header, and whether the header is at its end. Consecutive chunks differ,
/// as far as there are places.
#[inline]
fn home_of(address: usize) -> (usize, bool) {
    let number = address / Chunk::BYTES;
    (number / 2 % SLABS, number % 2 == 1)
}

/// The chunk that contains an address.
#[inline]
fn chunk_of(address: *mut u8) -> *mut u8 {
    address.map_addr(|address| address & !(Chunk::BYTES - 1))
}

/// The header of the chunk that contains an address.
#[inline]
fn header_of(address: *mut u8) -> *mut Header {
    let (home, at_end) = home_of(address.addr());
    let offset = if at_end { SLAB_BYTES - HEADER_BYTES } else { 0 };
    chunk_of(address)
        .wrapping_add(home * SLAB_BYTES + offset)
        .cast()
}

/// The slab, as a bit, whose memory is returned only with the last of its chunk.
pub(super) fn home_bit(chunk: NonNull<u8>) -> u64 {
    1 << home_of(chunk.addr().get()).0
}

/// A reference to a slab, by its address alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SlabRef(NonNull<Slab>);

// SAFETY: a reference is an address; its use requires the lock of the slab's depot.
unsafe impl Send for SlabRef {}

/// A slab whose depot is locked, or that has none.
impl SlabRef {
    /// The slab of a block of a chunk.
    ///
    /// # Safety
    /// `block` lies in a chunk, beside its header.
    pub(super) unsafe fn of_block(block: *mut u8) -> Self {
        let index = (block.addr() & (Chunk::BYTES - 1)) / SLAB_BYTES;
        // SAFETY: the caller's promise; the header has that many slabs.
        unsafe { Self::of_chunk(chunk_of(block), index) }
    }

    /// # Safety
    /// `chunk` is the start of a chunk, and `index` below [`SLABS`].
    pub(super) unsafe fn of_chunk(chunk: *mut u8, index: usize) -> Self {
        debug_assert!(index < SLABS);
        let header = header_of(chunk);
        // SAFETY: the caller's promise: the header is there, if only as zeroed memory.
        let slabs = unsafe { &raw mut (*header).slabs };
        let slab = slabs.cast::<Slab>().wrapping_add(index);
        Self(NonNull::new(slab).expect("a chunk is never at address 0"))
    }

    fn header_address(self) -> *mut Header {
        header_of(self.0.as_ptr().cast())
    }

    /// Its place in its chunk.
    pub(super) fn index(self) -> usize {
        let first = self.header_address().addr() + std::mem::offset_of!(Header, slabs);
        (self.0.addr().get() - first) / size_of::<Slab>()
    }

    fn bit(self) -> u64 {
        1 << self.index()
    }

    /// Its chunk's header.
    fn header(self) -> &'static Header {
        // SAFETY: chunks stay mapped as long as the arena (P3 chunks-stay-mapped), whose call this
        // is; all fields that change are atomics.
        unsafe { &*self.header_address() }
    }

    fn slab(self) -> &'static Slab {
        // SAFETY: as above.
        unsafe { self.0.as_ref() }
    }

    /// The place of its chunk among the arena's.
    pub(super) fn chunk_index(self) -> usize {
        self.header().number.load(Ordering::Relaxed) as usize - 1
    }

    /// Records which of the arena's chunks this is.
    pub(super) fn set_chunk_index(self, index: usize) {
        self.header()
            .number
            .store(index as u64 + 1, Ordering::Relaxed);
    }

    /// The memory of its blocks.
    pub(super) fn span(self) -> (*mut u8, *mut u8) {
        let chunk = chunk_of(self.0.as_ptr().cast());
        let index = self.index();
        let (lead, trail) = match home_of(chunk.addr()) {
            (home, false) if home == index => (HEADER_BYTES, 0),
            (home, true) if home == index => (0, HEADER_BYTES),
            _ => (0, 0),
        };
        let start = chunk.wrapping_add(index * SLAB_BYTES + lead);
        let end = chunk.wrapping_add((index + 1) * SLAB_BYTES - trail);
        (start, end)
    }

    /// How many blocks of a class it holds.
    pub(super) fn capacity(self, class: usize) -> usize {
        let (start, end) = self.span();
        (end.addr() - start.addr()) / bytes_of_class(class)
    }

    /// Whether that many of its blocks, which have that class, are all of them.
    fn is_whole(self, count: usize, class: usize) -> bool {
        // Most slabs have blocks in use, which the shortest slab's length shows.
        (count + 1) * bytes_of_class(class) > SLAB_BYTES - HEADER_BYTES
            && count == self.capacity(class)
    }

    /// The class of its blocks, which does not change while that class's depot is locked.
    pub(super) fn class(self) -> Option<usize> {
        let word = self.slab().class.load(Ordering::Relaxed);
        word.checked_sub(1).map(usize::from)
    }

    /// Free blocks that it keeps itself.
    pub(super) fn free_count(self) -> usize {
        usize::from(self.slab().free_count.load(Ordering::Relaxed))
    }

    /// Whether all of its blocks were handed out once.
    pub(super) fn is_carved(self) -> bool {
        self.slab().carved.load(Ordering::Relaxed)
    }

    pub(super) fn set_carved(self) {
        self.slab().carved.store(true, Ordering::Relaxed);
    }

    /// The round in which it could not be emptied.
    pub(super) fn stuck(self) -> u16 {
        self.slab().stuck.load(Ordering::Relaxed)
    }

    pub(super) fn set_stuck(self, round: u16) {
        self.slab().stuck.store(round, Ordering::Relaxed);
    }

    /// Whether its blocks are not handed out any more.
    pub(super) fn is_emptying(self) -> bool {
        self.header().emptying.load(Ordering::Relaxed) & self.bit() != 0
    }

    fn set_emptying(self, emptying: bool) {
        if emptying {
            self.header()
                .emptying
                .fetch_or(self.bit(), Ordering::Relaxed);
        } else {
            self.header()
                .emptying
                .fetch_and(!self.bit(), Ordering::Relaxed);
        }
    }

    /// Gives the slab a class. Nobody else knows of the slab.
    pub(super) fn assign(self, class: usize) {
        // Nobody has one of its blocks.
        assert!(self.class().is_none() && !self.is_emptying());
        self.slab().next.store(ptr::null_mut(), Ordering::Relaxed);
        self.slab()
            .previous
            .store(ptr::null_mut(), Ordering::Relaxed);
        self.slab().free.store(ptr::null_mut(), Ordering::Relaxed);
        self.slab().listed.store(false, Ordering::Relaxed);
        self.slab().free_count.store(0, Ordering::Relaxed);
        self.slab().carved.store(false, Ordering::Relaxed);
        self.set_stuck(0);
        self.slab().class.store(class as u8 + 1, Ordering::Relaxed);
    }
}

/// The slabs of one class that have free blocks, the fullest first: a slab moves to the front when
/// its first block becomes free, and stays in place while there are more.
pub(super) struct Slabs {
    first: *mut Slab,
    /// Free blocks on the list.
    pub(super) free_count: usize,
    /// Slabs that have the class.
    pub(super) count: usize,
}

// SAFETY: the list is its depot's own, which a lock guards.
unsafe impl Send for Slabs {}

impl Slabs {
    pub(super) const EMPTY: Self = Self {
        first: ptr::null_mut(),
        free_count: 0,
        count: 0,
    };

    fn first(&self) -> Option<SlabRef> {
        NonNull::new(self.first).map(SlabRef)
    }

    fn link(&mut self, slab: SlabRef) {
        let (address, first) = (slab.0.as_ptr(), self.first());
        debug_assert!(!Self::is_listed(slab) && slab.free_count() > 0);
        // PE1 emptying-gives-none.
        debug_assert!(!slab.is_emptying());
        let slab = slab.slab();
        slab.next.store(self.first, Ordering::Relaxed);
        slab.previous.store(ptr::null_mut(), Ordering::Relaxed);
        slab.listed.store(true, Ordering::Relaxed);
        if let Some(first) = first {
            first.slab().previous.store(address, Ordering::Relaxed);
        }
        self.first = address;
    }

    fn unlink(&mut self, slab: SlabRef) {
        debug_assert!(Self::is_listed(slab));
        let slab = slab.slab();
        let next = slab.next.load(Ordering::Relaxed);
        let previous = slab.previous.load(Ordering::Relaxed);
        match NonNull::new(previous).map(SlabRef) {
            None => self.first = next,
            Some(previous) => previous.slab().next.store(next, Ordering::Relaxed),
        }
        if let Some(next) = NonNull::new(next).map(SlabRef) {
            next.slab().previous.store(previous, Ordering::Relaxed);
        }
        slab.listed.store(false, Ordering::Relaxed);
    }

    fn is_listed(slab: SlabRef) -> bool {
        slab.slab().listed.load(Ordering::Relaxed)
    }

    fn chain_of(slab: SlabRef) -> Chain {
        let first = slab.slab().free.load(Ordering::Relaxed);
        Chain::from_parts(first, slab.free_count())
    }

    fn set_chain(slab: SlabRef, chain: Chain) {
        let count = chain.count as u16;
        slab.slab().free.store(chain.first(), Ordering::Relaxed);
        slab.slab().free_count.store(count, Ordering::Relaxed);
    }

    /// Takes a free block back; returns its slab if that is entirely free now and has lost its
    /// class.
    ///
    /// # Safety
    /// `block` is a free block of this class, on no chain (P1 one-holder).
    pub(super) unsafe fn put(&mut self, block: *mut u8, class: usize) -> Option<SlabRef> {
        // SAFETY: blocks of classes lie in chunks.
        let slab = unsafe { SlabRef::of_block(block) };
        debug_assert_eq!(slab.class(), Some(class));
        let mut chain = Self::chain_of(slab);
        // SAFETY: the caller's promise.
        unsafe { chain.push(block) };
        Self::set_chain(slab, chain);
        let listed = Self::is_listed(slab);
        self.free_count += usize::from(listed);
        // P1 one-holder: no block came back twice.
        debug_assert!(chain.count <= slab.capacity(class));
        if slab.is_whole(chain.count, class) {
            if listed {
                self.unlink(slab);
                self.free_count -= chain.count;
            }
            self.forget(slab);
            return Some(slab);
        }
        if !listed && !slab.is_emptying() {
            self.link(slab);
            self.free_count += chain.count;
        }
        None
    }

    /// Takes the class from a slab whose blocks are all free or were never handed out.
    fn forget(&mut self, slab: SlabRef) {
        slab.set_emptying(false);
        slab.slab().class.store(0, Ordering::Relaxed);
        self.count -= 1;
    }

    /// Up to `count` free blocks, from few slabs.
    pub(super) fn take(&mut self, count: usize) -> Chain {
        const SLABS_MAX: usize = 8;
        let mut taken = Chain::EMPTY;
        for _ in 0..SLABS_MAX {
            let Some(slab) = self.first() else {
                break;
            };
            let mut chain = Self::chain_of(slab);
            let missing = count - taken.count;
            for _ in 0..missing {
                let Some(block) = chain.pop() else { break };
                // SAFETY: just popped, so on no chain.
                unsafe { taken.push(block.as_ptr()) };
                self.free_count -= 1;
            }
            Self::set_chain(slab, chain);
            if chain.count > 0 {
                break;
            }
            self.unlink(slab);
        }
        taken
    }

    /// Marks the slab of `block` as completely cut.
    pub(super) fn finish_cutting(&mut self, block: *mut u8) {
        // SAFETY: blocks of classes lie in chunks.
        unsafe { SlabRef::of_block(block) }.set_carved();
    }

    /// Stops handing out blocks of a slab, if it still is of the class.
    pub(super) fn begin_emptying(&mut self, slab: SlabRef, class: usize) -> bool {
        if slab.class() != Some(class) || slab.is_emptying() || !slab.is_carved() {
            return false;
        }
        if Self::is_listed(slab) {
            self.unlink(slab);
            self.free_count -= slab.free_count();
        }
        slab.set_emptying(true);
        true
    }

    /// Hands out blocks of a slab again; returns whether it was not emptied.
    pub(super) fn end_emptying(&mut self, slab: SlabRef, class: usize) -> bool {
        if slab.class() != Some(class) || !slab.is_emptying() {
            return false;
        }
        slab.set_emptying(false);
        if slab.free_count() > 0 {
            self.link(slab);
            self.free_count += slab.free_count();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest second-level cache of current processors: a megabyte, sixteen lines per set.
    const SETS: usize = 1024;
    const LINES_IN_SET: usize = 16;

    #[test]
    fn headers_of_chunks_that_follow_each_other_spread_over_the_sets_of_a_cache() {
        let mut used = vec![0; SETS];
        for chunk in 0..64 {
            let chunk = ptr::without_provenance_mut(chunk * Chunk::BYTES);
            let header = header_of(chunk).addr();
            for line in (header..header + HEADER_BYTES).step_by(64) {
                used[line / 64 % SETS] += 1;
            }
            assert_eq!(chunk_of(header_of(chunk).cast()), chunk);
            assert_eq!(
                (header - chunk.addr()) / SLAB_BYTES,
                home_of(chunk.addr()).0
            );
        }
        assert!(used.iter().all(|lines| *lines <= LINES_IN_SET));
    }
}
