//! Separators between neighbouring subtrees.

use std::fmt;

use super::{Handle, NODE_HEADER_BYTES};

const SHORT_BYTES_MAX: usize = 22;

/// A short string in place, a long one shared, so copying a node copies no long separators.
#[derive(Clone)]
pub(super) enum Separator {
    Short {
        length: u8,
        bytes: [u8; SHORT_BYTES_MAX],
    },
    Long(Handle<[u8]>),
}

const _: () = assert!(size_of::<Separator>() == 24);

impl Separator {
    /// The separator of a first child, which nobody reads (DW4 separators).
    pub(super) const FIRST: Self = Self::Short {
        length: 0,
        bytes: [0; SHORT_BYTES_MAX],
    };

    /// The shortest string above `below` and at or below `above`, which is greater.
    pub(super) fn between(below: &[u8], above: &[u8]) -> Self {
        debug_assert!(below < above);
        let common = below
            .iter()
            .zip(above)
            .take_while(|(one, other)| one == other)
            .count();
        Self::new(&above[..=common])
    }

    fn new(string: &[u8]) -> Self {
        if string.len() <= SHORT_BYTES_MAX {
            let mut bytes = [0; SHORT_BYTES_MAX];
            bytes[..string.len()].copy_from_slice(string);
            Self::Short {
                length: string.len() as u8,
                bytes,
            }
        } else {
            Self::Long(Handle::from(string))
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { length, bytes } => &bytes[..usize::from(*length)],
            Self::Long(string) => string,
        }
    }

    /// The word at `index`, unless it is a long one.
    #[inline]
    pub(super) fn word(&self, index: usize) -> Option<u64> {
        match self {
            Self::Short { bytes, .. } => Some(word(bytes, index)),
            Self::Long(_) => None,
        }
    }

    /// How many words all separators from this one to `last`, and a field, begin with.
    #[inline]
    pub(super) fn equal_words(&self, last: &Self, field: &Sought<'_>) -> usize {
        let (Self::Short { bytes, .. }, Self::Short { bytes: last, .. }) = (self, last) else {
            return 0;
        };
        let is_equal = |(index, sought): &(usize, &u64)| {
            word(bytes, *index) == **sought && word(last, *index) == **sought
        };
        field.words.iter().enumerate().take_while(is_equal).count()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Short { .. } => 0,
            Self::Long(string) => NODE_HEADER_BYTES + string.len(),
        }
    }

    pub(super) fn deep_copy(&self) -> Self {
        Self::new(self.as_bytes())
    }
}

/// A field that is looked for, so that a comparison with a short separator is one of words.
pub(super) struct Sought<'f> {
    bytes: &'f [u8],
    /// Of its first bytes, padded with zeros.
    words: [u64; WORDS.len()],
}

impl<'f> Sought<'f> {
    #[inline]
    pub(super) fn bytes(&self) -> &'f [u8] {
        self.bytes
    }

    /// The word at `index`, as that of a separator.
    #[inline]
    pub(super) fn word(&self, index: usize) -> u64 {
        self.words[index]
    }

    #[inline]
    pub(super) fn new(field: &'f [u8]) -> Self {
        let mut bytes = [0; SHORT_BYTES_MAX];
        let count = field.len().min(SHORT_BYTES_MAX);
        bytes[..count].copy_from_slice(&field[..count]);
        Self {
            bytes: field,
            words: std::array::from_fn(|index| word(&bytes, index)),
        }
    }
}

/// Where the words of a short separator begin. The last one repeats two bytes of the one before it.
const WORDS: [usize; 3] = [0, 8, SHORT_BYTES_MAX - size_of::<u64>()];

/// Numbers that order as these bytes do.
#[inline]
fn word(bytes: &[u8; SHORT_BYTES_MAX], index: usize) -> u64 {
    let word = bytes[WORDS[index]..].first_chunk();
    u64::from_be_bytes(*word.expect("there are as many bytes"))
}

impl fmt::Debug for Separator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::value::row::EMPTY;
    use crate::value::wide::{Child, WideRow, child_of};

    fn string() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop::sample::select(vec![0, 0, 0, 1, 0xFF]);
        (0..24_usize, vec(byte, 0..10))
            .prop_map(|(zeros, rest)| [&vec![0; zeros], &rest[..]].concat())
    }

    fn child(separator: Separator) -> Child {
        let row = WideRow::from_block(EMPTY.as_slice().into(), false);
        let tree = row.root;
        Child { separator, tree }
    }

    proptest! {
        /// Short and long ones, with words in common or none.
        #[test]
        fn separators_order_as_their_bytes(mut strings in vec(string(), 1..16), field in string()) {
            strings.sort();
            let separators = strings.iter().map(|string| Separator::new(string));
            let first = std::iter::once(Separator::FIRST);
            let children: Vec<Child> = first.chain(separators).map(child).collect();
            let expected = strings.iter().filter(|string| **string <= field).count();
            prop_assert_eq!(child_of(&children, &Sought::new(&field)), expected);
        }
    }
}
