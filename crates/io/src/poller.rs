//! Reports which sockets are ready.
//!
//! Edge-triggered: a socket is reported when its state changes, and not again before it has been
//! read (or written) until it would block. A read that returns fewer bytes than requested counts as
//! that: what arrives later is a new change.
//!
//! Invariants:
//! - **PO1 read-until-short** After `wait` has reported a socket readable, the caller reads until a
//!   short read, an error or the end, over as many calls of `wait` as it likes; it remembers which
//!   sockets are readable.
//! - **PO2** `Interest::ReadWrite` is set only while output waits: otherwise a Unix socket would
//!   report each reply that the peer has taken.
//! - **PO3** Changing the interest reports what is already ready, so no readiness is lost between a
//!   write that would block and the change.
//!
//! Deliberately absent: timers (the caller computes the timeout of `wait`).

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;

/// Names a socket in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub usize);

/// What a caller wants to know about a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// There is something to read, or the peer is gone.
    Read,
    /// Like `Read`, and writable.
    ReadWrite,
}

impl Interest {
    fn to_mio(self) -> mio::Interest {
        match self {
            Self::Read => mio::Interest::READABLE,
            Self::ReadWrite => mio::Interest::READABLE | mio::Interest::WRITABLE,
        }
    }
}

/// A change of one socket's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Which socket.
    pub token: Token,
    /// There is something to read: bytes, the end, or an error.
    pub readable: bool,
    /// The socket is writable, or writing will fail.
    pub writable: bool,
    /// The peer sends nothing more, so a short read is not the last one (PO1).
    pub read_closed: bool,
}

/// Waits for any of many sockets.
#[derive(Debug)]
pub struct Poller {
    poll: mio::Poll,
    events: mio::Events,
    /// Lives as long as the poller: closing a waker drops its pending report.
    waker: Waker,
}

/// Interrupts a [`Poller::wait`], from any thread. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Waker {
    waker: Arc<mio::Waker>,
}

impl Waker {
    /// Makes the current wait return, or the next one when nobody waits. Several calls may become
    /// one report.
    pub fn wake(&self) {
        // The only failure is a full counter, and then the wake-up is already pending.
        let _ = self.waker.wake();
    }
}

impl Poller {
    /// A poller that reports up to `events_max` sockets at once, and its waker as readable under
    /// `waker_token`.
    pub fn new(events_max: usize, waker_token: Token) -> io::Result<Self> {
        let poll = mio::Poll::new()?;
        let waker = mio::Waker::new(poll.registry(), mio::Token(waker_token.0))?;
        let events = mio::Events::with_capacity(events_max);
        Ok(Self {
            poll,
            events,
            waker: Waker {
                waker: Arc::new(waker),
            },
        })
    }

    /// The waker.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Begins to watch a socket. It must be removed before it is closed.
    pub fn add(&self, socket: impl AsFd, token: Token, interest: Interest) -> io::Result<()> {
        let fd = socket.as_fd().as_raw_fd();
        let interest = interest.to_mio();
        self.poll
            .registry()
            .register(&mut SourceFd(&fd), mio::Token(token.0), interest)
    }

    /// Changes what is reported of a socket (PO3).
    pub fn change(&self, socket: impl AsFd, token: Token, interest: Interest) -> io::Result<()> {
        let fd = socket.as_fd().as_raw_fd();
        let interest = interest.to_mio();
        self.poll
            .registry()
            .reregister(&mut SourceFd(&fd), mio::Token(token.0), interest)
    }

    /// Stops watching a socket.
    pub fn remove(&self, socket: impl AsFd) -> io::Result<()> {
        let fd = socket.as_fd().as_raw_fd();
        self.poll.registry().deregister(&mut SourceFd(&fd))
    }

    /// Waits until a socket changes, the waker is used, `timeout` has passed (`None`: for ever) or
    /// a signal arrives. One system call. The timeout is rounded up to milliseconds.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<ReadyEvents<'_>> {
        self.poll_once(timeout)?;
        Ok(ReadyEvents {
            events: self.events.iter(),
        })
    }

    /// Like [`Self::wait`], but before it sleeps, it polls for up to `look`, and lets other threads
    /// of the core run in between. Two system calls per poll.
    pub fn look_and_wait(
        &mut self,
        look: Duration,
        timeout: Option<Duration>,
    ) -> io::Result<ReadyEvents<'_>> {
        let began = Instant::now();
        loop {
            self.poll_once(Some(Duration::ZERO))?;
            if !self.events.is_empty() {
                break;
            }
            if began.elapsed() >= look {
                self.poll_once(timeout)?;
                break;
            }
            std::thread::yield_now();
        }
        Ok(ReadyEvents {
            events: self.events.iter(),
        })
    }

    /// Like [`Self::wait`], but before it sleeps, it yields to other threads that wait for this
    /// core and polls, up to `looks` times, at least once. Also returns whether that found
    /// something. Two system calls per poll, and one that sleeps.
    pub fn give_way_and_wait(
        &mut self,
        looks: u32,
        timeout: Option<Duration>,
    ) -> io::Result<(bool, ReadyEvents<'_>)> {
        let mut left = looks;
        let found = loop {
            std::thread::yield_now();
            self.poll_once(Some(Duration::ZERO))?;
            left = left.saturating_sub(1);
            if !self.events.is_empty() || left == 0 {
                break !self.events.is_empty();
            }
        };
        if !found {
            self.poll_once(timeout)?;
        }
        let events = ReadyEvents {
            events: self.events.iter(),
        };
        Ok((found, events))
    }

    fn poll_once(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.events.clear(),
            result => result?,
        }
        Ok(())
    }
}

/// The result of [`Poller::wait`].
#[derive(Debug)]
pub struct ReadyEvents<'p> {
    events: mio::event::Iter<'p>,
}

impl Iterator for ReadyEvents<'_> {
    type Item = Ready;

    fn next(&mut self) -> Option<Ready> {
        let event = self.events.next()?;
        Some(Ready {
            token: Token(event.token().0),
            readable: event.is_readable() || event.is_read_closed() || event.is_error(),
            writable: event.is_writable() || event.is_write_closed() || event.is_error(),
            read_closed: event.is_read_closed() || event.is_error(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// What is ready now.
    fn ready_now(poller: &mut Poller) -> Vec<Ready> {
        poller.wait(Some(Duration::ZERO)).unwrap().collect()
    }

    /// Waits for something; who is stopped for a while meanwhile wakes up early.
    fn ready(poller: &mut Poller) -> Vec<Ready> {
        loop {
            let reports: Vec<Ready> = poller.wait(None).unwrap().collect();
            if !reports.is_empty() {
                return reports;
            }
        }
    }

    #[test]
    fn po1_a_socket_is_reported_once_per_change() {
        let mut poller = Poller::new(8, Token(0)).unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        poller.add(&ours, Token(7), Interest::Read).unwrap();
        assert_eq!(ready_now(&mut poller), []);
        theirs.write_all(b"a").unwrap();
        let reports = ready(&mut poller);
        assert_eq!(reports.len(), 1);
        assert!(reports[0].token == Token(7) && reports[0].readable && !reports[0].read_closed);
        assert_eq!(ready_now(&mut poller), []);
        theirs.write_all(b"b").unwrap();
        assert_eq!(ready(&mut poller).len(), 1);
        drop(theirs);
        assert!(ready(&mut poller)[0].read_closed);
    }

    #[test]
    fn po3_a_change_of_interest_reports_what_is_ready() {
        let mut poller = Poller::new(8, Token(0)).unwrap();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        poller.add(&ours, Token(1), Interest::Read).unwrap();
        assert_eq!(ready_now(&mut poller), []);
        poller.change(&ours, Token(1), Interest::ReadWrite).unwrap();
        assert!(ready(&mut poller)[0].writable);
        poller.remove(&ours).unwrap();
    }

    #[test]
    fn a_look_finds_what_is_ready_and_then_waits() {
        let mut poller = Poller::new(8, Token(0)).unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        poller.add(&ours, Token(7), Interest::Read).unwrap();
        theirs.write_all(b"a").unwrap();
        let long = Duration::from_hours(1);
        assert_eq!(poller.look_and_wait(long, None).unwrap().count(), 1);
        let briefly = Duration::from_millis(1);
        let nothing = poller.look_and_wait(briefly, Some(briefly)).unwrap();
        assert_eq!(nothing.count(), 0);
        let waker = poller.waker();
        let other = std::thread::spawn(move || waker.wake());
        let found = std::iter::repeat_with(|| poller.look_and_wait(briefly, None).unwrap().count())
            .find(|count| *count > 0);
        assert_eq!(found, Some(1));
        other.join().unwrap();
    }

    #[test]
    fn who_gives_way_finds_what_is_ready_or_waits() {
        let mut poller = Poller::new(8, Token(0)).unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        poller.add(&ours, Token(7), Interest::Read).unwrap();
        let briefly = Some(Duration::from_millis(1));
        let (found, nothing) = poller.give_way_and_wait(2, briefly).unwrap();
        assert_eq!((found, nothing.count()), (false, 0));
        theirs.write_all(b"a").unwrap();
        let (found, reports) = poller.give_way_and_wait(2, None).unwrap();
        assert_eq!((found, reports.count()), (true, 1));
    }

    #[test]
    fn a_waker_ends_a_wait_from_another_thread() {
        let mut poller = Poller::new(8, Token(0)).unwrap();
        let waker = poller.waker();
        let other = std::thread::spawn(move || waker.wake());
        assert_eq!(ready(&mut poller)[0].token, Token(0));
        other.join().unwrap();
    }
}
