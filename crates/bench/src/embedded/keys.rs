//! Keys of the workloads, laid out one after the other so that reading them costs little beside the
//! operation that is measured.

use std::fmt;

use clap::ValueEnum;
use fastrand::Rng;

/// How keys are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeyShape {
    /// Decimal strings of random 31-bit numbers: 1 to 10 bytes.
    Decimal,
    /// The same behind 40 common bytes.
    Prefixed,
    /// Random 8-byte keys.
    Fixed,
    /// Random numbers of 8 digits.
    Digits,
    /// `user` and a random number of 10 digits: the 14 bytes of Minuet's paper (§6), as YCSB names
    /// rows.
    User,
}

impl fmt::Display for KeyShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Decimal => "decimal",
            Self::Prefixed => "prefixed",
            Self::Fixed => "fixed",
            Self::Digits => "digits",
            Self::User => "user",
        })
    }
}

/// A sequence of keys.
#[derive(Debug)]
pub(crate) struct Keys {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Keys {
    /// `count` keys drawn from `seed`; a few of them coincide.
    pub(crate) fn draw(shape: KeyShape, count: usize, seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let mut keys = Self {
            bytes: Vec::new(),
            ends: Vec::with_capacity(count),
        };
        for _ in 0..count {
            match shape {
                KeyShape::Decimal => keys.push_decimal(random.u32(..1 << 31)),
                KeyShape::Prefixed => {
                    keys.bytes.extend_from_slice(&[b'p'; 40]);
                    keys.push_decimal(random.u32(..1 << 31));
                }
                KeyShape::Fixed => keys.bytes.extend_from_slice(&random.u64(..).to_be_bytes()),
                KeyShape::Digits => keys.push_digits(&mut random),
                KeyShape::User => {
                    let key = format!("user{:010}", random.u64(..10_000_000_000));
                    keys.bytes.extend_from_slice(key.as_bytes());
                }
            }
            keys.ends.push(keys.bytes.len() as u32);
        }
        keys
    }

    /// `count` keys of `bytes` bytes, of which only the last 8, digits, differ.
    pub(crate) fn behind_prefix(bytes: usize, count: usize, seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let mut keys = Self {
            bytes: Vec::with_capacity(bytes * count),
            ends: Vec::with_capacity(count),
        };
        for _ in 0..count {
            let start = keys.bytes.len();
            keys.bytes.resize(start + bytes - 8, b'0');
            keys.push_digits(&mut random);
            keys.ends.push(keys.bytes.len() as u32);
        }
        keys
    }

    fn push_digits(&mut self, random: &mut Rng) {
        let digits = format!("{:08}", random.u32(..100_000_000));
        self.bytes.extend_from_slice(digits.as_bytes());
    }

    fn push_decimal(&mut self, number: u32) {
        self.bytes.extend_from_slice(number.to_string().as_bytes());
    }

    /// The same keys in random order.
    pub(crate) fn shuffled(&self, seed: u64) -> Self {
        let mut order: Vec<u32> = (0..self.ends.len() as u32).collect();
        Rng::with_seed(seed).shuffle(&mut order);
        let mut keys = Self {
            bytes: Vec::with_capacity(self.bytes.len()),
            ends: Vec::with_capacity(self.ends.len()),
        };
        for index in order {
            keys.bytes.extend_from_slice(self.get(index as usize));
            keys.ends.push(keys.bytes.len() as u32);
        }
        keys
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn get(&self, index: usize) -> &[u8] {
        let start = index
            .checked_sub(1)
            .map_or(0, |before| self.ends[before] as usize);
        &self.bytes[start..self.ends[index] as usize]
    }
}

/// The value stored at a key: a function of the key, so that every answer can be checked.
pub(crate) fn value_of(key: &[u8]) -> u64 {
    key.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_their_shape_and_shuffling_keeps_them() {
        let keys = Keys::draw(KeyShape::Decimal, 1000, 1);
        let mut all: Vec<_> = (0..1000).map(|index| keys.get(index).to_vec()).collect();
        assert!(all.iter().all(|key| (1..=10).contains(&key.len())));
        let shuffled = keys.shuffled(2);
        let mut others: Vec<_> = (0..1000)
            .map(|index| shuffled.get(index).to_vec())
            .collect();
        assert_ne!(all, others);
        all.sort();
        others.sort();
        assert_eq!(all, others);
        assert_eq!(
            Keys::draw(KeyShape::Prefixed, 1, 1).get(0)[..40],
            [b'p'; 40]
        );
        let swept = Keys::behind_prefix(48, 2, 1);
        assert_eq!(swept.get(1).len(), 48);
        assert_eq!(swept.get(0)[..40], swept.get(1)[..40]);
        assert_ne!(swept.get(0), swept.get(1));
    }
}
