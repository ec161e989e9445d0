//! Memory that forgets at a crash what a machine's memory may forget.
//!
//! | what a test asks for | how |
//! |---|---|
//! | memory in which every store is durable at once | [`Simulated::new`] |
//! | memory that notes stores, flushes and fences | [`Simulated::recording`] |
//! | memory that says that it keeps no lines whole | [`Simulated::on`] |
//! | every content that a crash may leave | [`Trace::crashes`], [`Crash::images`] |
//! | the same with a flush or fence left out | [`Trace::without`], by its [`Mark`] |
//! | a crash in the recovery from a crash | [`Image::recording`], and its trace |
//! | an oracle's place in the run | [`Simulated::note`], [`Crash::noted`] |
//!
//! A trace is replayed, not run again: a workload sees neither flushes nor crashes, so one run
//! serves every crash, every platform and every planted fault.
//!
//! Invariants:
//! - **PS1 traced-first** A store is in the trace before any thread can load what it stored.
//! - **PS2 prefixes** An image holds, of every unit that the platform keeps whole, a prefix of the
//!   stores to it that is no shorter than what its flushes and fences made durable. The words of
//!   one `write` have no order among themselves.

mod images;
#[cfg(test)]
mod tests;
mod trace;

use std::fmt;
use std::io;
use std::ptr::NonNull;

use pando_sync::shim::unmodelled::AtomicU64;
use pando_sync::shim::{Mutex, lock, thread};

pub use images::{Choice, Image, Sampling};
pub use trace::{Crash, MarkCount, Platform, Trace};
use trace::{Event, What};

use crate::region::Region;
use crate::{LINE_BYTES, Mark, Offset, Pmem, WORD_BYTES, Words};

/// The flushes and fences within [`Pmem::commit`].
const COMMIT_BEFORE: Mark = Mark("commit: the fence before the word");
const COMMIT_FLUSH: Mark = Mark("commit: the flush of the word");
const COMMIT_AFTER: Mark = Mark("commit: the fence after the word");

/// Memory of a test.
pub struct Simulated {
    region: Region,
    /// What the region lies in. A vector: moving a box would claim its words for itself.
    _words: Vec<AtomicU64>,
    keeps_lines: bool,
    recorder: Option<Mutex<Recorder>>,
}

struct Recorder {
    trace: Trace,
    /// The name of each thread's next flush or fence.
    marks: Vec<(thread::ThreadId, Mark)>,
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

    /// Memory that holds these words, all durable, and records what is done to it.
    #[must_use]
    pub fn recording(words: Vec<u64>) -> Self {
        let recorder = Recorder {
            trace: Trace::new(words.clone()),
            marks: Vec::new(),
        };
        Self {
            recorder: Some(Mutex::new(recorder)),
            ..Self::from(words)
        }
    }

    /// The same memory of a machine of this kind: it says whether lines are kept whole.
    #[must_use]
    pub fn on(mut self, platform: Platform) -> Self {
        self.keeps_lines = platform != Platform::Words;
        self
    }

    /// What the memory holds now.
    #[must_use]
    pub fn words(&self) -> Vec<u64> {
        let places = (0..self.bytes()).step_by(WORD_BYTES as usize);
        places.map(|at| self.load(Offset::new(at))).collect()
    }

    #[cfg(feature = "simulated-memory")]
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// What was recorded up to now.
    ///
    /// # Panics
    /// When the memory does not record.
    #[must_use]
    pub fn trace(&self) -> Trace {
        let recorder = self.recorder.as_ref().expect("memory that records");
        lock(recorder).trace.clone()
    }

    /// Puts a number into the trace: which operation has begun or was acknowledged.
    pub fn note(&self, number: u64) {
        self.record(|_| What::Note(number));
    }

    /// Records one event, and lets it happen before the next one.
    fn record(&self, what: impl FnOnce(Option<Mark>) -> What) {
        self.record_with(what, || ());
    }

    fn record_with<T>(
        &self,
        what: impl FnOnce(Option<Mark>) -> What,
        happens: impl FnOnce() -> T,
    ) -> T {
        let Some(recorder) = &self.recorder else {
            return happens();
        };
        let mut recorder = lock(recorder);
        let thread = thread::current().id();
        let marked = recorder.marks.iter().position(|(of, _)| *of == thread);
        let mark = marked.map(|index| recorder.marks[index].1);
        let what = what(mark);
        if let (Some(index), true) = (marked, what.takes_mark()) {
            recorder.marks.swap_remove(index);
        }
        // Under the lock (PS1), so that the trace has the order of the stores.
        recorder.trace.push(Event { thread, what });
        happens()
    }
}

impl From<Vec<u64>> for Simulated {
    /// Memory that holds these words.
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
            keeps_lines: true,
            recorder: None,
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

    #[inline]
    fn row(&self, at: Offset, count: usize) -> Words<'_> {
        self.region.row(at, count)
    }

    fn store(&self, at: Offset, word: u64) {
        let what = |_| What::Store(at, vec![word]);
        self.record_with(what, || self.region.store(at, word));
    }

    fn compare_exchange(&self, at: Offset, current: u64, new: u64) -> Result<u64, u64> {
        let Some(recorder) = &self.recorder else {
            return self.region.compare_exchange(at, current, new);
        };
        let mut recorder = lock(recorder);
        let result = self.region.compare_exchange(at, current, new);
        if result.is_ok() {
            recorder.trace.push(Event {
                thread: thread::current().id(),
                what: What::Store(at, vec![new]),
            });
        }
        result
    }

    fn write(&self, at: Offset, bytes: &[u8]) {
        let write = || self.region.write(at, bytes);
        if self.recorder.is_some() {
            self.record_with(|_| What::Store(at, crate::region::words_of(bytes)), write);
        } else {
            write();
        }
    }

    unsafe fn read(&self, at: Offset, length: usize) -> &[u8] {
        // SAFETY: the caller promises it.
        unsafe { self.region.read(at, length) }
    }

    fn keeps_lines(&self) -> bool {
        self.keeps_lines
    }

    fn flush(&self, at: Offset, length: usize) {
        self.region.check(at, length);
        self.record(|mark| What::Flush(at, length, mark));
    }

    fn fence(&self) {
        self.record(What::Fence);
    }

    fn commit(&self, at: Offset, word: u64) -> io::Result<()> {
        self.record(|_| What::Fence(Some(COMMIT_BEFORE)));
        self.store(at, word);
        self.record(|_| What::Flush(at, WORD_BYTES as usize, Some(COMMIT_FLUSH)));
        self.record(|_| What::Fence(Some(COMMIT_AFTER)));
        self.record(|_| What::Committed);
        Ok(())
    }

    fn mark(&self, what: Mark) {
        if let Some(recorder) = &self.recorder {
            let marks = &mut lock(recorder).marks;
            let thread = thread::current().id();
            marks.retain(|(of, _)| *of != thread);
            marks.push((thread, what));
        }
    }
}
