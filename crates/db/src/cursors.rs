//! SCAN cursors of ordered engines: random numbers that name resume keys.

/// The shared, bounded table of resume points.
#[derive(Debug)]
pub(crate) struct Cursors {
    _seed: u64,
}

impl Cursors {
    pub(crate) fn new(seed: u64) -> Self {
        Self { _seed: seed }
    }
}
