//! Workloads as streams of steps, the same in process and over the wire.
//!
//! | name | steps | keys, columns |
//! |---|---|---|
//! | `decimal-get`, `decimal-put` | one value read or replaced, uniform | 1 to 10 digits |
//! | `mycsb-a`, `-b`, `-c` | all columns read; 50, 5, 0 % one updated | 5 to 24 bytes, 10 × 4 |
//! | `mycsb-e` | 95 % one column of 1 to 100 adjacent keys, 5 % updates | the same |
//! | `ycsb-a` to `-f` | YCSB's core workloads | 5 to 24 bytes, 10 × 100 |
//!
//! The decimal workloads and MYCSB are those of the Masstree paper's §7; all but the decimal ones
//! are Zipfian.
//!
//! MYCSB's updates change keys that are there, as the paper's do. YCSB inserts rows in `-d` (5 %,
//! reads prefer the latest) and `-e` (5 %, scans), and `-f` reads a row and writes one column back.
//!
//! A key is a function of its item's number, so that nobody has to remember keys.

mod names;
mod stream;

pub(crate) use names::WorkloadName;
pub(crate) use stream::{Step, Stream};

use crate::distribution::{Distribution, YCSB_THETA};

/// How an item's number becomes a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyNaming {
    /// `key:` and twelve digits: neighbours in number are neighbours in order.
    Padded,
    /// The decimal digits of 31 hashed bits: 1 to 10 bytes, the Masstree paper's.
    Decimal,
    /// `user` and the decimal digits of 64 hashed bits: 5 to 24 bytes, YCSB's.
    User,
}

impl KeyNaming {
    /// Writes the key of `item` to `key`.
    pub(crate) fn write(self, item: u64, key: &mut Vec<u8>) {
        use std::io::Write;
        key.clear();
        match self {
            Self::Padded => write!(key, "key:{item:012}"),
            Self::Decimal => write!(key, "{}", mix(item) >> 33),
            Self::User => write!(key, "user{}", mix(item)),
        }
        .expect("a vector takes every byte");
    }
}

/// A bijection of 64 bits that spreads neighbours (the finalizer of `SplitMix64`).
fn mix(item: u64) -> u64 {
    let item = item.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let item = (item ^ (item >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let item = (item ^ (item >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    item ^ (item >> 31)
}

/// Shares of the kinds of steps, in per cent; they add up to 100.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mix {
    pub(crate) read: u8,
    pub(crate) update: u8,
    pub(crate) insert: u8,
    pub(crate) scan: u8,
    pub(crate) read_modify_write: u8,
}

/// What the steps of a workload are made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Workload {
    pub(crate) naming: KeyNaming,
    pub(crate) mix: Mix,
    pub(crate) distribution: Distribution,
    pub(crate) theta: f64,
    /// `None`: a value without columns.
    pub(crate) columns: Option<usize>,
    /// Bytes of a column, or of the value.
    pub(crate) column_bytes: usize,
    /// Keys of the longest scan.
    pub(crate) scan_keys_max: usize,
    /// Whether a scan wants one column instead of all.
    pub(crate) scan_one_column: bool,
}

impl Workload {
    /// GET and SET on values without columns.
    pub(crate) fn plain(reads: u8, distribution: Distribution, value_bytes: usize) -> Self {
        Self {
            naming: KeyNaming::Padded,
            mix: Mix {
                read: reads,
                update: 100 - reads,
                ..Mix::default()
            },
            distribution,
            theta: YCSB_THETA,
            columns: None,
            column_bytes: value_bytes,
            scan_keys_max: 100,
            scan_one_column: false,
        }
    }
}

/// The name of a column, as YCSB's bindings number them.
pub(crate) fn column_name(column: usize, name: &mut Vec<u8>) {
    use std::io::Write;
    name.clear();
    write!(name, "field{column}").expect("a vector takes every byte");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_lengths_of_the_papers() {
        let mut key = Vec::new();
        let (mut shortest, mut longest) = (usize::MAX, 0);
        let mut nine_or_ten = 0;
        for item in 0..20_000 {
            KeyNaming::User.write(item, &mut key);
            assert!((5..=24).contains(&key.len()));
            KeyNaming::Decimal.write(item, &mut key);
            shortest = shortest.min(key.len());
            longest = longest.max(key.len());
            nine_or_ten += u32::from(key.len() >= 9);
        }
        assert!(shortest < 7 && longest == 10);
        // The paper's "80 % of the keys are 9 or 10 bytes long" counts keys of a range that is not
        // quite this one: of numbers below 2^31, 95 % have 9 or 10 digits.
        assert!(nine_or_ten > 20_000 * 8 / 10);
    }

    #[test]
    fn padded_keys_are_ordered_as_their_items() {
        let (mut lower, mut higher) = (Vec::new(), Vec::new());
        KeyNaming::Padded.write(9, &mut lower);
        KeyNaming::Padded.write(10, &mut higher);
        assert!(lower < higher);
    }
}
