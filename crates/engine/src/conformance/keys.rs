//! Keys that ordered engines may get wrong: those at the edges of 8-byte slices, layers and nodes.

use proptest::prelude::*;

use crate::limits::KEY_BYTES_MAX;

/// A key by its construction, so that failures print briefly.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum KeySpec {
    /// This many bytes of one value: 0, a letter or 0xff.
    Run(u8, usize),
    /// Shares all but the last byte with others of this length; then a byte, unless it is 0.
    Prefixed(usize, u8),
    /// `abc` and zeros up to this length: one 8-byte slice for all lengths from 3 to 8.
    Padded(usize),
    /// The greatest length; keys differ in the last byte only.
    Longest(u8),
    /// Eight bytes, big-endian: neighbours fill nodes.
    Dense(u16),
    /// This many full layers of common bytes, then a dense number.
    Layered(usize, u16),
    /// Decimal digits: lengths vary, neighbours share prefixes.
    Decimal(u16),
    /// As they come.
    Bytes(Vec<u8>),
}

impl KeySpec {
    pub(super) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Run(byte, length) => vec![*byte; *length],
            Self::Prefixed(length, last) => {
                let mut key: Vec<u8> = (0..*length).map(|at| b'A' + (at % 26) as u8).collect();
                key.extend((*last != 0).then_some(*last));
                key
            }
            Self::Padded(length) => {
                let mut key = b"abc".to_vec();
                key.resize(*length, 0);
                key
            }
            Self::Longest(last) => {
                let mut key = vec![b'L'; KEY_BYTES_MAX];
                key[KEY_BYTES_MAX - 1] = *last;
                key
            }
            Self::Dense(number) => u64::from(*number).to_be_bytes().to_vec(),
            Self::Layered(layers, number) => {
                [&b"layer..."[..].repeat(*layers), &number.to_be_bytes()[..]].concat()
            }
            Self::Decimal(number) => number.to_string().into_bytes(),
            Self::Bytes(bytes) => bytes.clone(),
        }
    }
}

/// Lengths of 8·k−1, 8·k and 8·k+1 bytes.
fn slice_edge() -> impl Strategy<Value = usize> {
    (1..=5_usize, 0..3_usize).prop_map(|(slices, edge)| 8 * slices - 1 + edge)
}

/// Any of the families.
pub(super) fn key() -> impl Strategy<Value = KeySpec> {
    let byte = prop::sample::select(vec![0, b'a', 0xff]);
    prop_oneof![
        6 => (byte, 0..=40_usize).prop_map(|(byte, length)| KeySpec::Run(byte, length)),
        6 => (slice_edge(), 0..4_u8).prop_map(|(length, last)| KeySpec::Prefixed(length, last)),
        6 => (0..=9_usize).prop_map(KeySpec::Padded),
        1 => (0..3_u8).prop_map(KeySpec::Longest),
        6 => (0..400_u16).prop_map(KeySpec::Dense),
        4 => (1..4_usize, 0..400_u16).prop_map(|(layers, last)| KeySpec::Layered(layers, last)),
        2 => (0..400_u16).prop_map(KeySpec::Decimal),
        2 => prop::collection::vec(any::<u8>(), 0..24).prop_map(KeySpec::Bytes),
    ]
}

/// A family of keys numbered from 0 on, in byte order unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// All in one layer.
    Dense,
    /// All below common layers.
    Layered,
    /// A key and longer ones with the same 8-byte slice, in layers of their own that come and go.
    Slices,
    /// Below chains of one to 25 common layers, so that whole chains come and go; not in numerical
    /// order.
    Deep,
    /// Decimal: not in numerical order.
    Decimal,
}

impl Family {
    pub(super) const ALL: [Self; 5] = [
        Self::Dense,
        Self::Layered,
        Self::Slices,
        Self::Deep,
        Self::Decimal,
    ];

    pub(super) fn key(self, number: u16) -> Vec<u8> {
        match self {
            Self::Dense => KeySpec::Dense(number).bytes(),
            Self::Layered => KeySpec::Layered(3, number).bytes(),
            Self::Slices => {
                // Seven keys share a slice: itself, then tails of 1, 2, 8, 9, 16 and 17 bytes.
                let mut key = format!("{:08}", number / 7).into_bytes();
                let tail = [0, 1, 2, 8, 9, 16, 17][usize::from(number % 7)];
                key.extend(std::iter::repeat_n(b't', tail));
                key
            }
            Self::Deep => {
                let layers = [1, 2, 5, 12, 25][usize::from(number % 5)];
                KeySpec::Layered(layers, number).bytes()
            }
            Self::Decimal => KeySpec::Decimal(number).bytes(),
        }
    }
}

pub(super) fn family() -> impl Strategy<Value = Family> {
    prop::sample::select(Family::ALL.to_vec())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbered_keys_differ() {
        for family in Family::ALL {
            let keys: BTreeSet<_> = (0..1_000).map(|number| family.key(number)).collect();
            assert_eq!(keys.len(), 1_000, "{family:?}");
            let ordered = (1..1_000).all(|number| family.key(number - 1) < family.key(number));
            let unordered = matches!(family, Family::Deep | Family::Decimal);
            assert_eq!(ordered, !unordered, "{family:?}");
        }
    }
}
