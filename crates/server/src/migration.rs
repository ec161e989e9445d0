//! MIGRATE's way to the other server: a thread per request that delivers keys and brings back what
//! the other server says of each.
//!
//! | state | transition |
//! |---|---|
//! | none | [`Migration::begin`]: the thread starts |
//! | idle | [`Migration::send`] → under way |
//! | under way | the thread answers, and wakes the workers → answered |
//! | answered | [`Migration::receive`] → idle |
//!
//! The worker that executes the request takes values out and removes them in its turns. It holds
//! neither a gate nor a pin while the thread waits for the other server. When the connection
//! closes, its migration is dropped, and the thread ends with the portion that is under way: those
//! keys are then on both servers.
//!
//! Invariants:
//! - **MI1 taken-then-removed** A key is removed here only when the other server has confirmed the
//!   very value that is removed ([`Departing::leave`]); a value that was written meanwhile is sent
//!   again.
//!
//! Deliberately absent: connections kept for the next request; the keys (`admin::migrate`).

use std::collections::HashMap;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{io, thread};

use pando_db::Departing;
use pando_protocol::{Request, RequestBuffer, Value};

use crate::limits;
use crate::peer::{Peer, PeerError};
use crate::registry::WorkerMailbox;
use crate::shared::lock;

/// Where keys go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// `HOST:PORT`.
    pub(crate) address: String,
    pub(crate) database: u64,
    /// How long each step may take.
    pub(crate) timeout: Duration,
    /// AUTH's arguments.
    pub(crate) credentials: Vec<Vec<u8>>,
}

/// One key on its way.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) key: Vec<u8>,
    pub(crate) departing: Departing,
    /// It may replace what the other server has.
    pub(crate) replaces: bool,
}

/// What has become of a portion of keys.
#[derive(Debug, Default)]
pub(crate) struct Delivery {
    /// Each key that was answered: the other server has it, or says why not.
    pub(crate) answers: Vec<(Parcel, Result<(), Vec<u8>>)>,
    /// Nothing more can be sent: the error reply.
    pub(crate) failure: Option<Vec<u8>>,
}

/// A request between two of its runs; see the module's header.
#[derive(Debug)]
pub(crate) struct Migration {
    /// The request, so that another one of this client is not taken for it.
    pub(crate) request: RequestBuffer,
    /// How many of its keys were taken.
    pub(crate) taken: usize,
    /// Keys that were written while they were under way, to be sent again.
    pub(crate) changed: Vec<Vec<u8>>,
    /// How often there were such keys.
    pub(crate) rounds: usize,
    /// The first error reply.
    pub(crate) error: Option<Vec<u8>>,
    portions: Sender<Vec<Parcel>>,
    delivery: Arc<Mutex<Option<Delivery>>>,
}

impl Migration {
    /// Starts the thread; `mailbox` is that of the worker that executes the request. An error: the
    /// system has no thread for it.
    pub(crate) fn begin(
        request: Request<'_>,
        target: Target,
        mailbox: Arc<dyn WorkerMailbox>,
    ) -> io::Result<Self> {
        let (portions, taken) = channel::<Vec<Parcel>>();
        let delivery = Arc::new(Mutex::new(None));
        let place = Arc::clone(&delivery);
        let run = move || {
            let mut peer = None;
            while let Ok(portion) = taken.recv() {
                let mut delivery = Delivery::default();
                if let Err(text) = deliver(&target, &mut peer, portion, &mut delivery) {
                    delivery.failure = Some(text);
                }
                *lock(&place) = Some(delivery);
                mailbox.wake();
            }
        };
        thread::Builder::new().name("migration".into()).spawn(run)?;
        Ok(Self {
            request: RequestBuffer::from(request),
            taken: 0,
            changed: Vec::new(),
            rounds: 0,
            error: None,
            portions,
            delivery,
        })
    }

    /// Whether this is the request that it was begun for.
    pub(crate) fn is_of(&self, request: Request<'_>) -> bool {
        let own = self.request.as_request();
        own.args_from(0).eq(request.args_from(0))
    }

    /// Sends a portion; the worker is woken when it is answered.
    pub(crate) fn send(&self, portion: Vec<Parcel>) {
        let sent = self.portions.send(portion);
        assert!(sent.is_ok(), "the thread ends when this is dropped");
    }

    /// What has become of the portion that was sent last, once.
    pub(crate) fn receive(&self) -> Option<Delivery> {
        lock(&self.delivery).take()
    }
}

/// Those that are under way, by client.
#[derive(Debug, Default)]
pub(crate) struct Migrations(Mutex<HashMap<u64, Box<Migration>>>);

impl Migrations {
    /// Keeps one until the next run of its request. `false`: there are
    /// [`limits::MIGRATIONS_MAX`], and it is dropped.
    pub(crate) fn keep(&self, client: u64, migration: Box<Migration>) -> bool {
        let mut kept = lock(&self.0);
        let fits = kept.len() < limits::MIGRATIONS_MAX;
        if fits {
            let before = kept.insert(client, migration);
            assert!(before.is_none(), "a client executes one request at a time");
        }
        fits
    }

    /// Takes that of a client out, for a run of its request or because the client has gone.
    pub(crate) fn take(&self, client: u64) -> Option<Box<Migration>> {
        lock(&self.0).remove(&client)
    }

    /// Whether the client's next run finds something to do.
    pub(crate) fn is_answered(&self, client: u64) -> bool {
        let kept = lock(&self.0);
        let migration = kept.get(&client);
        migration.is_none_or(|migration| lock(&migration.delivery).is_some())
    }
}

/// Connects, if that was not done, and sends a portion. An error is the reply to MIGRATE.
fn deliver(
    target: &Target,
    peer: &mut Option<Peer>,
    portion: Vec<Parcel>,
    delivery: &mut Delivery,
) -> Result<(), Vec<u8>> {
    let peer = match peer {
        Some(peer) => peer,
        None => peer.insert(greet(target)?),
    };
    for parcel in &portion {
        let left = parcel.departing.left.map_or(0, |left| left.0.max(1));
        let left = left.to_string();
        let words: [&[u8]; 5] = [
            b"RESTORE",
            &parcel.key,
            left.as_bytes(),
            &parcel.departing.payload,
            b"REPLACE",
        ];
        let words = &words[..if parcel.replaces { 5 } else { 4 }];
        peer.send(words)
            .map_err(|error| broken(&error, "writing"))?;
    }
    for parcel in portion {
        let answer = match peer.receive() {
            Ok(Value::Error(text)) => Err(refused(&text)),
            Ok(_) => Ok(()),
            Err(error) => return Err(broken(&error, "reading")),
        };
        delivery.answers.push((parcel, answer));
    }
    Ok(())
}

/// Connects, authenticates and chooses the database.
fn greet(target: &Target) -> Result<Peer, Vec<u8>> {
    let found = Peer::connect(&target.address, target.timeout, target.timeout);
    let mut peer = found.map_err(|error| match error.kind() {
        // Redis finds out when it writes.
        io::ErrorKind::ConnectionRefused => broken(&PeerError::Broken(error), "writing"),
        _ => b"IOERR error or timeout connecting to the client".to_vec(),
    })?;
    let mut ask = |words: &[&[u8]]| {
        peer.send(words)
            .map_err(|error| broken(&error, "writing"))?;
        match peer.receive() {
            Ok(Value::Error(text)) => Err(refused(&text)),
            Ok(_) => Ok(()),
            Err(error) => Err(broken(&error, "reading")),
        }
    };
    if !target.credentials.is_empty() {
        let mut words: Vec<&[u8]> = vec![b"AUTH"];
        words.extend(target.credentials.iter().map(Vec::as_slice));
        ask(&words)?;
    }
    ask(&[b"SELECT", target.database.to_string().as_bytes()])?;
    Ok(peer)
}

fn refused(text: &[u8]) -> Vec<u8> {
    [b"ERR Target instance replied with error: ", text].concat()
}

fn broken(error: &PeerError, doing: &str) -> Vec<u8> {
    tracing::debug!(%error, "MIGRATE");
    format!("IOERR error or timeout {doing} to target instance").into_bytes()
}
