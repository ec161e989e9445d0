//! What a worker does before it sleeps: nothing, or it yields to other threads of its core and
//! checks what they have sent, or it polls for a moment.
//!
//! Sleeping and being woken costs both sides more than a small request does.
//!
//! - **A lone client** that waits for each reply pays for it every time. While the only activity is
//!   one connection whose requests follow closely on its replies, the worker polls for the next
//!   one. It stops at the first that does not come in time, so polling in vain is rare: once
//!   [`LOOK`] in [`LOOK_STREAK`] requests at most. With more connections there is usually something
//!   to do, and sleeping lets requests gather.
//! - **Clients on the worker's own core** run only when it does not. When it sleeps, the kernel
//!   runs it again at the first request, before the second is sent: two task switches for each. If
//!   it yields instead, it stays ready to run, so nobody has to wake it, and it runs when the
//!   clients wait for replies: one turn for the requests of all.
//!
//! Only a worker with few connections yields
//! ([`GIVE_WAY_CONNECTIONS_MAX`](crate::limits::GIVE_WAY_CONNECTIONS_MAX)): of many, some have sent
//! a request by the time it checks next anyway.
//!
//! A worker does not know where its clients are. Yielding pays if it finds requests afterwards,
//! within [`GIVE_WAY`]: a thread that works for longer is not a client that waits, and the worker's
//! clients must not wait for it. The number of waits until the next time:
//!
//! | yielding | then |
//! |---|---|
//! | has paid | half as many as before it, down to none |
//! | was in vain | twice as many, up to `2^VAIN_BACKOFF_MAX` |
//! | has taken too long | `2^LATE_BACKOFF` |
//!
//! Deliberately absent: the polling (`pando_io::Poller`).

use crate::limits::{GIVE_WAY, LATE_BACKOFF, LOOK, LOOK_STREAK, VAIN_BACKOFF_MAX};

/// What to do before the worker sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    No,
    /// Yield to other threads of the core, then check the sockets.
    GiveWay,
    /// Poll the sockets for [`LOOK`].
    Long,
}

/// How soon requests have recently come.
#[derive(Debug, Default)]
pub(super) struct Lookout {
    /// The connection that was last reported, and whether it alone was.
    slot: usize,
    is_alone: bool,
    streak: u32,
    /// There were requests when the worker had yielded.
    has_paid: bool,
    /// Waits left without yielding.
    pause: u32,
    /// Binary logarithm of the number of waits without yielding after this one.
    backoff: u32,
}

impl Lookout {
    /// What to do at a wait; nothing when the worker `has_work`.
    #[inline]
    pub(super) fn choose(&mut self, has_work: bool) -> Look {
        if has_work {
            Look::No
        } else if self.streak >= LOOK_STREAK {
            Look::Long
        } else if self.pause > 0 {
            self.pause -= 1;
            Look::No
        } else {
            Look::GiveWay
        }
    }

    /// Records whether [`Look::GiveWay`] found something.
    #[inline]
    pub(super) fn gave_way(&mut self, found: bool) {
        self.has_paid = found;
        if !found {
            self.back_off((self.backoff + 1).min(self.backoff.max(VAIN_BACKOFF_MAX)));
        }
    }

    /// Records the end of a wait that reported a connection, as the `nth` of its reports.
    #[inline]
    pub(super) fn note(&mut self, slot: usize, nth: usize) {
        self.is_alone = nth == 0 && self.slot == slot;
        self.slot = slot;
    }

    /// Records how long there was nothing to do before a turn.
    #[inline]
    pub(super) fn learn(&mut self, idle_ns: u64) {
        if self.is_alone && idle_ns <= LOOK.as_nanos() as u64 {
            self.streak = self.streak.saturating_add(1);
        } else {
            self.streak = 0;
        }
        if std::mem::take(&mut self.has_paid) {
            let is_late = idle_ns > GIVE_WAY.as_nanos() as u64;
            self.back_off(if is_late {
                LATE_BACKOFF
            } else {
                self.backoff.saturating_sub(1)
            });
        }
    }

    #[inline]
    fn back_off(&mut self, backoff: u32) {
        self.backoff = backoff;
        self.pause = (1 << backoff) - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON_NS: u64 = LOOK.as_nanos() as u64;
    const LATE_NS: u64 = GIVE_WAY.as_nanos() as u64 + 1;
    const LATE_PAUSE: usize = (1 << LATE_BACKOFF) - 1;

    fn answer(lookout: &mut Lookout, slots: &[usize], idle_ns: u64) {
        for (nth, slot) in slots.iter().enumerate() {
            lookout.note(*slot, nth);
        }
        lookout.learn(idle_ns);
    }

    fn expectant() -> Lookout {
        let mut lookout = Lookout::default();
        for _ in 0..=LOOK_STREAK {
            assert_ne!(lookout.choose(false), Look::Long);
            answer(&mut lookout, &[3], SOON_NS);
        }
        lookout
    }

    /// Waits before the worker yields.
    fn pause(lookout: &mut Lookout) -> usize {
        let waits = std::iter::repeat_with(|| lookout.choose(false));
        waits.take_while(|look| *look == Look::No).count()
    }

    /// The worker yields, and in the end two connections have something to do.
    fn give_way(lookout: &mut Lookout, found: bool, idle_ns: u64) {
        lookout.gave_way(found);
        answer(lookout, &[3, 4], idle_ns);
    }

    #[test]
    fn one_connection_that_asks_again_at_once_is_looked_out_for() {
        assert_eq!(expectant().choose(false), Look::Long);
        assert_eq!(expectant().choose(true), Look::No, "there is work");
    }

    #[test]
    fn a_pause_ends_it() {
        let mut lookout = expectant();
        answer(&mut lookout, &[3], SOON_NS + 1);
        assert_ne!(lookout.choose(false), Look::Long);
    }

    #[test]
    fn a_second_connection_ends_it() {
        let mut lookout = expectant();
        answer(&mut lookout, &[4], SOON_NS);
        assert_ne!(lookout.choose(false), Look::Long);
        let mut lookout = expectant();
        answer(&mut lookout, &[3, 4], SOON_NS);
        assert_ne!(lookout.choose(false), Look::Long);
    }

    #[test]
    fn a_worker_gives_way_as_long_as_that_brings_requests_soon() {
        let mut lookout = Lookout::default();
        for _ in 0..100 {
            assert_eq!(pause(&mut lookout), 0);
            give_way(&mut lookout, true, SOON_NS);
        }
        assert_eq!(lookout.choose(true), Look::No, "there is work");
        assert_eq!(lookout.choose(false), Look::GiveWay, "which was no wait");
    }

    #[test]
    fn in_vain_it_gives_way_less_and_less_often() {
        let mut lookout = Lookout::default();
        let mut pauses = Vec::new();
        for _ in 0..5 {
            pauses.push(pause(&mut lookout));
            give_way(&mut lookout, false, LATE_NS);
        }
        assert_eq!(pauses, [0, 1, 3, 3, 3]);
        for _ in 0..VAIN_BACKOFF_MAX {
            pause(&mut lookout);
            give_way(&mut lookout, true, SOON_NS);
        }
        assert_eq!(pause(&mut lookout), 0, "it pays again");
    }

    #[test]
    fn it_does_not_soon_give_way_again_to_who_has_kept_the_core() {
        let mut lookout = Lookout::default();
        give_way(&mut lookout, true, LATE_NS);
        assert_eq!(pause(&mut lookout), LATE_PAUSE);
        give_way(&mut lookout, false, LATE_NS);
        assert_eq!(pause(&mut lookout), LATE_PAUSE, "nothing speaks for it");
        give_way(&mut lookout, true, SOON_NS);
        assert_eq!(pause(&mut lookout), LATE_PAUSE / 2);
    }
}
