//! Weighted rendezvous hashing: each node bids for a key, and the key belongs to the best bid.
//!
//! A node's number is `XXH3-64(name)`. Its draw for a key is
//! `XXH3-64(XXH3-64(key) as 8 bytes, little-endian; seed: the node's number)`, a fraction *u* of
//! 2⁶⁴. The key belongs to the node whose *distance* −log₂ *u* divided by its weight is smallest,
//! so each has the share of keys that its weight has of all weights (Thaler and Ravishankar 1998;
//! for weights Schindelhauer and Schomaker 2005). A node that comes or goes moves no key between
//! two others. Neither does a weight that changes: its node gives keys or takes keys.
//!
//! Logarithms of the processor or the C library differ in the last bit from machine to machine,
//! which would send a key to two places. Distances are computed in integers, with [`FRACTION`] bits
//! behind the point, and compared by cross-multiplication. Of equal bids the higher draw wins, then
//! the node that is earlier by name.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Bits of a distance behind the point; it has six before.
const FRACTION: u32 = 40;

/// What decides on keys.
#[derive(Clone, Debug)]
pub(super) struct Bidders {
    /// Number, weight and index of each node, by name.
    nodes: Vec<(u64, u32, u16)>,
    weighted: bool,
}

impl Bidders {
    pub(super) fn new(names: &[&str], weights: &[u32]) -> Self {
        let mut order: Vec<usize> = (0..names.len()).collect();
        order.sort_unstable_by_key(|&node| names[node]);
        let number = |node: usize| xxh3_64(names[node].as_bytes());
        Self {
            nodes: order
                .into_iter()
                .map(|node| (number(node), weights[node], node as u16))
                .collect(),
            weighted: weights.iter().any(|&weight| weight != weights[0]),
        }
    }

    /// The node of the key with this XXH3-64. Costs one short hash a node; with weights, a
    /// logarithm too.
    #[inline]
    pub(super) fn node_of(&self, key: u64) -> usize {
        let key = key.to_le_bytes();
        let draws = self.nodes.iter().map(|&(number, weight, node)| {
            let draw = xxh3_64_with_seed(&key, number);
            (draw, weight, node)
        });
        if self.weighted {
            return best_bid(draws);
        }
        // Without weights the highest draw has the shortest distance.
        let (mut highest, mut winner) = (0, 0);
        for (draw, _, node) in draws {
            if draw > highest {
                (highest, winner) = (draw, node);
            }
        }
        winner.into()
    }
}

fn best_bid(draws: impl Iterator<Item = (u64, u32, u16)>) -> usize {
    let mut best = Bid::WORST;
    let mut winner = 0;
    for (draw, weight, node) in draws {
        let bid = Bid::new(draw, weight);
        if bid.beats(&best) {
            (best, winner) = (bid, node);
        }
    }
    winner.into()
}

struct Bid {
    distance: u64,
    weight: u32,
    draw: u64,
}

impl Bid {
    const WORST: Self = Self {
        distance: u64::MAX >> 16,
        weight: 1,
        draw: 0,
    };

    fn new(draw: u64, weight: u32) -> Self {
        Self {
            distance: distance(draw),
            weight,
            draw,
        }
    }

    fn beats(&self, other: &Self) -> bool {
        // Distances have at most 48 bits, weights 16: see `limits`.
        let mine = self.distance * u64::from(other.weight);
        let theirs = other.distance * u64::from(self.weight);
        mine < theirs || (mine == theirs && self.draw > other.draw)
    }
}

/// −log₂(draw / 2⁶⁴) with [`FRACTION`] bits behind the point, rounded up. It never grows when the
/// draw does. A draw of 0 counts as 1.
fn distance(draw: u64) -> u64 {
    let draw = draw.max(1);
    let whole = draw.ilog2();
    // In [1, 2), with 63 bits behind the point. Each squaring doubles the logarithm, and what
    // exceeds 2 is its next bit.
    let mut mantissa = draw << draw.leading_zeros();
    let mut logarithm = u64::from(whole);
    for _ in 0..FRACTION {
        let square = u128::from(mantissa) * u128::from(mantissa);
        let bit = (square >> 127) as u64;
        logarithm = logarithm << 1 | bit;
        mantissa = (square >> (63 + bit)) as u64;
    }
    (64 << FRACTION) - logarithm
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_is_the_logarithm() {
        for draw in [1, 2, 3, 1000, 1 << 32, u64::MAX / 3, u64::MAX / 2 + 1] {
            let exact = 64.0 - (draw as f64).log2();
            let fixed = distance(draw) as f64 / (1_u64 << FRACTION) as f64;
            assert!((exact - fixed).abs() < 1e-9, "{draw}: {exact}, {fixed}");
        }
        assert_eq!(distance(1 << 63), 1 << FRACTION);
        assert_eq!(distance(0), 64 << FRACTION);
        assert_eq!(distance(u64::MAX), 1);
    }

    #[test]
    fn a_higher_draw_is_never_farther() {
        let mut draw = 1_u64;
        let mut last = u64::MAX;
        while draw < u64::MAX - draw / 1000 - 1 {
            let distance = distance(draw);
            assert!(distance <= last, "{draw}");
            last = distance;
            draw += draw / 1000 + 1;
        }
    }

    #[test]
    fn equal_weights_decide_as_none_do() {
        let names = ["oak", "ash", "elm", "fir"];
        let weights = [7; 4];
        let plain = Bidders::new(&names, &weights);
        let weighted = Bidders {
            weighted: true,
            ..plain.clone()
        };
        for key in 0..10_000_u64 {
            assert_eq!(plain.node_of(key), weighted.node_of(key));
        }
    }
}
