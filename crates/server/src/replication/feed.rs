//! The thread that feeds one replica: messages of its source, in frames, through its worker.
//!
//! It writes no more than the window allows (LK1 bounded-window), gives up a replica that is silent
//! for `repl-timeout`, and ends epochs while the replica waits for something, so that writes arrive
//! within some milliseconds whatever the durability of the server.
//!
//! While it sends a full copy it has a lower priority than those who serve, and gives the worker
//! one frame at a time.

use std::ops::ControlFlow;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use pando_db::{CopyReason, FollowedEpoch, Framer, Sent, SessionLimit, Source};
use tracing::{info, warn};

use super::polite::{Manners, Share};
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
    /// Others are with frames that the worker has not taken.
    carried: Arc<()>,
    /// The processors are busy: a copy does not wait until the worker has taken a frame.
    hurries: bool,
}

/// How far it is.
struct Feeding {
    source: Source,
    message: Vec<u8>,
    groups: Option<Arc<FollowedEpoch>>,
    beat: Option<Instant>,
    busy: Instant,
    differences: u64,
}

/// Feeds a replica until it is gone; then closes its connection.
pub(super) fn run(shared: &Arc<Shared>, follower: &Arc<Follower>) {
    let feed = Feed {
        shared,
        follower,
        framer: Framer::default(),
        carried: Arc::default(),
        hurries: false,
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
        let source = match self.begin() {
            Ok(source) => source,
            Err(error) => return Some(error.to_string()),
        };
        let mut feeding = Feeding {
            source,
            message: Vec::new(),
            groups: None,
            beat: None,
            busy: Instant::now(),
            differences: 0,
        };
        let mut manners = Manners::default();
        loop {
            let copies = feeding.source.is_copying();
            self.hurries = manners.hurries();
            let ended = if copies {
                manners.politely(|share| self.feed_while(copies, &mut feeding, share))
            } else {
                self.feed_while(copies, &mut feeding, &mut Share::full())
            };
            if let ControlFlow::Break(reason) = ended {
                return reason;
            }
        }
    }

    /// Feeds while there is a full copy to send, or none, and while its share is enough.
    fn feed_while(
        &mut self,
        copies: bool,
        feeding: &mut Feeding,
        share: &mut Share,
    ) -> ControlFlow<Option<String>> {
        while feeding.source.is_copying() == copies && !share.is_starved() {
            self.feed(feeding)?;
        }
        ControlFlow::Continue(())
    }

    /// Makes and sends the next message, or waits.
    fn feed(&mut self, feeding: &mut Feeding) -> ControlFlow<Option<String>> {
        let follower = self.follower;
        let Feeding {
            source,
            message,
            groups,
            beat,
            busy,
            differences,
        } = feeding;
        message.clear();
        match source.next(message) {
            Sent::Message => *busy = Instant::now(),
            Sent::Epoch(epoch) => (*busy, *groups) = (Instant::now(), Some(epoch)),
            Sent::Nothing | Sent::Worked
                if beat.is_none_or(|beat| beat.elapsed() >= limits::REPLICATION_BEAT) =>
            {
                source.beat(message);
                *beat = Some(Instant::now());
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
                let gone = "what a replica needs next is no longer kept: it asks anew \
                            (repl-backlog-size is how many bytes of changes are kept for replicas)";
                return ControlFlow::Break(Some(gone.to_owned()));
            }
        }
        let mut progress = lock(&follower.progress);
        if progress.gone {
            return ControlFlow::Break(None);
        }
        if self.note_stage(source, &mut progress, differences) {
            *beat = None;
        }
        let silent = progress.heard.elapsed();
        let hands_over = std::mem::take(&mut progress.hands_over);
        let wish = progress.wish.take();
        drop(progress);
        if let Some(wish) = wish {
            source.check(wish);
        }
        if silent > self.timeout() {
            let silent = "a replica is silent for longer than repl-timeout";
            return ControlFlow::Break(Some(silent.to_owned()));
        }
        if !message.is_empty() && !self.send(source, message, groups.take().as_deref()) {
            let gone = follower.progress().gone;
            let silent = "a replica takes nothing for longer than repl-timeout";
            return ControlFlow::Break((!gone).then(|| silent.to_owned()));
        }
        if hands_over {
            // The replica has everything, so what was sent just now says no more.
            message.clear();
            source.take_over(message);
            self.send(source, message, None);
        }
        ControlFlow::Continue(())
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
        let (carried, hurries) = (&self.carried, self.hurries);
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
                if !has_room(source, follower, bytes as u64, timeout)
                    || source.is_copying() && !hurries && !is_taken(carried, follower, timeout)
                {
                    return false;
                }
                bulk.extend_from_slice(b"\r\n");
                mailbox.send(follower.client, bulk, Arc::clone(carried));
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

/// Waits until the worker has taken the frames that it was given, so that none of its turns sends
/// more than one: its clients would wait for that. `false`: it takes none, or the replica is gone.
fn is_taken(carried: &Arc<()>, follower: &Follower, timeout: Duration) -> bool {
    let began = Instant::now();
    while Arc::strong_count(carried) > 1 {
        if began.elapsed() > timeout || lock(&follower.progress).gone {
            return false;
        }
        std::thread::sleep(limits::REPLICATION_FRAME_PAUSE);
    }
    true
}
