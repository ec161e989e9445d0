//! Places, their scores, and distances between them.
//!
//! A score has 26 bits each of latitude (bit 0, 2, …) and longitude (bit 1, 3, …): where a place
//! lies between the least and the greatest. Its first bits name a cell; with fewer bits it is
//! larger. The greatest coordinates alone have a 27th bit.

use std::f64::consts::PI;

/// Bits of a coordinate in a score.
pub(super) const STEP_MAX: u32 = 26;

/// Degrees of the greatest latitude that a score can express: where Web Mercator ends.
pub(super) const LATITUDE_MAX: f64 = 85.051_128_78;
pub(super) const LONGITUDE_MAX: f64 = 180.0;

/// Metres.
pub(super) const EARTH_RADIUS: f64 = 6_372_797.560_856;

/// A place, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) longitude: f64,
    pub(super) latitude: f64,
}

pub(super) fn radians(degrees: f64) -> f64 {
    degrees * (PI / 180.0)
}

/// Which of 2^`step` equal parts of -`most` to `most` a coordinate is in.
pub(super) fn part(coordinate: f64, most: f64, step: u32) -> u64 {
    let share = (coordinate + most) / (2.0 * most);
    (share * f64::from(1_u32 << step)) as u64
}

/// The middle of a part, of 2^26.
fn middle(part: u64, most: f64) -> f64 {
    let edge = |part: u64| {
        let share = part as f64 / f64::from(1_u32 << STEP_MAX);
        -most + share * (2.0 * most)
    };
    let middle = f64::midpoint(edge(part), edge(part + 1));
    middle.clamp(-most, most)
}

/// A number's bits, spread to every second place.
pub(super) fn spread(part: u64) -> u64 {
    let mut bits = part & 0xffff_ffff;
    for (shift, mask) in [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ] {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

/// Every second bit of a number: what [`spread`] has spread.
fn gather(bits: u64) -> u64 {
    (0..32).fold(0, |part, bit| part | (bits >> (2 * bit) & 1) << bit)
}

/// The bits of a place: those of latitude and longitude in turns, between these bounds.
fn interleaved(point: Point, latitude_max: f64) -> u64 {
    let latitude = part(point.latitude, latitude_max, STEP_MAX);
    let longitude = part(point.longitude, LONGITUDE_MAX, STEP_MAX);
    spread(latitude) | spread(longitude) << 1
}

impl Point {
    /// Whether a score can express it.
    pub(super) fn is_valid(self) -> bool {
        self.longitude.abs() <= LONGITUDE_MAX && self.latitude.abs() <= LATITUDE_MAX
    }

    /// The score of the place.
    pub(super) fn score(self) -> f64 {
        interleaved(self, LATITUDE_MAX) as f64
    }

    /// The place of a score: the middle of its cell. Scores that no place has are somewhere.
    pub(super) fn of_score(score: f64) -> Self {
        let bits = (score as i64).cast_unsigned();
        Self {
            longitude: middle(gather(bits >> 1), LONGITUDE_MAX),
            latitude: middle(gather(bits), LATITUDE_MAX),
        }
    }

    /// Metres between two places on a sphere.
    pub(super) fn distance(self, other: Self) -> f64 {
        let half = |one: f64, other: f64| ((radians(other) - radians(one)) / 2.0).sin();
        let v = half(self.longitude, other.longitude);
        if v == 0.0 {
            return latitude_distance(self.latitude, other.latitude);
        }
        let u = half(self.latitude, other.latitude);
        let (one, two) = (radians(self.latitude), radians(other.latitude));
        let a = u * u + one.cos() * two.cos() * v * v;
        2.0 * EARTH_RADIUS * a.sqrt().asin()
    }

    /// The place as eleven letters, as other systems write it.
    pub(super) fn text(self) -> [u8; 11] {
        const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let bits = interleaved(self, 90.0);
        // The last letter would need more bits than there are.
        std::array::from_fn(|index| match index {
            10 => LETTERS[0],
            _ => LETTERS[(bits >> (52 - 5 * (index + 1)) & 31) as usize],
        })
    }
}

/// Metres between two latitudes.
pub(super) fn latitude_distance(one: f64, other: f64) -> f64 {
    EARTH_RADIUS * (radians(other) - radians(one)).abs()
}
