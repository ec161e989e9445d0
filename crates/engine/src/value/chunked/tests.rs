//! Columns against a vector, their structure, and what a write costs.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::StringRef;
use crate::value::cost::{self, Cost};

const MIB: usize = 1024 * 1024;

/// Checks DC1 least-height, DC2 zero-filled and DC3 exact-heap.
fn check(column: &Chunked) {
    assert!(column.length <= span(column.height));
    assert!(column.height == 0 || span(column.height - 1) < column.length);
    let heap_bytes = check_node(&column.root, column.height, column.length);
    assert_eq!(heap_bytes, column.heap_bytes);
}

fn check_node(node: &Node, height: u32, length: usize) -> usize {
    match node {
        Node::Hole => 0,
        Node::Chunk(chunk) => {
            assert_eq!(height, 0);
            assert!(chunk.len() <= CHUNK_BYTES.min(length));
            STRING_HEADER_BYTES + chunk.len()
        }
        Node::Interior(children) => {
            assert!(height > 0);
            let below: usize = children
                .iter()
                .enumerate()
                .map(|(index, child)| {
                    let start = index * span(height - 1);
                    check_node(child, height - 1, length.saturating_sub(start))
                })
                .sum();
            INTERIOR_HEAP_BYTES + below
        }
    }
}

fn bytes_of(column: &Chunked, range: Range<usize>) -> Vec<u8> {
    let mut bytes = Vec::new();
    column.for_each_piece(range, |piece| {
        assert!(!piece.is_empty());
        bytes.extend_from_slice(piece);
    });
    bytes
}

fn nodes(node: &Node, seen: &mut Vec<*const u8>) {
    match node {
        Node::Hole => {}
        Node::Chunk(chunk) => seen.push(chunk.as_ptr()),
        Node::Interior(children) => {
            seen.push(children.address());
            children.iter().for_each(|child| nodes(child, seen));
        }
    }
}

/// Positions about the bounds of chunks and of levels.
fn position() -> impl Strategy<Value = usize> {
    let edges = [
        0,
        CHUNK_BYTES,
        2 * CHUNK_BYTES,
        span(1),
        span(1) + CHUNK_BYTES,
    ];
    (
        prop::sample::select(edges.to_vec()),
        0..3_usize,
        0..40_usize,
    )
        .prop_map(|(edge, before, random)| (edge + random * random * 7).saturating_sub(before))
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        0..20_usize,
        CHUNK_BYTES - 2..CHUNK_BYTES + 2,
        0..3 * CHUNK_BYTES
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn columns_are_vectors(first in length(), writes in vec((position(), length()), 0..12)) {
        let mut model: Vec<u8> = (0..first).map(|at| at as u8).collect();
        let mut column = Chunked::from_bytes(&model);
        let mut versions = vec![(column.hand_over(), model.clone())];
        for (seed, (offset, length)) in writes.into_iter().enumerate() {
            let bytes: Vec<u8> = (0..length).map(|at| (at * 31 + seed + 1) as u8).collect();
            column = column.with_write(offset, &bytes);
            model.resize(model.len().max(offset + length), 0);
            model[offset..offset + length].copy_from_slice(&bytes);
            versions.push((column.hand_over(), model.clone()));
        }
        for (column, model) in &versions {
            check(column);
            prop_assert!(StringRef::Chunked(column) == model.as_slice(), "every version stays");
        }
        let (from, to) = (model.len() / 3, model.len() - model.len() / 4);
        prop_assert!(bytes_of(&column, from..to) == model[from..to]);
        let copy = column.deep_copy();
        check(&copy);
        prop_assert!(StringRef::Chunked(&copy) == model.as_slice());
    }
}

#[test]
fn a_write_to_a_large_column_copies_one_path() {
    let column = Chunked::from_bytes(&vec![7; 100 * MIB]);
    let interiors = 3 * size_of::<Interior>();

    let (appended, cost) = cost::of(|| column.with_write(column.len(), b"0123456789"));
    assert_eq!(column.height, 4);
    assert!(
        cost.nodes <= 5 && cost.bytes <= interiors + size_of::<Interior>(),
        "{cost:?}"
    );
    assert_eq!(
        bytes_of(&appended, 100 * MIB - 2..100 * MIB + 3),
        *b"\x07\x07012"
    );

    // Now the last chunk is begun: it is copied.
    let (appended, cost) = cost::of(|| appended.with_write(appended.len(), b"0123456789"));
    assert!(
        cost.nodes <= 5 && cost.bytes <= interiors + 2 * CHUNK_BYTES,
        "{cost:?}"
    );
    assert_eq!(appended.len(), 100 * MIB + 20);

    let (changed, cost) = cost::of(|| column.with_write(50 * MIB + 5, b"0123456789"));
    assert!(
        cost.nodes <= 5 && cost.bytes <= interiors + 2 * CHUNK_BYTES,
        "{cost:?}"
    );
    assert_eq!(
        bytes_of(&column, 50 * MIB..50 * MIB + 20),
        [7; 20],
        "the old version stays"
    );
    assert_eq!(bytes_of(&changed, 50 * MIB + 4..50 * MIB + 7), *b"\x0701");

    let (_, cost) = cost::of(|| column.hand_over());
    assert_eq!(cost, Cost::default());
}

#[test]
fn what_was_never_written_takes_no_memory() {
    let column = Chunked::from_bytes(&vec![7; 20_000]);
    let (sparse, cost) = cost::of(|| column.with_write(COLUMN_BYTES_MAX - 1, b"x"));
    assert_eq!(sparse.len(), COLUMN_BYTES_MAX);
    assert!(
        sparse.heap_bytes() < 6 * CHUNK_BYTES,
        "{}",
        sparse.heap_bytes()
    );
    assert!(cost.nodes <= 2, "{cost:?}");
    check(&sparse);
    assert_eq!(bytes_of(&sparse, 19_999..20_002), [7, 0, 0]);
    assert_eq!(
        bytes_of(&sparse, COLUMN_BYTES_MAX - 2..COLUMN_BYTES_MAX),
        *b"\0x"
    );

    // Filled in the middle of the gap later.
    let sparse = sparse.with_write(COLUMN_BYTES_MAX / 2, b"middle");
    check(&sparse);
    assert_eq!(
        bytes_of(&sparse, COLUMN_BYTES_MAX / 2 - 1..COLUMN_BYTES_MAX / 2 + 7),
        *b"\0middle\0"
    );
}

#[test]
fn a_write_of_nothing_only_reaches_its_offset() {
    let column = Chunked::from_bytes(b"abc").with_write(5, b"");
    check(&column);
    assert_eq!(bytes_of(&column, 0..5), *b"abc\0\0");
    assert_eq!(column.with_write(1, b"").len(), 5);
}

#[test]
fn a_deep_copy_shares_no_node() {
    let column = Chunked::from_bytes(&vec![7; 300_000]).with_write(90 * MIB, b"end");
    let copy = column.deep_copy();
    let (mut old, mut new) = (Vec::new(), Vec::new());
    nodes(&column.root, &mut old);
    nodes(&copy.root, &mut new);
    assert_eq!(old.len(), new.len());
    assert!(old.iter().all(|node| !new.contains(node)));
}

#[test]
fn a_version_in_the_making_is_changed_in_place() {
    let mut column = Chunked::from_bytes(&vec![7; 10 * CHUNK_BYTES]).with_write(3, b"x");
    let ((), cost) = cost::of(|| {
        for at in 0..100 {
            column.write(at, b"y");
        }
    });
    assert_eq!(cost, Cost::default());
}

#[test]
fn what_successive_columns_share_is_the_same_from_either_side() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut column = Chunked::from_bytes(&vec![7; 5 * CHUNK_BYTES]);
    for step in 0..200 {
        let offset = random.usize(..=column.len() + 2 * CHUNK_BYTES);
        let next = column.with_write(offset, &vec![1; random.usize(1..2 * CHUNK_BYTES)]);
        let (gone, come) = (column.bytes_beyond(&next), next.bytes_beyond(&column));
        let shared = column.heap_bytes() - gone;
        assert_eq!(shared, next.heap_bytes() - come, "step {step}");
        column = next;
    }
    assert_eq!(column.bytes_beyond(&column.hand_over()), 0);
    assert_eq!(
        column.bytes_beyond(&column.deep_copy()),
        column.heap_bytes()
    );
}
