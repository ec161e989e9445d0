//! FAILOVER, and a SHUTDOWN that waits for replicas: writes stop until a replica has everything.
//!
//! ```text
//! asked ── writes are held back ──► waiting ── the replica has all ──► handing over ──► over
//!                                      └── TIMEOUT, ABORT ──► over: writes go on here
//! ```
//!
//! From the moment at which the replica is told to take over, this server takes no writes any more,
//! whatever happens: if the word is lost, neither does, and an operator chooses. So no two servers
//! take writes at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pando_db::{Database, Milliseconds};
use tracing::{info, warn};

use super::{Follower, Replication};
use crate::config::Target;
use crate::limits;
use crate::shared::{Shared, lock};

/// What is to be done once replicas have everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Hand over to this replica, or to the one that has most.
    HandOver(Option<Target>),
    /// Stop the server.
    ShutDown,
}

/// How far a task is, in INFO's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TaskState {
    #[default]
    Nothing,
    Waiting,
    HandingOver,
}

/// What the thread `replication` is to do.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    wish: Wish,
    /// How long to wait for replicas.
    timeout: Duration,
    state: TaskState,
    aborted: bool,
}

impl Replication {
    /// Asks for a task; `false`: there is one already.
    pub(crate) fn ask(&self, wish: Wish, timeout: Duration) -> bool {
        let mut state = lock(&self.state);
        if state.task.is_some() {
            return false;
        }
        state.task = Some(Task {
            wish,
            timeout,
            state: TaskState::Waiting,
            aborted: false,
        });
        drop(state);
        self.changed.notify_all();
        true
    }

    /// Gives up what waits for replicas; `false`: nothing does.
    pub(crate) fn abort(&self, shutdown: bool) -> bool {
        let mut state = lock(&self.state);
        let task = state.task.as_mut();
        let task = task.filter(|task| task.state == TaskState::Waiting);
        let task = task.filter(|task| (task.wish == Wish::ShutDown) == shutdown);
        task.map(|task| task.aborted = true).is_some()
    }

    /// How far a failover is.
    pub(crate) fn failover(&self) -> TaskState {
        let state = lock(&self.state);
        let task = state.task.as_ref();
        let task = task.filter(|task| task.wish != Wish::ShutDown);
        task.map_or(TaskState::Nothing, |task| task.state)
    }

    /// The replica at this address, or the one that has most.
    pub(crate) fn candidate(&self, target: Option<&Target>) -> Option<Arc<Follower>> {
        let mut followers = self.followers();
        followers.retain(|one| !one.progress().copying);
        match target {
            Some(target) => followers
                .into_iter()
                .find(|one| (&one.host, one.port) == (&target.host, target.port)),
            None => followers
                .into_iter()
                .max_by_key(|one| one.progress().applied),
        }
    }

    /// Does what was asked for, if something was.
    pub(super) fn do_task(&self, shared: &Arc<Shared>) {
        let Some(task) = lock(&self.state).task.clone() else {
            return;
        };
        let patience = task.timeout.saturating_add(limits::FAILOVER_HAND_OVER);
        let patience = Milliseconds(patience.as_millis() as u64);
        let database = &shared.database;
        let now = database.options().clock.now();
        database.pause(now.saturating_add(patience.into()), false);
        // Behind every turn that has not seen the pause.
        database.wait_for_turns();
        match &task.wish {
            Wish::ShutDown => {
                if self.wait_for(shared, &task, || !self.lags(database)) {
                    shared.request_shutdown();
                }
            }
            Wish::HandOver(target) => self.hand_over(shared, &task, target.as_ref()),
        }
        lock(&self.state).task = None;
        database.unpause();
        shared.judge_replicas();
        shared.wake_workers();
    }

    /// Whether a replica does not have everything yet.
    pub(crate) fn lags(&self, database: &Database) -> bool {
        let epoch = database.followed_epoch();
        self.followers().iter().any(|one| !one.has(epoch, false))
    }

    /// Waits until this is so, within the task's time; after that time a shutdown goes on.
    fn wait_for(&self, shared: &Shared, task: &Task, is_so: impl Fn() -> bool) -> bool {
        let deadline = Instant::now().checked_add(task.timeout);
        while !is_so() {
            let state = lock(&self.state);
            let aborted = state.task.as_ref().is_none_or(|task| task.aborted);
            if aborted || state.stop || shared.shutdown_requested() {
                return false;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                warn!("replicas do not have everything in time");
                return task.wish == Wish::ShutDown;
            }
            drop(self.wait(state, limits::REPLICATION_PAUSE));
        }
        true
    }

    fn hand_over(&self, shared: &Arc<Shared>, task: &Task, target: Option<&Target>) {
        let Some(follower) = self.candidate(target) else {
            warn!("there is no replica to hand over to");
            return;
        };
        let has_all = || {
            let gone = follower.progress().gone;
            !gone && follower.has(shared.database.followed_epoch(), false)
        };
        if !self.wait_for(shared, task, has_all) {
            warn!("the failover was given up: this server goes on as it was");
            return;
        }
        if let Some(task) = &mut lock(&self.state).task {
            task.state = TaskState::HandingOver;
        }
        // From here on no write is taken, and the link finds the other end, or says that it does
        // not.
        let target = Target {
            host: follower.host.clone(),
            port: follower.port,
        };
        let (host, port) = (&follower.host, follower.port);
        shared.judge_replicas();
        lock(&follower.progress).hands_over = true;
        let deadline = Instant::now() + limits::FAILOVER_HAND_OVER;
        while !follower.progress().gone && Instant::now() < deadline {
            let state = lock(&self.state);
            drop(self.wait(state, limits::REPLICATION_PAUSE));
        }
        info!(host, port, "handed over: this server follows");
        // Its own data are what was handed over.
        let followed = shared.follow(Some(target.clone()), true);
        let followed = followed.and_then(|()| {
            shared.change_config(|config| {
                config.replication.target = Some(target);
                Ok(())
            })
        });
        if let Err(error) = followed {
            warn!(%error, "cannot follow");
        }
    }
}
