//! Ketama: consistent hashing as memcached's clients do it.
//!
//! A ring of 2³² positions. Node `name` has the points that the md5 digests of `name-0`, `name-1`,
//! … give, four to a digest: words of 32 bits, little-endian. A key belongs to the first point at
//! or after the first word of its own digest; behind the last point follows the first.
//!
//! What others leave to accident is fixed here: of two nodes with the same point the later one in
//! the list has it, as in Couchbase's clients.
//!
//! Points of a node: 160 where no node has a weight, as in Couchbase's sdk-rfc 0026 and in
//! spymemcached. With weights, as in libmemcached and twemproxy: 160 times the node's share of all
//! weights times the number of nodes, computed in single precision, rounded down to a multiple of
//! four. Single precision loses four points a node at some sizes (25 nodes, 47, 50, …) even if all
//! weights are equal. Whoever shares a ring with such a client gets the same by giving each node
//! the weight 2.

use md5::{Digest, Md5};

/// Points that a digest gives.
const POINTS_PER_DIGEST: usize = 4;

/// Digests of a node without weights.
const DIGESTS: u32 = 40;

/// A position, and the index of the node that has it.
type Point = (u32, u16);

/// The points of all nodes.
#[derive(Clone, Debug)]
pub(super) struct Continuum {
    points: Vec<Point>,
}

impl Continuum {
    /// The points of nodes with `names` and `weights`.
    pub(super) fn new(names: &[&str], weights: &[u32]) -> Self {
        let mut points = Vec::new();
        for (node, digests) in digests(weights).enumerate() {
            for repetition in 0..digests {
                let digest = Md5::digest(format!("{}-{repetition}", names[node]));
                for word in 0..POINTS_PER_DIGEST {
                    points.push((position(&digest, word), node as u16));
                }
            }
        }
        points.sort_unstable();
        // The last of equal points stays.
        points.reverse();
        points.dedup_by_key(|point| point.0);
        points.reverse();
        Self { points }
    }

    /// The node of `key`.
    pub(super) fn node_of(&self, key: &[u8]) -> usize {
        self.at(position(&Md5::digest(key), 0)).1.into()
    }

    /// The first point at or after `position`.
    fn at(&self, position: u32) -> Point {
        let index = self.points.partition_point(|point| point.0 < position);
        self.points[index % self.points.len()]
    }

    #[cfg(test)]
    pub(super) fn points(&self) -> &[Point] {
        &self.points
    }

    #[cfg(test)]
    pub(super) fn point_of(&self, key: &[u8]) -> (u32, Point) {
        let position = position(&Md5::digest(key), 0);
        (position, self.at(position))
    }
}

/// How many digests each node has.
fn digests(weights: &[u32]) -> impl Iterator<Item = u32> {
    let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
    let weighted = weights.iter().any(|&weight| weight != 1);
    weights.iter().map(move |&weight| {
        if !weighted {
            return DIGESTS;
        }
        // In this order and precision, or rings differ from libmemcached's.
        let share = weight as f32 / total as f32;
        let points = (POINTS_PER_DIGEST as u32 * DIGESTS) as f32;
        (share * points / POINTS_PER_DIGEST as f32 * weights.len() as f32) as u32
    })
}

/// The first node that has no point, since its weight is too small beside the others'.
pub(super) fn without_points(weights: &[u32]) -> Option<usize> {
    digests(weights).position(|digests| digests == 0)
}

fn position(digest: &[u8], word: usize) -> u32 {
    let at = word * 4;
    let bytes = digest[at..at + 4].try_into();
    u32::from_le_bytes(bytes.expect("a digest of MD5 has 16 bytes"))
}
