//! BRANCH, and which branch a command works on.
//!
//! | what a client sends | works on |
//! |---|---|
//! | a command, after BRANCH USE name | that branch; an error if it was dropped |
//! | a command, of a new connection or after RESET | the mainline |
//! | BRANCH READ name command | that branch, in the client's database |
//!
//! What is done with all branches is done under all gates, and needs the engine that has branches.

mod build;
mod diff;
mod fields;
mod marks;
mod merge;
mod repeat;
mod tally;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use build::small;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_engine::{LogEpoch, TreeId};
use pando_minuet::engine::{From, Minuet};
use pando_minuet::limits::{DESCENDANTS_MAX, DESCENDANTS_MIN};
use pando_minuet::{BranchId, Error};
use pando_protocol::command::{self, CommandId, CommandSpec, ConnectionCommand, Flag, Refusal};
use pando_protocol::{Reply, Request, number};

use super::snapshots::reads_keys;
use super::{Host, Turn};
use crate::branches::NamedBranch;
use crate::client::Client;
use crate::database::Database;
use crate::durable::catalog::{BranchNote, Event, Source};
use crate::durable::forks::Place;
use crate::error::CommandError;
use crate::progress::{Handled, Progress, Wait};
use crate::remapping;
use crate::snapshots::NamedSnapshot;

/// What BRANCH HELP answers.
const HELP: &[&str] = &[
    "BRANCH subcommand [argument ...]. The subcommands:",
    "CREATE name [FROM branch | snapshot] [DESCENDANTS n]",
    "    Make a branch of all databases, from the one in use unless FROM says otherwise. It lasts",
    "    where data are kept on disk. Pages of it name up to n copies of themselves, 2 to 4: fewer",
    "    make reads sooner where many branches come from it, and more copies.",
    "USE name",
    "    Work on this branch from now on.",
    "READ name command [argument ...]",
    "    Run a command that only reads on a branch.",
    "LIST",
    "    Name the branches, with the time in ms when they were made, and 1 for those that last.",
    "    MAIN, where no branch has that name, is the first one, whatever name and use it has.",
    "INFO name",
    "    Tell of a branch what it was made from, its age and its keys.",
    "DIFF a b [PREFIX prefix] [FROM key] [LIMIT n] [COUNT]",
    "    List the keys of the selected database that were added, removed or changed from a to b,",
    "    which are branches or snapshots, behind where to go on FROM; or count them.",
    "MERGE a INTO b [ON CONFLICT FAIL | OURS | THEIRS] [DRY RUN] [LIMIT n]",
    "  [AFTER database key]",
    "    Do to b what was done to a since they parted, or were merged last, in either direction,",
    "    all of it or nothing; name conflicts:",
    "    database, key, and the fields of a hash; 100 or as many as LIMIT says, behind a key of a",
    "    database.",
    "RESET name TO snapshot",
    "    Make a branch what a snapshot shows.",
    "RENAME name new",
    "    Give a branch another name.",
    "DROP name",
    "    Drop a branch.",
    "MAIN [name]",
    "    Name the branch that new connections use, or choose it.",
    "HELP",
    "    These lines.",
];

/// A branch or a snapshot.
#[derive(Clone, Debug)]
enum Named {
    Branch(NamedBranch),
    Snapshot(Arc<NamedSnapshot>),
}

impl Turn<'_> {
    /// BRANCH. `spec` is the subcommand's.
    pub(super) fn branch(
        &mut self,
        client: &mut Client,
        spec: &'static CommandSpec,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Handled {
        if spec.own_name() == "help" {
            reply.array(HELP.len());
            for line in HELP {
                reply.simple(line);
            }
            return Ok(Progress::Done);
        }
        self.branching()?;
        let changes = matches!(
            spec.own_name(),
            "create" | "drop" | "merge" | "rename" | "reset"
        ) || spec.own_name() == "main" && request.len() > 2;
        if changes {
            self.check_leads()?;
        }
        // Whatever the answer is, it tells of them.
        self.session.observe(self.database.branches.changed_in());
        match spec.own_name() {
            "create" => self.create_branch(client, request, reply)?,
            "diff" => return self.diff_branches(client, request, reply),
            "drop" => self.drop_branch(request, reply)?,
            "info" => self.tell_of_branch(request, reply)?,
            "list" => self.list_branches(reply),
            "main" => self.mainline(request, reply)?,
            "merge" => return self.merge_branch(request, reply),
            "read" => return self.read_in_branch(client, request, reply, host),
            "rename" => self.rename_branch(request, reply)?,
            "reset" => return self.reset_branch(request, reply),
            _ => self.use_branch(client, request, reply)?,
        }
        Ok(Progress::Done)
    }

    /// The engine that has branches.
    fn branching(&self) -> Result<&Arc<Minuet>, CommandError> {
        let engine = self.database.options.engine.name();
        let branching = self.database.store.branching();
        branching.ok_or(CommandError::NoBranches { engine })
    }

    /// The branch or the snapshot of a name.
    fn branch_or_snapshot(&mut self, name: &[u8]) -> Result<Named, CommandError> {
        if let Ok(branch) = self.database.branches.named(name) {
            return Ok(Named::Branch(branch));
        }
        let snapshot = self.session.snapshots.named(&self.database.snapshots, name);
        let snapshot = snapshot.map_err(|_| CommandError::NoBranchOrSnapshot)?;
        Ok(Named::Snapshot(Arc::clone(snapshot)))
    }

    fn create_branch(
        &mut self,
        client: &Client,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), CommandError> {
        let name = request.arg(2);
        self.database.branches.check_name(name, None)?;
        let snapshots = &self.database.snapshots;
        if self.session.snapshots.named(snapshots, name).is_ok() {
            return Err(CommandError::BranchExists);
        }
        let (mut origin, mut bound) = (None, None);
        for at in (3..request.len()).step_by(2) {
            let value = request.get(at + 1).ok_or(CommandError::Syntax)?;
            if request.is(at, "FROM") && origin.is_none() {
                origin = Some(self.branch_or_snapshot(value)?);
            } else if request.is(at, "DESCENDANTS") && bound.is_none() {
                bound = Some(descendants(value)?);
            } else {
                return Err(CommandError::Syntax);
            }
        }
        let origin = if let Some(origin) = origin {
            origin
        } else {
            let databases = self.database.databases();
            let branch = BranchId((client.base / databases) as u32);
            let branch = self.database.branches.get(branch);
            Named::Branch(branch.ok_or(CommandError::BranchGone)?)
        };
        let bound = bound.unwrap_or(DESCENDANTS_MAX);
        let branch = self.make_branch((name, bound), &origin, None)?;
        self.write_branch(&branch, reply);
        Ok(())
    }

    /// Makes a branch with a name that no other one has, and a bound of descendant sets, or again
    /// as it was `noted`.
    fn make_branch(
        &mut self,
        (name, descendants_max): (&[u8], u8),
        origin: &Named,
        noted: Option<&BranchNote>,
    ) -> Result<NamedBranch, CommandError> {
        let (database, engine) = (self.database, Arc::clone(self.branching()?));
        let number = match noted {
            Some(noted) => noted.number,
            None => database.branches.changes.load(Ordering::Relaxed) + 1,
        };
        let (from, source, origin_name, like, place) = match origin {
            Named::Branch(branch) => {
                let base = database.base_of(branch.id);
                let trees = (base..base + database.databases()).map(|index| database.tree(index));
                let source = Source::Branch(branch.number);
                (
                    From::Branch(branch.id),
                    source,
                    branch.name.clone(),
                    trees.collect(),
                    Place::of_branch(branch.forks.as_ref(), number).with(&branch.merged),
                )
            }
            Named::Snapshot(snapshot) => {
                let (name, at) = (snapshot.name.clone(), snapshot.moment.snapshot);
                let trees = snapshot.databases.iter().take(database.databases());
                let trees: Vec<TreeId> = trees.map(|frozen| frozen.tree).collect();
                (
                    From::Snapshot(at),
                    Source::Snapshot(at.epoch()),
                    name,
                    trees,
                    snapshot.place.clone(),
                )
            }
        };
        let point = self.begin_change(origin)?;
        let id = engine.create_branch(name, from, descendants_max);
        let id = id.map_err(of_engine)?;
        let base = |tree: &TreeId| engine.base_of(*tree).unwrap_or(*tree);
        let bases: Vec<TreeId> = like.iter().map(base).collect();
        let tree = |index: usize| {
            let like = like[index];
            let keys = match origin {
                Named::Branch(_) => database.store.len(like),
                Named::Snapshot(snapshot) => snapshot.databases[index].keys,
            };
            let Some(noted) = noted else {
                return engine.branch_tree(id, like, keys);
            };
            engine.restore_tree_of(id, (noted.trees[index], bases[index]), keys);
            noted.trees[index]
        };
        let branch = NamedBranch {
            id,
            number,
            name: name.into(),
            created: noted.map_or(self.session.now.milliseconds(), |noted| noted.created),
            origin: origin_name,
            trees: (0..database.databases()).map(tree).collect(),
            descendants_max,
            forks: Some(place.fork(number, bases)),
            merged: place.merged_by(name),
            resets: 0,
        };
        let branched = Event::Branched {
            branch: branch.note(),
            source,
            like,
        };
        database.note_change(self.session, point, branched);
        database.branches.write().insert(branch.clone());
        Ok(branch)
    }

    /// Ends the epoch, where anybody is told of branches, so that one that is made shows what was
    /// written up to there; returns that epoch.
    fn begin_change(&mut self, origin: &Named) -> Result<LogEpoch, CommandError> {
        let database = self.database;
        if !database.tells_of_branches() {
            return Ok(LogEpoch::NONE);
        }
        let is_passing = matches!(origin, Named::Snapshot(snapshot) if !snapshot.lasts);
        if is_passing && database.keeps_branches() {
            return Err(CommandError::BranchOfPassing);
        }
        self.check_log()?;
        Ok(self.end_epoch())
    }

    /// Ends the epoch within a command that has written nothing so far; returns it.
    pub(crate) fn end_epoch(&mut self) -> LogEpoch {
        let (database, now) = (self.database, self.session.now.milliseconds());
        assert!(!self.session.has_group());
        let point = database.acknowledgement.end_epoch_within(now);
        // The command belongs to the epoch that has begun.
        self.whole_since = Some(database.epochs.current());
        point
    }

    /// Fails if branches last and the log takes no writes.
    fn check_log(&self) -> Result<(), CommandError> {
        let database = self.database;
        if database.keeps_branches() && !database.acknowledgement.accepts_writes() {
            return Err(CommandError::LogFull);
        }
        Ok(())
    }

    /// Logs a change of a branch, behind all that was written so far.
    fn note_branch(&mut self, event: Event) {
        let point = self.database.epochs.current();
        self.database.note_change(self.session, point, event);
    }

    fn drop_branch(
        &mut self,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), CommandError> {
        let database = self.database;
        let branch = database.branches.named(request.arg(2))?;
        if branch.id == BranchId::FIRST {
            return Err(CommandError::FirstBranch);
        }
        if branch.id == database.branches.mainline() {
            return Err(CommandError::MainlineBranch);
        }
        if database.keeps_branches() && !database.acknowledgement.accepts_removals() {
            return Err(CommandError::LogFull);
        }
        self.drop_named(&branch)?;
        reply.ok();
        Ok(())
    }

    fn drop_named(&mut self, branch: &NamedBranch) -> Result<(), CommandError> {
        let database = self.database;
        let dropped = self.branching()?.drop_branch(&branch.name);
        dropped.map_err(of_engine)?;
        self.note_branch(Event::Dropped {
            branch: branch.number,
        });
        let base = database.base_of(branch.id);
        let indexes: Vec<usize> = (base..base + database.databases()).collect();
        database.change_trees(self.session, &indexes, || {
            database.branches.write().remove(branch.id);
        });
        for tree in &branch.trees {
            remapping::drop_tree(database, *tree);
        }
        Ok(())
    }

    fn rename_branch(
        &mut self,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), CommandError> {
        let database = self.database;
        let (branch, new) = (database.branches.named(request.arg(2))?, request.arg(3));
        if *branch.name != *new {
            database.branches.check_name(new, Some(branch.id))?;
            let snapshots = &database.snapshots;
            if self.session.snapshots.named(snapshots, new).is_ok() {
                return Err(CommandError::BranchExists);
            }
            self.check_log()?;
            self.rename_named(&branch, new)?;
        }
        reply.ok();
        Ok(())
    }

    fn rename_named(&mut self, branch: &NamedBranch, new: &[u8]) -> Result<(), CommandError> {
        let renamed = self.branching()?.rename_branch(&branch.name, new);
        renamed.map_err(of_engine)?;
        self.note_branch(Event::Renamed {
            branch: branch.number,
            name: new.into(),
        });
        let mut list = self.database.branches.write();
        list.change(branch.id, |branch| branch.name = new.into());
        Ok(())
    }

    fn mainline(
        &mut self,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), CommandError> {
        let branches = &self.database.branches;
        if request.len() == 2 {
            let mainline = branches.get(branches.mainline());
            reply.bulk(&mainline.expect("the mainline is there").name);
            return Ok(());
        }
        if request.len() > 3 {
            return Err(CommandError::Syntax);
        }
        let branch = branches.named(request.arg(2))?;
        self.check_log()?;
        self.choose_mainline(&branch)?;
        reply.ok();
        Ok(())
    }

    fn choose_mainline(&mut self, branch: &NamedBranch) -> Result<(), CommandError> {
        let chosen = self.branching()?.set_mainline(&branch.name);
        chosen.map_err(of_engine)?;
        self.note_branch(Event::Mainline {
            branch: branch.number,
        });
        self.database.branches.set_mainline(branch.id);
        self.database.placing.lose_mover();
        Ok(())
    }

    fn use_branch(
        &mut self,
        client: &mut Client,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), CommandError> {
        let branch = self.database.branches.named(request.arg(2))?;
        client.base = self.database.base_of(branch.id);
        client.uses = None;
        reply.ok();
        Ok(())
    }

    /// Whether branches outlast the process.
    fn lasts(&self) -> bool {
        self.database.is_durable()
    }

    /// Name, time of creation in milliseconds, whether it lasts.
    fn write_branch(&self, branch: &NamedBranch, reply: &mut Reply<'_>) {
        reply.array(3);
        reply.bulk(&branch.name);
        reply.integer(branch.created.0 as i64);
        reply.integer(self.lasts().into());
    }

    fn list_branches(&mut self, reply: &mut Reply<'_>) {
        let mut all = self.database.branches.all();
        all.retain(|branch| !branch.is_hidden());
        reply.array(all.len());
        for branch in &all {
            self.write_branch(branch, reply);
        }
    }

    fn tell_of_branch(
        &mut self,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), CommandError> {
        let database = self.database;
        let branch = database.branches.named(request.arg(2))?;
        let base = database.base_of(branch.id);
        let trees = (base..base + database.databases()).map(|index| database.tree(index));
        let keys: u64 = trees.map(|tree| database.store.len(tree)).sum();
        let (now, created) = (self.session.now.milliseconds(), branch.created);
        let is_mainline = branch.id == database.branches.mainline();
        let figures = [
            ("created-ms", created.0 as i64),
            ("age-ms", now.saturating_sub(created).0 as i64),
            ("mainline", i64::from(is_mainline)),
            ("persist", i64::from(self.lasts())),
            ("keys", keys as i64),
            ("descendants", i64::from(branch.descendants_max)),
        ];
        reply.map(figures.len() + 2);
        reply.bulk("name");
        reply.bulk(&branch.name);
        reply.bulk("from");
        reply.bulk(&branch.origin);
        for (name, figure) in figures {
            reply.bulk(name);
            reply.integer(figure);
        }
        Ok(())
    }

    /// BRANCH READ name command [argument ...]
    fn read_in_branch(
        &mut self,
        client: &mut Client,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Handled {
        let (spec, inner) = inner_read(request)?;
        let branch = self.database.branches.named(request.arg(2))?;
        let base = self.database.base_of(branch.id);
        let used = std::mem::replace(&mut client.base, base);
        let handled = self.run_on_branch(client, spec, inner, reply, host);
        client.base = used;
        handled
    }

    /// Runs a command of a client that uses another branch than the first.
    #[cold]
    pub(super) fn run_in_branch(
        &mut self,
        client: &mut Client,
        spec: &'static CommandSpec,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Handled {
        self.session.observe(self.database.branches.changed_in());
        if client.uses.is_some() {
            // What a snapshot shows stays when its branch goes.
            return self.run_in_use(client, spec, request, reply, host);
        }
        let is_watch = matches!(spec.id, CommandId::Connection(ConnectionCommand::Watch));
        let is_of_keys = !matches!(spec.id, CommandId::Connection(_));
        let writes = is_of_keys && spec.flags.has(Flag::Write);
        if is_watch || writes || reads_keys(spec) {
            // BRANCH and SNAPSHOT READ name what they work on.
            self.check_branch(client.base)?;
        }
        self.run_on_branch(client, spec, request, reply, host)
    }

    /// Runs a command on the branch whose database 0 has the index `client.base`.
    fn run_on_branch(
        &mut self,
        client: &mut Client,
        spec: &'static CommandSpec,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl Host,
    ) -> Handled {
        let base = client.base;
        let mut handled = self.run_in_view(client, spec, request, reply, host);
        if let Ok(Progress::Waits(Wait::Others(slices))) = &mut handled {
            slices.base = base;
        }
        handled
    }

    /// Fails if the branch whose database 0 has this index was dropped (NB2 asked-every-turn).
    pub(super) fn check_branch(&self, base: usize) -> Result<(), CommandError> {
        let branch = BranchId((base / self.database.databases()) as u32);
        let is_there = self.database.branches.has(branch);
        is_there.then_some(()).ok_or(CommandError::BranchGone)
    }
}

impl Database {
    /// Lets a new connection use the mainline.
    pub fn admit(&self, client: &mut Client) {
        client.base = self.mainline();
    }
}

/// A bound of descendant sets.
fn descendants(value: &[u8]) -> Result<u8, CommandError> {
    let number = number::parse_i64(value).ok_or(CommandError::NotAnInteger)?;
    let bound = u8::try_from(number).ok();
    let bound = bound.filter(|bound| (DESCENDANTS_MIN..=DESCENDANTS_MAX).contains(bound));
    bound.ok_or(CommandError::Descendants {
        least: DESCENDANTS_MIN,
        most: DESCENDANTS_MAX,
    })
}

/// The command that a BRANCH READ is to run, and its request.
pub(super) fn inner_read(
    request: Request<'_>,
) -> Result<(&'static CommandSpec, Request<'_>), CommandError> {
    let inner = request.tail(3);
    let refuse = |refusal: Refusal| CommandError::InnerRequest {
        text: refusal.text(inner).into(),
    };
    let spec = command::resolve(inner).map_err(refuse)?;
    let is_read = reads_keys(spec) || matches!(spec.id, CommandId::Keyspace(_));
    if spec.flags.has(Flag::Write) || !is_read {
        return Err(CommandError::BranchReadWrites);
    }
    Ok((spec, inner))
}

/// What a client is told of the engine's refusal. Names and branches were checked before.
fn of_engine(error: Error) -> CommandError {
    match error {
        Error::TooManyBranches | Error::Exhausted | Error::TooLarge | Error::Full => {
            CommandError::TooManyBranches
        }
        error => panic!("a branch that was checked is refused: {error}"),
    }
}
