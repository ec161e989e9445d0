//! Large columns: a radix tree of fixed-size chunks, persistent by path copying.
//!
//! A write makes the next version of a column. It copies the chunks it partly overwrites and the
//! interior nodes above them, and shares every other chunk with the previous version. Ranges that
//! were never written take no memory.
//!
//! Invariants:
//! - **DC1 least-height** The tree has the least height for which `CHUNK_BYTES *
//!   CHUNK_FANOUT^height` bytes hold the column; height 0 is one chunk.
//! - **DC2 zero-filled** A chunk stores a prefix of its [`CHUNK_BYTES`]; the rest is zeros. A hole
//!   is all zeros. Beyond the column's length there are only zeros.
//! - **DC3 exact-heap** `heap_bytes` is the sum over the column's nodes, shared or not.
//!
//! Deliberately absent: removal of bytes from the middle, which no command needs.

use std::fmt;
use std::ops::Range;

use super::cost;
use super::handle::{Handle, NODE_HEADER_BYTES, STRING_HEADER_BYTES, StringHandle};
use crate::limits::{CHUNK_BYTES, CHUNK_FANOUT, COLUMN_BYTES_MAX};

static ZEROS: [u8; CHUNK_BYTES] = [0; CHUNK_BYTES];

const INTERIOR_HEAP_BYTES: usize = NODE_HEADER_BYTES + size_of::<Interior>();

type Interior = [Node; CHUNK_FANOUT];

/// A large column; see the module's header.
pub struct Chunked {
    root: Node,
    height: u32,
    length: usize,
    heap_bytes: usize,
}

/// A subtree; its height follows from the path to it.
#[derive(Clone)]
enum Node {
    /// Zeros (DC2).
    Hole,
    Chunk(StringHandle),
    Interior(Handle<Interior>),
}

/// Bytes that a subtree of this height covers.
const fn span(height: u32) -> usize {
    CHUNK_BYTES * CHUNK_FANOUT.pow(height)
}

const HEIGHT_MAX: u32 = {
    let mut height = 0;
    while span(height) < COLUMN_BYTES_MAX {
        height += 1;
    }
    height
};

// Recursion, in drops too, goes no deeper than this.
const _: () = assert!(HEIGHT_MAX <= 4);

impl Chunked {
    const EMPTY: Self = Self {
        root: Node::Hole,
        height: 0,
        length: 0,
        heap_bytes: 0,
    };

    /// Cuts `bytes` into chunks. O(length).
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut column = Self::EMPTY;
        column.write(0, bytes);
        column
    }

    /// Length in bytes. O(1).
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Shows the bytes of `range` (within the length) piece by piece, none of them empty.
    /// O(range).
    pub fn for_each_piece<'a>(&'a self, range: Range<usize>, mut visit: impl FnMut(&'a [u8])) {
        assert!(
            range.end <= self.length,
            "{range:?} of {} bytes",
            self.length
        );
        let mut at = range.start;
        while at < range.end {
            let within = at % CHUNK_BYTES;
            let end = CHUNK_BYTES.min(within + (range.end - at));
            let chunk = self.chunk(at / CHUNK_BYTES);
            let written = end.min(chunk.len());
            if within < written {
                visit(&chunk[within..written]);
            }
            let hole = within.max(chunk.len())..end;
            if !hole.is_empty() {
                visit(&ZEROS[hole]);
            }
            at += end - within;
        }
    }

    /// The stored prefix of a chunk (DC2). O(height).
    fn chunk(&self, index: usize) -> &[u8] {
        let (mut node, mut height) = (&self.root, self.height);
        loop {
            match node {
                Node::Hole => return &[],
                Node::Chunk(chunk) => return chunk,
                Node::Interior(children) => {
                    height -= 1;
                    node = &children[index / CHUNK_FANOUT.pow(height) % CHUNK_FANOUT];
                }
            }
        }
    }

    /// The next version, with `bytes` at `offset` and zeros in a gap before it. Copies at most two
    /// chunks and the nodes on the paths to them; a gap costs nothing.
    #[must_use]
    pub fn with_write(&self, offset: usize, bytes: &[u8]) -> Self {
        let mut new = self.hand_over();
        new.write(offset, bytes);
        new
    }

    /// [`Self::with_write`] on this version itself: nodes that no other version shares are changed
    /// in place.
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        assert!(end <= COLUMN_BYTES_MAX, "column of {end} bytes");
        self.length = self.length.max(end);
        while span(self.height) < self.length {
            self.raise();
        }
        // DC1.
        debug_assert!(self.height == 0 || span(self.height - 1) < self.length);
        if !bytes.is_empty() {
            let added = write(&mut self.root, self.height, offset, bytes);
            self.heap_bytes = self.heap_bytes.checked_add_signed(added).expect("DC3");
        }
    }

    /// Adds a root above the root (DC1).
    fn raise(&mut self) {
        self.height += 1;
        if !matches!(self.root, Node::Hole) {
            let mut children = [const { Node::Hole }; CHUNK_FANOUT];
            children[0] = std::mem::replace(&mut self.root, Node::Hole);
            self.root = Node::Interior(Handle::new(children));
            self.heap_bytes += INTERIOR_HEAP_BYTES;
        }
    }

    /// Shows, in order, ranges outside of which this version equals `old`, an earlier version.
    /// Shared chunks cost nothing; other ranges are narrowed by equal bytes at their ends. Bytes
    /// beyond the end of `old` that are in no range are zeros. O(changed · height); O(written) when
    /// nothing is shared, as with [`Self::empty`].
    pub fn changed_since(&self, old: &Self, visit: &mut impl FnMut(Range<usize>)) {
        let within = 0..self.length;
        if old.length > self.length || old.height > self.height {
            if !within.is_empty() {
                visit(within);
            }
            return;
        }
        let mut show = |range: Range<usize>| {
            let range = range.start..range.end.min(self.length);
            if !range.is_empty() {
                visit(range);
            }
        };
        changed(&self.root, self.height, &old.root, old.height, 0, &mut show);
    }

    /// Heap bytes of the nodes that `next`, a later version, does not share: the garbage when this
    /// version is dropped. O(nodes of both that are not shared).
    #[must_use]
    pub fn bytes_beyond(&self, next: &Self) -> usize {
        bytes_beyond(&self.root, self.height, &next.root, next.height)
    }

    /// A column without bytes.
    #[must_use]
    pub const fn empty() -> Self {
        Self::EMPTY
    }

    /// Whether both are the same nodes, and so hold the same bytes; nothing is compared.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.length == other.length && self.height == other.height && self.root.is_same(&other.root)
    }

    /// A copy that shares nothing. O(bytes written).
    #[must_use]
    pub fn deep_copy(&self) -> Self {
        Self {
            root: self.root.deep_copy(),
            ..*self
        }
    }

    /// The same column, handed over to a successor value (D2 successors-share). O(1).
    #[must_use]
    pub fn hand_over(&self) -> Self {
        Self {
            root: self.root.clone(),
            ..*self
        }
    }

    /// Heap bytes of the column, including nodes shared with other versions. O(1).
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.heap_bytes
    }
}

impl Node {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Node::Hole, Node::Hole) => true,
            (Node::Chunk(one), Node::Chunk(other)) => one.is_same(other),
            (Node::Interior(one), Node::Interior(other)) => one.is_same(other),
            _ => false,
        }
    }

    fn deep_copy(&self) -> Self {
        match self {
            Node::Hole => Node::Hole,
            Node::Chunk(chunk) => Node::Chunk(StringHandle::from(&chunk[..])),
            Node::Interior(children) => Node::Interior(Handle::new(std::array::from_fn(|index| {
                children[index].deep_copy()
            }))),
        }
    }
}

/// Shows ranges that cover the differences between two subtrees that begin at `offset` of their
/// columns; the old one may be lower.
fn changed(
    new: &Node,
    height: u32,
    old: &Node,
    old_height: u32,
    offset: usize,
    show: &mut impl FnMut(Range<usize>),
) {
    debug_assert!(old_height <= height);
    if height == old_height && new.is_same(old) {
        return;
    }
    match (new, old) {
        (Node::Hole, Node::Hole) => {}
        (Node::Hole, _) => show(offset..offset + span(height)),
        (Node::Chunk(new), old) => {
            let old = match old {
                Node::Chunk(old) => &old[..],
                Node::Hole | Node::Interior(_) => &[],
            };
            let range = differing(new, old);
            show(offset + range.start..offset + range.end);
        }
        (Node::Interior(children), old) => {
            let child_bytes = span(height - 1);
            for (index, child) in children.iter().enumerate() {
                let at = offset + index * child_bytes;
                let (old, old_height) = match old {
                    Node::Interior(olds) if old_height == height => (&olds[index], height - 1),
                    old if old_height < height && index == 0 => (old, old_height),
                    _ => (&Node::Hole, 0),
                };
                changed(child, height - 1, old, old_height, at, show);
            }
        }
    }
}

/// Heap bytes of a subtree's nodes that are not at the same place in another one; both begin at the
/// same offset of their columns.
fn bytes_beyond(old: &Node, height: u32, next: &Node, next_height: u32) -> usize {
    if next_height > height {
        let first = match next {
            Node::Interior(children) => &children[0],
            Node::Hole | Node::Chunk(_) => &Node::Hole,
        };
        return bytes_beyond(old, height, first, next_height - 1);
    }
    if height == next_height && old.is_same(next) {
        return 0;
    }
    match old {
        Node::Hole => 0,
        Node::Chunk(chunk) => STRING_HEADER_BYTES + chunk.len(),
        Node::Interior(children) => {
            let below = children.iter().enumerate().map(|(index, child)| {
                let (next, next_height) = match next {
                    Node::Interior(nexts) if next_height == height => (&nexts[index], height - 1),
                    next if next_height < height && index == 0 => (next, next_height),
                    _ => (&Node::Hole, 0),
                };
                bytes_beyond(child, height - 1, next, next_height)
            });
            INTERIOR_HEAP_BYTES + below.sum::<usize>()
        }
    }
}

/// A range outside of which two byte strings are equal; the shorter one counts as padded with
/// zeros.
pub(super) fn differing(new: &[u8], old: &[u8]) -> Range<usize> {
    let common = new.len().min(old.len());
    let equal = new.iter().zip(old).take_while(|(new, old)| new == old);
    let start = equal.count();
    if start == common {
        return start..new.len().max(old.len());
    }
    if new.len() != old.len() {
        return start..new.len().max(old.len());
    }
    let tail = new[start..].iter().rev().zip(old[start..].iter().rev());
    start..new.len() - tail.take_while(|(new, old)| new == old).count()
}

/// Writes `bytes`, which are not empty, at `offset` of a subtree; returns by how many heap bytes it
/// grew.
fn write(node: &mut Node, height: u32, offset: usize, bytes: &[u8]) -> isize {
    if height == 0 {
        return write_chunk(node, offset, bytes);
    }
    let mut added = 0;
    if matches!(node, Node::Hole) {
        *node = Node::Interior(Handle::new([const { Node::Hole }; CHUNK_FANOUT]));
        added += INTERIOR_HEAP_BYTES as isize;
    }
    let Node::Interior(children) = node else {
        unreachable!("a chunk stands at height 0 (DC1)")
    };
    let children = children.unshare();
    let child_bytes = span(height - 1);
    let (mut at, mut rest) = (offset, bytes);
    while !rest.is_empty() {
        let within = at % child_bytes;
        let (now, later) = rest.split_at(rest.len().min(child_bytes - within));
        added += write(&mut children[at / child_bytes], height - 1, within, now);
        at += now.len();
        rest = later;
    }
    added
}

/// Writes `bytes` at `offset` of a chunk, up to [`CHUNK_BYTES`]; like [`write`].
fn write_chunk(node: &mut Node, offset: usize, bytes: &[u8]) -> isize {
    let end = offset + bytes.len();
    debug_assert!(end <= CHUNK_BYTES);
    let (old, old_heap_bytes) = match node {
        Node::Chunk(chunk) if end <= chunk.len() && bytes.len() < chunk.len() => {
            chunk.unshare()[offset..end].copy_from_slice(bytes);
            return 0;
        }
        Node::Chunk(chunk) => (&chunk[..], chunk.len() + STRING_HEADER_BYTES),
        Node::Hole => (&[][..], 0),
        Node::Interior(_) => unreachable!("an interior node stands above height 0 (DC1)"),
    };
    let new = if offset == 0 {
        StringHandle::from(bytes)
    } else {
        let kept = &old[..old.len().min(offset)];
        cost::copied(kept.len());
        let mut new = Vec::with_capacity(end);
        new.extend_from_slice(kept);
        new.resize(offset, 0);
        new.extend_from_slice(bytes);
        StringHandle::from(new)
    };
    *node = Node::Chunk(new);
    (end + STRING_HEADER_BYTES) as isize - old_heap_bytes as isize
}

impl fmt::Debug for Chunked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            height,
            length,
            heap_bytes,
            ..
        } = self;
        write!(
            f,
            "Chunked({length} bytes, height {height}, {heap_bytes} heap bytes)"
        )
    }
}

#[cfg(test)]
mod tests;
