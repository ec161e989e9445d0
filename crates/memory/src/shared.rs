//! Bytes that several owners share by counting them, as with `Arc<[u8]>`; those of a page's length
//! lie on huge pages.
//!
//! A search in a tree of pages meets a few lines of a page that is anywhere in memory. On ordinary
//! pages of the system each of them waits for a translation of its address, besides the line.
//!
//! | field | writer | lock or ordering | readers |
//! |---|---|---|---|
//! | `Header::count` | whoever clones: `Relaxed`; whoever drops: `Release` | | who drops last, and who changes: `Acquire` |
//! | the bytes | whoever makes them, or changes them alone ([`SharedBytes::make_mut`]) | | owners |
//! | free frames | whoever makes or drops the last owner | a mutex | the same |
//!
//! Invariants:
//! - **MS1 counted-owners** `count` is the number of owners, but for bytes of no length: these are
//!   all the same ones, and never freed.
//! - **MS2 length-says-where** The length alone says whether bytes lie in a frame ([`in_frame`]),
//!   and does not change.
//!
//! Deliberately absent: weak references, slices of a part.

mod frames;

use std::alloc::{self, Layout};
use std::fmt;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use frames::FRAME_BYTES;

/// What precedes the bytes.
struct Header {
    count: AtomicUsize,
    len: usize,
}

const HEADER_BYTES: usize = size_of::<Header>();
const _: () = assert!(HEADER_BYTES == 16 && align_of::<Header>() == 8);

/// The bytes of no length.
static NONE: Header = Header {
    count: AtomicUsize::new(1),
    len: 0,
};

/// Shorter ones would leave more than an eighth of a frame unused.
const FRAMED_BYTES_MIN: usize = FRAME_BYTES * 7 / 8 - HEADER_BYTES;
const FRAMED_BYTES_MAX: usize = FRAME_BYTES - HEADER_BYTES;

/// Whether bytes of this length lie in a frame (MS2).
const fn in_frame(len: usize) -> bool {
    !cfg!(feature = "program-allocator") && FRAMED_BYTES_MIN <= len && len <= FRAMED_BYTES_MAX
}

fn layout(len: usize) -> Layout {
    let bytes = HEADER_BYTES.checked_add(len);
    let layout = bytes.map(|bytes| Layout::from_size_align(bytes, align_of::<Header>()));
    layout
        .and_then(Result::ok)
        .expect("bytes in memory have a layout")
}

/// See the module's header.
///
/// ```
/// use pando_memory::SharedBytes;
///
/// let mut one = SharedBytes::from(b"page".as_slice());
/// let other = one.clone();
/// SharedBytes::make_mut(&mut one)[0] = b'c';
/// assert_eq!((&*one, &*other), (&b"cage"[..], &b"page"[..]));
/// ```
pub struct SharedBytes {
    header: NonNull<Header>,
}

// SAFETY: owners on any thread only read the bytes, or are alone with them (MS1); the count is
// atomic.
unsafe impl Send for SharedBytes {}
// SAFETY: as above.
unsafe impl Sync for SharedBytes {}

impl SharedBytes {
    fn copy_of(bytes: &[u8]) -> Self {
        if bytes.is_empty() {
            return Self::default();
        }
        let block = if in_frame(bytes.len()) {
            frames::take()
        } else {
            let layout = layout(bytes.len());
            // SAFETY: the layout has the header's bytes at least.
            let block = unsafe { alloc::alloc(layout) };
            NonNull::new(block).unwrap_or_else(|| alloc::handle_alloc_error(layout))
        };
        let header = block.cast::<Header>();
        // SAFETY: the block is nobody else's, long enough and aligned for a header.
        unsafe {
            header.write(Header {
                count: AtomicUsize::new(1),
                len: bytes.len(),
            });
        }
        // SAFETY: the block is as long as header and bytes.
        let start = unsafe { block.add(HEADER_BYTES) };
        // SAFETY: as above; a new block overlaps with nothing.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start.as_ptr(), bytes.len()) };
        Self { header }
    }

    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: while there is an owner the header is there (MS1), and only its count changes.
        unsafe { self.header.as_ref() }
    }

    #[inline]
    fn start(&self) -> *mut u8 {
        self.header.as_ptr().wrapping_add(1).cast()
    }

    /// The bytes, to be changed; copied before, if there are other owners.
    #[inline]
    pub fn make_mut(this: &mut Self) -> &mut [u8] {
        if this.is_empty() {
            return &mut [];
        }
        // Acquire: pairs with the Release in `drop`, so that what other owners read was read before
        // what follows. Nobody else can clone the only owner, which is borrowed.
        if this.header().count.load(Ordering::Acquire) != 1 {
            *this = Self::copy_of(this);
        }
        let len = this.header().len;
        // SAFETY: so many bytes follow the header, and this is their only owner (MS1), borrowed.
        unsafe { slice::from_raw_parts_mut(this.start(), len) }
    }

    /// Whether both own the same bytes, not only equal ones.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.header == other.header
    }
}

impl Default for SharedBytes {
    fn default() -> Self {
        Self {
            header: NonNull::from_ref(&NONE),
        }
    }
}

impl Clone for SharedBytes {
    #[inline]
    fn clone(&self) -> Self {
        let header = self.header();
        if header.len > 0 {
            // Relaxed: a new owner comes from one that is there.
            let before = header.count.fetch_add(1, Ordering::Relaxed);
            assert!(before < usize::MAX / 2, "owners are few");
        }
        Self {
            header: self.header,
        }
    }
}

impl Drop for SharedBytes {
    #[inline]
    fn drop(&mut self) {
        let Header { count, len } = self.header();
        // Release: what this owner has read, or written, is before the last one frees it.
        if *len == 0 || count.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        // Acquire: pairs with the Release of all other owners.
        fence(Ordering::Acquire);
        let len = *len;
        let block = self.header.cast::<u8>();
        if in_frame(len) {
            // SAFETY: it was taken for this length (MS2), and has no owner any more (MS1).
            unsafe { frames::give(block) };
        } else {
            // SAFETY: as above, with the layout of this length.
            unsafe { alloc::dealloc(block.as_ptr(), layout(len)) };
        }
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let len = self.header().len;
        // SAFETY: so many bytes follow the header, and nobody changes them while there is a
        // reference to an owner (MS1).
        unsafe { slice::from_raw_parts(self.start(), len) }
    }
}

impl From<&[u8]> for SharedBytes {
    fn from(bytes: &[u8]) -> Self {
        Self::copy_of(bytes)
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::copy_of(&bytes)
    }
}

impl<const N: usize> From<[u8; N]> for SharedBytes {
    fn from(bytes: [u8; N]) -> Self {
        Self::copy_of(&bytes)
    }
}

impl PartialEq for SharedBytes {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || **self == **other
    }
}

impl Eq for SharedBytes {}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENS: [usize; 7] = [
        0,
        1,
        FRAMED_BYTES_MIN - 1,
        FRAMED_BYTES_MIN,
        4096,
        FRAMED_BYTES_MAX,
        FRAMED_BYTES_MAX + 1,
    ];

    /// MS1 counted-owners.
    #[test]
    fn bytes_stay_as_they_are_until_their_only_owner_changes_them() {
        for (len, seed) in LENS.into_iter().zip(1_u8..) {
            let content = vec![seed; len];
            let mut one = SharedBytes::from(content.clone());
            let other = one.clone();
            assert!(one.is_same(&other));
            SharedBytes::make_mut(&mut one).fill(0);
            assert_eq!((&*other, one.len()), (&content[..], len));
            let start = one.as_ptr();
            assert!(
                SharedBytes::make_mut(&mut one)
                    .iter()
                    .all(|byte| *byte == 0)
            );
            assert_eq!(one.as_ptr(), start, "it is alone with them");
        }
    }

    #[test]
    fn owners_of_many_threads_share_and_change_them() {
        const ROUNDS: usize = if cfg!(miri) { 20 } else { 3000 };
        let shared = SharedBytes::from(vec![7; 4096]);
        std::thread::scope(|scope| {
            for number in 0..3_u8 {
                let shared = &shared;
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(u64::from(number));
                    let mut kept = Vec::new();
                    for _ in 0..ROUNDS {
                        let mut one = shared.clone();
                        assert!(one.iter().all(|byte| *byte == 7));
                        SharedBytes::make_mut(&mut one).fill(number);
                        kept.push(one);
                        if kept.len() > 600 {
                            let gone = kept.swap_remove(random.usize(..kept.len()));
                            assert!(gone.iter().all(|byte| *byte == number));
                        }
                        if random.u8(..) == 0 {
                            kept.clear();
                        }
                    }
                });
            }
        });
        assert!(shared.iter().all(|byte| *byte == 7));
    }
}
