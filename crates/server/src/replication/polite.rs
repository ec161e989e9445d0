//! Work that gives way to threads that serve clients: a full copy, on both sides.
//!
//! It runs when nothing else wants the processor, so that no client waits for it. Where processors
//! are busy it would hardly go on like this, and it holds a gate for a slice. So its share is
//! judged: once it has waited for most of a while it goes on at a lower priority, then at
//! everybody's.

use std::time::{Duration, Instant};

use pando_io::{lower_priority, run_when_idle, waited_for_processor};

/// By how much a lower priority is lower: it gets a third of what others get.
const NICE: i32 = 5;
/// How often a share is judged.
const WHILE: Duration = Duration::from_millis(100);

/// How a piece of work gives way. Where the system does not say how long a thread waits, it begins
/// with the lower priority and stays there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    #[default]
    Idle,
    Lower,
    Not,
}

/// How the pieces of some work give way.
#[derive(Debug, Default)]
pub(super) struct Manners {
    way: Way,
}

/// What a thread gets of the processors.
#[derive(Debug)]
pub(super) struct Share {
    since: Instant,
    /// How long it had waited for a processor by then. `None`: it is not judged.
    waited: Option<Duration>,
    is_starved: bool,
}

impl Share {
    /// Of a thread that is not judged.
    pub(super) fn full() -> Self {
        Self {
            since: Instant::now(),
            waited: None,
            is_starved: false,
        }
    }

    /// Lowers this thread's priority, and begins to judge its share.
    fn lowered(way: Way) -> Self {
        let mut share = Self::full();
        share.waited = waited_for_processor();
        if way == Way::Lower || share.waited.is_none() || !run_when_idle() {
            lower_priority(NICE);
        }
        share
    }

    /// Whether the thread gets too little: then the work returns, to go on elsewhere.
    pub(super) fn is_starved(&mut self) -> bool {
        if self.waited.is_some() && self.since.elapsed() >= WHILE {
            self.judge(Instant::now(), waited_for_processor());
        }
        self.is_starved
    }

    /// It may wait for three quarters of a while.
    fn judge(&mut self, now: Instant, waited: Option<Duration>) {
        if let (Some(before), Some(waited)) = (self.waited, waited) {
            let most = now.saturating_duration_since(self.since) * 3 / 4;
            self.is_starved = waited.saturating_sub(before) > most;
        }
        (self.since, self.waited) = (now, waited);
    }
}

impl Manners {
    /// Whether the work has got too little, and no longer waits for idle processors.
    pub(super) fn hurries(&self) -> bool {
        self.way != Way::Idle
    }

    /// Does a piece of work on a thread that gives way, and waits for it. The work looks at its
    /// share, and returns when that is too small; the next piece then gives way less. A thread
    /// cannot raise its own priority again.
    pub(super) fn politely<R: Send>(&mut self, work: impl FnOnce(&mut Share) -> R + Send) -> R {
        let way = self.way;
        let mut work = Some(work);
        let mut take = |share: &mut Share| work.take().expect("it is done once")(share);
        let mut on_own_thread = || {
            std::thread::scope(|scope| {
                let lowered = || {
                    let mut share = Share::lowered(way);
                    (take(&mut share), share.is_starved)
                };
                let name = std::thread::current().name().unwrap_or("copy").to_owned();
                let thread = std::thread::Builder::new().name(name);
                let started = thread.spawn_scoped(scope, lowered).ok()?;
                let done = started.join();
                Some(done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            })
        };
        let done = (way != Way::Not).then(&mut on_own_thread).flatten();
        // It need not give way, or no thread could be started.
        let (result, is_starved) = done.unwrap_or_else(|| {
            let work = work.take().expect("it was not done");
            (work(&mut Share::full()), false)
        });
        if is_starved {
            self.way = match way {
                Way::Idle => Way::Lower,
                Way::Lower | Way::Not => Way::Not,
            };
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_mostly_waits_is_starved() {
        let (began, ms) = (Instant::now(), Duration::from_millis);
        let judged = |waited: u64| {
            let mut share = Share {
                since: began,
                waited: Some(ms(500)),
                is_starved: false,
            };
            share.judge(began + ms(100), Some(ms(500 + waited)));
            share.is_starved
        };
        assert!(!judged(0) && !judged(75));
        assert!(judged(76) && judged(100));
        assert!(!Share::full().is_starved());
    }

    #[test]
    fn starved_work_gives_way_less() {
        let mut manners = Manners::default();
        let here = std::thread::current().id();
        for (starves, after) in [
            (false, Way::Idle),
            (true, Way::Lower),
            (false, Way::Lower),
            (true, Way::Not),
        ] {
            let there = manners.politely(|share| {
                share.is_starved = starves;
                std::thread::current().id()
            });
            assert_ne!(there, here);
            assert_eq!(manners.way, after);
        }
        assert_eq!(manners.politely(|_| std::thread::current().id()), here);
        assert!(manners.hurries());
    }
}
