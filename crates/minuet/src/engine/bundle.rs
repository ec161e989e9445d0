//! Long keys: those of one beginning share a bundle.
//!
//! A page holds no key longer than [`SHORT_BYTES`] and a few. Longer ones that have the first
//! [`SHORT_BYTES`] bytes in common are the fields of a *bundle*, a row. Its key is those bytes and
//! a zero, which sorts behind the key of just these bytes and before what follows them all; no
//! short key is that long.
//!
//! A field's name is the rest of the key, its value the version (8 bytes, little-endian) and what
//! an entry of a leaf would hold: the value, or the head of a large one. So a read and a change of
//! one of n long keys cost O(log n), as those of a large hash do.

use pando_engine::{Body, HashDraft, HashRef, StringRef};

/// The longest key that is an entry of a leaf by itself.
pub(super) const SHORT_BYTES: usize = 251;

/// A key of a bundle: its version, and what an entry would hold.
pub(super) type Entry<'b> = (u64, &'b [u8]);

fn entry_of(field: StringRef<'_>) -> Entry<'_> {
    let bytes = field.as_flat().expect("an entry is short");
    let (version, bytes) = bytes.split_first_chunk().expect("a version");
    (u64::from_le_bytes(*version), bytes)
}

/// The key of this rank, in their order: what is left of it, and what there is of it.
pub(super) fn nth(bundle: HashRef<'_>, rank: usize) -> Option<(&[u8], Entry<'_>)> {
    let (rest, field) = bundle.nth(rank)?;
    Some((rest, entry_of(field)))
}

/// What there is of a key.
pub(super) fn find<'b>(bundle: HashRef<'b>, rest: &[u8]) -> Option<Entry<'b>> {
    bundle.get(rest).map(entry_of)
}

/// The bundle with an entry changed, added, or removed; none if none is left.
pub(super) fn with(
    bundle: Option<HashRef<'_>>,
    rest: &[u8],
    new: Option<Entry<'_>>,
) -> Option<Body<'static>> {
    let mut draft = HashDraft::new(bundle);
    match new {
        Some((version, bytes)) => {
            draft.set(rest, &[&version.to_le_bytes()[..], bytes].concat());
        }
        None => {
            draft.remove(rest);
        }
    }
    (!draft.is_empty()).then(|| draft.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_stay_in_order_and_each_is_there_once() {
        let mut bundle: Option<Body<'static>> = None;
        let row_of = |body: &Body<'static>| match body {
            Body::Row(_, row) => row.as_ref().hand_over(),
            Body::String(_) => panic!("a bundle is a row"),
        };
        let mut change = |rest: &[u8], new| {
            let row = bundle.as_ref().map(row_of);
            bundle = with(row.as_ref().map(|row| row.as_ref()), rest, new);
            bundle.as_ref().map(row_of)
        };
        for rest in [&b"b"[..], b"d", b"a", b"c", b"b"] {
            change(rest, Some((7, rest)));
        }
        let row = change(b"c", None).unwrap();
        let all: Vec<_> = (0..).map_while(|rank| nth(row.as_ref(), rank)).collect();
        assert_eq!(all, [b"a", b"b", b"d"].map(|key| (&key[..], (7, &key[..]))));
        assert_eq!(find(row.as_ref(), b"c"), None);
        assert_eq!(find(row.as_ref(), b"d"), Some((7, &b"d"[..])));
        assert!(
            [&b"a"[..], b"b", b"d"].map(|rest| change(rest, None).is_some()) == [true, true, false]
        );
    }
}
