//! Memory that lives as long as its value: the plain part of the simulation.

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use crate::region::Region;
use crate::{LINE_BYTES, Offset, Pmem, WORD_BYTES};

/// Memory in which every store is durable at once.
pub struct Simulated {
    region: Region,
    /// What the region lies in. A vector: moving a box would claim its words for itself.
    _words: Vec<AtomicU64>,
}

impl fmt::Debug for Simulated {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Simulated")
            .field("bytes", &self.region.bytes())
            .finish_non_exhaustive()
    }
}

impl Simulated {
    /// Memory of zeroes, of so many bytes, rounded up to whole lines.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let bytes = bytes.next_multiple_of(LINE_BYTES);
        Self::from(vec![0; (bytes / WORD_BYTES) as usize])
    }
}

impl From<Vec<u64>> for Simulated {
    fn from(words: Vec<u64>) -> Self {
        let words: Vec<AtomicU64> = words.into_iter().map(AtomicU64::new).collect();
        let bytes = words.len() as u64 * WORD_BYTES;
        let start = NonNull::from(words.as_slice()).cast();
        // SAFETY: the words are initialised atomics in a vector that lives as long as the region
        // and that nothing else touches.
        let region = unsafe { Region::new(start, bytes) };
        Self {
            region,
            _words: words,
        }
    }
}

impl Pmem for Simulated {
    fn bytes(&self) -> u64 {
        self.region.bytes()
    }

    fn load(&self, at: Offset) -> u64 {
        self.region.load(at)
    }

    fn store(&self, at: Offset, word: u64) {
        self.region.store(at, word);
    }

    fn compare_exchange(&self, at: Offset, current: u64, new: u64) -> Result<u64, u64> {
        self.region.compare_exchange(at, current, new)
    }

    fn write(&self, at: Offset, bytes: &[u8]) {
        self.region.write(at, bytes);
    }

    unsafe fn read(&self, at: Offset, length: usize) -> &[u8] {
        // SAFETY: the caller promises it.
        unsafe { self.region.read(at, length) }
    }

    fn flush(&self, _at: Offset, _length: usize) {}

    fn fence(&self) {}

    fn commit(&self, at: Offset, word: u64) -> io::Result<()> {
        self.store(at, word);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_bytes_are_where_they_were_put() {
        let memory = Simulated::new(1000);
        assert_eq!(memory.bytes(), 1024);
        let at = Offset::new(64);
        memory.store(at, 0x0102);
        assert_eq!(memory.load(at), 0x0102);
        assert_eq!(memory.compare_exchange(at, 3, 4), Err(0x0102));
        assert_eq!(memory.compare_exchange(at, 0x0102, 4), Ok(0x0102));
        memory.store(at.plus(16), u64::MAX);
        memory.write(at.plus(8), b"eleven byte");
        // SAFETY: nobody writes.
        let read = unsafe { memory.read(at, 24) };
        assert_eq!(read, b"\x04\0\0\0\0\0\0\0eleven byte\0\0\0\0\0");
        // SAFETY: nobody writes.
        assert_eq!(unsafe { memory.read(Offset::new(73), 3) }, b"lev");
    }

    #[test]
    #[should_panic(expected = "8 bytes at 0x3f9 of 1024")]
    fn what_lies_outside_is_refused() {
        let memory = Simulated::new(1024);
        // SAFETY: nobody writes.
        let _ = unsafe { memory.read(Offset::new(1017), 8) };
    }

    #[test]
    #[should_panic(expected = "a word begins at 0x4")]
    fn a_word_has_its_place() {
        Simulated::new(1024).load(Offset::new(4));
    }
}
