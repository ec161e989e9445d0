//! When to check waiting connections: a heap of deadlines, polled once per turn.
//!
//! A deadline is never withdrawn. When it is due, its owner compares it with what the connection
//! waits for now. An outdated one has no effect, and is forgotten when there are many.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// One deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deadline {
    /// Nanoseconds since the server's start.
    pub(crate) due_ns: u64,
    pub(crate) client: u64,
}

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    deadlines: BinaryHeap<Reverse<Deadline>>,
}

impl Timers {
    /// Sets a deadline.
    pub(crate) fn set(&mut self, deadline: Deadline) {
        self.deadlines.push(Reverse(deadline));
    }

    /// When the next one is due.
    #[inline]
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.deadlines.peek().map(|deadline| deadline.0.due_ns)
    }

    /// How many are set, including outdated ones.
    pub(crate) fn len(&self) -> usize {
        self.deadlines.len()
    }

    /// Forgets those that `keep` does not want.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&Deadline) -> bool) {
        self.deadlines.retain(|deadline| keep(&deadline.0));
    }

    /// Takes one that is due at `now_ns`.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<Deadline> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.deadlines.pop().map(|deadline| deadline.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_come_in_the_order_of_their_time() {
        let mut timers = Timers::default();
        for (client, due_ns) in [(1, 30), (2, 10), (3, 20)] {
            timers.set(Deadline { due_ns, client });
        }
        assert_eq!(timers.next_ns(), Some(10));
        let due: Vec<u64> = std::iter::from_fn(|| timers.pop_due(25))
            .map(|deadline| deadline.client)
            .collect();
        assert_eq!(due, [2, 3]);
        assert_eq!(timers.next_ns(), Some(30));
        timers.retain(|deadline| deadline.client != 1);
        assert_eq!((timers.len(), timers.next_ns()), (0, None));
    }
}
