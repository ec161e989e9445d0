//! Units of time as types, so that none is taken for another. Each is a moment, since the Unix
//! epoch or another that its clock has, or a span.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident, $duration:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// None.
            pub const ZERO: Self = Self(0);
            /// The latest moment, or the longest span.
            pub const MAX: Self = Self(u64::MAX);

            /// The sum; the largest there is when it is larger.
            #[must_use]
            pub const fn saturating_add(self, span: Self) -> Self {
                Self(self.0.saturating_add(span.0))
            }

            /// The difference; none when the other is later.
            #[must_use]
            pub const fn saturating_sub(self, earlier: Self) -> Self {
                Self(self.0.saturating_sub(earlier.0))
            }

            /// As the standard library has a span.
            #[must_use]
            pub const fn duration(self) -> Duration {
                Duration::$duration(self.0)
            }
        }

        impl Add for $name {
            type Output = Self;

            fn add(self, span: Self) -> Self {
                Self(self.0 + span.0)
            }
        }

        impl Sub for $name {
            type Output = Self;

            fn sub(self, earlier: Self) -> Self {
                Self(self.0 - earlier.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }
    };
}

unit!(
    /// Milliseconds.
    Milliseconds,
    from_millis
);
unit!(
    /// Microseconds.
    Microseconds,
    from_micros
);

impl Microseconds {
    /// Whole milliseconds.
    #[must_use]
    pub const fn milliseconds(self) -> Milliseconds {
        Milliseconds(self.0 / 1000)
    }
}

impl From<Milliseconds> for Microseconds {
    /// The largest there is when it is larger.
    fn from(milliseconds: Milliseconds) -> Self {
        Self(milliseconds.0.saturating_mul(1000))
    }
}
