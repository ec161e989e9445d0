//! Who follows this server, and whom it follows: the link between two databases.
//!
//! A replica is a client. It connects, authenticates and sends
//!
//! ```text
//! PREPLICATE BEGIN <format> <run id> <port> <keeps a log: 0|1> [<history> <epoch>]
//!     +OK <run id> <run id of the server above> …           then bulk strings, each a frame
//! PREPLICATE ACK <bytes> <applied> <durable> <offset>        at least once a second, no reply
//! PREPLICATE CHECK BEGIN | LIST [<bucket> …]                 a check and what it needs, no reply
//! ```
//!
//! The frames are `pando_db`'s. A thread for each replica (`feed`) makes them and sends them
//! through the replica's worker, as monitors' lines are. The worker's loop knows nothing else of
//! it. The thread of the link (`link`) is the replica's end, on a socket of its own.
//!
//! | field | writer | under | reader |
//! |---|---|---|---|
//! | `state` | REPLICAOF, PREPLICATE BEGIN, a closed connection, the link | its mutex | the threads, INFO, ROLE |
//! | `taking` | the link, REPLICAOF | its mutex, which is taken first | the same |
//! | `awaited` | a worker with a WAIT; PREPLICATE ACK | `SeqCst` | PREPLICATE ACK |
//! | `roles` | REPLICAOF, the link | `Release`, before the data change | workers, `Acquire` |
//! | `submissions` | REPLICAOF | `Release`, before the workers are woken | workers, `Acquire` |
//! | `Follower::progress` | PREPLICATE ACK, the feed | its mutex | the same, INFO, WAIT |
//!
//! Invariants:
//! - **LK1 bounded-window** At most [`limits::REPLICATION_WINDOW_BYTES`] are on their way to a
//!   replica that it has not confirmed. A slow replica costs that much memory, and the ring that
//!   all share.
//! - **LK2 one-target** A message is taken only for the target that REPLICAOF named last: it holds
//!   `taking` while it changes the target, the link while it takes a message. So no message of the
//!   former primary arrives behind a client's write. The link also holds it while it looks where
//!   the database stands: no client writes behind that.
//! - **LK3 no-cycle** A server refuses a replica that is itself, or that it follows, directly or
//!   through others. The chain above is told when a link begins; when that changes, the links
//!   below are ended, so that whoever is there asks again.
//! - **LK4 counted-there** WAIT, WAITAOF and `replicated` count a replica for an epoch when it has
//!   acknowledged that epoch or a later one.
//! - **LK5 same-data** A reply that waits for replicas is not sent after `roles` has changed.
//!
//! Deliberately absent: what is sent and what becomes of it (`pando_db`).

mod failover;
mod feed;
mod inbox;
mod link;
mod polite;

use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pando_db::{
    CheckWish, CopyReason, Database, LogEpoch, Position, Refusal, SessionLimit, Verdict,
};
use tracing::info;

use crate::config::Target;
use crate::limits;
use crate::shared::{Shared, lock};

pub(crate) use failover::{Task, TaskState, Wish};
pub(crate) use link::{LinkState, LinkStatus};

/// A server that follows this one.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) client: u64,
    worker: usize,
    /// Where its clients reach it.
    pub(crate) host: String,
    pub(crate) port: u16,
    keeps_log: bool,
    /// Its engine has branches.
    has_branches: bool,
    position: Option<Position>,
    progress: Mutex<Progress>,
    changed: Condvar,
}

/// How far a follower is.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    /// Bytes of frames.
    sent: u64,
    confirmed: u64,
    pub(crate) applied: LogEpoch,
    durable: LogEpoch,
    /// Bytes of this server's epochs that it has.
    pub(crate) offset: u64,
    pub(crate) heard: Instant,
    pub(crate) copying: bool,
    /// The feed is to say that it takes over.
    hands_over: bool,
    /// What it asks for of a check.
    wish: Option<CheckWish>,
    gone: bool,
}

/// What PREPLICATE ACK says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Confirmed {
    pub(crate) bytes: u64,
    pub(crate) applied: u64,
    pub(crate) durable: u64,
    pub(crate) offset: u64,
}

/// A replica that asks to be fed.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) client: u64,
    pub(crate) worker: usize,
    pub(crate) run_id: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) keeps_log: bool,
    pub(crate) has_branches: bool,
    pub(crate) position: Option<Position>,
}

/// Why a replica is not fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// LK3 no-cycle.
    Cycle,
    TooMany,
}

#[derive(Debug, Default)]
struct State {
    target: Option<Target>,
    /// Its first copy replaces whatever is here.
    force: bool,
    /// How often it has changed, and how often to nobody: then the data go their own way.
    changes: u64,
    departures: u64,
    followers: Vec<Arc<Follower>>,
    /// Followers without a thread yet.
    unfed: Vec<Arc<Follower>>,
    /// The run ids of the servers above this one, nearest first.
    above: Vec<String>,
    link: LinkStatus,
    /// The link is to begin a check.
    wants_check: bool,
    /// The link's socket, to be closed when the target changes.
    socket: Option<TcpStream>,
    /// What the thread `replication` is to do.
    task: Option<Task>,
    stop: bool,
}

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Replication {
    state: Mutex<State>,
    changed: Condvar,
    /// LK2 one-target.
    taking: Mutex<()>,
    /// Held while it is judged what is refused.
    judging: Mutex<()>,
    /// Somebody waits for replicas (WAIT, WAITAOF, `replicated`).
    awaited: AtomicBool,
    /// See [`Replication::roles`].
    roles: AtomicU64,
    /// See [`Replication::submissions`].
    submissions: AtomicU64,
    pub(crate) syncs: Syncs,
}

/// How many replicas began to be fed, since the server's start.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    /// With a full copy.
    full: AtomicU64,
    /// Where they stood.
    partial: AtomicU64,
    /// With a full copy, although they stood where this server has been.
    denied: AtomicU64,
    /// How often one was sent what had changed since it was here, instead of all epochs since.
    differences: AtomicU64,
}

impl Syncs {
    /// One began, with a full copy for this reason, or where it stood.
    fn count(&self, copies: Option<CopyReason>) {
        let began = if copies.is_some() {
            &self.full
        } else {
            &self.partial
        };
        began.fetch_add(1, Ordering::Relaxed);
        let denied = !matches!(copies, None | Some(CopyReason::New | CopyReason::Unknown));
        self.denied.fetch_add(u64::from(denied), Ordering::Relaxed);
    }

    fn count_difference(&self) {
        self.differences.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts, in INFO's words.
    pub(crate) fn named(&self) -> [(&'static str, u64); 4] {
        [
            ("sync_full", &self.full),
            ("sync_partial_ok", &self.partial),
            ("sync_partial_err", &self.denied),
            ("sync_difference", &self.differences),
        ]
        .map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }
}

impl Follower {
    pub(crate) fn progress(&self) -> Progress {
        lock(&self.progress).clone()
    }

    fn has(&self, epoch: LogEpoch, on_disk: bool) -> bool {
        let progress = self.progress();
        let applied = progress.applied >= epoch && !progress.copying;
        let durable = progress.durable >= epoch;
        match (self.keeps_log, on_disk) {
            (true, _) => applied && durable,
            (false, false) => applied,
            (false, true) => false,
        }
    }

    fn go(&self) {
        lock(&self.progress).gone = true;
        self.changed.notify_all();
    }
}

impl Replication {
    /// Begins to follow `target`, or nobody, before the server listens.
    pub(crate) fn begin(
        &self,
        database: &Arc<Database>,
        target: Option<Target>,
        refusal: Refusal,
    ) -> Result<(), SessionLimit> {
        if target.is_some() {
            database.set_follows(true, refusal)?;
        }
        lock(&self.state).target = target;
        Ok(())
    }

    /// Follows `target` from now on, or nobody (LK2 one-target); its first copy may be `force`d.
    /// The caller holds no gate.
    pub(crate) fn follow(
        &self,
        database: &Arc<Database>,
        (target, force): (Option<Target>, bool),
        refusal: Refusal,
    ) -> Result<(), SessionLimit> {
        let taking = lock(&self.taking);
        let mut state = lock(&self.state);
        state.force = force;
        if state.target == target {
            return Ok(());
        }
        state.changes += 1;
        if target.is_some() {
            self.lose();
        }
        state.above.clear();
        state.link = LinkStatus::default();
        if let Some(socket) = state.socket.take() {
            // The link reads from it; a failure means that it is closed already.
            let _ = socket.shutdown(Shutdown::Both);
        }
        let follows = target.is_some();
        state.departures += u64::from(!follows);
        state.target = target;
        drop(state);
        // Whoever has judged what was before has said so now: later it would let clients write to a
        // replica.
        drop(lock(&self.judging));
        let followed = database.set_follows(follows, refusal);
        // Behind that, and before the workers are woken: who is found to wait, or begins to, has
        // not asked for the role before.
        self.submissions
            .fetch_add(u64::from(follows), Ordering::Release);
        drop(taking);
        self.changed.notify_all();
        followed
    }

    /// Makes the database refuse what it should now. One at a time: the newest judgement counts.
    pub(crate) fn set_refusal(&self, shared: &Shared) {
        let _one = lock(&self.judging);
        shared.database.set_refusal(shared.refusal());
    }

    /// Whom this server follows, and how that goes.
    pub(crate) fn link(&self) -> Option<(Target, LinkStatus)> {
        let state = lock(&self.state);
        let target = state.target.clone()?;
        Some((target, state.link.clone()))
    }

    /// The servers that follow this one.
    pub(crate) fn followers(&self) -> Vec<Arc<Follower>> {
        lock(&self.state).followers.clone()
    }

    /// Accepts a replica; returns the run ids above it, from this server's on.
    pub(crate) fn accept(&self, own_id: &str, request: Request) -> Result<Vec<String>, Refused> {
        let mut state = lock(&self.state);
        let mut above = vec![own_id.to_owned()];
        above.extend(state.above.iter().cloned());
        if above.contains(&request.run_id) {
            return Err(Refused::Cycle);
        }
        state.followers.retain(|one| one.client != request.client);
        if state.followers.len() >= limits::REPLICAS_MAX {
            return Err(Refused::TooMany);
        }
        let follower = Arc::new(Follower {
            client: request.client,
            worker: request.worker,
            host: request.host,
            port: request.port,
            keeps_log: request.keeps_log,
            has_branches: request.has_branches,
            position: request.position,
            progress: Mutex::new(Progress {
                sent: 0,
                confirmed: 0,
                applied: LogEpoch::NONE,
                durable: LogEpoch::NONE,
                offset: 0,
                heard: Instant::now(),
                copying: true,
                hands_over: false,
                wish: None,
                gone: false,
            }),
            changed: Condvar::new(),
        });
        state.followers.push(Arc::clone(&follower));
        state.unfed.push(follower);
        drop(state);
        self.changed.notify_all();
        Ok(above)
    }

    /// Takes what a replica confirms; `false`: this client is none.
    pub(crate) fn confirm(&self, client: u64, confirmed: Confirmed) -> bool {
        let followers = self.followers();
        let Some(follower) = followers.iter().find(|one| one.client == client) else {
            return false;
        };
        let mut progress = lock(&follower.progress);
        // Never more than was sent, whatever it says.
        progress.confirmed = confirmed.bytes.clamp(progress.confirmed, progress.sent);
        progress.applied = LogEpoch(confirmed.applied);
        progress.durable = LogEpoch(confirmed.durable);
        progress.offset = confirmed.offset;
        progress.heard = Instant::now();
        drop(progress);
        follower.changed.notify_all();
        true
    }

    /// A replica asks for a check, or for more of one; `false`: this client is none.
    pub(crate) fn wish(&self, client: u64, wish: CheckWish) -> bool {
        let followers = self.followers();
        let follower = followers.iter().find(|one| one.client == client);
        if let Some(follower) = follower {
            lock(&follower.progress).wish = Some(wish);
        }
        follower.is_some()
    }

    /// Asks the link for a check; `false`: it is not up.
    pub(crate) fn check(&self) -> bool {
        let mut state = lock(&self.state);
        let is_up = state.target.is_some() && state.link.state == LinkState::Connected;
        if is_up {
            state.wants_check = true;
            state.link.check = Some(Verdict::Running);
        }
        is_up
    }

    /// A connection has ended.
    pub(crate) fn forget(&self, client: u64) {
        let mut state = lock(&self.state);
        let index = state.followers.iter().position(|one| one.client == client);
        let Some(index) = index else { return };
        let follower = state.followers.remove(index);
        state.unfed.retain(|one| one.client != client);
        drop(state);
        info!(
            host = follower.host,
            port = follower.port,
            "a replica has gone"
        );
        follower.go();
    }

    /// How many replicas have this epoch, `on_disk` only those that keep a log (LK4 counted-there).
    pub(crate) fn count(&self, epoch: LogEpoch, on_disk: bool) -> usize {
        let followers = self.followers();
        followers
            .iter()
            .filter(|one| one.has(epoch, on_disk))
            .count()
    }

    /// What each replica that keeps a log has on disk, the most first (LK4 counted-there).
    pub(crate) fn on_disks(&self) -> Vec<LogEpoch> {
        let on_disk = |one: &Arc<Follower>| {
            let progress = one.progress();
            (one.keeps_log && !progress.copying).then_some(progress.durable)
        };
        let mut on_disks: Vec<_> = self.followers().iter().filter_map(on_disk).collect();
        on_disks.sort_unstable_by(|one, other| other.cmp(one));
        on_disks
    }

    /// How often this server has begun to follow another one, or has taken a full copy: what was
    /// written before may be lost, whatever its replicas confirm since (LK5 same-data).
    #[inline]
    pub(crate) fn roles(&self) -> u64 {
        // Acquire pairs with `lose`: who sees the gates after it sees the number.
        self.roles.load(Ordering::Acquire)
    }

    /// See [`Self::roles`]. To be called before the data can change; then the workers are woken.
    fn lose(&self) {
        self.roles.fetch_add(1, Ordering::Release);
    }

    /// How often this server has begun to follow another one: who waited for something then waits
    /// in vain.
    #[inline]
    pub(crate) fn submissions(&self) -> u64 {
        // Acquire pairs with `follow`.
        self.submissions.load(Ordering::Acquire)
    }

    /// How many replicas follow and were heard of lately.
    pub(crate) fn good(&self, lag_max: Duration) -> usize {
        let is_good = |one: &&Arc<Follower>| {
            let progress = one.progress();
            !progress.copying && progress.heard.elapsed() <= lag_max
        };
        self.followers().iter().filter(is_good).count()
    }

    /// Somebody waits for replicas: the next confirmation wakes all workers. To be called before
    /// they are counted once more.
    pub(crate) fn await_replicas(&self) {
        // SeqCst, here and below: either the confirmation sees this, or what it brought is counted.
        self.awaited.store(true, Ordering::SeqCst);
    }

    /// Whether somebody waits, once. Called behind a confirmation.
    pub(crate) fn take_awaited(&self) -> bool {
        self.awaited.swap(false, Ordering::SeqCst)
    }

    /// Ends the threads.
    pub(crate) fn stop(&self) {
        let mut state = lock(&self.state);
        state.stop = true;
        if let Some(socket) = state.socket.take() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        let followers = std::mem::take(&mut state.followers);
        state.unfed.clear();
        drop(state);
        self.changed.notify_all();
        for follower in followers {
            follower.go();
        }
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>, limit: Duration) -> MutexGuard<'s, State> {
        let waited = self.changed.wait_timeout(state, limit);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// The work of the thread that starts a feed for each replica, and that looks from time to time
    /// whether there are enough of them.
    pub(crate) fn run(&self, shared: &Arc<Shared>) {
        let mut feeds = Vec::new();
        let mut state = lock(&self.state);
        while !state.stop {
            let unfed = std::mem::take(&mut state.unfed);
            drop(state);
            for follower in unfed {
                let shared = Arc::clone(shared);
                let name = format!("feed-{}", follower.client);
                let run = move || feed::run(&shared, &follower);
                match std::thread::Builder::new().name(name).spawn(run) {
                    Ok(feed) => feeds.push(feed),
                    Err(error) => tracing::warn!(%error, "cannot start a thread for a replica"),
                }
            }
            feeds.retain(|feed: &std::thread::JoinHandle<()>| !feed.is_finished());
            shared.judge_replicas();
            self.do_task(shared);
            state = lock(&self.state);
            if state.unfed.is_empty() && state.task.is_none() && !state.stop {
                let limit = Duration::from_millis(limits::REPLICATION_LOOK_MS);
                state = self.wait(state, limit);
            }
        }
        drop(state);
        for feed in feeds {
            if feed.join().is_err() {
                tracing::warn!("a replica's thread has panicked");
            }
        }
    }

    /// The work of the link's thread.
    pub(crate) fn run_link(&self, shared: &Arc<Shared>) {
        link::run(self, shared);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(client: u64, run_id: &str) -> Request {
        Request {
            client,
            worker: 0,
            run_id: run_id.to_owned(),
            host: "127.0.0.1".to_owned(),
            port: 7000,
            keeps_log: client.is_multiple_of(2),
            has_branches: false,
            position: None,
        }
    }

    fn confirmed(epoch: u64, durable: u64) -> Confirmed {
        Confirmed {
            bytes: u64::MAX,
            applied: epoch,
            durable,
            offset: 0,
        }
    }

    #[test]
    fn lk3_who_is_above_is_refused() {
        let replication = Replication::default();
        lock(&replication.state).above = vec!["b".into(), "c".into()];
        for id in ["own", "b", "c"] {
            let refused = replication.accept("own", request(1, id));
            assert_eq!(refused.unwrap_err(), Refused::Cycle, "{id}");
        }
        let above = replication.accept("own", request(1, "d"));
        assert_eq!(above.unwrap(), ["own", "b", "c"]);
    }

    #[test]
    fn replicas_are_bounded_and_counted_by_what_they_acknowledge() {
        let replication = Replication::default();
        for client in 1..=limits::REPLICAS_MAX as u64 {
            let accepted = replication.accept("own", request(client, "x"));
            assert!(accepted.is_ok());
        }
        let refused = replication.accept("own", request(99, "x"));
        assert_eq!(refused.unwrap_err(), Refused::TooMany);
        for follower in replication.followers() {
            lock(&follower.progress).copying = false;
        }
        let epoch = LogEpoch(7);
        assert!(!replication.confirm(99, confirmed(7, 7)));
        assert!(replication.confirm(1, confirmed(7, 0)), "it keeps no log");
        assert!(replication.confirm(2, confirmed(7, 6)));
        assert!(replication.confirm(4, confirmed(8, 7)));
        assert_eq!(replication.count(epoch, false), 2);
        assert_eq!(replication.count(epoch, true), 1);
        replication.forget(4);
        assert_eq!(replication.count(epoch, true), 0);
        let lag = Duration::from_secs(10);
        assert_eq!(replication.good(lag), limits::REPLICAS_MAX - 1);
    }
}
