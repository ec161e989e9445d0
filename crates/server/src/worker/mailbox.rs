//! What other threads ask of a worker: a queue, and the waker that interrupts its wait.
//!
//! | field | writer | under | reader |
//! |---|---|---|---|
//! | `queue` | any thread | its mutex | the worker |
//! | `connections` | the acceptor counts up, the worker down | `Relaxed` | the acceptor |
//!
//! Invariants:
//! - **WM1** Who makes the queue non-empty wakes the worker, and the worker takes the whole queue:
//!   nothing is left behind, and a worker is woken once for many messages.
//! - **WM2** The bytes of undelivered monitor lines are bounded
//!   ([`limits::MONITOR_QUEUE_BYTES_MAX`]): what a worker does not take in time is dropped, so that
//!   a slow worker costs the others no memory.
//! - **WM3** A closed mailbox takes nothing: a connection that is sent to it comes back.
//!
//! Deliberately absent: replies. Who asks does not wait.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

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
}

/// Everything that was in a mailbox.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    pub(crate) messages: Vec<Message>,
    /// The shared state has changed: a shutdown, the end of a pause.
    pub(crate) look: bool,
    undelivered_bytes: usize,
    closed: bool,
}

/// The inbox of one worker.
#[derive(Debug)]
pub(crate) struct Mailbox {
    queue: Mutex<Mail>,
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
    fn post<R>(&self, change: impl FnOnce(&mut Mail) -> R) -> R {
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

    /// Sends a connection; gives it back when the worker has ended (WM3).
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

    /// Exchanges what is in the mailbox for `empty`, whose capacity is used again.
    pub(crate) fn take(&self, empty: Mail) -> Mail {
        debug_assert!(empty.messages.is_empty() && !empty.look);
        let mut queue = lock(&self.queue);
        let closed = queue.closed;
        std::mem::replace(
            &mut queue,
            Mail {
                undelivered_bytes: 0,
                closed,
                ..empty
            },
        )
    }

    /// Refuses everything from now on; what is left is taken once more.
    pub(crate) fn close(&self) {
        lock(&self.queue).closed = true;
    }

    /// Connections that the worker serves or has been sent.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// The worker has closed a connection.
    pub(crate) fn disconnected(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl WorkerMailbox for Mailbox {
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
            if !queue.closed && undelivered <= limits::MONITOR_QUEUE_BYTES_MAX {
                queue.undelivered_bytes = undelivered;
                queue
                    .messages
                    .push(Message::Deliver(client, Arc::clone(bytes)));
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
        let mail = mailbox.take(Mail::default());
        assert!(matches!(mail.messages[..], [Message::Close(7), Message::Close(8)]) && mail.look);
        mailbox.wake();
        assert!(is_woken(&mut poller));
        assert!(mailbox.take(Mail::default()).look);
    }

    #[test]
    fn wm2_lines_for_monitors_are_bounded() {
        let (_poller, mailbox) = mailbox();
        let line: Arc<[u8]> = vec![0; limits::MONITOR_QUEUE_BYTES_MAX / 2].into();
        for _ in 0..3 {
            mailbox.deliver(1, &line);
        }
        assert_eq!(mailbox.take(Mail::default()).messages.len(), 2);
        mailbox.deliver(1, &line);
        assert_eq!(mailbox.take(Mail::default()).messages.len(), 1);
    }

    #[test]
    fn wm3_a_closed_mailbox_takes_nothing() {
        let (_poller, mailbox) = mailbox();
        mailbox.close();
        WorkerMailbox::close(&mailbox, 7);
        assert!(mailbox.take(Mail::default()).messages.is_empty());
    }
}
