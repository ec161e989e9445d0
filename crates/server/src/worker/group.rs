//! Group commit: how long a worker delays its request for the disk, so that more replies share a
//! write.
//!
//! A write costs the same for one reply as for hundreds. Before the worker asks for one, it checks
//! its sockets once more, as long as that brings another client. On a slow disk it also waits for
//! clients while fewer are waiting than recently: clients answered together send their next
//! requests soon after each other, and all come to share every write, where otherwise two halves
//! would alternate. The delay is never longer than a write takes, and there is none when all
//! clients wait already, as a single client always does.
//!
//! ```text
//! closed ── a reply waits, and no write that the worker asked for is on its way ──► open
//!   ▲                                              look at the sockets, serve them │   ▲
//!   └── nobody came, all wait, or the time is over: the disk is asked for ◄────────┴───┘ one more
//! ```
//!
//! Deliberately absent: epochs and who waits for which ([`super::holding`]).

use std::time::Duration;

use crate::limits;

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Group {
    is_open: bool,
    /// When it was opened, and when a client last came.
    begun_ns: u64,
    joined_ns: u64,
    /// How many waited at the last check, and how many have recently waited at once.
    waiting: usize,
    lately: usize,
    /// The recent duration of a write.
    write_ns: u64,
    /// The server is stopping: nothing is delayed.
    stopped: bool,
}

/// The worker's knowledge when it could ask for the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) now_ns: u64,
    /// Connections that wait for the disk, and their total number.
    pub(crate) waiting: usize,
    pub(crate) connections: usize,
    /// The recent duration of a write.
    pub(crate) write_ns: u64,
}

impl Group {
    /// Whether the disk is still to be asked for.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// This many waited until now, some of whom are released.
    pub(crate) fn released(&mut self, waiting: usize) {
        self.lately = waiting.max(self.lately - self.lately.div_ceil(8));
    }

    /// Whether the worker checks its sockets once more before it asks for the disk.
    pub(crate) fn goes_on(&mut self, look: Look) -> bool {
        debug_assert!(look.waiting > 0);
        let is_joined = !self.is_open || look.waiting > self.waiting;
        if !self.is_open {
            self.begun_ns = look.now_ns;
        }
        if is_joined {
            self.joined_ns = look.now_ns;
        }
        self.waiting = look.waiting;
        // One stalled write must not make every group wait.
        let write_ns = look.write_ns.min(limits::GROUP_WRITE_NS_MAX);
        self.write_ns = write_ns;
        let patience_ns = if write_ns > limits::SLOW_WRITE_NS && look.waiting < self.lately {
            write_ns / 2
        } else {
            0
        };
        let since = |then_ns: u64| look.now_ns.saturating_sub(then_ns);
        self.is_open = !self.stopped
            && look.waiting < look.connections
            && since(self.begun_ns) < write_ns
            && (is_joined || since(self.joined_ns) < patience_ns);
        self.is_open
    }

    /// Nobody is left to ask for: somebody else wrote the epoch, or the waiting clients are gone.
    pub(crate) fn close(&mut self) {
        self.is_open = false;
    }

    /// How long the worker may sleep between two checks: not at all if a millisecond, the poller's
    /// minimum, is a large part of a write's duration.
    pub(crate) fn timeout(&self) -> Duration {
        if self.write_ns < limits::SLEEPING_WRITE_NS {
            Duration::ZERO
        } else {
            Duration::from_millis(1)
        }
    }

    /// Ends all delays.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK_NS: u64 = limits::SLOW_WRITE_NS / 2;
    const SLOW_NS: u64 = 4 * limits::SLOW_WRITE_NS;

    fn look(now_ns: u64, waiting: usize, write_ns: u64) -> Look {
        Look {
            now_ns,
            waiting,
            connections: 50,
            write_ns,
        }
    }

    #[test]
    fn a_quick_disk_is_asked_as_soon_as_nobody_comes() {
        let mut group = Group::default();
        group.released(50);
        assert!(group.goes_on(look(10, 1, QUICK_NS)), "a look is free");
        assert!(group.goes_on(look(20, 2, QUICK_NS)));
        assert!(!group.goes_on(look(30, 2, QUICK_NS)));
        assert!(!group.is_open());
        assert!(group.goes_on(look(40, 3, QUICK_NS)), "another group");
    }

    #[test]
    fn on_a_slow_disk_those_who_lately_waited_are_waited_for() {
        let mut group = Group::default();
        group.released(10);
        assert!(group.goes_on(look(0, 4, SLOW_NS)));
        assert!(group.goes_on(look(SLOW_NS / 4, 4, SLOW_NS)));
        assert!(group.goes_on(look(SLOW_NS / 3, 9, SLOW_NS)));
        assert!(group.goes_on(look(SLOW_NS / 2, 9, SLOW_NS)));
        assert!(group.goes_on(look(SLOW_NS / 2 + 1, 10, SLOW_NS)), "more?");
        assert!(!group.goes_on(look(SLOW_NS / 2 + 2, 10, SLOW_NS)), "no");
        assert!(group.goes_on(look(SLOW_NS, 4, SLOW_NS)));
        assert!(!group.goes_on(look(2 * SLOW_NS, 4, SLOW_NS)), "none came");
    }

    #[test]
    fn nothing_is_put_off_for_longer_than_a_write() {
        for write_ns in [QUICK_NS, SLOW_NS] {
            let mut group = Group::default();
            group.released(50);
            let step_ns = write_ns / 20;
            let looks = (1..50)
                .take_while(|&step| group.goes_on(look(step as u64 * step_ns, step, write_ns)));
            assert_eq!(looks.count(), 20);
        }
        let mut group = Group::default();
        assert!(!group.goes_on(look(0, 1, 0)), "nothing was written yet");
    }

    #[test]
    fn a_write_that_stood_still_makes_nobody_wait_for_long() {
        let stalled_ns = 100 * limits::GROUP_WRITE_NS_MAX;
        let mut group = Group::default();
        group.released(50);
        assert!(group.goes_on(look(0, 1, stalled_ns)));
        assert!(!group.goes_on(look(limits::GROUP_WRITE_NS_MAX, 2, stalled_ns)));
    }

    #[test]
    fn nothing_is_put_off_when_all_wait_or_the_server_stops() {
        let mut group = Group::default();
        let alone = Look {
            connections: 1,
            ..look(0, 1, SLOW_NS)
        };
        assert!(!group.goes_on(alone));
        assert!(group.goes_on(look(0, 1, SLOW_NS)));
        assert!(!group.goes_on(look(1, 50, SLOW_NS)));
        assert!(group.goes_on(look(0, 1, SLOW_NS)));
        group.stop();
        assert!(!group.goes_on(look(1, 2, SLOW_NS)));
    }

    #[test]
    fn who_stays_away_is_forgotten() {
        let mut group = Group::default();
        group.released(50);
        for _ in 0..50 {
            group.released(2);
        }
        assert!(group.goes_on(look(0, 2, SLOW_NS)));
        assert!(!group.goes_on(look(1, 2, SLOW_NS)));
    }
}
