//! Messages from other threads to a worker: a queue, and the waker that interrupts its wait.
//!
//! | field | writer | under | reader |
//! |---|---|---|---|
//! | `queue` | any thread | its mutex | the worker |
//! | `connections` | the acceptor counts up, the worker down | `Relaxed` | the acceptor |
//!
//! Invariants:
//! - **WM1** A thread that makes the queue non-empty wakes the worker, and the worker takes the
//!   whole queue: nothing is left behind, and a worker is woken once for many messages.
//! - **WM2** The bytes of undelivered monitor lines are bounded
//!   ([`limits::MONITOR_QUEUE_BYTES_MAX`]): what a worker does not take in time is dropped, so that
//!   a slow worker costs the others no memory. The worker reports how many lines that were.
//! - **WM3** A closed mailbox takes nothing: a connection sent to it is returned.
//! - **WM4 no-lost-wake** A worker that records an epoch ([`Mailbox::await_durable`]) and then
//!   finds that it is not durable will be woken when it is: the queue's mutex orders the record
//!   before or after the check of the thread that reports durability, and in the latter case the
//!   worker sees the epoch itself.
//!
//! Deliberately absent: replies. The sender does not wait.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use pando_db::LogEpoch;
use pando_io::{Stream, Waker};

use crate::limits;
use crate::registry::{ClientRecord, WorkerMailbox};
use crate::shared::lock;

/// A connection that the acceptor hands to its worker.
#[derive(Debug)]
pub(crate) struct NewConnection {
    pub(crate) stream: Stream,
    pub(crate) record: Arc<ClientRecord>,
}

/// What a worker takes out of its mailbox.
#[derive(Debug)]
pub(crate) enum Message {
    /// Serve this connection.
    Serve(Box<NewConnection>),
    /// Close the connection of this client.
    Close(u64),
    /// Send these bytes to this client.
    Deliver(u64, Arc<[u8]>),
    /// Send these bytes to this replica; the third is gone when that is done.
    Send(u64, Vec<u8>, Arc<()>),
    /// A key that this client waits for may have a value.
    Ready(u64),
    /// End a client's wait.
    Unblock {
        client: u64,
        /// Which of its waits.
        wait: u64,
        by_error: bool,
    },
}

/// The content of a mailbox besides messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct News {
    /// The shared state has changed: a shutdown, the end of a pause or of a save.
    pub(crate) look: bool,
    /// Monitor lines that were dropped for lack of space (WM2).
    pub(crate) lines_dropped: usize,
}

#[derive(Debug, Default)]
struct Queue {
    messages: Vec<Message>,
    look: bool,
    /// The epoch that the worker waits for (WM4).
    awaited: Option<LogEpoch>,
    undelivered_bytes: usize,
    lines_dropped: usize,
    closed: bool,
}

/// The inbox of one worker.
#[derive(Debug)]
pub(crate) struct Mailbox {
    queue: Mutex<Queue>,
    waker: Waker,
    connections: AtomicUsize,
}

impl Mailbox {
    /// An empty mailbox; `waker` interrupts the worker's wait.
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            queue: Mutex::default(),
            waker,
            connections: AtomicUsize::new(0),
        }
    }

    /// Changes the queue and wakes the worker if it was empty (WM1). Returns what `change` does.
    fn post<R>(&self, change: impl FnOnce(&mut Queue) -> R) -> R {
        let (was_empty, result) = {
            let mut queue = lock(&self.queue);
            let was_empty = queue.messages.is_empty() && !queue.look;
            (was_empty, change(&mut queue))
        };
        if was_empty {
            self.waker.wake();
        }
        result
    }

    /// Sends a connection; returns it when the worker has ended (WM3).
    pub(crate) fn serve(&self, connection: Box<NewConnection>) -> Result<(), Box<NewConnection>> {
        self.connections.fetch_add(1, Ordering::Relaxed);
        let result = self.post(|queue| {
            if queue.closed {
                return Err(connection);
            }
            queue.messages.push(Message::Serve(connection));
            Ok(())
        });
        if result.is_err() {
            self.disconnected();
        }
        result
    }

    /// Takes all messages, into `messages`, whose memory the mailbox reuses.
    pub(crate) fn take(&self, messages: &mut Vec<Message>) -> News {
        debug_assert!(messages.is_empty());
        let mut queue = lock(&self.queue);
        std::mem::swap(&mut queue.messages, messages);
        queue.undelivered_bytes = 0;
        News {
            look: std::mem::take(&mut queue.look),
            lines_dropped: std::mem::take(&mut queue.lines_dropped),
        }
    }

    /// Refuses everything from now on; the rest is taken once more.
    pub(crate) fn close(&self) {
        lock(&self.queue).closed = true;
    }

    /// Connections that the worker serves or was sent.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// The worker has closed a connection.
    pub(crate) fn disconnected(&self) {
        let before = self.connections.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "disconnected once");
    }
}

impl Mailbox {
    /// Wakes the worker when `epoch` is durable, once (WM4).
    pub(crate) fn await_durable(&self, epoch: LogEpoch) {
        lock(&self.queue).awaited = Some(epoch);
    }
}

impl WorkerMailbox for Mailbox {
    fn durable(&self, epoch: LogEpoch) {
        let mut queue = lock(&self.queue);
        if queue.awaited.is_some_and(|awaited| awaited <= epoch) {
            queue.awaited = None;
            drop(queue);
            self.waker.wake();
        }
    }

    fn close(&self, client: u64) {
        self.post(|queue| {
            if !queue.closed {
                queue.messages.push(Message::Close(client));
            }
        });
    }

    fn deliver(&self, client: u64, bytes: &Arc<[u8]>) {
        self.post(|queue| {
            let undelivered = queue.undelivered_bytes + bytes.len();
            if undelivered > limits::MONITOR_QUEUE_BYTES_MAX {
                queue.lines_dropped += 1;
            } else if !queue.closed {
                queue.undelivered_bytes = undelivered;
                queue
                    .messages
                    .push(Message::Deliver(client, Arc::clone(bytes)));
            }
        });
    }

    fn send(&self, client: u64, bytes: Vec<u8>, carried: Arc<()>) {
        self.post(|queue| {
            if !queue.closed {
                queue.messages.push(Message::Send(client, bytes, carried));
            }
        });
    }

    fn ready(&self, client: u64) {
        self.post(|queue| {
            if !queue.closed {
                queue.messages.push(Message::Ready(client));
            }
        });
    }

    fn unblock(&self, client: u64, wait: u64, by_error: bool) {
        self.post(|queue| {
            if !queue.closed {
                queue.messages.push(Message::Unblock {
                    client,
                    wait,
                    by_error,
                });
            }
        });
    }

    fn wake(&self) {
        self.post(|queue| queue.look = true);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pando_io::{Poller, Token};

    use super::*;

    fn mailbox() -> (Poller, Mailbox) {
        let poller = Poller::new(4, Token(0)).unwrap();
        let mailbox = Mailbox::new(poller.waker());
        (poller, mailbox)
    }

    fn take(mailbox: &Mailbox) -> (Vec<Message>, News) {
        let mut messages = Vec::new();
        let news = mailbox.take(&mut messages);
        (messages, news)
    }

    fn is_woken(poller: &mut Poller) -> bool {
        poller.wait(Some(Duration::ZERO)).unwrap().count() > 0
    }

    #[test]
    fn wm1_the_first_message_wakes_and_all_are_taken() {
        let (mut poller, mailbox) = mailbox();
        assert!(!is_woken(&mut poller));
        WorkerMailbox::close(&mailbox, 7);
        assert!(is_woken(&mut poller));
        WorkerMailbox::close(&mailbox, 8);
        mailbox.wake();
        assert!(!is_woken(&mut poller), "the worker is on its way");
        let (messages, news) = take(&mailbox);
        assert!(matches!(
            messages[..],
            [Message::Close(7), Message::Close(8)]
        ));
        assert!(news.look);
        mailbox.wake();
        assert!(is_woken(&mut poller));
        let (messages, news) = take(&mailbox);
        assert!(messages.is_empty() && news.look);
        assert!(!take(&mailbox).1.look);
    }

    #[test]
    fn wm2_lines_for_monitors_are_bounded() {
        let (_poller, mailbox) = mailbox();
        let line: Arc<[u8]> = vec![0; limits::MONITOR_QUEUE_BYTES_MAX / 2].into();
        for _ in 0..3 {
            mailbox.deliver(1, &line);
        }
        let (messages, news) = take(&mailbox);
        assert_eq!((messages.len(), news.lines_dropped), (2, 1));
        mailbox.deliver(1, &line);
        let (messages, news) = take(&mailbox);
        assert_eq!((messages.len(), news.lines_dropped), (1, 0));
    }

    #[test]
    fn wm4_the_awaited_epoch_wakes_once() {
        let (mut poller, mailbox) = mailbox();
        mailbox.durable(LogEpoch(9));
        assert!(!is_woken(&mut poller), "nothing is awaited");
        mailbox.await_durable(LogEpoch(7));
        mailbox.durable(LogEpoch(6));
        assert!(!is_woken(&mut poller));
        mailbox.durable(LogEpoch(8));
        assert!(is_woken(&mut poller));
        mailbox.durable(LogEpoch(9));
        assert!(!is_woken(&mut poller), "the worker has not waited again");
    }

    #[test]
    fn wm3_a_closed_mailbox_takes_nothing() {
        let (_poller, mailbox) = mailbox();
        mailbox.close();
        WorkerMailbox::close(&mailbox, 7);
        assert!(take(&mailbox).0.is_empty());
    }
}
