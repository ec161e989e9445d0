//! The thread that feeds one replica: messages of its source, in frames, through its worker.
//!
//! It writes no more than the window allows (LK1 bounded-window), gives up a replica that is silent
//! for `repl-timeout`, and ends epochs while the replica waits for something, so that writes arrive
//! within some milliseconds whatever the durability of the server.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use pando_db::{CopyReason, FollowedEpoch, Framer, Sent, SessionLimit, Source};
use tracing::{info, warn};

use super::{Follower, Progress};
use crate::limits;
use crate::shared::{Shared, lock};

/// What an operator should know of a full copy.
fn explained(reason: CopyReason) -> Option<&'static str> {
    match reason {
        CopyReason::New => None,
        CopyReason::Ahead => Some(
            "the replica has writes that this server has not: it takes a full copy, and loses them",
        ),
        CopyReason::Unknown => Some("the replica's data came from elsewhere: it takes a full copy"),
        CopyReason::TooFarBehind => Some(
            "the replica is too far behind: it takes a full copy (repl-backlog-size is how many \
             bytes of changes are kept for replicas)",
        ),
        CopyReason::Remapped => Some(
            "databases were exchanged or emptied since the replica was here: it takes a full copy",
        ),
    }
}

/// One replica's feed.
struct Feed<'a> {
    shared: &'a Shared,
    follower: &'a Follower,
    framer: Framer,
}

/// Feeds a replica until it is gone; then closes its connection.
pub(super) fn run(shared: &Arc<Shared>, follower: &Arc<Follower>) {
    let feed = Feed {
        shared,
        follower,
        framer: Framer::default(),
    };
    if let Some(reason) = feed.serve() {
        warn!(host = follower.host, port = follower.port, "{reason}");
        if let Some(mailbox) = shared.mailbox(follower.worker) {
            mailbox.close(follower.client);
        }
    }
    shared.replication.forget(follower.client);
}

impl Feed<'_> {
    /// What is sent, from its beginning on.
    fn begin(&self) -> Result<Source, SessionLimit> {
        let follower = self.follower;
        if let Err(error) = self.shared.database.keep_histories() {
            warn!(%error, "after a restart of this server its replicas will take full copies");
        }
        let (position, branches) = (follower.position, follower.has_branches);
        let source = Source::new(&self.shared.database, position, branches)?;
        let (host, port, full) = (&follower.host, follower.port, source.is_copying());
        info!(host, port, full_copy = full, "a replica follows");
        self.shared.replication.syncs.count(source.copies());
        if let Some(why) = source.copies().and_then(explained) {
            warn!(host, port, "{why}");
        }
        Ok(source)
    }

    /// Returns why the replica was given up, unless it is gone by itself.
    fn serve(mut self) -> Option<String> {
        let follower = self.follower;
        let mut source = match self.begin() {
            Ok(source) => source,
            Err(error) => return Some(error.to_string()),
        };
        let mut message = Vec::new();
        let mut groups = None;
        let mut beat: Option<Instant> = None;
        let mut busy = Instant::now();
        let mut differences = 0;
        loop {
            message.clear();
            match source.next(&mut message) {
                Sent::Message => busy = Instant::now(),
                Sent::Epoch(epoch) => (busy, groups) = (Instant::now(), Some(epoch)),
                Sent::Nothing | Sent::Worked
                    if beat.is_none_or(|beat| beat.elapsed() >= limits::REPLICATION_BEAT) =>
                {
                    source.beat(&mut message);
                    beat = Some(Instant::now());
                }
                Sent::Worked => {}
                Sent::Nothing => {
                    let pause = if busy.elapsed() < limits::REPLICATION_BEAT {
                        limits::REPLICATION_PAUSE
                    } else {
                        limits::REPLICATION_IDLE_PAUSE
                    };
                    source.wait(pause);
                }
                Sent::Gone => {
                    return Some(
                        "what a replica needs next is no longer kept: it asks anew \
                         (repl-backlog-size is how many bytes of changes are kept for replicas)"
                            .to_owned(),
                    );
                }
            }
            let mut progress = lock(&follower.progress);
            if progress.gone {
                return None;
            }
            if self.note_stage(&source, &mut progress, &mut differences) {
                beat = None;
            }
            let silent = progress.heard.elapsed();
            let hands_over = std::mem::take(&mut progress.hands_over);
            let wish = progress.wish.take();
            drop(progress);
            if let Some(wish) = wish {
                source.check(wish);
            }
            if silent > self.timeout() {
                return Some("a replica is silent for longer than repl-timeout".to_owned());
            }
            if !message.is_empty() && !self.send(&source, &message, groups.take().as_deref()) {
                let gone = follower.progress().gone;
                let silent = "a replica takes nothing for longer than repl-timeout";
                return (!gone).then(|| silent.to_owned());
            }
            if hands_over {
                // The replica has everything, so what was sent just now says no more.
                message.clear();
                source.take_over(&mut message);
                self.send(&source, &message, None);
            }
        }
    }

    /// Notes what becomes of a full copy, and how many differences were sent; whether a copy has
    /// begun or ended.
    fn note_stage(&self, source: &Source, progress: &mut Progress, differences: &mut u64) -> bool {
        let (host, port) = (&self.follower.host, self.follower.port);
        let syncs = &self.shared.replication.syncs;
        if source.differences() > *differences {
            *differences = source.differences();
            syncs.count_difference();
            info!(
                host,
                port, "a replica has what has changed since it was here"
            );
        }
        let copies = source.is_copying();
        if copies == progress.copying {
            return false;
        }
        progress.copying = copies;
        if copies {
            syncs.count(Some(CopyReason::TooFarBehind));
            info!(
                host,
                port, "too much has changed: a replica takes a full copy"
            );
        } else {
            info!(host, port, "a replica has its copy");
        }
        true
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(self.shared.settings.replication_timeout_s())
    }

    /// Sends a message, whose end is the groups of an epoch if there is one.
    fn send(&mut self, source: &Source, message: &[u8], epoch: Option<&FollowedEpoch>) -> bool {
        let rest = epoch.map_or(&[][..], |epoch| &epoch.groups);
        let (shared, follower, timeout) = (self.shared, self.follower, self.timeout());
        let begin = |bytes: usize| {
            let head = format!("${bytes}\r\n");
            let mut bulk = Vec::with_capacity(head.len() + bytes + 2);
            bulk.extend_from_slice(head.as_bytes());
            bulk
        };
        self.framer
            .frames((message, rest), begin, |mut bulk, bytes| {
                let Some(mailbox) = shared.mailbox(follower.worker) else {
                    return false;
                };
                source.end_long_epoch(limits::REPLICATION_PAUSE);
                if !has_room(source, follower, bytes as u64, timeout) {
                    return false;
                }
                bulk.extend_from_slice(b"\r\n");
                mailbox.send(follower.client, bulk);
                true
            })
    }
}

/// Waits until the window takes so many bytes more, and counts them (LK1 bounded-window); `false`:
/// the replica is gone, or confirms nothing.
fn has_room(source: &Source, follower: &Follower, bytes: u64, timeout: Duration) -> bool {
    let full = |progress: &mut super::Progress| {
        let pending = progress.sent - progress.confirmed;
        !progress.gone && pending > 0 && pending + bytes > limits::REPLICATION_WINDOW_BYTES
    };
    let began = Instant::now();
    let mut progress = lock(&follower.progress);
    while full(&mut progress) {
        if began.elapsed() > timeout {
            return false;
        }
        let pause = limits::REPLICATION_PAUSE;
        let waited = follower.changed.wait_timeout_while(progress, pause, full);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        source.end_long_epoch(pause);
        progress = lock(&follower.progress);
    }
    if progress.gone {
        return false;
    }
    progress.sent += bytes;
    true
}
