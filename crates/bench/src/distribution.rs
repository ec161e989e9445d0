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
#[derive(Clone, Debug)]
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

    fn counts(distribution: Distribution, theta: f64) -> Vec<u64> {
        let chooser = Chooser::new(distribution, ITEMS, theta);
        let mut random = Rng::with_seed(7);
        let mut counts = vec![0; ITEMS as usize];
        for _ in 0..DRAWS {
            counts[chooser.draw(&mut random) as usize] += 1;
        }
        counts
    }

    /// The law: the probability of each rank, from 0.
    fn law(theta: f64) -> Vec<f64> {
        let weights: Vec<f64> = (1..=ITEMS).map(|rank| (rank as f64).powf(-theta)).collect();
        let zeta: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| weight / zeta).collect()
    }

    /// The exponent of counts by rank: the slope of log frequency over log rank, by least squares,
    /// over the ranks for which the generator is exact enough and the counts are large.
    fn exponent(counts: &[u64]) -> f64 {
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
        -above / below
    }

    /// The largest distance between the shares up to each rank, as drawn and by the law.
    fn distance(counts: &[u64], law: &[f64]) -> f64 {
        let (mut drawn, mut expected, mut most) = (0.0, 0.0, 0.0_f64);
        for (count, share) in counts.iter().zip(law) {
            drawn += *count as f64 / DRAWS as f64;
            expected += share;
            most = most.max((drawn - expected).abs());
        }
        most
    }

    #[test]
    fn the_zipfian_exponent_is_theta_and_the_shares_are_the_laws() {
        for theta in [0.5, 0.8, YCSB_THETA] {
            let counts = counts(Distribution::Zipfian, theta);
            let found = exponent(&counts);
            assert!((found - theta).abs() < 0.05, "{found} for θ {theta}");
            // The generator's formula is exact for two ranks and close for the others.
            let distance = distance(&counts, &law(theta));
            assert!(distance < 0.02, "{distance} for θ {theta}");
        }
    }

    #[test]
    fn another_exponent_would_be_noticed() {
        let counts = counts(Distribution::Zipfian, 0.8);
        assert!((exponent(&counts) - YCSB_THETA).abs() > 0.1);
        assert!(distance(&counts, &law(YCSB_THETA)) > 0.1);
    }

    #[test]
    fn the_most_popular_items_have_their_shares() {
        let counts = counts(Distribution::Zipfian, YCSB_THETA);
        for (rank, share) in law(YCSB_THETA).into_iter().enumerate().take(2) {
            let ratio = counts[rank] as f64 / DRAWS as f64 / share;
            assert!((ratio - 1.0).abs() < 0.03, "rank {rank}: {ratio}");
        }
    }

    #[test]
    fn latest_is_the_law_counted_from_the_newest() {
        let mut counts = counts(Distribution::Latest, YCSB_THETA);
        counts.reverse();
        let found = exponent(&counts);
        assert!((found - YCSB_THETA).abs() < 0.05, "{found}");
        assert!(distance(&counts, &law(YCSB_THETA)) < 0.02);
    }

    #[test]
    fn latest_follows_the_newest_while_items_are_added() {
        let chooser = Chooser::new(Distribution::Latest, ITEMS, YCSB_THETA);
        let mut random = Rng::with_seed(7);
        let mut counts = vec![0; ITEMS as usize];
        for draw in 0..DRAWS {
            // An item is added for every hundred reads.
            let items = ITEMS + draw / 100;
            let age = items - 1 - chooser.draw_of(items, &mut random);
            counts[age as usize] += 1;
        }
        assert!(distance(&counts, &law(YCSB_THETA)) < 0.02);
    }

    #[test]
    fn scrambled_gives_the_same_shares_to_other_items() {
        let mut scrambled = counts(Distribution::Scrambled, YCSB_THETA);
        // Where the popular ranks go, their shares arrive, those of ranks that meet there added.
        let mut expected = vec![0.0; ITEMS as usize];
        for (rank, share) in (0..).zip(law(YCSB_THETA)) {
            expected[(scramble(rank) % ITEMS) as usize] += share;
        }
        let distance = distance(&scrambled, &expected);
        assert!(distance < 0.02, "{distance}");
        assert_ne!(
            scramble(0) % ITEMS,
            0,
            "the most popular item is not the first"
        );
        scrambled.sort_unstable();
        assert!(scrambled[ITEMS as usize - 1] as f64 > DRAWS as f64 / 10.0);
    }

    #[test]
    fn uniform_is_flat() {
        let mean = DRAWS / ITEMS;
        assert!(
            counts(Distribution::Uniform, YCSB_THETA)
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
