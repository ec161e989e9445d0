//! Medians and spreads.

use std::fmt;

/// The middle and the ends of repeated measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) least: f64,
    pub(crate) median: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// Of at least one measurement.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<_> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Self {
            least: values[0],
            median,
            most: values[values.len() - 1],
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:7.3} ({:.3}–{:.3})",
            self.median, self.least, self.most
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(
            Spread::of([3.0, 1.0, 2.0]),
            Spread {
                least: 1.0,
                median: 2.0,
                most: 3.0
            }
        );
        assert_eq!(
            Spread::of([4.0, 1.0]),
            Spread {
                least: 1.0,
                median: 2.5,
                most: 4.0
            }
        );
    }
}
