//! Lists beside vectors: packed however they grew, changed by commands and by columns.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::{BodyRef, HashBody};

fn row_of<'b>(body: &'b Body<'_>) -> HashRef<'b> {
    match body.as_ref() {
        BodyRef::Row(RowTag::List, row) => row,
        other => panic!("{other:?}"),
    }
}

fn elements(body: &Body<'_>) -> Vec<Vec<u8>> {
    let list = ListRef::new(row_of(body));
    list.iter_from(0)
        .map(|it| it.to_cow().into_owned())
        .collect()
}

#[test]
fn dl1_labels_sort_as_their_places() {
    let edges = [
        63,
        64,
        319,
        320,
        64 + 0xFFFF,
        64 + 0x1_0000,
        1 << 40,
        1 << 55,
    ];
    let mut places: Vec<i64> = (-70..70).collect();
    places.extend(
        edges
            .iter()
            .flat_map(|edge| [*edge, edge + 1, -edge, -edge - 1]),
    );
    places.sort_unstable();
    places.dedup();
    for pair in places.windows(2) {
        assert!(label(pair[0]) < label(pair[1]), "{pair:?}");
    }
    for place in places {
        assert_eq!(parse(&label(place)), Some((place, &[][..])));
    }
}

proptest! {
    #[test]
    fn dl1_there_is_a_label_between_any_two(steps in vec(any::<bool>(), 1..300)) {
        let (mut low, mut high) = (label(0), label(1));
        for step in steps {
            let middle = between(Some(&low), Some(&high));
            prop_assert!(low < middle && middle < high);
            prop_assert!(parse(&middle).is_some());
            *(if step { &mut low } else { &mut high }) = middle;
        }
        let mut dealt = Vec::new();
        deal(Some(&low), Some(&high), 100, &mut dealt);
        dealt.insert(0, low);
        dealt.push(high);
        prop_assert!(dealt.is_sorted_by(|one, next| one < next));
    }
}

fn numbered(number: usize) -> Vec<u8> {
    format!("element:{number:07}").into_bytes()
}

/// A list of these elements, which come in joint updates.
fn filled(elements: &[Vec<u8>]) -> Body<'static> {
    let mut current = ListDraft::new(None).finish();
    for some in elements.chunks(128) {
        let next = {
            let mut ends = ListEnds::new(Some(ListRef::new(row_of(&current))));
            for element in some {
                ends.push_back(element);
            }
            ends.finish()
        };
        current = next;
    }
    current
}

fn runs(body: &Body<'_>) -> usize {
    let names = row_of(body).iter().map(|(name, _)| name);
    names.filter(|name| elements_of(name) > 1).count()
}

/// Whether few bytes are taken besides the elements and one byte for the length of each.
fn assert_compact(body: &Body<'_>, count: usize) {
    let content = count * (1 + numbered(0).len());
    let bytes = row_of(body).heap_bytes();
    assert!(
        bytes < content + content / 10,
        "{bytes} bytes, {content} of content"
    );
}

#[test]
fn a_long_list_is_packed_however_it_grew() {
    const COUNT: usize = 20_000;
    let all: Vec<_> = (0..COUNT).map(numbered).collect();
    assert_compact(&filled(&all), COUNT);
    for end in [End::First, End::Last] {
        let mut current = ListDraft::new(None).finish();
        for element in &all {
            let next = {
                let mut draft = ListDraft::new(Some(ListRef::new(row_of(&current))));
                draft.push(end, StringBody::borrowed(element));
                draft.finish()
            };
            current = next;
        }
        assert_compact(&current, COUNT);
        let mut found = elements(&current);
        if end == End::First {
            found.reverse();
        }
        assert_eq!(found, all);
    }
}

/// A few elements at a time, as a joint update pushes them; now and then a long one is among them,
/// which is in no run.
#[test]
fn a_list_that_grows_by_a_few_is_packed() {
    const COUNT: usize = 5_000;
    let long = vec![b'l'; 200];
    for (end, every) in [(End::First, 100_000), (End::Last, 100_000), (End::Last, 70)] {
        let all = (0..COUNT).map(|nth| match nth % every {
            69 => long.clone(),
            _ => numbered(nth),
        });
        let mut all: Vec<_> = all.collect();
        let mut current = ListDraft::new(None).finish();
        for few in all.chunks(9) {
            let next = {
                let mut ends = ListEnds::new(Some(ListRef::new(row_of(&current))));
                for element in few {
                    match end {
                        End::First => ends.push_front(element),
                        End::Last => ends.push_back(element),
                    }
                }
                ends.finish()
            };
            current = next;
        }
        if every > COUNT {
            assert_compact(&current, COUNT);
        }
        // Of each 70 elements at least one block is without the long one.
        assert!(runs(&current) >= COUNT / 70);
        if end == End::First {
            all.reverse();
        }
        assert_eq!(elements(&current), all);
    }
}

/// DL3 large-runs: and when it is small again, each element has a column of its own.
#[test]
fn dl3_small_lists_have_no_runs() {
    let all: Vec<_> = (0..1000).map(numbered).collect();
    let mut draft = ListDraft::new(None);
    let slices: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
    draft.extend(End::Last, &slices);
    draft.extend(End::Last, &slices);
    draft.keep(1000, 1900);
    let large = draft.finish();
    assert!(runs(&large) > 20);
    let mut draft = ListDraft::new(Some(ListRef::new(row_of(&large))));
    draft.keep(500, 550);
    let small = draft.finish();
    assert!(matches!(row_of(&small), HashRef::Packed(_)));
    assert_eq!(runs(&small), 0);
    assert_eq!(elements(&small), all[500..550]);
}

/// DL3 large-runs: also where its columns, written one by one, would fit a small list.
#[test]
fn dl3_columns_with_runs_make_a_large_list() {
    let all: Vec<_> = (0..500).map(numbered).collect();
    let long = filled(&all);
    let mut draft = ListDraft::new(Some(ListRef::new(row_of(&long))));
    draft.keep(300, 500);
    let (list, all) = (draft.finish(), &all[300..]);
    assert!(runs(&list) > 3 && matches!(row_of(&list), HashRef::Wide(_)));
    let loaded = repeated(&list, None, &list);
    assert!(matches!(row_of(&loaded), HashRef::Wide(_)));
    assert_eq!(elements(&loaded), all);
    // A small list stays one, and so do the names of its columns.
    let small = filled(&all[..20]);
    assert!(matches!(
        row_of(&repeated(&small, None, &small)),
        HashRef::Packed(_)
    ));
}

/// Pushes and pops in turns at one place change one column each.
#[test]
fn pushes_and_pops_around_a_block_pack_nothing() {
    let all: Vec<_> = (0..1000).map(numbered).collect();
    let mut current = filled(&all);
    let mut changed = 0;
    for step in 0..400 {
        let next = {
            let mut draft = ListDraft::new(Some(ListRef::new(row_of(&current))));
            if step % 2 == 0 {
                draft.push_back(StringBody::borrowed(b"element"));
            } else {
                draft.remove(draft.len() - 1);
            }
            draft.finish()
        };
        row_of(&next).changed_since(row_of(&current), &mut |_, _| changed += 1);
        current = next;
    }
    assert!(changed < 400 + 2 * 32, "{changed} columns");
}

#[test]
fn foreign_runs_are_refused() {
    let name = |place, count| run::RunName::new(place, count).as_bytes().to_vec();
    let row = |columns: &[(Vec<u8>, &[u8])]| {
        let mut draft = HashDraft::new_as(RowTag::List, None);
        // Large from the beginning.
        draft.set(&label(-64), &[0; 5000]);
        for (name, value) in columns {
            draft.set(name, value);
        }
        let Body::Row(_, body) = draft.finish_as(RowTag::List) else {
            unreachable!("a row was made")
        };
        ListRef::is_sound(body.as_ref())
    };
    assert!(row(&[(name(3, 2), b"\x01a\x02bc"), (label(5), b"d")]));
    assert!(!row(&[(name(3, 2), b"\x01a\x02b")]), "it ends early");
    assert!(!row(&[(name(3, 2), b"\x01a\x02bcd")]), "it goes on");
    assert!(
        !row(&[(name(3, 2), b"\x01a\x02bc"), (label(4), b"d")]),
        "places are its own"
    );
    assert!(!row(&[(name(3, 2), b"\x01a\x02bc"), (label(3), b"d")]));
    for count in [0, 1, 33] {
        let mut other = label(3);
        other.extend([0, count, 0]);
        assert!(!row(&[(other, b"\x01a")]), "{count} elements");
    }
}

/// A step of a history: what is done, where (per mille), and with how long an element.
fn step() -> impl Strategy<Value = (u8, usize, usize)> {
    (
        0..12_u8,
        0..1000_usize,
        prop_oneof![20 => 0..40_usize, 1 => 20_000..40_000_usize],
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Histories across the bound between small and large lists, and back.
    #[test]
    fn lists_are_vectors(
        at_first in prop_oneof![Just(0), 0..900_usize],
        history in vec(vec(step(), 1..300), 1..6),
    ) {
        let mut model: Vec<Vec<u8>> = (0..at_first).map(numbered).collect();
        let mut current = filled(&model);
        let mut replica = repeated(&ListDraft::new(None).finish(), None, &current);
        for (round, steps) in history.into_iter().enumerate() {
            let next = {
                let mut draft = ListDraft::new(Some(ListRef::new(row_of(&current))));
                for (number, (kind, place, bytes)) in steps.into_iter().enumerate() {
                    let mut element = format!("{round}-{number}-").into_bytes();
                    element.resize(element.len() + bytes, b'x');
                    let at = place * (model.len() + 1) / 1000;
                    match kind {
                        0..3 => {
                            draft.push_front(StringBody::borrowed(&element));
                            model.insert(0, element);
                        }
                        3..6 => {
                            draft.push_back(StringBody::borrowed(&element));
                            model.push(element);
                        }
                        6..8 => {
                            draft.insert(at, StringBody::borrowed(&element));
                            model.insert(at, element);
                        }
                        8 => {
                            let body = StringBody::borrowed(&element);
                            prop_assert_eq!(draft.set(at, body), at < model.len());
                            if at < model.len() { model[at] = element; }
                        }
                        9..11 => {
                            prop_assert_eq!(draft.remove(at), at < model.len());
                            if at < model.len() { model.remove(at); }
                        }
                        _ if place < 100 => {
                            let end = (at + 200).min(model.len());
                            draft.keep(at, end);
                            model = model[at.min(end)..end].to_vec();
                        }
                        _ => {}
                    }
                    prop_assert_eq!(draft.len(), model.len());
                }
                draft.finish()
            };
            prop_assert!(ListRef::is_sound(row_of(&next)));
            prop_assert_eq!(elements(&next), model.clone());
            // What is in a log: changes of a list that stays large or small, or all of it.
            let is_small = |body| matches!(row_of(body), HashRef::Packed(_));
            let is_change = round % 2 == 0 && is_small(&current) == is_small(&next);
            let old = is_change.then_some(&current);
            replica = repeated(&replica, old, &next);
            prop_assert!(ListRef::is_sound(row_of(&replica)));
            prop_assert_eq!(elements(&replica), model.clone());
            current = next;
        }
    }
}

/// The columns of `next`, or those that differ from `old`, repeated elsewhere.
fn repeated(
    replica: &Body<'static>,
    old: Option<&Body<'static>>,
    next: &Body<'static>,
) -> Body<'static> {
    let empty = HashDraft::new(None);
    let mut draft = HashDraft::new_as(RowTag::List, old.map(|_| row_of(replica)));
    let old = old.map_or(empty.as_ref(), row_of);
    row_of(next).changed_since(old, &mut |name, value| match value {
        Some(value) => {
            draft.set_body(name, value.hand_over());
        }
        None => assert!(draft.remove(name), "what goes was there"),
    });
    draft.finish_as(RowTag::List)
}

/// DL2 short-labels: always before the same element, the worst case for fractions.
#[test]
fn dl2_insertions_at_one_place_keep_labels_short() {
    let mut draft = ListDraft::new(None);
    draft.push_back(StringBody::borrowed(b"first"));
    draft.push_back(StringBody::borrowed(b"last"));
    for number in 0..20_000_u32 {
        let at = if number % 3 == 0 { 1 } else { draft.len() - 1 };
        draft.insert(at, StringBody::borrowed(&number.to_be_bytes()));
    }
    assert_eq!(draft.len(), 20_002);
    assert!(draft.as_ref().get(0).is_some_and(|it| it == b"first"));
    assert!(draft.as_ref().get(20_001).is_some_and(|it| it == b"last"));
    assert!(ListRef::is_sound(row_of(&draft.finish())));
}

/// Some pushes and pops: what is done, and how long an element is.
fn some_steps() -> impl Strategy<Value = Vec<(u8, usize)>> {
    prop_oneof![
        vec((0..8_u8, 0..40_usize), 1..6),
        vec((0..8_u8, 0..40_usize), 1..300)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Pushes and pops at both ends, one or many in one update, of small and large lists, in copies
    /// and in place.
    #[test]
    fn ends_are_those_of_a_deque(
        rounds in vec((some_steps(), any::<bool>(), any::<bool>()), 1..16),
    ) {
        let mut model: std::collections::VecDeque<Vec<u8>> = std::collections::VecDeque::new();
        let mut current = ListDraft::new(None).finish();
        for (round, (steps, shrinks, in_place)) in rounds.into_iter().enumerate() {
            let element = |(number, (_, bytes)): (usize, &(u8, usize))| {
                let mut element = format!("{round}-{number}-").into_bytes();
                element.resize(element.len() + bytes, b'x');
                element
            };
            let pushed: Vec<Vec<u8>> = steps.iter().enumerate().map(element).collect();
            let change = {
                let mut ends = ListEnds::new(Some(ListRef::new(row_of(&current))));
                for ((kind, bytes), element) in steps.into_iter().zip(&pushed) {
                    let kind = if shrinks && kind < 4 { kind + 4 } else { kind };
                    match kind {
                        0..2 => {
                            ends.push_front(element);
                            model.push_front(element.clone());
                        }
                        2..5 => {
                            ends.push_back(element);
                            model.push_back(element.clone());
                        }
                        5..7 => {
                            let expected = model.pop_front();
                            // Not always asked for.
                            if bytes % 3 > 0 {
                                let found = ends.first().map(|it| it.to_cow().into_owned());
                                prop_assert_eq!(found, expected);
                            }
                            ends.pop_front();
                        }
                        _ => {
                            let expected = model.pop_back();
                            if bytes % 3 > 0 {
                                let found = ends.last().map(|it| it.to_cow().into_owned());
                                prop_assert_eq!(found, expected);
                            }
                            ends.pop_back();
                        }
                    }
                    prop_assert_eq!(ends.len(), model.len());
                }
                ends.into_change()
            };
            let next = match current {
                Body::Row(_, HashBody::Wide(row)) if in_place => change.make(ListDraft::of(row)),
                current => change.make(ListDraft::new(Some(ListRef::new(row_of(&current))))),
            };
            prop_assert!(ListRef::is_sound(row_of(&next)));
            let expected: Vec<_> = model.iter().cloned().collect();
            prop_assert_eq!(elements(&next), expected);
            current = next;
        }
    }
}
