//! The number of distinct elements, from how often each register value occurs.
//!
//! Follows Ertl, "New cardinality estimation algorithms for `HyperLogLog` sketches" (2017),
//! Algorithm 6, as Redis does: without thresholds between ranges and without tables of bias.

use super::sketch::{REGISTERS, VALUE_MAX};

/// Bits of a hash behind those that choose a register, so the highest value of a register is one
/// more.
const QUEUE_BITS: usize = VALUE_MAX as usize - 1;

/// 1 / (2 ln 2): the bias of an infinite number of registers.
const ALPHA: f64 = 0.721_347_520_444_481_7;

/// How many registers have each value.
#[derive(Clone, Debug)]
pub(super) struct Histogram([u32; QUEUE_BITS + 2]);

impl Histogram {
    pub(super) fn new() -> Self {
        Self([0; QUEUE_BITS + 2])
    }

    /// Counts `registers` registers of a value; one beyond [`VALUE_MAX`], which no hash gives, is
    /// left out, as in Redis.
    pub(super) fn add(&mut self, value: u8, registers: usize) {
        if let Some(count) = self.0.get_mut(usize::from(value)) {
            *count += registers as u32;
        }
    }

    /// The estimate, with a standard error of 0.81 %.
    pub(super) fn estimate(&self) -> u64 {
        let registers = REGISTERS as f64;
        let full = f64::from(self.0[QUEUE_BITS + 1]);
        let mut sum = registers * tau((registers - full) / registers);
        for count in self.0[1..=QUEUE_BITS].iter().rev() {
            sum += f64::from(*count);
            sum *= 0.5;
        }
        sum += registers * sigma(f64::from(self.0[0]) / registers);
        (ALPHA * registers * registers / sum).round() as u64
    }
}

/// What registers at their highest value stand for (Ertl's τ).
#[allow(
    clippy::float_cmp,
    reason = "the sum has converged when it stays the same"
)]
fn tau(share: f64) -> f64 {
    if share == 0.0 || share == 1.0 {
        return 0.0;
    }
    let (mut share, mut weight, mut sum) = (share, 1.0, 1.0 - share);
    loop {
        let before = sum;
        share = share.sqrt();
        weight *= 0.5;
        sum -= (1.0 - share).powi(2) * weight;
        if sum == before {
            return sum / 3.0;
        }
    }
}

/// What registers at 0 stand for (Ertl's σ).
#[allow(
    clippy::float_cmp,
    reason = "the sum has converged when it stays the same"
)]
fn sigma(share: f64) -> f64 {
    if share == 1.0 {
        return f64::INFINITY;
    }
    let (mut share, mut weight, mut sum) = (share, 1.0, share);
    loop {
        let before = sum;
        share *= share;
        sum += share * weight;
        weight += weight;
        if sum == before {
            return sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_registers_count_nothing() {
        let mut histogram = Histogram::new();
        histogram.add(0, REGISTERS);
        assert_eq!(histogram.estimate(), 0);
    }

    #[test]
    fn few_elements_are_counted_exactly() {
        for elements in [1, 2, 10, 50] {
            let mut histogram = Histogram::new();
            histogram.add(0, REGISTERS - elements);
            histogram.add(1, elements);
            assert_eq!(histogram.estimate(), elements as u64);
        }
    }

    #[test]
    fn full_registers_have_an_estimate() {
        let mut histogram = Histogram::new();
        histogram.add(VALUE_MAX, REGISTERS - 1);
        histogram.add(VALUE_MAX + 1, 1);
        assert!(histogram.estimate() > 1 << 60);
    }
}
