//! Requests for a recent snapshot: they borrow one, or make one before they run.

use pando_minuet::BranchId;
use pando_protocol::command::{CommandId, CommandSpec, ConnectionCommand};
use pando_protocol::{Reply, Request};

use super::{Host, Turn};
use crate::client::Client;
#[cfg(test)]
use crate::durable::testing::{self, Fault};
use crate::error::CommandError;
use crate::freeze::Wanted;
use crate::progress::Handled;
use crate::snapshots::{Lease, RECENT};

/// What a turn knows of such requests.
#[derive(Debug)]
pub(super) struct Recent {
    /// Of the snapshot that the current request was lent.
    pub(super) lease: Option<Lease>,
    /// How many makings of snapshots had begun when the turn began.
    pub(super) makings: u64,
    /// The current request of the batch, and the last one that was the first of its client.
    pub(super) at: usize,
    leader: usize,
}

impl Default for Recent {
    fn default() -> Self {
        Self {
            lease: None,
            makings: u64::MAX,
            at: 0,
            leader: usize::MAX,
        }
    }
}

impl Turn<'_> {
    /// Says whether the request at `index`, which had come before the turn began, is its client's
    /// first one in it. A snapshot that was made in this turn is recent enough for such a request
    /// (LD1 made-after-it-came): its client has seen nothing since.
    #[inline]
    pub fn lead(&mut self, index: usize, is_first: bool) {
        if is_first {
            self.recent.leader = index;
        }
    }

    /// Runs a request that [`wants_recent`].
    #[cold]
    pub(super) fn run_with_recent(
        &mut self,
        client: &mut Client,
        spec: &'static CommandSpec,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Handled {
        self.recent.lease = Some(self.lend(client.base)?);
        let progress = self.run(client, spec, request, reply, host);
        self.recent.lease = None;
        Ok(progress)
    }

    /// Lends a snapshot of the branch whose database 0 has the index `base`: one that may be
    /// borrowed, or a new one. The turn has its own gate, then and later.
    fn lend(&mut self, base: usize) -> Result<Lease, CommandError> {
        let branch = BranchId((base / self.database.databases()) as u32);
        // LD1 made-after-it-came.
        let is_first = self.recent.leader == self.recent.at;
        #[cfg(test)]
        let is_first = is_first || testing::is(Fault::LentBehind);
        let came = if is_first {
            self.recent.makings
        } else {
            self.database.lender.makings()
        };
        self.check_branch(base)?;
        if let Some(lease) = self.borrow(branch, came) {
            return Ok(lease);
        }
        self.hold_all();
        self.check_branch(base)?;
        let lease = match self.borrow(branch, came) {
            Some(lease) => lease,
            None => self.make_to_lend(branch, base)?,
        };
        self.hold_own();
        Ok(lease)
    }

    fn borrow(&mut self, branch: BranchId, came: u64) -> Option<Lease> {
        let (database, now) = (self.database, self.session.now.milliseconds());
        let moment = database.lender.borrow(branch, came, now)?;
        let snapshot = self.session.snapshots.at(&database.snapshots, moment);
        let snapshot = snapshot.expect("a snapshot that is lent is there");
        let (lease, epoch) = (Lease::of(snapshot, now), snapshot.epoch());
        self.session.observe(epoch);
        Some(lease)
    }

    fn make_to_lend(&mut self, branch: BranchId, base: usize) -> Result<Lease, CommandError> {
        let (database, now) = (self.database, self.session.now.milliseconds());
        let wanted = Wanted {
            name: b"",
            lives: None,
            is_held: false,
            lasts: false,
            is_lent: true,
            base,
            repeats: None,
        };
        let make = || self.freeze(&wanted);
        let made = database.lender.make(branch, now, make)?;
        self.session.observe(made.epoch());
        Ok(Lease::of(&made, now))
    }
}

/// Whether a request asks for a snapshot that it is lent.
#[inline]
pub(super) fn wants_recent(spec: &CommandSpec, request: Request<'_>) -> bool {
    matches!(spec.id, CommandId::Connection(ConnectionCommand::Snapshot))
        && matches!(spec.own_name(), "use" | "read")
        && request.is(2, RECENT)
}
