//! Long keys: those of one beginning share a bundle.
//!
//! A page holds no key longer than [`SHORT_BYTES`] and a few. Longer ones that have the first
//! [`SHORT_BYTES`] bytes in common are the entries of a *bundle*, a large value. Its key is those
//! bytes and a zero, which sorts behind the key of just these bytes and before what follows them
//! all; no short key is that long. A change of an entry costs O(bundle), so many long keys with a
//! long common beginning are slow.
//!
//! An entry, in the order of keys: the length of the key's rest (4), of the value (4), the version
//! (8), the rest, the value as `value` lays it out. All numbers are little-endian.

/// The longest key that is an entry of a leaf by itself.
pub(super) const SHORT_BYTES: usize = 251;

const HEADER_BYTES: usize = 16;

/// An entry of a bundle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'b> {
    /// The key without what all keys of the bundle begin with.
    pub(super) rest: &'b [u8],
    pub(super) version: u64,
    pub(super) value: &'b [u8],
    /// Where the value begins.
    pub(super) at: usize,
}

/// The entries of a bundle, in the order of keys.
pub(super) fn entries(bundle: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let header = bundle.get(at..at + HEADER_BYTES)?;
        let number = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| header[at + byte]));
        let (rest, value) = (number(0) as usize, number(4) as usize);
        let version = u64::from(number(8)) | u64::from(number(12)) << 32;
        let (key_at, value_at) = (at + HEADER_BYTES, at + HEADER_BYTES + rest);
        at = value_at + value;
        Some(Entry {
            rest: &bundle[key_at..value_at],
            version,
            value: &bundle[value_at..at],
            at: value_at,
        })
    })
}

/// The entry of a key.
pub(super) fn find<'b>(bundle: &'b [u8], rest: &[u8]) -> Option<Entry<'b>> {
    entries(bundle).find(|entry| entry.rest == rest)
}

/// The bundle with an entry changed, added, or removed.
pub(super) fn with(bundle: &[u8], rest: &[u8], new: Option<(u64, &[u8])>) -> Vec<u8> {
    let added = new.map_or(0, |(_, value)| HEADER_BYTES + rest.len() + value.len());
    let mut out = Vec::with_capacity(bundle.len() + added);
    let mut push = |rest: &[u8], version: u64, value: &[u8]| {
        out.extend_from_slice(&(rest.len() as u32).to_le_bytes());
        out.extend_from_slice(&(value.len() as u32).to_le_bytes());
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(rest);
        out.extend_from_slice(value);
    };
    let mut new = new;
    for entry in entries(bundle) {
        if entry.rest >= rest
            && let Some((version, value)) = new.take()
        {
            push(rest, version, value);
        }
        if entry.rest != rest {
            push(entry.rest, entry.version, entry.value);
        }
    }
    if let Some((version, value)) = new {
        push(rest, version, value);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_stay_in_order_and_each_is_there_once() {
        let mut bundle = Vec::new();
        for rest in [&b"b"[..], b"d", b"a", b"c", b"b"] {
            bundle = with(&bundle, rest, Some((7, rest)));
        }
        let rests: Vec<_> = entries(&bundle).map(|entry| entry.rest).collect();
        assert_eq!(rests, [&b"a"[..], b"b", b"c", b"d"]);
        bundle = with(&bundle, b"c", None);
        assert!(find(&bundle, b"c").is_none());
        let found = find(&bundle, b"d").unwrap();
        assert_eq!((found.version, found.value), (7, &b"d"[..]));
        assert_eq!(&bundle[found.at..][..1], b"d");
    }
}
