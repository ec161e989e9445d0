//! Separators between neighbouring subtrees.

use std::fmt;

use crate::value::handle::{STRING_HEADER_BYTES, StringHandle};

const SHORT_BYTES_MAX: usize = 22;

/// A short string in place, a long one shared, so copying a node copies no long separators.
#[derive(Clone)]
pub(super) enum Separator {
    Short {
        length: u8,
        bytes: [u8; SHORT_BYTES_MAX],
    },
    Long(StringHandle),
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

    pub(super) fn new(string: &[u8]) -> Self {
        if string.len() <= SHORT_BYTES_MAX {
            let mut bytes = [0; SHORT_BYTES_MAX];
            bytes[..string.len()].copy_from_slice(string);
            Self::Short {
                length: string.len() as u8,
                bytes,
            }
        } else {
            Self::Long(StringHandle::from(string))
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { length, bytes } => &bytes[..usize::from(*length)],
            Self::Long(string) => string,
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Short { .. } => 0,
            Self::Long(string) => STRING_HEADER_BYTES + string.len(),
        }
    }

    pub(super) fn deep_copy(&self) -> Self {
        Self::new(self.as_bytes())
    }
}

impl fmt::Debug for Separator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}
