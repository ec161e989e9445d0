//! SNAPSHOT, and which view a command reads.
//!
//! | what a client sends | reads |
//! |---|---|
//! | a command, after SNAPSHOT USE NONE or nothing | the present |
//! | a command, after SNAPSHOT USE name | that snapshot; an error if it was dropped |
//! | a command, after SNAPSHOT USE RECENT | a snapshot that it was lent (`lender`); an error if its lease has ended |
//! | SNAPSHOT READ name command | that snapshot, in the client's database |
//! | SNAPSHOT READ RECENT command | one that it is lent for the command |
//!
//! A client's present is that of its branch (`branches`); a snapshot is of one branch.
//!
//! Writes are refused for a client that uses a snapshot, also when MULTI queues them. Commands that
//! concern connections and the server run as usual. A WATCH in a snapshot needs no record: nothing
//! there can change.

use crate::clock::Milliseconds;
use std::sync::Arc;

use pando_protocol::command::{self, CommandId, CommandSpec, Flag, Refusal};
use pando_protocol::{Reply, Request, number};

use super::recent::wants_recent;
use super::{Host, Turn};
use crate::client::Client;
#[cfg(test)]
use crate::durable::testing::{self, Fault};
use crate::error::CommandError;
use crate::freeze::Wanted;
use crate::progress::{Handled, Progress, Slices, Wait};
use crate::snapshots::{Lease, NamedSnapshot};

/// What SNAPSHOT HELP answers.
const HELP: &[&str] = &[
    "SNAPSHOT subcommand [argument ...]. The subcommands:",
    "CREATE name [TTL seconds] [HOLD | PERSIST]",
    "    Make a snapshot of all databases. It goes when it is dropped, after TTL seconds, or when",
    "    memory is short; with HOLD not for that, with PERSIST not with the server either. Of the",
    "    engine minuet with data on disk, each is as with PERSIST.",
    "READ name | RECENT command [argument ...]",
    "    Run a command that only reads in a snapshot; RECENT is one of now, or at most",
    "    snapshot-staleness old, which others may share.",
    "USE name | RECENT | NONE",
    "    Read this snapshot from now on, or one of now, which goes when nobody uses it, or the",
    "    present again.",
    "LIST",
    "    Name the snapshots, oldest first, with their time in ms and their log epoch.",
    "INFO name",
    "    Tell of a snapshot its age, its keys and what it keeps in memory.",
    "DROP name | ALL",
    "    Drop a snapshot, or all of them.",
    "ROLLBACK name [FORCE]",
    "    Make all databases what they were in a snapshot made with PERSIST; with FORCE also where",
    "    newer snapshots are lost. Of the engine minuet: make the branch in use what it was in any",
    "    snapshot, as BRANCH RESET does; none are lost.",
    "HELP",
    "    These lines.",
];

impl Turn<'_> {
    /// SNAPSHOT. `spec` is the subcommand's.
    pub(super) fn snapshot(
        &mut self,
        client: &mut Client,
        spec: &'static CommandSpec,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Handled {
        match spec.own_name() {
            "create" => self.create_snapshot(client, request, reply)?,
            "drop" => self.drop_snapshots(request, reply)?,
            "info" => self.tell_of_snapshot(request, reply)?,
            "list" => self.list_snapshots(reply),
            "rollback" => return self.roll_back(client, request, reply),
            "read" => return self.read_in_snapshot(client, request, reply, host),
            "use" => self.use_snapshot(client, request, reply)?,
            _ => {
                reply.array(HELP.len());
                for line in HELP {
                    reply.simple(line);
                }
            }
        }
        Ok(Progress::Done)
    }

    fn create_snapshot(
        &mut self,
        client: &Client,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), CommandError> {
        let mut wanted = Wanted {
            base: client.base,
            ..wanted(request)?
        };
        if self.database.store.branching().is_some()
            && self.database.branches.named(wanted.name).is_ok()
        {
            return Err(CommandError::BranchExists);
        }
        self.check_branch(client.base)?;
        if wanted.lasts {
            self.check_leads()?;
        } else {
            // Where the log keeps branches, what has a name lasts.
            let database = self.database;
            wanted.lasts = database.keeps_branches() && !database.follows();
        }
        let created = self.freeze(&wanted)?;
        self.session.observe(created.epoch());
        write_entry(&created, reply);
        Ok(())
    }

    /// Fails if the branches and lasting snapshots of another database are repeated here.
    pub(super) fn check_leads(&self) -> Result<(), CommandError> {
        let follows = self.database.store.branching().is_some() && self.database.follows();
        if follows {
            Err(CommandError::ReadOnly)
        } else {
            Ok(())
        }
    }

    /// Makes a snapshot. The turn holds all gates, and has written nothing.
    pub(crate) fn freeze(
        &mut self,
        wanted: &Wanted<'_>,
    ) -> Result<Arc<NamedSnapshot>, CommandError> {
        let created = self.database.freeze(self.session, wanted);
        // The epoch may have ended: the command belongs to the one that has begun.
        self.whole_since = Some(self.database.epochs.current());
        created
    }

    fn roll_back(
        &mut self,
        client: &Client,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Handled {
        let losing_newer = match request.len() {
            3 => false,
            4 if request.is(3, "FORCE") => true,
            _ => return Err(CommandError::Syntax),
        };
        let snapshot = Arc::clone(self.named(request.arg(2))?);
        if self.database.store.branching().is_some() {
            return self.roll_back_branch(client.base, snapshot, reply);
        }
        let gone_back = self
            .database
            .roll_back(self.session, &snapshot, losing_newer);
        // The epoch may have ended: the command belongs to the one that has begun.
        let epoch = self.database.epochs.current();
        self.whole_since = Some(epoch);
        gone_back?;
        self.session.observe(epoch);
        reply.ok();
        Ok(Progress::Done)
    }

    fn drop_snapshots(
        &mut self,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), CommandError> {
        let list = if request.is(2, "ALL") {
            self.database.snapshots.list()
        } else {
            [Arc::clone(self.named(request.arg(2))?)].into()
        };
        if list.iter().any(|snapshot| snapshot.lasts) {
            self.check_leads()?;
        }
        for snapshot in &*list {
            self.database.drop_snapshot(self.session, snapshot);
        }
        reply.count(list.len());
        Ok(())
    }

    fn tell_of_snapshot(
        &mut self,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), CommandError> {
        let snapshot = Arc::clone(self.named(request.arg(2))?);
        let now = self.session.now.milliseconds();
        let created = snapshot.moment.time;
        let until = snapshot.until.map(|until| until.saturating_sub(now));
        let images = self.database.store.images(snapshot.moment.snapshot);
        let keys: u64 = snapshot.databases.iter().map(|frozen| frozen.keys).sum();
        let figures = [
            ("created-ms", created.0 as i64),
            ("epoch", snapshot.epoch().0 as i64),
            ("age-ms", now.saturating_sub(created).0 as i64),
            ("ttl-ms", until.map_or(-1, |until| until.0 as i64)),
            ("hold", i64::from(snapshot.is_held)),
            ("persist", i64::from(snapshot.lasts)),
            ("keys", keys as i64),
            ("images", images.count as i64),
            ("image-bytes", images.bytes as i64),
        ];
        reply.map(figures.len() + 1);
        reply.bulk("name");
        reply.bulk(&snapshot.name);
        for (name, figure) in figures {
            reply.bulk(name);
            reply.integer(figure);
        }
        Ok(())
    }

    fn list_snapshots(&mut self, reply: &mut Reply<'_>) {
        let list = self.database.snapshots.list();
        reply.array(list.len());
        for snapshot in &*list {
            write_entry(snapshot, reply);
        }
    }

    fn use_snapshot(
        &mut self,
        client: &mut Client,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), CommandError> {
        if let Some(lease) = &self.recent.lease {
            write_entry(lease.snapshot(), reply);
            client.uses = Some(lease.clone());
            return Ok(());
        }
        client.uses = if request.is(2, "NONE") {
            None
        } else {
            let now = self.session.now.milliseconds();
            Some(Lease::of(self.named(request.arg(2))?, now))
        };
        reply.ok();
        Ok(())
    }

    /// The snapshot of this name.
    fn named(&mut self, name: &[u8]) -> Result<&Arc<NamedSnapshot>, CommandError> {
        self.session.snapshots.named(&self.database.snapshots, name)
    }

    /// SNAPSHOT READ name command [argument ...]
    fn read_in_snapshot(
        &mut self,
        client: &mut Client,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Handled {
        let (spec, inner) = inner_read(request)?;
        let lent = self.recent.lease.clone();
        self.past = Some(match &lent {
            Some(lease) => self.read_by(lease)?,
            None => Arc::clone(self.named(request.arg(2))?),
        });
        self.run_in_past(client, spec, inner, reply, host)
    }

    /// Runs a command of a client that uses a snapshot.
    #[cold]
    pub(super) fn run_in_use(
        &mut self,
        client: &mut Client,
        spec: &'static CommandSpec,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Handled {
        let lease = client.uses.as_ref().filter(|_| reads_keys(spec));
        let Some(lease) = lease else {
            return self.run_in_view(client, spec, request, reply, host);
        };
        self.past = Some(self.read_by(lease)?);
        self.run_in_past(client, spec, request, reply, host)
    }

    /// What a lease is of, which is renewed, unless it has gone (NS2 asked-every-turn).
    fn read_by(&mut self, lease: &Lease) -> Result<Arc<NamedSnapshot>, CommandError> {
        let (snapshots, moment) = (&self.database.snapshots, lease.snapshot().moment);
        let found = self.session.snapshots.at(snapshots, moment);
        let snapshot = Arc::clone(found.map_err(|_| lease.why_gone())?);
        #[cfg(test)]
        if testing::is(Fault::LeaseUnrenewed) {
            return Ok(snapshot);
        }
        lease.renew(self.session.now.milliseconds());
        Ok(snapshot)
    }

    /// Runs a command in the existing snapshot `past`.
    fn run_in_past(
        &mut self,
        client: &mut Client,
        spec: &'static CommandSpec,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Handled {
        let mut handled = self.run_in_view(client, spec, request, reply, host);
        let past = self.past.take();
        if let Ok(Progress::Waits(Wait::Others(slices))) = &mut handled {
            let now = self.session.now.milliseconds();
            slices.reads = past.map(|snapshot| Lease::of(&snapshot, now));
        }
        handled
    }

    /// Refuses the next slice of a command whose snapshot was dropped (NS2 asked-every-turn).
    pub(super) fn check_moment(&mut self, slices: &Slices) -> Result<(), CommandError> {
        if slices.base != 0 {
            self.check_branch(slices.base)?;
        }
        if let Some(lease) = &slices.reads {
            self.session.access.quiet = true;
            self.read_by(lease)?;
        }
        Ok(())
    }
}

/// Refuses what a client that uses a snapshot cannot run, and a SNAPSHOT READ of a command that is
/// not a read. Checked when a request comes, and not again when EXEC runs it.
pub(super) fn check_view(
    client: &Client,
    spec: &CommandSpec,
    request: Request<'_>,
) -> Result<(), CommandError> {
    if client.uses.is_some() && spec.flags.has(Flag::Write) {
        return Err(CommandError::SnapshotReadOnly);
    }
    match spec.name {
        "snapshot|read" => {
            inner_read(request)?;
            // EXEC is under all gates, or one run.
            if client.transaction.is_some() && wants_recent(spec, request) {
                return Err(CommandError::NotInTransaction);
            }
        }
        "branch|read" => _ = super::branches::inner_read(request)?,
        _ => {}
    }
    Ok(())
}

/// Whether the command reads keys, if it does not write.
pub(super) fn reads_keys(spec: &CommandSpec) -> bool {
    spec.flags.has(Flag::Readonly) && !matches!(spec.id, CommandId::Connection(_))
}

/// The command that a SNAPSHOT READ is to run, and its request.
fn inner_read(request: Request<'_>) -> Result<(&'static CommandSpec, Request<'_>), CommandError> {
    let inner = request.tail(3);
    let refuse = |refusal: Refusal| CommandError::InnerRequest {
        text: refusal.text(inner).into(),
    };
    let spec = command::resolve(inner).map_err(refuse)?;
    if spec.flags.has(Flag::Write) {
        return Err(CommandError::SnapshotReadOnly);
    }
    if !reads_keys(spec) && !matches!(spec.id, CommandId::Keyspace(_)) {
        return Err(CommandError::NotARead);
    }
    Ok((spec, inner))
}

/// The options of SNAPSHOT CREATE.
fn wanted(request: Request<'_>) -> Result<Wanted<'_>, CommandError> {
    let mut wanted = Wanted {
        name: request.arg(2),
        lives: None,
        is_held: false,
        lasts: false,
        is_lent: false,
        base: 0,
        repeats: None,
    };
    let mut at = 3;
    while at < request.len() {
        if request.is(at, "HOLD") {
            wanted.is_held = true;
        } else if request.is(at, "PERSIST") {
            wanted.lasts = true;
        } else if request.is(at, "TTL") {
            at += 1;
            let seconds = request.get(at).ok_or(CommandError::Syntax)?;
            let seconds = number::parse_i64(seconds).ok_or(CommandError::NotAnInteger)?;
            if seconds <= 0 {
                return Err(CommandError::NotPositive);
            }
            let command = "snapshot|create";
            let milliseconds = seconds.checked_mul(1000);
            let lives = milliseconds.ok_or(CommandError::InvalidExpireTime { command })?;
            wanted.lives = Some(Milliseconds(lives as u64));
        } else {
            return Err(CommandError::Syntax);
        }
        at += 1;
    }
    Ok(wanted)
}

/// Name, time of creation in milliseconds, log epoch.
fn write_entry(snapshot: &NamedSnapshot, reply: &mut Reply<'_>) {
    reply.array(3);
    reply.bulk(&snapshot.name);
    reply.integer(snapshot.moment.time.0 as i64);
    reply.integer(snapshot.epoch().0 as i64);
}

#[cfg(test)]
mod tests;
