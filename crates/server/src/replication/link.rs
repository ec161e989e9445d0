//! The replica's end of the link: connects to the primary, takes its messages, confirms them.
//!
//! ```text
//! no target ── REPLICAOF ──► connecting ── +OK ──► a copy ── Done ──► connected
//!     ▲                          ▲ │                 │                    │
//!     └──── REPLICAOF NO ONE ────┤ └─ refused ───────┴─ broken, silent ───┘
//!                                └──────────── after a pause ◄────────────┘
//! ```
//!
//! Whatever goes wrong, the present data are served on, and the link tries again. It goes on from
//! its position where the primary still has what follows.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pando_db::{
    Acknowledged, CheckStep, CheckWish, Joiner, REPLICATION_FORMAT, Replica, SessionLimit, Told,
    Verdict,
};
use tracing::{info, warn};

use super::Replication;
use super::inbox::Inbox;
use super::polite::{Manners, Share};
use crate::config::Target;
use crate::limits;
use crate::shared::{Shared, lock};

/// How the link is, in ROLE's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// It is about to try.
    #[default]
    Connect,
    /// It waits for the primary's first answer.
    Connecting,
    /// A full copy is on its way in.
    Sync,
    /// It follows.
    Connected,
}

/// What INFO and ROLE say about the link.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkStatus {
    pub(crate) state: LinkState,
    /// When the primary was last heard of, over this link.
    pub(crate) heard: Option<Instant>,
    /// Since when the link is down.
    pub(crate) down_since: Option<Instant>,
    pub(crate) told: Told,
    /// The last epoch of the primary's that is here.
    pub(crate) epoch: u64,
    /// Full copies that arrived.
    pub(crate) copies: u64,
    /// Why the last attempt ended.
    pub(crate) error: Option<String>,
    /// How the last check went, or goes.
    pub(crate) check: Option<Verdict>,
}

/// One attempt: a connection to one target.
struct Link<'a> {
    replication: &'a Replication,
    shared: &'a Shared,
    replica: &'a mut Replica,
    /// The target's number.
    change: u64,
    socket: TcpStream,
    /// How long reads of it wait, once that is set.
    limit: Option<Duration>,
    inbox: Inbox,
    joiner: Joiner,
    /// Bytes of frames so far, and how many of them were confirmed.
    received: u64,
    confirmed: u64,
    confirmed_at: Instant,
    /// What was acknowledged last.
    known: Acknowledged,
}

/// Follows whatever target there is, until the server stops.
pub(super) fn run(replication: &Replication, shared: &Arc<Shared>) {
    let mut replica = None;
    let mut departures = 0;
    loop {
        let mut state = lock(&replication.state);
        while state.target.is_none() && !state.stop {
            // Its session is given up with it.
            replica = None;
            state = replication.wait(state, Duration::from_hours(1));
        }
        if state.stop {
            return;
        }
        if state.departures != departures {
            // So is its position, also if the next target came before this thread saw that there
            // was none: what was written in between nobody above has.
            departures = state.departures;
            replica = None;
        }
        let (target, change) = (state.target.clone(), state.changes);
        drop(state);
        let Some(target) = target else { continue };
        let replica = match &mut replica {
            Some(replica) => replica,
            none => match begin(replication, shared) {
                Ok(new) => none.insert(new),
                Err(error) => {
                    warn!(%error, "cannot follow");
                    std::thread::sleep(limits::REPLICATION_RETRY);
                    continue;
                }
            },
        };
        let error = attempt(replication, shared, replica, (&target, change));
        replica.cut_off();
        let mut state = lock(&replication.state);
        state.socket = None;
        state.wants_check = false;
        if state.link.check == Some(Verdict::Running) {
            state.link.check = Some(Verdict::Failed("the link has ended"));
        }
        if state.changes != change || state.stop {
            continue;
        }
        let link = &mut state.link;
        link.state = LinkState::Connect;
        link.down_since.get_or_insert_with(Instant::now);
        if link.error.as_ref() != Some(&error) {
            let (host, port) = (&target.host, target.port);
            warn!(host, port, %error, "the link to the primary is down");
        }
        link.error = Some(error);
        drop(state);
        shared.judge_replicas();
        let state = lock(&replication.state);
        if state.changes == change && !state.stop {
            drop(replication.wait(state, limits::REPLICATION_RETRY));
        }
    }
}

/// A replica that stands where the database stands.
fn begin(replication: &Replication, shared: &Shared) -> Result<Replica, SessionLimit> {
    // LK2 one-target: REPLICAOF has named the target, and may not have ended the clients' writes
    // yet. What they write behind the position that is named above, nobody there would have.
    let _taking = lock(&replication.taking);
    Replica::new(&shared.database)
}

/// Follows the target until that ends; returns why.
fn attempt(
    replication: &Replication,
    shared: &Shared,
    replica: &mut Replica,
    (target, change): (&Target, u64),
) -> String {
    let connected = connect(target).and_then(|socket| {
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(limits::REPLICATION_CONNECT))?;
        let other = socket.try_clone()?;
        Ok((socket, other))
    });
    let (socket, other) = match connected {
        Ok(sockets) => sockets,
        Err(error) => return format!("cannot connect: {error}"),
    };
    replica.set_in_place(shared.config().replication.copies_in_place);
    let mut state = lock(&replication.state);
    if state.changes != change || state.stop {
        return "the target has changed".to_owned();
    }
    if state.force {
        replica.force();
    }
    state.socket = Some(other);
    state.link.state = LinkState::Connecting;
    drop(state);
    let mut link = Link {
        replication,
        shared,
        replica,
        change,
        socket,
        limit: None,
        inbox: Inbox::new(),
        joiner: Joiner::default(),
        received: 0,
        confirmed: 0,
        confirmed_at: Instant::now(),
        known: Acknowledged::default(),
    };
    match link.greet().and_then(|()| link.follow()) {
        Ok(()) => "the target has changed".to_owned(),
        Err(error) => error,
    }
}

fn connect(target: &Target) -> std::io::Result<TcpStream> {
    let mut last = None;
    for address in (target.host.as_str(), target.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, limits::REPLICATION_CONNECT) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| ErrorKind::NotFound.into()))
}

/// A request, encoded.
fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    out
}

fn broken(error: &std::io::Error) -> String {
    format!("the link is broken: {error}")
}

impl Link<'_> {
    /// Authenticates, and asks to be fed.
    fn greet(&mut self) -> Result<(), String> {
        let config = self.shared.config().replication;
        if !config.password.is_empty() {
            let user = config.user.as_slice();
            let auth: &[&[u8]] = if user.is_empty() {
                &[b"AUTH", &config.password]
            } else {
                &[b"AUTH", user, &config.password]
            };
            self.write(&request(auth))?;
            self.line()?;
        }
        let shared = self.shared;
        let format = REPLICATION_FORMAT.to_string();
        let port = shared.own_port().to_string();
        let flag = |is: bool| if is { &b"1"[..] } else { b"0" };
        let log = flag(shared.database.is_durable());
        let branches = flag(shared.database.branches().is_some());
        let position = self.replica.position();
        let position = position.map(|it| (format!("{:032x}", it.history), it.epoch.0.to_string()));
        let mut words: Vec<&[u8]> = vec![b"PREPLICATE", b"BEGIN", format.as_bytes()];
        words.extend([shared.run_id().as_bytes(), port.as_bytes(), log, branches]);
        if let Some((history, epoch)) = &position {
            words.extend([history.as_bytes(), epoch.as_bytes()]);
        }
        self.write(&request(&words))?;
        let answer = self.line()?;
        let above: Option<Vec<String>> = answer.strip_prefix("OK ").map(|ids| {
            let ids = ids.split(' ').take(limits::REPLICATION_CHAIN_MAX);
            ids.map(str::to_owned).collect()
        });
        let above = above.ok_or("it is no Pando, or one that knows no replication")?;
        let mut state = lock(&self.replication.state);
        let changed = state.above != above;
        state.above = above;
        let below = state.followers.clone();
        drop(state);
        if changed {
            // They ask anew, and are told (LK3 no-cycle).
            for follower in below {
                if let Some(mailbox) = shared.mailbox(follower.worker) {
                    mailbox.close(follower.client);
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        if self.limit == Some(Duration::ZERO) {
            self.set_limit(limits::REPLICATION_BEAT / 4)?;
        }
        self.socket.write_all(bytes).map_err(|error| broken(&error))
    }

    /// The next line: a status without its `+`.
    fn line(&mut self) -> Result<String, String> {
        let began = Instant::now();
        loop {
            let waiting = self.inbox.waiting();
            if let Some(end) = waiting.windows(2).position(|it| it == b"\r\n") {
                let text = String::from_utf8_lossy(&waiting[..end]).into_owned();
                self.inbox.pass(end + 2);
                return match text.split_at_checked(1) {
                    Some(("+", status)) => Ok(status.to_owned()),
                    Some(("-", error)) => Err(format!("the primary refuses: {error}")),
                    _ => Err("the other end does not speak RESP".to_owned()),
                };
            }
            if waiting.len() > limits::REPLICATION_LINE_BYTES_MAX {
                return Err("the other end does not speak RESP".to_owned());
            }
            if began.elapsed() > limits::REPLICATION_CONNECT {
                return Err("the primary does not answer".to_owned());
            }
            self.read(Duration::from_millis(100))?;
        }
    }

    /// The next step of a check; returns whether there is more to do at once.
    fn check(&mut self) -> Result<bool, String> {
        let begins = std::mem::take(&mut lock(&self.replication.state).wants_check);
        let step = if begins {
            CheckStep::Ask(CheckWish::Begin)
        } else {
            self.replica.check()
        };
        let wish = match step {
            CheckStep::Idle => return Ok(false),
            CheckStep::Worked => return Ok(true),
            CheckStep::Ask(wish) => wish,
        };
        if !begins {
            self.judge_check();
        }
        let buckets = match wish {
            CheckWish::Begin => None,
            CheckWish::List(buckets) => Some(buckets),
        };
        let mut words: Vec<String> = ["PREPLICATE", "CHECK"].map(str::to_owned).into();
        words.push(if begins { "BEGIN" } else { "LIST" }.to_owned());
        words.extend(buckets.iter().flatten().map(u32::to_string));
        let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        self.write(&request(&words))?;
        Ok(true)
    }

    /// Tells how the check goes.
    fn judge_check(&self) {
        let verdict = self.replica.verdict().cloned();
        if let Some(Verdict::Differs(difference)) = &verdict {
            let branch = String::from_utf8_lossy(&difference.branch);
            let (database, key) = (
                difference.database,
                String::from_utf8_lossy(&difference.key),
            );
            warn!(%branch, database, %key, "this replica differs from its primary");
        }
        lock(&self.replication.state).link.check = verdict;
    }

    /// Lets reads wait for at most `limit`; for nothing, if it is zero.
    fn set_limit(&mut self, limit: Duration) -> Result<(), String> {
        if self.limit == Some(limit) {
            return Ok(());
        }
        self.limit = None;
        let set = self.socket.set_nonblocking(limit.is_zero());
        let set = set.and_then(|()| match limit {
            Duration::ZERO => Ok(()),
            limit => self.socket.set_read_timeout(Some(limit)),
        });
        set.map_err(|error| broken(&error))?;
        self.limit = Some(limit);
        Ok(())
    }

    /// Reads what has arrived, waiting for at most `limit`; returns whether anything has.
    fn read(&mut self, limit: Duration) -> Result<bool, String> {
        self.set_limit(limit)?;
        let read = self.socket.read(self.inbox.room());
        self.inbox.came(*read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err("the primary has closed the link".to_owned()),
            Ok(_) => Ok(true),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                Ok(false)
            }
            Err(error) => Err(broken(&error)),
        }
    }

    /// Takes frames until the target changes.
    fn follow(&mut self) -> Result<(), String> {
        let mut manners = Manners::default();
        loop {
            let loads = self.replica.is_loading();
            let follows = if loads {
                manners.politely(|share| self.follow_while(loads, share))
            } else {
                self.follow_while(loads, &mut Share::full())
            };
            if !follows? {
                return Ok(());
            }
        }
    }

    /// Takes frames while a full copy is on its way in, or none, and while its share is enough;
    /// `false`: the target has changed.
    fn follow_while(&mut self, loads: bool, share: &mut Share) -> Result<bool, String> {
        let mut heard = Instant::now();
        while self.replica.is_loading() == loads && !share.is_starved() {
            while let Some(frame) = self.inbox.frame()? {
                if !self.take(frame)? {
                    return Ok(false);
                }
                if self.received - self.confirmed >= limits::REPLICATION_CONFIRM_BYTES {
                    self.confirm()?;
                }
            }
            let awaits = self.confirm_if_due()?;
            self.replica.tidy();
            let works = self.check()?;
            let limit = if awaits || works {
                Duration::ZERO
            } else {
                limits::REPLICATION_BEAT / 4
            };
            let read = self.read(limit)?;
            if !read && awaits && !works {
                // The primary's clients may wait for this disk.
                let database = &self.shared.database;
                database.wait_for_durable(limits::REPLICATION_DISK_PAUSE);
            }
            if read {
                heard = Instant::now();
            } else if heard.elapsed().as_secs() > self.shared.settings.replication_timeout_s() {
                return Err("the primary is silent for longer than repl-timeout".to_owned());
            }
        }
        Ok(true)
    }

    /// Takes a frame; `false`: the target has changed (LK2 one-target).
    fn take(&mut self, frame: Range<usize>) -> Result<bool, String> {
        self.received += frame.len() as u64;
        let taken = self.joiner.take(self.inbox.at(frame));
        let Some(message) = taken.map_err(|error| error.to_string())? else {
            return Ok(true);
        };
        let taking = lock(&self.replication.taking);
        if lock(&self.replication.state).changes != self.change {
            return Ok(false);
        }
        let was_loading = self.replica.is_loading();
        if was_loading {
            // This may be the end of the copy.
            self.replication.lose();
        }
        let taken = self.replica.take(message);
        drop(taking);
        taken.map_err(|error| error.to_string())?;
        self.shared.placings.follow(&self.shared.database)?;
        if self.replica.takes_over() {
            info!("the primary has handed over: this server takes writes");
            return self.shared.promote().map(|()| false);
        }
        let copied = was_loading && !self.replica.is_loading();
        let mut state = lock(&self.replication.state);
        let link = &mut state.link;
        link.heard = Some(Instant::now());
        link.told = self.replica.told();
        link.epoch = self
            .replica
            .position()
            .map_or(0, |position| position.epoch.0);
        link.copies += u64::from(copied);
        let before = link.state;
        link.state = if self.replica.is_loading() {
            LinkState::Sync
        } else {
            link.down_since = None;
            link.error = None;
            LinkState::Connected
        };
        let changed = link.state != before;
        state.force &= !copied;
        drop(state);
        if copied {
            self.shared.wake_workers();
            info!("the full copy is in: its data are served");
            self.shared.keeper.ask();
        } else if changed && !self.replica.is_loading() {
            info!("the link to the primary goes on where it stood");
        } else if changed {
            info!("a full copy of the primary is on its way in");
            if self.replica.was_ahead() {
                warn!("this server has writes that its primary has not: the copy replaces them");
            }
        }
        if changed {
            self.shared.judge_replicas();
        }
        Ok(true)
    }

    /// Confirms what there is to confirm; returns whether something is still to become durable.
    fn confirm_if_due(&mut self) -> Result<bool, String> {
        let due = self.confirmed_at.elapsed() >= limits::REPLICATION_BEAT;
        let (known, awaits) = self.replica.acknowledged();
        if due || known != self.known || self.received != self.confirmed {
            self.confirm()?;
        }
        Ok(awaits)
    }

    fn confirm(&mut self) -> Result<(), String> {
        let (known, _) = self.replica.acknowledged();
        let offset = self.replica.told().applied;
        let numbers = [self.received, known.applied.0, known.durable.0, offset];
        let numbers = numbers.map(|number| number.to_string());
        let mut words: Vec<&[u8]> = vec![b"PREPLICATE", b"ACK"];
        words.extend(numbers.iter().map(String::as_bytes));
        self.write(&request(&words))?;
        self.known = known;
        self.confirmed = self.received;
        self.confirmed_at = Instant::now();
        Ok(())
    }
}
