//! Keys, values and phases: put all pairs, get all, delete all, each in an order of its own.

use std::fmt::Write as _;
use std::time::Instant;

use crate::store::{Outcome, Store, StoreError};

/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 25;

/// What keys look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Keys {
    /// `user` and 21 digits of a scrambled number: as YCSB's, with a common beginning.
    Decimal,
    /// Any bytes.
    Random,
}

/// What is done with all the pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Put,
    Get,
    Delete,
}

impl Phase {
    pub(crate) const ALL: [Self; 3] = [Self::Put, Self::Get, Self::Delete];
}

/// Nanoseconds that one operation of each phase takes.
pub(crate) type Times = [f64; 3];

/// The median of the rounds, the least and the most.
pub(crate) fn summary(rounds: &[Times], phase: Phase) -> String {
    let mut times: Vec<f64> = rounds.iter().map(|times| times[phase as usize]).collect();
    times.sort_by(f64::total_cmp);
    let last = times.len() - 1;
    let median = f64::midpoint(times[last / 2], times[last.div_ceil(2)]);
    let (least, most) = (times[0], times[last]);
    format!("{median:.0} ({least:.0} to {most:.0})")
}

/// How many pairs, and which.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) pairs: u32,
    pub(crate) value_bytes: usize,
    pub(crate) keys: Keys,
}

impl Plan {
    /// Bytes that a store may need.
    pub(crate) fn room(&self) -> u64 {
        (64 << 20) + u64::from(self.pairs) * (self.value_bytes as u64 * 2 + 1024)
    }

    /// Runs all phases.
    pub(crate) fn run(&self, store: &mut dyn Store) -> Outcome<Times> {
        let mut times = [0.0; 3];
        for phase in Phase::ALL {
            let started = Instant::now();
            self.run_phase(store, phase)?;
            times[phase as usize] = started.elapsed().as_nanos() as f64 / f64::from(self.pairs);
            store.pause()?;
        }
        Ok(times)
    }

    fn run_phase(&self, store: &mut dyn Store, phase: Phase) -> Outcome<()> {
        let mut key = Vec::with_capacity(KEY_BYTES);
        let mut value = vec![0; self.value_bytes];
        let mut got = Vec::with_capacity(self.value_bytes);
        for number in (0..self.pairs).map(|turn| self.number(turn, phase)) {
            self.make_key(number, &mut key);
            match phase {
                Phase::Put => {
                    mark_value(&mut value, number);
                    store.put(&key, &value)?;
                }
                Phase::Get => {
                    got.clear();
                    if !store.get(&key, &mut got)? {
                        return Err(StoreError::Lost { number });
                    }
                    mark_value(&mut value, number);
                    let ends = |bytes: &[u8]| [bytes[0], bytes[4], bytes[bytes.len() - 1]];
                    if got.len() != value.len() || ends(&got) != ends(&value) {
                        return Err(StoreError::Wrong { number });
                    }
                }
                Phase::Delete => store.delete(&key)?,
            }
        }
        Ok(())
    }

    /// The pair of a turn: each phase has an order of its own, in which every pair comes once.
    fn number(&self, turn: u32, phase: Phase) -> u32 {
        let pairs = u64::from(self.pairs);
        // A prime that does not divide the number of pairs makes a walk through all of them.
        let steps = [2_654_435_761, 2_246_822_519, 3_266_489_917];
        let step = steps[phase as usize];
        let walk = if pairs.is_multiple_of(step) { 1 } else { step };
        ((u64::from(turn) * walk + 17 * phase as u64) % pairs) as u32
    }

    fn make_key(&self, number: u32, key: &mut Vec<u8>) {
        key.clear();
        match self.keys {
            Keys::Decimal => {
                let mut text = String::with_capacity(KEY_BYTES);
                let scrambled = scramble(u64::from(number));
                write!(text, "user{scrambled:021}").expect("text holds anything");
                key.extend_from_slice(text.as_bytes());
            }
            Keys::Random => {
                for part in 0..4 {
                    let word = scramble(u64::from(number) << 2 | part);
                    key.extend_from_slice(&word.to_be_bytes());
                }
                key.truncate(KEY_BYTES);
            }
        }
    }
}

/// A permutation of 64-bit numbers that looks like chance.
fn scramble(number: u64) -> u64 {
    let mut word = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

fn mark_value(value: &mut [u8], number: u32) {
    value[..4].copy_from_slice(&number.to_le_bytes());
    value[4] = 0xa5;
    let last = value.len() - 1;
    value[last] = number as u8;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_phase_visits_every_pair_once_by_a_key_of_its_own() {
        for keys in [Keys::Decimal, Keys::Random] {
            let plan = Plan {
                pairs: 5_000,
                value_bytes: 16,
                keys,
            };
            for phase in Phase::ALL {
                let mut seen = BTreeSet::new();
                let mut key = Vec::new();
                for turn in 0..plan.pairs {
                    plan.make_key(plan.number(turn, phase), &mut key);
                    assert_eq!(key.len(), KEY_BYTES);
                    assert!(seen.insert(key.clone()));
                }
            }
        }
    }
}
