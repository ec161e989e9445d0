//! Where to look for the members of a circle or rectangle: ranges of scores.
//!
//! The bounding box of the shape is covered by at most four cells that are each as large as it at
//! least, or eight if it crosses the 180th meridian. All places of a cell are one range of scores.
//! One more range has the places at the very edge.

use std::f64::consts::PI;
use std::ops::Range;

use super::place::{
    EARTH_RADIUS, LATITUDE_MAX, LONGITUDE_MAX, Point, STEP_MAX, latitude_distance, part, radians,
    spread,
};

/// A shape around a place; lengths in metres.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    Circle { radius: f64 },
    Rectangle { width: f64, height: f64 },
}

/// What makes a box a little larger than it must be, in degrees: rounding leaves nobody out.
const MARGIN: f64 = 1e-6;

impl Shape {
    /// The distance of a place, if it is in the shape around `centre`.
    pub(super) fn distance(self, centre: Point, place: Point) -> Option<f64> {
        if let Self::Rectangle { width, height } = self {
            let beside = Point {
                longitude: centre.longitude,
                ..place
            };
            let is_inside = latitude_distance(place.latitude, centre.latitude) <= height / 2.0
                && place.distance(beside) <= width / 2.0;
            return is_inside.then(|| centre.distance(place));
        }
        let Self::Circle { radius } = self else {
            unreachable!("it is no rectangle")
        };
        let distance = centre.distance(place);
        (distance <= radius).then_some(distance)
    }

    /// Half of the bounding box around `centre`, in degrees of longitude and latitude.
    fn extent(self, centre: Point) -> (f64, f64) {
        let degrees = |radians: f64| radians * (180.0 / PI);
        let (across, up) = match self {
            Self::Circle { radius } => (radius, radius),
            Self::Rectangle { width, height } => (width / 2.0, height / 2.0),
        };
        let latitude = degrees(up / EARTH_RADIUS);
        let northernmost = centre.latitude.abs() + latitude;
        if northernmost >= 90.0 {
            return (2.0 * LONGITUDE_MAX, latitude + MARGIN);
        }
        // The widest part of a circle is between its centre and the pole; that of a rectangle is
        // its edge there, along which its width is measured.
        let sine = match self {
            Self::Circle { .. } => {
                (across / EARTH_RADIUS).min(PI / 2.0).sin() / radians(centre.latitude).cos()
            }
            Self::Rectangle { .. } => {
                (across / EARTH_RADIUS / 2.0).min(PI / 2.0).sin() / radians(northernmost).cos()
            }
        };
        let longitude = match self {
            _ if sine >= 1.0 => 2.0 * LONGITUDE_MAX,
            Self::Circle { .. } => degrees(sine.asin()),
            Self::Rectangle { .. } => degrees(2.0 * sine.asin()),
        };
        (longitude + MARGIN, latitude + MARGIN)
    }

    /// Ranges of scores that hold all places of the shape around `centre`, in rising order, none
    /// twice.
    pub(super) fn ranges(self, centre: Point) -> Vec<Range<u64>> {
        let (across, up) = self.extent(centre);
        let south = (centre.latitude - up).max(-LATITUDE_MAX);
        let north = (centre.latitude + up).min(LATITUDE_MAX);
        let (west, east) = (centre.longitude - across, centre.longitude + across);
        let step = step_of(2.0 * across, 2.0 * up);
        // What is beyond the 180th meridian is on the other side.
        let whole = (-LONGITUDE_MAX, LONGITUDE_MAX);
        let spans = if east - west >= 2.0 * LONGITUDE_MAX {
            vec![whole]
        } else if west < -LONGITUDE_MAX {
            vec![(west + 360.0, LONGITUDE_MAX), (-LONGITUDE_MAX, east)]
        } else if east > LONGITUDE_MAX {
            vec![(west, LONGITUDE_MAX), (-LONGITUDE_MAX, east - 360.0)]
        } else {
            vec![(west, east)]
        };
        let parts = |from: f64, to: f64, most: f64| {
            let last = (1_u64 << step) - 1;
            part(from, most, step).min(last)..=part(to, most, step).min(last)
        };
        let mut cells = Vec::new();
        for latitude in parts(south, north, LATITUDE_MAX) {
            for (west, east) in &spans {
                for longitude in parts(*west, *east, LONGITUDE_MAX) {
                    cells.push(spread(latitude) | spread(longitude) << 1);
                }
            }
        }
        cells.sort_unstable();
        cells.dedup();
        let shift = 2 * (STEP_MAX - step);
        let ranges = cells.into_iter();
        let ranges = ranges.map(|cell| cell << shift..(cell + 1) << shift);
        // The greatest latitude and longitude are beyond all cells.
        let is_at_edge = north >= LATITUDE_MAX || spans.iter().any(|span| span.1 >= LONGITUDE_MAX);
        let edge = 1 << (2 * STEP_MAX)..u64::MAX;
        ranges.chain(is_at_edge.then_some(edge)).collect()
    }
}

/// The bits of a coordinate of the smallest cells that are as large as a box, in degrees.
fn step_of(width: f64, height: f64) -> u32 {
    let fits = |step: &u32| {
        let parts = f64::from(1_u32 << step);
        2.0 * LONGITUDE_MAX / parts >= width && 2.0 * LATITUDE_MAX / parts >= height
    };
    (0..=STEP_MAX).rev().find(fits).unwrap_or(0)
}
