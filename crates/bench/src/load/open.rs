//! The open loop: requests fall due at a fixed rate, whatever the server does.
//!
//! One thread polls all its connections. It sends a request at its due time on the next connection
//! that has room in its pipeline; when none has, the request waits, and its latency counts from the
//! time when it was due (no coordinated omission). Requests that could not be sent before the end
//! are counted as unsent and enter the histogram with the time that they had waited.
//!
//! Accuracy: the thread sleeps in `ppoll` with a timeout in nanoseconds until [`SPIN`] before the
//! next due time and polls without sleeping from then on, so that neither the kernel's timer slack
//! (50 µs) nor its wake-up is taken for the server's. What is left is the client's own work: a rate
//! above what one thread can send shows as waiting; use more threads then. On a machine whose cores
//! are all busy the scheduler's delays are in the figures, as they are for any client.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::worker::{Outcome, Worker};
use super::{LoadError, latencies};

/// How long before a due time the thread stops sleeping.
const SPIN: Duration = Duration::from_micros(80);

/// How long replies are awaited after the last request.
const DRAIN: Duration = Duration::from_secs(10);

impl Worker {
    pub(super) fn run_open(
        &mut self,
        time: Duration,
        interval: Duration,
    ) -> Result<Outcome, LoadError> {
        for client in &mut self.clients {
            client.never_wait()?;
        }
        let mut latency = latencies()?;
        let start = Instant::now();
        let end = start + time;
        let mut due = start + interval;
        let mut turn = 0;
        loop {
            let now = Instant::now();
            while due <= now && due < end {
                let Some(client) = self.next_with_room(turn) else {
                    break;
                };
                turn = client + 1;
                self.send(client, due);
                due += interval;
            }
            let waiting = self.exchange(&mut latency)?;
            if now >= end && !waiting {
                break;
            }
            if now >= end + DRAIN {
                return Err(self.out_of_patience());
            }
            let overdue = due <= now && due < end;
            if overdue && self.next_with_room(turn).is_some() {
                // The replies that were just taken have made room.
                continue;
            }
            let until = if overdue {
                // It waits for room, which a reply makes.
                end
            } else if due < end {
                due
            } else if waiting {
                end + DRAIN
            } else {
                end
            };
            self.wait(until.saturating_duration_since(now))?;
        }
        let mut unsent = 0;
        while due < end {
            latency.saturating_record((end - due).as_micros() as u64);
            unsent += 1;
            due += interval;
        }
        Ok(Outcome {
            latency,
            unsent,
            time,
        })
    }

    /// The first connection from `turn` on whose pipeline is not full.
    fn next_with_room(&self, turn: usize) -> Option<usize> {
        let count = self.clients.len();
        (turn..turn + count)
            .map(|index| index % count)
            .find(|index| self.pending[*index].len() < self.pipeline)
    }

    /// Sends what the sockets take and takes what has arrived; whether replies are awaited.
    fn exchange(&mut self, latency: &mut Histogram<u64>) -> Result<bool, LoadError> {
        let mut waiting = false;
        for index in 0..self.clients.len() {
            if self.pending[index].is_empty() {
                continue;
            }
            self.clients[index].try_flush()?;
            while !self.pending[index].is_empty() {
                let Some(reply) = self.clients[index].try_receive()? else {
                    waiting = true;
                    break;
                };
                self.answered(index, &reply, latency)?;
            }
        }
        Ok(waiting)
    }

    /// Sleeps until a socket is ready or `sleep` has nearly passed.
    fn wait(&self, sleep: Duration) -> Result<(), LoadError> {
        let sleep = sleep.saturating_sub(SPIN);
        let mut sockets: Vec<_> = self
            .clients
            .iter()
            .zip(&self.pending)
            .filter(|(_, pending)| !pending.is_empty())
            .map(|(client, _)| {
                let flags = if client.has_output() {
                    PollFlags::IN | PollFlags::OUT
                } else {
                    PollFlags::IN
                };
                PollFd::from_borrowed_fd(client.descriptor(), flags)
            })
            .collect();
        let timeout = Timespec {
            tv_sec: sleep.as_secs() as i64,
            tv_nsec: i64::from(sleep.subsec_nanos()),
        };
        match poll(&mut sockets, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(LoadError::Poll(error.into())),
        }
    }
}
