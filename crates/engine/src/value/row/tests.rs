//! The format's bytes, and rows against a sorted map.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::{
    Cell, EMPTY, GUESSES, Name, PackedRow, Part, RowRef, SHORT_DATA_BYTES_MAX, SHORT_OFFSET_BYTES,
    ShortRow, add_to, assemble, assembled_bytes, remove_from, set_in,
};
use crate::limits::PACKED_ROW_BYTES_MAX;
use crate::value::wide::End;

fn row_of<'a>(fields: &[(&'a [u8], Cell<'a>)]) -> Box<[u8]> {
    let parts: Vec<_> = fields
        .iter()
        .map(|(field, cell)| Part::Field(field, *cell))
        .collect();
    assemble(&parts)
}

/// Two rows of as many fields, which have them at different places, in turns.
#[test]
fn a_guess_from_another_row_is_not_believed() {
    let value = Cell::Inline(b"v");
    let one = row_of(&[(b"a", value), (b"b", value), (b"c", value)]);
    let other = row_of(&[(b"b", value), (b"c", value), (b"d", value)]);
    for turn in 0..4 {
        let (row, names): (_, [&[u8]; 3]) = if turn % 2 == 0 {
            (&one, [b"a", b"b", b"c"])
        } else {
            (&other, [b"b", b"c", b"d"])
        };
        let row = RowRef::new(row);
        for (index, name) in names.into_iter().enumerate() {
            assert_eq!(row.search(name), Ok(index));
        }
        assert_eq!(row.search(b"bb"), Err(if turn % 2 == 0 { 2 } else { 1 }));
    }
    let guess = Name::new(b"c").guess(3);
    assert_eq!(
        GUESSES.with(|guesses| guesses[guess].get()),
        1,
        "of the last row"
    );
}

/// Names of a few bytes, often zeros, behind a beginning that most of them share.
fn near_names() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let byte = prop::sample::select(vec![0, 0, 1, b'a', 0xFF]);
    let name = (0..12_usize, vec(byte, 0..11));
    (vec(name, 1..40), 0..20_usize).prop_map(|(names, common)| {
        let names = names.into_iter().map(|(cut, rest)| {
            let common = if cut == 0 { common / 2 } else { common };
            [&vec![b'c'; common][..], &rest].concat()
        });
        names.collect()
    })
}

proptest! {
    #[test]
    fn a_leaf_is_searched_as_any_row(names in near_names(), sought in near_names()) {
        let names: std::collections::BTreeSet<_> = names.into_iter().collect();
        let fields: Vec<_> = names.iter().map(|name| (&name[..], Cell::Inline(b"v"))).collect();
        let block = row_of(&fields);
        let row = RowRef::new(&block);
        let fields: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        for name in fields.iter().copied().chain(sought.iter().map(Vec::as_slice)) {
            prop_assert_eq!(row.search_leaf(name), fields.binary_search(&name));
        }
        prop_assert_eq!(RowRef::new(EMPTY).search_leaf(b"c"), Err(0));
    }
}

#[test]
fn the_format_is_pinned() {
    assert_eq!(*row_of(&[]), *EMPTY);
    let row = row_of(&[
        (b"", Cell::Inline(b"v")),
        (b"ab", Cell::OutOfLine),
        (b"b\0", Cell::Inline(b"")),
        (b"c", Cell::Inline(b"xyz")),
    ]);
    let ends = [0, 0, 1, 0, 3, 0, 3, 0x80, 5, 0, 5, 0, 6, 0, 9, 0];
    assert_eq!(*row, [&[4, 0], &ends[..], b"vabb\0cxyz"].concat());
}

#[test]
fn offsets_take_four_bytes_beyond_what_two_reach() {
    let short = vec![7; SHORT_DATA_BYTES_MAX - 1];
    let row = row_of(&[(b"f", Cell::Inline(&short))]);
    assert_eq!(row[..6], [1, 0, 1, 0, 0xff, 0x7f]);

    let long = vec![7; SHORT_DATA_BYTES_MAX];
    let row = row_of(&[(b"f", Cell::Inline(&long)), (b"g", Cell::OutOfLine)]);
    assert_eq!(row[..10], [2, 0x80, 1, 0, 0, 0, 0, 0x80, 0, 0]);
    assert_eq!(row[10..18], [1, 0x80, 0, 0, 1, 0x80, 0, 0x80]);
    let read = RowRef::new(&row);
    assert_eq!(
        (read.field(0), read.cell(0)),
        (&b"f"[..], Cell::Inline(&long))
    );
    assert_eq!((read.field(1), read.cell(1)), (&b"g"[..], Cell::OutOfLine));
    // DP2 short-offsets: without the long value the offsets are short again.
    assert_eq!(
        assemble(&read.without_fields(0..1)),
        row_of(&[(b"g", Cell::OutOfLine)])
    );
}

fn field() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(prop::sample::select(vec![0, b'a', 0xff]), 0..4),
        vec(any::<u8>(), 0..40)
    ]
}

/// `None` is a value out of line.
fn value() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop_oneof![
        8 => vec(any::<u8>(), 0..20).prop_map(Some),
        1 => (0..40_000_usize).prop_map(|length| Some(vec![1; length])),
        1 => Just(None),
    ]
}

fn cell(value: Option<&Vec<u8>>) -> Cell<'_> {
    value.map_or(Cell::OutOfLine, |value| Cell::Inline(value))
}

type InLine<'m> = Vec<(&'m [u8], &'m [u8])>;

/// The fields and values, if a packed hash could hold them.
fn in_line(model: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> Option<InLine<'_>> {
    let fields: Option<InLine<'_>> = model
        .iter()
        .map(|(name, value)| Some((name.as_slice(), value.as_deref()?)))
        .collect();
    let bytes = |(field, value): &(&[u8], &[u8])| field.len() + value.len();
    fields.filter(|fields| fields.iter().map(bytes).sum::<usize>() <= PACKED_ROW_BYTES_MAX)
}

/// Reads a block of these fields as that of a packed hash.
fn read_as_packed(block: &[u8], fields: &InLine<'_>) -> Result<(), TestCaseError> {
    let row = ShortRow::packed(block);
    for (index, (field, value)) in fields.iter().enumerate() {
        for near in [0, index.saturating_sub(1), index, index + 1, usize::MAX] {
            prop_assert_eq!(row.get(&Name::new(field), near), Some((index, *value)));
        }
        prop_assert!(
            row.get(&Name::new(&[field, &b"\0absent"[..]].concat()), index)
                .is_none()
        );
        let entries: Vec<_> = row.entries(index).collect();
        prop_assert_eq!(&entries[..], &fields[index..]);
    }
    prop_assert!(row.entries(fields.len()).next().is_none());
    prop_assert!(row.entries(usize::MAX).next().is_none());
    Ok(())
}

proptest! {
    #[test]
    fn rows_are_sorted_maps(
        changes in vec((field(), prop::option::weighted(0.8, value())), 0..60),
    ) {
        let mut model = BTreeMap::new();
        let mut block: Box<[u8]> = EMPTY.as_slice().into();
        for (field, change) in changes {
            let row = RowRef::new(&block);
            let at = row.search(&field);
            prop_assert_eq!(at.is_ok(), model.contains_key(&field));
            let packed = row.offset_bytes == SHORT_OFFSET_BYTES
                && row.out_of_line_before(row.len()) == 0;
            if let (Some(Some(value)), true) = (&change, packed) {
                let bytes = row.bytes_with(at, &field, value);
                if bytes <= PACKED_ROW_BYTES_MAX {
                    let mut changed = block.to_vec();
                    set_in(&mut changed, at, &field, value);
                    prop_assert_eq!(changed.len(), bytes);
                    let parts = row.with_field(at, &field, Cell::Inline(value));
                    prop_assert_eq!(&changed[..], &*assemble(&parts));
                }
            }
            if let Some(value) = change {
                let parts = row.with_field(at, &field, cell(value.as_ref()));
                let bytes = assembled_bytes(&parts);
                block = assemble(&parts);
                prop_assert_eq!(block.len(), bytes);
                model.insert(field, value);
            } else {
                if let Ok(index) = at {
                    let mut changed = block.to_vec();
                    let less = assemble(&row.without_fields(index..index + 1));
                    if packed {
                        remove_from(&mut changed, index..index + 1);
                        prop_assert_eq!(&changed[..], &*less);
                    }
                    block = less;
                }
                model.remove(&field);
            }
        }
        let row = RowRef::new(&block);
        prop_assert_eq!(row.len(), model.len());
        for (index, (field, value)) in model.iter().enumerate() {
            prop_assert_eq!(row.field(index), field.as_slice());
            prop_assert_eq!(row.cell(index), cell(value.as_ref()));
            prop_assert_eq!(row.search(field), Ok(index));
            let longer = [field, &[0][..]].concat();
            for neighbour in [&field[..field.len().saturating_sub(1)], &longer] {
                let expected = model.keys().position(|other| other.as_slice() == neighbour);
                prop_assert_eq!(row.search(neighbour).ok(), expected);
            }
        }
        if let Some(fields) = in_line(&model) {
            read_as_packed(&block, &fields)?;
        }
        let fields: Vec<_> =
            model.iter().map(|(field, value)| (field.as_slice(), cell(value.as_ref()))).collect();
        prop_assert_eq!(&block, &row_of(&fields), "equal contents have equal bytes (DP2)");

        let (third, middle) = (model.len() / 3, model.len() / 2);
        if let Some(fields) = in_line(&model)
            && row.offset_bytes == SHORT_OFFSET_BYTES
        {
            for end in [End::First, End::Last] {
                let (more, fewer) = match end {
                    End::First => (0..middle, middle..fields.len()),
                    End::Last => (middle..fields.len(), 0..middle),
                };
                let mut changed = assemble(&[Part::Rows(row, fewer)]).into_vec();
                add_to(&mut changed, end, &fields[more]);
                prop_assert_eq!(&changed[..], &*block);
            }
            let mut changed = block.to_vec();
            remove_from(&mut changed, third..middle);
            prop_assert_eq!(&changed[..], &*assemble(&row.without_fields(third..middle)));
        }
        let halves = [Part::Rows(row, 0..middle), Part::Rows(row, middle..row.len())];
        prop_assert_eq!(&block, &assemble(&halves));
    }
}

#[test]
fn a_block_from_elsewhere_is_taken_only_if_it_is_sound() {
    let mut draft = crate::HashDraft::new(None);
    for field in [&b"a"[..], b"bb", b"c"] {
        draft.set(field, b"value");
    }
    let crate::Body::Row(_, crate::HashBody::Packed(row)) = draft.finish() else {
        panic!("a small hash")
    };
    let sound = row.as_bytes();
    let checked = PackedRow::checked(sound).expect("it was assembled");
    assert_eq!(checked.as_bytes(), sound);
    for cut in 0..sound.len() {
        assert!(PackedRow::checked(&sound[..cut]).is_none());
    }
    assert!(PackedRow::checked(&[sound, b"x"].concat()).is_none());
    assert!(PackedRow::checked(EMPTY).is_none());
    assert!(PackedRow::checked(&vec![0xff; PACKED_ROW_BYTES_MAX]).is_none());
    for at in 0..sound.len() {
        for bit in 0..8 {
            let mut block = sound.to_vec();
            block[at] ^= 1 << bit;
            // What is taken can be read: every name and value, in order.
            if let Some(row) = PackedRow::checked(&block) {
                let hash = crate::HashRef::Packed(row.as_bytes());
                assert!(hash.iter().map(|(field, _)| field).is_sorted());
            }
        }
    }
}
