//! A request: the command's name and its arguments, as ranges of the buffer they arrived in.

use std::ops::{Index, Range};

/// The range of one argument in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgumentRange {
    /// Offset of the first byte.
    pub start: u32,
    /// Length in bytes.
    pub len: u32,
}

/// A decoded request; argument 0 is the command's name.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    buffer: &'a [u8],
    arguments: &'a [ArgumentRange],
}

impl<'a> Request<'a> {
    /// Makes a request from the buffer given to the decoder and the ranges it returned.
    #[must_use]
    pub const fn new(buffer: &'a [u8], arguments: &'a [ArgumentRange]) -> Self {
        Self { buffer, arguments }
    }

    /// Number of arguments, including the name.
    #[must_use]
    #[allow(
        clippy::len_without_is_empty,
        reason = "a request has at least its name"
    )]
    pub const fn len(&self) -> usize {
        self.arguments.len()
    }

    /// Argument `index`, if there are that many.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        let range = self.arguments.get(index)?;
        Some(&self.buffer[range.start as usize..][..range.len as usize])
    }

    /// Argument `index`, living as long as the buffer.
    #[must_use]
    #[inline]
    pub fn arg(&self, index: usize) -> &'a [u8] {
        let range = self.arguments[index];
        &self.buffer[range.start as usize..][..range.len as usize]
    }

    /// The arguments from `first` on.
    pub fn args_from(
        &self,
        first: usize,
    ) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let buffer = self.buffer;
        let rest = self.arguments.get(first..).unwrap_or_default();
        rest.iter()
            .map(move |range| &buffer[range.start as usize..][..range.len as usize])
    }

    /// The request that begins at argument `first`, without what precedes it; that argument must
    /// exist.
    #[must_use]
    pub fn tail(&self, first: usize) -> Self {
        debug_assert!(first < self.arguments.len(), "a request has a name");
        Self {
            buffer: self.buffer,
            arguments: &self.arguments[first..],
        }
    }

    /// Whether argument `index` is `word` (given in upper case), in any case.
    #[must_use]
    pub fn is(&self, index: usize, word: &str) -> bool {
        self.get(index)
            .is_some_and(|argument| argument.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Bytes from the start of the first argument to the end of the last one, which lie in order:
    /// about [`Self::bytes`], without visiting each.
    #[must_use]
    #[inline]
    pub fn span_bytes(&self) -> usize {
        match self.arguments {
            [first, .., last] => (last.start + last.len - first.start) as usize,
            [only] => only.len as usize,
            [] => 0,
        }
    }

    /// Bytes of all arguments together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.arguments.iter().map(|range| range.len as usize).sum()
    }
}

impl Index<usize> for Request<'_> {
    type Output = [u8];

    fn index(&self, index: usize) -> &[u8] {
        self.arg(index)
    }
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.args_from(0).map(String::from_utf8_lossy))
            .finish()
    }
}

/// A request that owns its bytes: MULTI queues them, tests and embedders build them.
#[derive(Clone, Debug, Default)]
pub struct RequestBuffer {
    bytes: Vec<u8>,
    arguments: Vec<ArgumentRange>,
}

impl RequestBuffer {
    /// Copies the arguments.
    pub fn from_args<A: AsRef<[u8]>>(args: impl IntoIterator<Item = A>) -> Self {
        let mut buffer = Self::default();
        buffer.extend(args);
        buffer
    }

    /// One with room for so many bytes and arguments.
    #[must_use]
    pub fn with_room(bytes: usize, arguments: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes),
            arguments: Vec::with_capacity(arguments),
        }
    }

    fn extend<A: AsRef<[u8]>>(&mut self, args: impl IntoIterator<Item = A>) {
        for argument in args {
            let argument = argument.as_ref();
            self.arguments.push(ArgumentRange {
                start: self.bytes.len() as u32,
                len: argument.len() as u32,
            });
            self.bytes.extend_from_slice(argument);
        }
        // Ranges have 32 bits.
        assert!(u32::try_from(self.bytes.len()).is_ok());
    }

    /// Copies the arguments of a further request, which is [`Self::part`] of what is returned: at
    /// once, with what stands between them.
    #[inline]
    pub fn push(&mut self, request: Request<'_>) -> Range<usize> {
        let (first, base) = (self.arguments.len(), self.bytes.len());
        if let Some(start) = request.arguments.first().map(|range| range.start) {
            let span = &request.buffer[start as usize..][..request.span_bytes()];
            self.bytes.extend_from_slice(span);
            // Ranges have 32 bits.
            assert!(u32::try_from(self.bytes.len()).is_ok());
            let moved = |range: &ArgumentRange| ArgumentRange {
                start: range.start - start + base as u32,
                len: range.len,
            };
            self.arguments.extend(request.arguments.iter().map(moved));
        }
        first..self.arguments.len()
    }

    /// The request.
    #[must_use]
    pub fn as_request(&self) -> Request<'_> {
        self.part(0..self.arguments.len())
    }

    /// One of several requests.
    #[must_use]
    #[inline]
    pub fn part(&self, arguments: Range<usize>) -> Request<'_> {
        Request::new(&self.bytes, &self.arguments[arguments])
    }

    /// Forgets all arguments, and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.arguments.clear();
    }

    /// Bytes that it holds.
    #[must_use]
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        self.bytes.capacity() + self.arguments.capacity() * size_of::<ArgumentRange>()
    }
}

impl From<Request<'_>> for RequestBuffer {
    fn from(request: Request<'_>) -> Self {
        let mut buffer = Self::with_room(request.span_bytes(), request.len());
        buffer.push(request);
        buffer
    }
}
