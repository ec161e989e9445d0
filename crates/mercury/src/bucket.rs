//! Buckets: a chain of cache lines, each with a control word and seven tagged pointers to entries.
//!
//! | word | bits | field |
//! |---|---|---|
//! | 0, control of the first line | 0 | locked |
//! | | 1 | *hasmoved*: the entries are in the next table |
//! | | 6–63 | address of the next line of the chain, 0 at its end |
//! | 0, control of a further line | 6–63 | likewise |
//! | 1–7, slots | 0–2 | growth bits: three bits of the key's hash |
//! | | 3–47 | address of an entry, 0 when the slot is free |
//! | | 48–63 | tag: 15 bits of the key's hash, and 1 |
//!
//! The paper (figure 2b) puts lock, *hasmoved* and one pointer together and chains entries by a
//! link of their own. A line filled with pointers costs the same fetch and makes a second line rare
//! (see [`crate::limits::ENTRIES_PER_BUCKET_MAX`]). Its tags tell which entry to fetch, and entries
//! stay untouched when they move, so an entry can be in two tables meanwhile. A bucket takes 64
//! bytes for 2.5 to 5 entries while keys are added, 13 to 26 bytes a key, and for 1.25 of them
//! before a table shrinks, 51 bytes a key. Entries are blocks of key and value (`pando_block`): 8
//! bytes of each take 28, in a block of 32; 24 and 10 bytes take 46, in one of 48.
//!
//! The growth bits give the key's bucket in the next larger tables, so that its entry is not
//! fetched when the table doubles. They are the bits of the hash from the table's [`growth_shift`]
//! on. Every third doubling takes the next three from the hash of the key.
//!
//! | field | writer, under | readers |
//! |---|---|---|
//! | control: locked | [`Line::lock`], and the owner | writers, `Acquire` |
//! | control: moved, link | owner of the lock, `Release` | everybody, `Acquire` |
//! | slots | owner of the lock, `Release` | everybody, `Acquire` |
//!
//! Invariants:
//! - **HB1 owner-writes** Only the owner of the bucket's lock changes its lines, except the locked
//!   bit itself.
//! - **HB2** While a key has an entry (a tombstone counts) in a table, it is in one slot; a new
//!   entry of the key takes the same slot by one store. So a reader that looks at every slot once
//!   finds the key, whatever happens to other keys.
//! - **HB3 control-first** A reader loads the control word first, reads slots only if the bucket
//!   has not moved, and continues by the link that it loaded with the mark. A move freezes the
//!   bucket: nobody changes it or its further lines afterwards. So what the reader finds was there
//!   at some time after that load and not after the move, which is within its operation. Entries
//!   that are replaced in the next table later are retired after the reader has pinned. A thread
//!   that pins later than that sees the mark.
//! - **HB4 lines-outlive-pins** An unlinked further line stays whole until the pins of that time
//!   have ended. A moved bucket names no further lines.
//!
//! The lock is the paper's test-and-set (§4.1), tested before it is set, so that a waiter does not
//! take the line from the owner. Deliberately absent: fairness. The lock is held for one decision
//! of a writer or the move of a few pointers.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use pando_block::BlockRef;
use pando_memory::pool::Pool;
use pando_sync::epoch::Guard;
use pando_sync::prefetch::{prefetch_line, prefetch_span, prefetch_to_write};
use pando_sync::shim::{AtomicU64, Ordering, Spin};
use pando_sync::tags;

use crate::context::Length;

/// Slots of a line; the model checker runs with fewer.
pub(crate) const SLOTS: usize = if cfg!(loom) { 2 } else { 7 };

/// Bytes of an entry that are prefetched: its first line, and the line with the end of a common
/// entry.
const PREFETCH_BYTES: usize = 48;

const LOCKED: u64 = 1;
const MOVED: u64 = 1 << 1;
const LINK_MASK: u64 = !63;
const TAG_SHIFT: u32 = 48;
/// Bits of the hash that a slot keeps for the growth of its table; addresses are aligned to 8
/// (P2 alignment).
const GROWTH_BITS: u32 = 3;
const GROWTH_MASK: u64 = (1 << GROWTH_BITS) - 1;
const ADDRESS_MASK: u64 = ((1 << TAG_SHIFT) - 1) & !GROWTH_MASK;

/// The lowest of the hash's bits that slots keep in a table of this many buckets. The bit that
/// distinguishes two buckets of the table twice as large is among the three.
pub(crate) const fn growth_shift(buckets: usize) -> u32 {
    buckets.ilog2() / GROWTH_BITS * GROWTH_BITS
}

/// The tag in a key's slot, which rules out most other keys without fetching their entries. Never
/// 0, so it differs from a free slot's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(u64);

impl Tag {
    #[inline]
    pub(crate) fn of_hash(hash: u64) -> Self {
        Self(hash >> TAG_SHIFT | 1)
    }
}

/// The content of a used slot, not 0: a tagged pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tagged(u64);

impl Tagged {
    #[inline]
    pub(crate) fn new(hash: u64, growth_shift: u32, entry: BlockRef<'_>) -> Self {
        let word = Tag::of_hash(hash).0 << TAG_SHIFT | address_of(entry);
        Self(word).with_growth(hash, growth_shift)
    }

    /// The same slot with another entry of the key.
    #[inline]
    pub(crate) fn with_entry(self, entry: BlockRef<'_>) -> Self {
        Self(self.0 & !ADDRESS_MASK | address_of(entry))
    }

    /// The same slot with growth bits of a table that takes them from another place.
    #[inline]
    pub(crate) fn with_growth(self, hash: u64, growth_shift: u32) -> Self {
        Self(self.0 & !GROWTH_MASK | hash >> growth_shift & GROWTH_MASK)
    }

    /// One of the hash's bits that the slot keeps in a table of this shift.
    #[inline]
    pub(crate) fn hash_bit(self, bit: u32, growth_shift: u32) -> usize {
        debug_assert!((growth_shift..growth_shift + GROWTH_BITS).contains(&bit));
        (self.0 >> (bit - growth_shift)) as usize & 1
    }

    #[inline]
    fn of_word(word: u64) -> Option<Self> {
        (word != 0).then_some(Self(word))
    }

    #[inline]
    pub(crate) fn has(self, tag: Tag) -> bool {
        self.0 >> TAG_SHIFT == tag.0
    }

    #[inline]
    pub(crate) fn address(self) -> NonNull<u8> {
        let address = (self.0 & ADDRESS_MASK) as usize;
        NonNull::new(std::ptr::with_exposed_provenance_mut(address)).expect("not a free slot")
    }

    /// # Safety
    /// As [`BlockRef::from_address`].
    #[inline]
    pub(crate) unsafe fn entry(self, guard: Guard<'_>) -> BlockRef<'_> {
        // SAFETY: the caller's promise.
        unsafe { BlockRef::from_address(self.address(), guard) }
    }
}

/// The address of an entry as slots keep it.
#[inline]
fn address_of(entry: BlockRef<'_>) -> u64 {
    let address = entry.address().as_ptr() as u64;
    assert!(
        address & !ADDRESS_MASK == 0,
        "addresses of user memory have 48 bits at most, and blocks are aligned"
    );
    address
}

/// One line of a bucket's chain.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Line {
    /// The control word, then the slots.
    words: [AtomicU64; 1 + SLOTS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Line>() == 64);

/// What a reader finds in a bucket.
pub(crate) enum Found<'g> {
    Entry(BlockRef<'g>),
    Absent,
    /// The bucket has moved: look in the next table.
    Moved,
}

impl Line {
    /// A line with free slots; what zeroed memory is.
    pub(crate) fn empty() -> Self {
        Self {
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    #[inline]
    fn control(&self) -> &AtomicU64 {
        &self.words[0]
    }

    #[inline]
    fn slots(&self) -> &[AtomicU64] {
        &self.words[1..]
    }

    /// The slots that may have this tag. The control word never has: its upper bits are 0.
    #[inline]
    fn candidates(&self, tag: Tag) -> impl Iterator<Item = &AtomicU64> {
        tags::matches(&self.words, tag.0 as u16).map(|word| &self.words[word])
    }

    /// The next line of a chain.
    #[inline]
    fn linked(control: u64, _: Guard<'_>) -> Option<&Line> {
        let address = (control & LINK_MASK) as usize;
        let line = std::ptr::with_exposed_provenance::<Line>(address);
        // SAFETY: null, or a line that lives until the pin ends (HB4).
        unsafe { line.as_ref() }
    }

    /// Every line from this one on, for the owner of the lock.
    fn chain<'g>(&'g self, guard: Guard<'g>) -> impl Iterator<Item = &'g Line> {
        std::iter::successors(Some(self), move |line| {
            Self::linked(line.control().load(Ordering::Relaxed), guard)
        })
    }

    /// Looks for a key without a lock (HB2, HB3), and asks for as much of its entry as `length`
    /// says. `checked` is false only for a planted fault.
    #[inline]
    pub(crate) fn find<'g>(
        &'g self,
        tag: Tag,
        key: &[u8],
        checked: bool,
        length: Length,
        guard: Guard<'g>,
    ) -> Found<'g> {
        // Acquire pairs with `Owned::leave` and `Owned::insert`, and the slots are read after it.
        let mut control = self.control().load(Ordering::Acquire);
        if checked && control & MOVED != 0 {
            return Found::Moved;
        }
        let mut line = self;
        loop {
            for slot in line.candidates(tag) {
                // Acquire pairs with the stores of `Owned`: the entry is seen initialised.
                let tagged = Tagged(slot.load(Ordering::Acquire));
                if !tagged.has(tag) {
                    // It was freed since, and perhaps taken by another key.
                    continue;
                }
                // SAFETY: loaded under the pin, from a bucket that had not moved before (HB3).
                let entry = unsafe { tagged.entry(guard) };
                length.ask(entry.as_ptr());
                if entry.has_key_part(key) {
                    return Found::Entry(entry);
                }
            }
            let Some(next) = Self::linked(control, guard) else {
                return Found::Absent;
            };
            line = next;
            control = line.control().load(Ordering::Acquire);
        }
    }

    /// Prefetches the entries whose tags match the key's, including the value's first bytes.
    #[inline]
    pub(crate) fn prefetch_candidates(&self, tag: Tag, length: Length) {
        self.candidates(tag)
            .for_each(|slot| prefetch_entry(slot, length));
    }

    /// Where a key seems to be in the first line, for a writer about to lock the bucket. Prefetches
    /// the entry there.
    #[inline]
    pub(crate) fn foresee(&self, tag: Tag, length: Length) -> Option<Place<'_>> {
        let slot = self.candidates(tag).next()?;
        prefetch_entry(slot, length);
        Some(Place(slot))
    }

    /// Prefetches every entry of the first line.
    #[inline]
    pub(crate) fn prefetch_entries(&self) {
        for slot in self.slots() {
            if let Some(tagged) = Tagged::of_word(slot.load(Ordering::Relaxed)) {
                prefetch_line(tagged.address().as_ptr());
            }
        }
    }

    /// Prefetches the line itself, for a writer.
    #[inline]
    pub(crate) fn prefetch_to_write(&self) {
        prefetch_to_write(std::ptr::from_ref(self).cast());
    }

    /// Prefetches the line itself.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch_line(std::ptr::from_ref(self).cast());
    }

    /// Appends the bucket's entries to `entries`; false when it has moved (HB3). `checked` is false
    /// only for a planted fault.
    pub(crate) fn snapshot<'g>(
        &'g self,
        entries: &mut Vec<BlockRef<'g>>,
        checked: bool,
        guard: Guard<'g>,
    ) -> bool {
        // Acquire as in `find`.
        let mut control = self.control().load(Ordering::Acquire);
        if checked && control & MOVED != 0 {
            return false;
        }
        let mut line = self;
        loop {
            for slot in line.slots() {
                if let Some(tagged) = Tagged::of_word(slot.load(Ordering::Acquire)) {
                    // SAFETY: loaded under the pin, from a bucket that had not moved (HB3).
                    entries.push(unsafe { tagged.entry(guard) });
                }
            }
            let Some(next) = Self::linked(control, guard) else {
                return true;
            };
            line = next;
            control = line.control().load(Ordering::Acquire);
        }
    }

    /// Links a new line that begins with an entry, for a caller that alone changes the bucket.
    #[cold]
    fn extend<'g>(&self, tagged: Tagged, pool: &mut Pool, guard: Guard<'g>) -> &'g Line {
        let memory = pool.allocate(size_of::<Line>()).cast::<Line>();
        let line = Line::empty();
        line.slots()[0].store(tagged.0, Ordering::Relaxed);
        // SAFETY: the block is that long and aligned to lines (P2 alignment), and nobody else has
        // it.
        unsafe { memory.write(line) };
        let link = memory.as_ptr().expose_provenance() as u64;
        let control = self.control().load(Ordering::Relaxed);
        assert!(link & !LINK_MASK == 0 && control & LINK_MASK == 0);
        // Release pairs with the readers' Acquire: the line is seen initialised.
        self.control().store(control | link, Ordering::Release);
        Self::linked(link, guard).expect("just linked")
    }

    /// Waits for the bucket's lock and takes it.
    #[inline]
    pub(crate) fn lock<'g>(&'g self, guard: Guard<'g>) -> Owned<'g> {
        let mut spin = Spin::new();
        loop {
            // Test before test-and-set: a waiter reads its own copy of the line.
            let control = self.control().load(Ordering::Relaxed);
            if control & LOCKED == 0
                && self
                    .control()
                    // Acquire pairs with the Release of the last owner: its changes are seen.
                    .compare_exchange_weak(
                        control,
                        control | LOCKED,
                        Ordering::Acquire,
                        Ordering::Relaxed,
                    )
                    .is_ok()
            {
                return Owned { head: self, guard };
            }
            spin.wait();
        }
    }
}

/// Prefetches what a slot names.
#[inline]
fn prefetch_entry(slot: &AtomicU64, length: Length) {
    let word = slot.load(Ordering::Relaxed);
    let entry = std::ptr::without_provenance((word & ADDRESS_MASK) as usize);
    prefetch_span(entry, PREFETCH_BYTES);
    length.ask(entry);
}

/// Where an owner finds or puts a key.
#[derive(Clone, Copy)]
pub(crate) struct Place<'g>(&'g AtomicU64);

impl Place<'_> {
    /// The content of the slot, for the owner of the lock.
    #[inline]
    pub(crate) fn tagged(self) -> Tagged {
        Tagged(self.0.load(Ordering::Relaxed))
    }
}

/// A bucket whose lock is held; released on drop.
pub(crate) struct Owned<'g> {
    head: &'g Line,
    guard: Guard<'g>,
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // HB1: nobody else changes the word while it is locked.
        let control = self.head.control().load(Ordering::Relaxed);
        debug_assert!(control & LOCKED != 0);
        // Release pairs with `Line::lock`.
        self.head
            .control()
            .store(control & !LOCKED, Ordering::Release);
    }
}

impl<'g> Owned<'g> {
    /// Whether the bucket moved before the lock was taken.
    #[inline]
    pub(crate) fn has_moved(&self) -> bool {
        self.head.control().load(Ordering::Relaxed) & MOVED != 0
    }

    /// The key's place and entry, looked for first at the predicted place.
    #[inline]
    pub(crate) fn find(
        &self,
        foreseen: Option<Place<'g>>,
        tag: Tag,
        key: &[u8],
    ) -> Option<(Place<'g>, BlockRef<'g>)> {
        let at_place = foreseen
            .filter(|place| place.tagged().has(tag))
            .and_then(|place| self.entry_at(place, key));
        match at_place {
            Some(entry) => foreseen.map(|place| (place, entry)),
            None => self.search(tag, key),
        }
    }

    /// The key's place and entry.
    #[inline(never)]
    fn search(&self, tag: Tag, key: &[u8]) -> Option<(Place<'g>, BlockRef<'g>)> {
        for line in self.head.chain(self.guard) {
            for place in line.candidates(tag).map(Place) {
                if let Some(entry) = self.entry_at(place, key) {
                    return Some((place, entry));
                }
            }
        }
        None
    }

    /// The entry at a place whose tag matches, if it belongs to the key.
    #[inline]
    fn entry_at(&self, place: Place<'g>, key: &[u8]) -> Option<BlockRef<'g>> {
        // SAFETY: the lock is held, so a slot with a tag names a live entry (HB1).
        let entry = unsafe { place.tagged().entry(self.guard) };
        entry.has_key_part(key).then_some(entry)
    }

    /// Every entry, with its place.
    pub(crate) fn each(&self, mut visit: impl FnMut(Place<'g>, Tagged)) {
        for line in self.head.chain(self.guard) {
            for slot in line.slots() {
                if let Some(tagged) = Tagged::of_word(slot.load(Ordering::Relaxed)) {
                    visit(Place(slot), tagged);
                }
            }
        }
    }

    /// Every entry, with the number of its line in the chain, from 1.
    pub(crate) fn each_line(&self, mut visit: impl FnMut(usize, BlockRef<'g>)) {
        for (index, line) in self.head.chain(self.guard).enumerate() {
            for slot in line.slots() {
                if let Some(tagged) = Tagged::of_word(slot.load(Ordering::Relaxed)) {
                    // SAFETY: the lock is held, so the slot names a live entry (HB1).
                    visit(index + 1, unsafe { tagged.entry(self.guard) });
                }
            }
        }
    }

    /// Replaces the entry at its place by another one of the same key (HB2).
    #[inline]
    pub(crate) fn replace(&self, place: Place<'g>, tagged: Tagged) {
        // HB2: the slot stays the key's.
        debug_assert_eq!(place.tagged().0 >> TAG_SHIFT, tagged.0 >> TAG_SHIFT);
        // Release pairs with the readers' Acquire: the entry is seen initialised.
        place.0.store(tagged.0, Ordering::Release);
    }

    /// Frees a place.
    pub(crate) fn clear(&self, place: Place<'g>) {
        debug_assert!(place.tagged().0 != 0, "a place is freed once");
        place.0.store(0, Ordering::Release);
    }

    /// Puts the entry of a key that has none into a free slot, of a new line if needed; returns
    /// whether it took a new line.
    pub(crate) fn insert(&self, tagged: Tagged, pool: &mut Pool) -> bool {
        let mut last = self.head;
        for line in self.head.chain(self.guard) {
            let free = |slot: &&AtomicU64| slot.load(Ordering::Relaxed) == 0;
            if let Some(slot) = line.slots().iter().find(free) {
                // Release as in `replace`.
                slot.store(tagged.0, Ordering::Release);
                return false;
            }
            last = line;
        }
        last.extend(tagged, pool, self.guard);
        true
    }

    /// Unlinks the further lines that have no entry and shows them; the caller retires them (HB4).
    pub(crate) fn prune(&self, mut unlinked: impl FnMut(NonNull<Line>)) {
        let mut last = self.head;
        while let Some(line) = Line::linked(last.control().load(Ordering::Relaxed), self.guard) {
            if line
                .slots()
                .iter()
                .any(|slot| slot.load(Ordering::Relaxed) != 0)
            {
                last = line;
                continue;
            }
            let flags = last.control().load(Ordering::Relaxed) & !LINK_MASK;
            let link = line.control().load(Ordering::Relaxed) & LINK_MASK;
            last.control().store(flags | link, Ordering::Release);
            unlinked(NonNull::from(line));
        }
    }

    /// Marks the bucket as moved and keeps everything: a planted fault.
    pub(crate) fn mark_early(&self) {
        let control = self.head.control().load(Ordering::Relaxed);
        self.head
            .control()
            .store(control | MOVED, Ordering::Release);
    }

    /// Marks the bucket as moved, unlinks its further lines, which it shows, and unlocks, all in
    /// one store. The entries are already in the next table.
    pub(crate) fn leave(self, mut unlinked: impl FnMut(NonNull<Line>)) {
        let Self { head, guard } = *ManuallyDrop::new(self);
        let mut link = head.control().load(Ordering::Relaxed);
        debug_assert!(link & LOCKED != 0);
        // Release pairs with `find`, `snapshot` and `lock`: a thread that sees the mark sees the
        // entries in the next table.
        head.control().store(MOVED, Ordering::Release);
        // A thread that locks the bucket now changes nothing: it has moved.
        while let Some(line) = Line::linked(link, guard) {
            link = line.control().load(Ordering::Relaxed);
            unlinked(NonNull::from(line));
        }
    }
}

/// A bucket that nobody else can reach while it is filled (HR5 shared-locks). Its stores need no
/// order among each other: whatever leads to the bucket publishes them.
pub(crate) struct Filling<'g> {
    last: &'g Line,
    used: usize,
}

impl<'g> Filling<'g> {
    /// Begins with an empty bucket.
    pub(crate) fn new(head: &'g Line) -> Self {
        debug_assert!(
            head.words
                .iter()
                .all(|word| word.load(Ordering::Relaxed) == 0)
        );
        Self {
            last: head,
            used: 0,
        }
    }

    /// Puts an entry into the next slot, of a new line if needed; returns whether it took a new
    /// line.
    #[inline]
    pub(crate) fn push(&mut self, tagged: Tagged, pool: &mut Pool, guard: Guard<'g>) -> bool {
        if self.used == SLOTS {
            self.last = self.last.extend(tagged, pool, guard);
            self.used = 1;
            return true;
        }
        self.last.slots()[self.used].store(tagged.0, Ordering::Relaxed);
        self.used += 1;
        false
    }
}

/// Reclaims a further line.
///
/// # Safety
/// Nobody can reach the line (HB4); it is reclaimed once.
pub(crate) unsafe fn reclaim_line(pointer: NonNull<u8>, pool: &mut Pool) {
    if cfg!(loom) {
        // SAFETY: `insert` wrote a line there, and loom's atomics own memory.
        unsafe { pointer.cast::<Line>().drop_in_place() };
    }
    // SAFETY: allocated with this length by `insert`; the caller vouches for the rest.
    unsafe { pool.free(pointer, size_of::<Line>()) };
}
