//! Which key is next: uniform, Zipfian, scrambled Zipfian, latest.
//!
//! The Zipfian generator is the constant-time one of Gray et al. (SIGMOD 1994), as YCSB uses it:
//! item `i` of `n` (from 0) is drawn with probability `(i + 1)^-θ / ζ(n, θ)`.

use clap::ValueEnum;
use fastrand::Rng;

/// YCSB's skew.
pub(crate) const YCSB_THETA: f64 = 0.99;

/// A distribution over item numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Distribution {
    /// Every item alike.
    Uniform,
    /// Item 0 most often.
    Zipfian,
    /// Zipfian, the popular items spread over all numbers.
    Scrambled,
    /// Zipfian from the highest number downwards.
    Latest,
}

/// Draws item numbers below a bound.
#[derive(Debug)]
pub(crate) struct Chooser {
    distribution: Distribution,
    items: u64,
    zipf: Zipf,
}

#[derive(Clone, Copy, Debug)]
struct Zipf {
    theta: f64,
    zeta_items: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    fn new(items: u64, theta: f64) -> Self {
        let zeta = |count: u64| {
            (1..=count)
                .map(|rank| (rank as f64).powf(-theta))
                .sum::<f64>()
        };
        let (zeta_items, zeta_two) = (zeta(items), zeta(2.min(items)));
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - theta)) / (1.0 - zeta_two / zeta_items);
        Self {
            theta,
            zeta_items,
            alpha: 1.0 / (1.0 - theta),
            eta,
        }
    }

    fn draw(&self, items: u64, random: &mut Rng) -> u64 {
        let uniform = random.f64();
        let scaled = uniform * self.zeta_items;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(self.theta) {
            return 1.min(items - 1);
        }
        let rank = items as f64 * (self.eta * uniform - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(items - 1)
    }
}

impl Chooser {
    /// Over `items` items, at least one. O(items) to make, O(1) to draw.
    pub(crate) fn new(distribution: Distribution, items: u64, theta: f64) -> Self {
        let zipf = match distribution {
            Distribution::Uniform => Zipf::new(1, theta),
            _ => Zipf::new(items, theta),
        };
        Self {
            distribution,
            items,
            zipf,
        }
    }

    /// The next item.
    pub(crate) fn draw(&self, random: &mut Rng) -> u64 {
        match self.distribution {
            Distribution::Uniform => random.u64(..self.items),
            Distribution::Zipfian => self.zipf.draw(self.items, random),
            Distribution::Scrambled => scramble(self.zipf.draw(self.items, random)) % self.items,
            Distribution::Latest => self.items - 1 - self.zipf.draw(self.items, random),
        }
    }

    /// The next item when there are `count` items by now, at least as many as at first. The shape
    /// is that of the first number of items; `Latest` ends at the newest one.
    pub(crate) fn draw_of(&self, count: u64, random: &mut Rng) -> u64 {
        match self.distribution {
            Distribution::Uniform => random.u64(..count),
            Distribution::Latest => count - 1 - self.zipf.draw(self.items, random),
            Distribution::Zipfian | Distribution::Scrambled => self.draw(random),
        }
    }
}

/// FNV-1a of the eight bytes.
fn scramble(item: u64) -> u64 {
    item.to_le_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEMS: u64 = 1000;
    const DRAWS: u64 = 400_000;

    fn counts(distribution: Distribution) -> Vec<u64> {
        let chooser = Chooser::new(distribution, ITEMS, YCSB_THETA);
        let mut random = Rng::with_seed(7);
        let mut counts = vec![0; ITEMS as usize];
        for _ in 0..DRAWS {
            counts[chooser.draw(&mut random) as usize] += 1;
        }
        counts
    }

    #[test]
    fn the_zipfian_exponent_is_theta() {
        let counts = counts(Distribution::Zipfian);
        // The slope of log frequency over log rank, by least squares, over the ranks for which the
        // generator is exact enough and the counts are large.
        let points: Vec<(f64, f64)> = (2..200)
            .map(|rank| {
                (
                    f64::from(rank + 1).ln(),
                    (counts[rank as usize] as f64).ln(),
                )
            })
            .collect();
        let count = points.len() as f64;
        let mean = points
            .iter()
            .fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
        let mean = (mean.0 / count, mean.1 / count);
        let (mut above, mut below) = (0.0, 0.0);
        for (x, y) in points {
            above += (x - mean.0) * (y - mean.1);
            below += (x - mean.0).powi(2);
        }
        let slope = above / below;
        assert!((slope + YCSB_THETA).abs() < 0.05, "slope {slope}");
    }

    #[test]
    fn the_most_popular_item_has_its_share() {
        let zeta: f64 = (1..=ITEMS)
            .map(|rank| (rank as f64).powf(-YCSB_THETA))
            .sum();
        let expected = DRAWS as f64 / zeta;
        let drawn = counts(Distribution::Zipfian)[0] as f64;
        assert!(
            (drawn / expected - 1.0).abs() < 0.03,
            "{drawn} of {expected}"
        );
    }

    #[test]
    fn latest_mirrors_and_scrambled_permutes() {
        let latest = counts(Distribution::Latest);
        assert!(latest[ITEMS as usize - 1] > latest[ITEMS as usize - 2]);
        let scrambled = counts(Distribution::Scrambled);
        let top = scrambled.iter().max().copied().unwrap_or(0);
        assert!(
            scrambled[0] != top,
            "the most popular item is not the first"
        );
        assert!(top as f64 > DRAWS as f64 / 10.0);
    }

    #[test]
    fn uniform_is_flat() {
        let mean = DRAWS / ITEMS;
        assert!(
            counts(Distribution::Uniform)
                .iter()
                .all(|count| count.abs_diff(mean) < mean / 3)
        );
    }

    #[test]
    fn one_item_is_enough() {
        let mut random = Rng::with_seed(1);
        for distribution in Distribution::value_variants() {
            assert_eq!(
                Chooser::new(*distribution, 1, YCSB_THETA).draw(&mut random),
                0
            );
        }
    }
}
