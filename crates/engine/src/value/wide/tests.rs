//! Structure of wide rows, and what a change of one costs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::collection::vec;
use proptest::prelude::*;

use super::tally::{Fault, PLANTED};
use super::*;
use crate::limits::{COLUMN_FLAT_BYTES_MAX, WIDE_FANOUT_MAX, WIDE_FANOUT_MIN, WIDE_LEAF_BYTES_MAX};
use crate::value::cost::{self, Cost};
use crate::value::row::{Cell, EMPTY};

/// Checks DW1 leaf-weight to DW6 large-in-order.
pub(super) fn check(row: &WideRow) {
    let depth = check_tree(&row.root, true, None, None);
    assert!(depth <= 16, "depth {depth}");
}

/// Returns the depth of the subtree, whose fields lie in `low..high`.
fn check_tree(tree: &Subtree, root: bool, low: Option<&[u8]>, high: Option<&[u8]>) -> usize {
    let mut recounted = tree.clone();
    recounted.recount();
    assert_eq!(
        (recounted.fields, recounted.elements, recounted.heap_bytes),
        (tree.fields, tree.elements, tree.heap_bytes),
        "DW5"
    );
    match &tree.node {
        Node::Leaf(leaf) => {
            check_leaf(leaf, root, low, high);
            0
        }
        Node::Interior(children) => {
            let least = if root { 2 } else { WIDE_FANOUT_MIN };
            assert!(
                (least..=WIDE_FANOUT_MAX).contains(&children.len()),
                "DW2: {}",
                children.len()
            );
            let light = |child: &Child| match &child.tree.node {
                Node::Leaf(leaf) => leaf.weight() < WIDE_LEAF_BYTES_MAX / 4,
                Node::Interior(_) => false,
            };
            assert!(
                !children
                    .windows(2)
                    .any(|two| light(&two[0]) && light(&two[1])),
                "DW3"
            );
            let separator =
                |index: usize| children.get(index).map(|next| next.separator.as_bytes());
            let depths: Vec<_> = (0..children.len())
                .map(|index| {
                    let low = if index == 0 { low } else { separator(index) };
                    check_tree(
                        &children[index].tree,
                        false,
                        low,
                        separator(index + 1).or(high),
                    )
                })
                .collect();
            assert!(depths.iter().all(|depth| *depth == depths[0]), "DW2");
            depths[0] + 1
        }
    }
}

fn check_leaf(leaf: &Leaf, root: bool, low: Option<&[u8]>, high: Option<&[u8]>) {
    let row = leaf.row();
    assert!(
        leaf.weight() <= WIDE_LEAF_BYTES_MAX || row.len() == 1,
        "DW1: {}",
        leaf.weight()
    );
    assert!(root || row.len() > 0, "DW1");
    for index in 0..row.len() {
        let field = row.field(index);
        assert!(index == 0 || row.field(index - 1) < field);
        assert!(
            low.is_none_or(|low| low <= field) && high.is_none_or(|high| field < high),
            "DW4"
        );
    }
    assert_eq!(row.out_of_line_before(row.len()), leaf.large.len(), "DW6");
}

/// Interior levels.
fn height(row: &WideRow) -> usize {
    check_tree(&row.root, true, None, None)
}

fn numbered(number: usize) -> Vec<u8> {
    format!("element:{number:012}").into_bytes()
}

/// Fields 0, 2, 4, …, in a random order.
fn filled(fields: usize) -> WideRow {
    let mut numbers: Vec<_> = (0..fields).map(|number| 2 * number).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut numbers);
    let mut row = WideRow::from_block(EMPTY.as_slice().into(), false);
    for number in numbers {
        row.set(&numbered(number), Column::Flat(b"value"));
    }
    row
}

/// The columns of the row, large ones by their length.
fn columns(row: &WideRow) -> Vec<(Vec<u8>, usize)> {
    let mut columns = Vec::new();
    while let Some((leaf, 0)) = row.nth_leaf(columns.len()) {
        for index in 0..leaf.row().len() {
            columns.push((leaf.row().field(index).to_vec(), leaf.value(index).len()));
        }
    }
    columns
}

/// Few distinct fields of very different lengths, so that they are met again.
fn field() -> impl Strategy<Value = Vec<u8>> {
    let stem = prop::sample::select(vec![0_usize, 1, 21, 22, 23, 300, 3_000]);
    (stem, 0..60_u8).prop_map(|(stem, last)| [&vec![b's'; stem][..], &[last]].concat())
}

/// Lengths about every bound.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        6 => 0..30_usize,
        3 => 0..600_usize,
        1 => 0..5_000_usize,
        1 => COLUMN_FLAT_BYTES_MAX - 1..COLUMN_FLAT_BYTES_MAX + 3,
    ]
}

fn set(row: &mut WideRow, field: &[u8], length: usize) -> bool {
    let value = vec![b'v'; length];
    let large = length > COLUMN_FLAT_BYTES_MAX;
    let column = if large {
        Column::Large(Chunked::from_bytes(&value))
    } else {
        Column::Flat(&value)
    };
    row.set(field, column)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn rows_are_sorted_maps(
        changes in vec((field(), prop::option::weighted(0.6, length())), 0..400),
        keep in 0..400_usize,
    ) {
        let mut model = BTreeMap::new();
        let mut row = WideRow::from_block(EMPTY.as_slice().into(), false);
        let mut kept = None;
        for (index, (field, change)) in changes.into_iter().enumerate() {
            let was_there = model.contains_key(&field);
            if let Some(length) = change {
                prop_assert_eq!(set(&mut row, &field, length), !was_there);
                model.insert(field, length);
            } else {
                prop_assert_eq!(row.remove(&field), was_there);
                model.remove(&field);
            }
            check(&row);
            prop_assert_eq!(row.len(), model.len());
            if index == keep {
                kept = Some((row.hand_over(), model.clone()));
            }
        }
        for (row, model) in kept.iter().chain([&(row, model)]) {
            check(row);
            prop_assert_eq!(&columns(row), &model.clone().into_iter().collect::<Vec<_>>());
            for (rank, field) in model.keys().enumerate() {
                prop_assert_eq!(row.rank(field), rank);
                let after = [&field[..], &[0]].concat();
                prop_assert_eq!(row.rank(&after), rank + 1);
                let (leaf, index) = row.nth_leaf(rank).unwrap();
                prop_assert_eq!(leaf.row().field(index), field.as_slice());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Runs of fields that come and go: trees of three levels whose interior nodes merge, share
    /// out and lose their first children.
    #[test]
    fn runs_of_fields_come_and_go(
        runs in vec(
            (any::<bool>(), 0..600_usize, 1..200_usize, 1..4_usize, 300..1_500_usize),
            1..25,
        ),
    ) {
        apply_runs(&runs);
    }
}

/// Runs of fields: whether they go, first number, count, step, length of the values.
type Run = (bool, usize, usize, usize, usize);

/// Sets and removes runs of fields, and checks the row after each.
fn apply_runs(runs: &[Run]) {
    let mut model = BTreeMap::new();
    let mut row = WideRow::from_block(EMPTY.as_slice().into(), false);
    for &(remove, start, count, step, length) in runs {
        for number in (start..).step_by(step).take(count) {
            let field = numbered(number);
            if remove {
                assert_eq!(row.remove(&field), model.remove(&field).is_some());
            } else {
                set(&mut row, &field, length);
                model.insert(field, length);
            }
        }
        check(&row);
        assert_eq!(columns(&row), model.clone().into_iter().collect::<Vec<_>>());
    }
}

/// Two interior nodes merged, and the light leaves at the seam stayed apart.
#[test]
fn light_leaves_at_the_seam_of_merged_nodes_are_joined() {
    apply_runs(&[
        (false, 571, 25, 3, 659),
        (false, 377, 133, 2, 659),
        (false, 383, 171, 2, 401),
        (true, 459, 158, 1, 300),
    ]);
}

#[test]
fn a_change_copies_one_node_per_level() {
    let row = filled(100_000);
    check(&row);
    let height = height(&row);
    assert!((3..=5).contains(&height), "{height}");
    let level_bytes = WIDE_FANOUT_MAX * size_of::<Child>();

    let (changed, cost) = cost::of(|| {
        let mut changed = row.hand_over();
        assert!(!changed.set(&numbered(77_000), Column::Flat(b"other")));
        changed
    });
    assert_eq!(cost.nodes, height + 1);
    assert!(
        cost.bytes <= height * level_bytes + WIDE_LEAF_BYTES_MAX,
        "{cost:?}"
    );
    assert!(row.get(&numbered(77_000)).unwrap() == &b"value"[..]);
    assert!(changed.get(&numbered(77_000)).unwrap() == &b"other"[..]);

    for number in (1..200_000).step_by(10_000) {
        let (_, cost) = cost::of(|| row.hand_over().set(&numbered(number), Column::Flat(b"new")));
        assert!(cost.nodes <= height + 1, "{cost:?}");
        let (_, cost) = cost::of(|| row.hand_over().remove(&numbered(number - 1)));
        assert!(cost.nodes <= height + 3, "{cost:?}");
    }
    let (_, cost) = cost::of(|| row.hand_over().remove(b"not there"));
    assert_eq!(cost, Cost::default());
}

#[test]
fn a_draft_copies_each_node_once() {
    let row = filled(20_000);
    let mut draft = row.hand_over();
    let ((), first) = cost::of(|| {
        for number in (0..40_000).step_by(2) {
            draft.set(&numbered(number), Column::Flat(b"VALUE"));
        }
    });
    let nodes = row.heap_bytes() / 500;
    assert!(first.nodes < nodes, "{first:?}, about {nodes} nodes");
    let ((), second) = cost::of(|| {
        for number in (0..40_000).step_by(2) {
            draft.set(&numbered(number), Column::Flat(b"value"));
        }
    });
    assert_eq!(second, Cost::default());
    check(&draft);
}

#[test]
fn fields_that_come_in_order_fill_their_leaves() {
    let mut row = WideRow::from_block(EMPTY.as_slice().into(), false);
    for number in 0..20_000 {
        row.set(&numbered(number), Column::Flat(b"value"));
    }
    check(&row);
    let content = 20_000 * (20 + 5 + 4);
    assert!(
        row.heap_bytes() < content * 5 / 4,
        "{} of {content}",
        row.heap_bytes()
    );
}

#[test]
fn a_row_shrinks_with_its_fields() {
    let mut row = filled(20_000);
    let full = row.heap_bytes();
    for number in 0..19_990 {
        assert!(row.remove(&numbered(2 * number)));
        if number % 1_000 == 0 {
            check(&row);
        }
    }
    check(&row);
    assert_eq!(row.len(), 10);
    assert!(row.heap_bytes() < full / 1_000);
    for number in 19_990..20_000 {
        assert!(row.remove(&numbered(2 * number)));
    }
    check(&row);
    assert!(row.is_empty());
}

#[test]
fn long_common_prefixes_cost_no_copies_of_separators() {
    let stem = vec![b's'; 60_000];
    let mut row = WideRow::from_block(EMPTY.as_slice().into(), false);
    let field = |number: u16| [&stem[..], &number.to_be_bytes()].concat();
    for number in 0..300 {
        row.set(&field(2 * number), Column::Flat(b""));
    }
    check(&row);
    let (_, cost) = cost::of(|| row.hand_over().set(&field(151), Column::Flat(b"")));
    // The leaf that is split, and interior nodes without their separators.
    assert!(cost.bytes < 3 * stem.len(), "{cost:?}");
}

#[test]
fn a_deep_copy_shares_no_node() {
    fn nodes(tree: &Subtree, seen: &mut Vec<*const u8>) {
        match &tree.node {
            Node::Leaf(leaf) => seen.push(leaf.address()),
            Node::Interior(children) => {
                seen.push(children.as_ptr().cast());
                children.iter().for_each(|child| nodes(&child.tree, seen));
            }
        }
    }
    let mut row = filled(2_000);
    row.set(
        b"large",
        Column::Large(Chunked::from_bytes(&vec![1; 100_000])),
    );
    let copy = row.deep_copy();
    check(&copy);
    assert_eq!(columns(&row), columns(&copy));
    let (mut old, mut new) = (Vec::new(), Vec::new());
    nodes(&row.root, &mut old);
    nodes(&copy.root, &mut new);
    assert_eq!(old.len(), new.len());
    assert!(old.iter().all(|node| !new.contains(node)));
}

#[test]
fn a_light_leaf_goes_when_its_heavy_neighbour_does() {
    let mut row = WideRow::from_block(EMPTY.as_slice().into(), false);
    for (field, length) in [(b"a", 100), (b"m", 16_000), (b"z", 100)] {
        set(&mut row, field, length);
    }
    check(&row);
    assert!(row.remove(b"m"));
    check(&row);
    assert!(matches!(row.root.node, Node::Leaf(_)));
}

#[test]
fn cells_tell_where_large_columns_are() {
    let mut row = WideRow::from_block(EMPTY.as_slice().into(), false);
    for field in [b"b", b"d", b"a", b"c"] {
        let length = if field == b"c" {
            1
        } else {
            COLUMN_FLAT_BYTES_MAX + usize::from(field[0])
        };
        set(&mut row, field, length);
    }
    check(&row);
    let Node::Leaf(leaf) = &row.root.node else {
        panic!("large columns weigh little")
    };
    assert_eq!(leaf.row().cell(2), Cell::Inline(b"v"));
    let lengths: Vec<_> = columns(&row)
        .into_iter()
        .map(|(_, length)| length)
        .collect();
    let flat = COLUMN_FLAT_BYTES_MAX;
    assert_eq!(lengths, [flat + 97, flat + 98, 1, flat + 100]);
    assert!(!set(&mut row, b"b", 2) && row.remove(b"a"));
    let lengths: Vec<_> = columns(&row)
        .into_iter()
        .map(|(_, length)| length)
        .collect();
    assert_eq!(lengths, [2, 1, flat + 100]);
}

/// All nodes of a row.
fn nodes(row: &WideRow) -> Vec<&Subtree> {
    let mut all = vec![&row.root];
    let mut at = 0;
    while let Some(tree) = all.get(at) {
        if let Node::Interior(children) = &tree.node {
            all.extend(children.iter().map(|child| &child.tree));
        }
        at += 1;
    }
    all
}

/// `bytes_beyond`, by looking at all nodes.
fn beyond(old: &WideRow, next: &WideRow) -> usize {
    let address = |tree: &Subtree| match &tree.node {
        Node::Leaf(leaf) => leaf.address(),
        Node::Interior(children) => children.address(),
    };
    let kept: BTreeSet<_> = nodes(next).into_iter().map(address).collect();
    let columns = nodes(next).into_iter().flat_map(|tree| match &tree.node {
        Node::Leaf(leaf) => &leaf.large[..],
        Node::Interior(_) => &[],
    });
    let columns: Vec<&Chunked> = columns.collect();
    let gone = nodes(old)
        .into_iter()
        .filter(|tree| !kept.contains(&address(tree)));
    gone.map(|tree| match &tree.node {
        Node::Interior(children) => {
            tree.heap_bytes - children.iter().map(|it| it.tree.heap_bytes).sum::<usize>()
        }
        Node::Leaf(leaf) => {
            let is_kept = |column: &&Chunked| columns.iter().any(|it| it.is_same(column));
            let kept = leaf.large.iter().filter(is_kept).map(Chunked::heap_bytes);
            tree.heap_bytes - kept.sum::<usize>()
        }
    })
    .sum()
}

#[test]
fn a_row_that_was_taken_is_changed_without_copies() {
    let mut place = filled(20_000);
    let number = place.tally.beyond(&place).is_none();
    assert!(number && place.take().is_some_and(|row| row.len() == 20_000));
    assert!(place.is_empty() && place.take().is_none());

    let mut place = filled(20_000);
    let mut row = place.take().expect("it is there");
    let ((), cost) = cost::of(|| {
        for number in (0..40_000).step_by(170) {
            row.set(&numbered(number), Column::Flat(b"other"));
        }
    });
    assert_eq!(cost, Cost::default());
    check(&row);
    // A second holder keeps what it has.
    let image = row.hand_over();
    let before = columns(&image);
    place = row;
    let mut row = place.take().expect("it is there");
    let (_, cost) = cost::of(|| row.set(&numbered(6), Column::Flat(b"a longer one")));
    assert_eq!(cost.nodes, height(&row) + 1);
    assert!(row.remove(&numbered(8)));
    check(&row);
    check(&image);
    assert_eq!(columns(&image), before);
    assert_eq!(row.bytes_beyond(&image), beyond(&row, &image));
    assert_eq!(image.bytes_beyond(&row), beyond(&image, &row));
}

/// Runs a check with a fault, which it must find. What is counted is compared in debug builds, too:
/// DW7 counted-garbage.
fn with(fault: Fault, run: impl FnOnce() + std::panic::UnwindSafe) {
    PLANTED.set(Some(fault));
    let caught = std::panic::catch_unwind(run).is_err();
    PLANTED.set(None);
    assert!(caught, "{fault:?} is not caught");
}

/// Fields are set along ways that were found before other fields were set and removed, whose
/// leaves split and merge meanwhile.
fn set_along_old_ways() {
    let mut row = filled(3_000);
    let mut model: BTreeMap<_, _> = columns(&row).into_iter().collect();
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..3_000 {
        let field = numbered(random.usize(..12_000));
        let way = row.way_to(&field);
        for _ in 0..random.usize(..6) {
            let other = numbered(random.usize(..12_000));
            if random.bool() {
                row.set(&other, Column::Flat(b"other"));
                model.insert(other, 5);
            } else {
                row.remove(&other);
                model.remove(&other);
            }
        }
        row.set_along(&way, &field, b"along");
        model.insert(field, 5);
    }
    check(&row);
    assert_eq!(columns(&row), model.into_iter().collect::<Vec<_>>());
}

#[test]
fn ways_hold_until_nodes_come_or_go() {
    set_along_old_ways();
    with(Fault::ShapeKept, set_along_old_ways);
}

#[test]
fn garbage_that_is_not_counted_is_caught() {
    with(Fault::LeafUncounted, || share_from_either_side(false));
    with(Fault::NumberKept, || {
        a_row_that_was_taken_is_changed_without_copies();
    });
}

#[test]
fn what_successive_rows_share_is_the_same_from_either_side() {
    // With large columns nodes are compared, without them they were counted
    // (DW7 counted-garbage).
    for large in [false, true] {
        share_from_either_side(large);
    }
}

fn share_from_either_side(large: bool) {
    let mut random = fastrand::Rng::with_seed(7);
    let mut row = filled(3_000);
    for step in 0..300 {
        let mut next = row.hand_over();
        // Now and then so many that runs of neighbours change.
        let many = [4, 4, 4, 40, 400][step % 5];
        for _ in 0..random.usize(1..many) {
            let field = numbered(random.usize(..7_000));
            match random.u8(..4) {
                0 => drop(next.remove(&field)),
                1 if large => {
                    let large = Chunked::from_bytes(&vec![1; 100_000]);
                    next.set(&field, Column::Large(large));
                }
                _ => {
                    let value = vec![b'v'; random.usize(..600)];
                    next.set(&field, Column::Flat(&value));
                }
            }
        }
        assert!(large || next.tally.beyond(&row).is_some());
        let (gone, come) = (row.bytes_beyond(&next), next.bytes_beyond(&row));
        let shared = row.heap_bytes() - gone;
        assert_eq!(shared, next.heap_bytes() - come, "step {step}");
        assert_eq!(gone, beyond(&row, &next), "step {step}");
        assert!(
            many > 4 || shared > row.heap_bytes() / 2,
            "step {step}: {shared}"
        );
        row = next;
    }
    assert_eq!(row.bytes_beyond(&row.hand_over()), 0);
    let other = row.deep_copy();
    assert_eq!(row.bytes_beyond(&other), row.heap_bytes());
}

/// Nodes merge that the draft has made itself; what it drops of them is nobody's garbage
/// (DW7 counted-garbage).
#[test]
fn garbage_of_rows_that_shrink_is_counted() {
    const FIELDS: usize = 8_000;
    let mut random = fastrand::Rng::with_seed(7);
    let row = filled(FIELDS);
    for step in 0..40 {
        let mut next = row.hand_over();
        // Light leaves first, then neighbours whose nodes merge.
        for _ in 0..random.usize(1..6) {
            let first = random.usize(..FIELDS);
            let count = random.usize(1..=(FIELDS - first).min(3_000));
            let mut numbers: Vec<_> = (first..first + count).collect();
            random.shuffle(&mut numbers);
            numbers.truncate(count * random.usize(1..=8) / 8);
            for number in numbers {
                next.remove(&numbered(2 * number));
            }
        }
        let counted = next.tally.beyond(&row);
        assert_eq!(counted, Some(beyond(&row, &next)), "step {step}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Many columns come and go at the ends, and some in between; every version stays what it was.
    #[test]
    fn ends_are_those_of_a_deque(
        steps in vec((0..8_u8, 1..150_usize, 0..5_usize), 1..60),
    ) {
        let mut row = WideRow::from_block(EMPTY.as_slice().into(), false);
        let mut model: VecDeque<(Vec<u8>, usize)> = VecDeque::new();
        let (mut first, mut last) = (1_000_000, 1_000_000);
        for (kind, count, length) in steps {
            let length = [0, 3, 40, 900, 5_000][length];
            let (before, old) = (row.hand_over(), model.clone());
            let value = vec![b'v'; length];
            let end = if kind % 2 == 0 { End::First } else { End::Last };
            match kind {
                0..4 => {
                    let numbers = match end {
                        End::First => first - count..first,
                        End::Last => last..last + count,
                    };
                    (first, last) = (first.min(numbers.start), last.max(numbers.end));
                    let fields: Vec<Vec<u8>> = numbers.map(numbered).collect();
                    let added: Vec<_> = fields.iter().map(|it| (&it[..], &value[..])).collect();
                    row.extend(end, &added);
                    let columns = fields.into_iter().map(|field| (field, length));
                    match end {
                        End::First => columns.rev().for_each(|it| model.push_front(it)),
                        End::Last => model.extend(columns),
                    }
                }
                4..6 if model.len() > 1 => {
                    let count = (count * count / 20).clamp(1, model.len() - 1);
                    row.cut(end, count);
                    match end {
                        End::First => drop(model.drain(..count)),
                        End::Last => model.truncate(model.len() - count),
                    }
                }
                6 if model.len() > 1 => {
                    let count = (count * count / 20).clamp(1, model.len() - 1);
                    let rank = (length + count) % (model.len() - count + 1);
                    row.remove_from_rank(rank, count);
                    drop(model.drain(rank..rank + count));
                }
                _ if model.len() > 1 => {
                    // What is left is light here and there.
                    for index in (1..model.len()).rev().step_by(count % 7 + 1).take(count) {
                        let (field, _) = model.remove(index).expect("it is there");
                        row.remove(&field);
                    }
                }
                _ => {}
            }
            check(&row);
            let expected: Vec<_> = model.iter().cloned().collect();
            prop_assert_eq!(columns(&row), expected);
            let expected: Vec<_> = old.into_iter().collect();
            prop_assert_eq!(columns(&before), expected);
        }
    }
}

/// Leaves behind what is added at an end are full.
#[test]
fn what_is_added_at_an_end_fills_its_leaves() {
    for end in [End::First, End::Last] {
        let mut row = WideRow::from_block(EMPTY.as_slice().into(), false);
        for batch in 0..100 {
            let start = match end {
                End::First => 1_000_000 - 32 * batch,
                End::Last => 1_000_000 + 32 * batch,
            };
            let fields: Vec<Vec<u8>> = (start..start + 32).map(numbered).collect();
            let added: Vec<_> = fields.iter().map(|it| (&it[..], &b"value"[..])).collect();
            row.extend(end, &added);
        }
        check(&row);
        let (mut leaves, mut fields) = (0, 0);
        while let Some((leaf, 0)) = row.nth_leaf(fields) {
            (leaves, fields) = (leaves + 1, fields + leaf.row().len());
        }
        let bytes = 100 * 32 * (numbered(0).len() + 5 + 4);
        assert!(
            leaves <= bytes / WIDE_LEAF_BYTES_MAX * 11 / 10 + 2,
            "{end:?}: {leaves}"
        );
    }
}
