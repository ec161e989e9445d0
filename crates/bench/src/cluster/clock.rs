//! The simulated clock, and who is busy until when.

use std::collections::BTreeMap;

/// From one host to another, or to itself: what the paper's network takes.
pub(super) const WAY_NS: u64 = 50_000;
/// A message at a proxy.
pub(super) const PROXY_NS: u64 = 80_000;
/// A request at a memnode, or at the store.
pub(super) const MEMNODE_NS: u64 = 40_000;
/// A byte of a request to a memnode or of its reply.
pub(super) const BYTE_NS: u64 = 5;
/// Cores of a proxy, of a memnode, and of a host of the store, which has no proxy (§6.1).
pub(super) const PROXY_CORES: usize = 3;
pub(super) const MEMNODE_CORES: usize = 2;
pub(super) const STORE_CORES: usize = 5;
/// Between two ticks, after which what met a lock is tried again.
pub(super) const TICK_NS: u64 = 200_000;

/// Events in the order of their times; those of one time in the order in which they were set.
#[derive(Debug)]
pub(super) struct Clock<E> {
    pub(super) now: u64,
    set: u64,
    events: BTreeMap<(u64, u64), E>,
}

impl<E> Default for Clock<E> {
    fn default() -> Self {
        Self {
            now: 0,
            set: 0,
            events: BTreeMap::new(),
        }
    }
}

impl<E> Clock<E> {
    pub(super) fn at(&mut self, time: u64, event: E) {
        debug_assert!(time >= self.now, "nothing happens in the past");
        self.set += 1;
        self.events.insert((time, self.set), event);
    }

    /// Goes on to the next event, if it is before `end`.
    pub(super) fn next_before(&mut self, end: u64) -> Option<E> {
        let first = self.events.first_entry()?;
        if first.key().0 >= end {
            return None;
        }
        self.now = first.key().0;
        Some(first.remove())
    }
}

/// Cores that serve who comes first.
#[derive(Clone, Debug)]
pub(super) struct Station {
    free_at: Vec<u64>,
}

impl Station {
    pub(super) fn new(cores: usize) -> Self {
        Self {
            free_at: vec![0; cores],
        }
    }

    /// When what comes now and takes `cost` is done.
    pub(super) fn serve(&mut self, now: u64, cost: u64) -> u64 {
        let core = self.free_at.iter_mut().min().expect("a core");
        *core = now.max(*core) + cost;
        *core
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cores_serve_two_at_a_time() {
        let mut station = Station::new(2);
        let ends = [0, 0, 0, 35].map(|now| station.serve(now, 10));
        assert_eq!(ends, [10, 10, 20, 45]);
    }

    #[test]
    fn events_come_in_their_order_up_to_an_end() {
        let mut clock = Clock::default();
        for (time, event) in [(5, 'b'), (5, 'c'), (1, 'a'), (9, 'd')] {
            clock.at(time, event);
        }
        let met: Vec<_> = std::iter::from_fn(|| clock.next_before(9)).collect();
        assert_eq!((met, clock.now), (vec!['a', 'b', 'c'], 5));
    }
}
