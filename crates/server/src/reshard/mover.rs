//! The mover: attempts, each from what the servers say to the end, or to the first server that goes
//! away.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pando_db::VALUE_FORMAT;
use pando_ring::limits::RANGES;
use pando_ring::{Begun, Node, Placement, RangeState};

use super::hands::Hands;
use super::node::{Server, Status};
use super::progress::Progress;
use super::{Reshard, ReshardError, RingFile};

/// After how many portions of names the copy looks at what has changed.
const PORTIONS_BETWEEN: usize = 50;

/// Fewer changed keys than this in one round are few enough to begin handing over.
const FEW_CHANGES: usize = 1000;

/// Rounds after which it begins in any case: what changes faster is copied behind the fences.
pub(super) const ROUNDS_MAX: usize = 100;

/// How long the mover waits for servers that have gone away, and between two looks.
const AWAY_PATIENCE: Duration = Duration::from_mins(10);
/// See [`AWAY_PATIENCE`].
const AWAY_PAUSE: Duration = Duration::from_millis(500);

/// How long it waits for what an earlier mover has asked of a server, and between two looks.
const BUSY_PATIENCE: Duration = Duration::from_mins(1);
/// See [`BUSY_PATIENCE`].
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// What a test makes it forget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code, reason = "tests plant faults"))]
pub(super) enum Fault {
    #[default]
    None,
    FenceForgotten,
    LastForgotten,
    SweptEarly,
    ClearForgotten,
    /// The mover ends as if it was killed, behind so many steps.
    Killed(u64),
}

/// What is to be done, whatever the servers say.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) old: RingFile,
    pub(super) new: RingFile,
    /// Of both rings, by the addresses of the new one.
    pub(super) nodes: Vec<Node>,
    password: Vec<u8>,
    pub(super) token: Vec<u8>,
    dry_run: bool,
    pub(super) progress: Progress,
    pub(super) fault: Fault,
    steps: AtomicU64,
}

/// One attempt.
pub(super) struct Attempt<'p> {
    pub(super) hands: Hands<'p>,
    databases: usize,
    /// What each server has.
    pub(super) placements: Vec<Placement>,
}

/// Moves keys; see the module's header.
pub(crate) fn run(reshard: &Reshard, password: &[u8]) -> Result<(), ReshardError> {
    Plan::new(reshard, password)?.run()
}

impl Plan {
    pub(super) fn new(reshard: &Reshard, password: &[u8]) -> Result<Self, ReshardError> {
        let (old, new) = (RingFile::load(&reshard.old)?, RingFile::load(&reshard.new)?);
        let mut nodes = new.ring.nodes().to_vec();
        let left = old.ring.nodes().iter();
        nodes.extend(
            left.filter(|node| new.ring.node(node.name()).is_none())
                .cloned(),
        );
        Ok(Self {
            old,
            new,
            nodes,
            password: password.to_vec(),
            token: format!("{:016x}", fastrand::u64(..)).into_bytes(),
            dry_run: reshard.dry_run,
            progress: Progress::new(reshard.rate),
            fault: Fault::None,
            steps: AtomicU64::new(0),
        })
    }

    /// A planted fault.
    pub(super) fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// A step is done; a test may end the mover here.
    pub(super) fn step(&self) -> Result<(), ReshardError> {
        let steps = self.steps.fetch_add(1, Ordering::Relaxed);
        match self.fault {
            Fault::Killed(at) if steps >= at => Err(ReshardError::TakenOver),
            _ => Ok(()),
        }
    }

    pub(super) fn run(&self) -> Result<(), ReshardError> {
        if self.old.ring.places_alike(&self.new.ring) {
            eprintln!("the two rings place every key alike: nothing moves");
            return Ok(());
        }
        if self.dry_run {
            return self.count();
        }
        let mut began = false;
        loop {
            let error = match self.attempt(&mut began) {
                Ok(()) => break,
                Err(error) => error,
            };
            if !began || !error.passes() {
                return Err(error);
            }
            eprintln!("{error}; going on when all servers are there");
            let since = Instant::now();
            loop {
                if since.elapsed() > AWAY_PATIENCE {
                    return Err(error);
                }
                thread::sleep(AWAY_PAUSE);
                if self.connect().is_ok() {
                    break;
                }
            }
        }
        let (longest, most) = self.progress.fences();
        eprintln!(
            "done: {}; {} removed where they were. A hand-over took {} ms at most, {} ms or less \
             in 99 of 100",
            self.progress.copied(),
            self.progress.removed.load(Ordering::Relaxed),
            longest.as_millis(),
            most.as_millis(),
        );
        Ok(())
    }

    fn connect(&self) -> Result<Hands<'_>, ReshardError> {
        let connect = |node| Server::connect(node, &self.password);
        let servers: Result<_, _> = self.nodes.iter().map(connect).collect();
        Ok(Hands {
            plan: self,
            servers: servers?,
        })
    }

    /// What every server says, if they fit together.
    fn look(&self, hands: &mut Hands<'_>) -> Result<Vec<Status>, ReshardError> {
        let mut found: Vec<Status> = Vec::new();
        for server in &mut hands.servers {
            let status = server.status()?;
            let (name, expected) = (server.name.clone(), VALUE_FORMAT.to_string());
            if status.format != expected {
                return Err(ReshardError::Format {
                    name,
                    got: status.format,
                    expected,
                });
            }
            if let Some(first) = found.first()
                && first.databases != status.databases
            {
                return Err(ReshardError::Databases {
                    name,
                    got: status.databases,
                    other: self.nodes[0].shared_name().clone(),
                    expected: first.databases,
                });
            }
            if let (true, _) = server.role()? {
                let address = server.address.clone();
                return Err(ReshardError::Replica { name, address });
            }
            found.push(status);
        }
        Ok(found)
    }

    /// Whether the servers may begin, or go on, before anything is changed.
    fn check(&self, found: &[Status]) -> Result<Vec<Begun>, ReshardError> {
        let mut begun = Vec::new();
        for (node, status) in self.nodes.iter().zip(found) {
            let present = status.placement.as_ref();
            let next = Placement::begin(present, node.name(), &self.old.text, &self.new.text);
            begun.push(next.map_err(|error| ReshardError::Placement {
                name: node.shared_name().clone(),
                error,
            })?);
        }
        let moved = |placement: &Placement| RANGES - placement.count(RangeState::Old);
        let done = begun.iter().map(|(placement, _)| moved(placement)).max();
        let done = done.unwrap_or(0);
        // RS3 known-before.
        for (node, (_, how)) in self.nodes.iter().zip(&begun) {
            if done > 0 && *how == Begun::Anew {
                let name = node.shared_name().clone();
                return Err(ReshardError::Stranger { name, done });
            }
        }
        if begun.iter().any(|(_, how)| *how == Begun::Back) {
            let first = &begun[0].0;
            let differs = |range: &usize| {
                let state = first.state(*range);
                begun.iter().any(|(other, _)| other.state(*range) != state)
            };
            if let Some(range) = (0..RANGES).find(differs) {
                return Err(ReshardError::Between { range });
            }
        }
        Ok(begun.into_iter().map(|(_, how)| how).collect())
    }

    /// Whether servers that begin anew have their own keys alone (RS4 cleared-of-copies).
    fn check_keys(&self, databases: usize, begun: &[Begun]) -> Result<(), ReshardError> {
        let check = |index: usize| {
            if begun[index] != Begun::Anew {
                return Ok(());
            }
            let node = &self.nodes[index];
            let strange = |key: &Vec<u8>| self.old.ring.node_of(key).name() != node.name();
            let mut server = Server::connect(node, &self.password)?;
            server.names(databases, |_, _, keys| {
                match keys.into_iter().find(strange) {
                    None => Ok(()),
                    Some(key) => Err(ReshardError::Misplaced {
                        name: node.shared_name().clone(),
                        key,
                    }),
                }
            })
        };
        at_once(self.nodes.len(), check)
    }

    /// The node to which a key goes from another one.
    pub(super) fn target(
        &self,
        placements: &[Placement],
        from: usize,
        key: &[u8],
    ) -> Option<usize> {
        let name = self.nodes[from].name();
        let (source, target) = self.old.ring.moves(&self.new.ring, key)?;
        if source.name() != name {
            return None;
        }
        let to = self.index(target.name());
        let placement = &placements[to];
        (placement.state(placement.range_of(key)) != RangeState::New).then_some(to)
    }

    fn index(&self, name: &str) -> usize {
        let found = self.nodes.iter().position(|node| node.name() == name);
        found.expect("the nodes are those of both rings")
    }

    /// Counts what would move.
    fn count(&self) -> Result<(), ReshardError> {
        let mut hands = self.connect()?;
        let found = self.look(&mut hands)?;
        let begun = self.check(&found)?;
        self.check_keys(found[0].databases, &begun)?;
        let mut moving: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        let mut names = 0_u64;
        for (server, node) in hands.servers.iter_mut().zip(&self.nodes) {
            server.names(found[0].databases, |_, _, keys| {
                for key in keys {
                    names += 1;
                    if let Some((from, to)) = self.old.ring.moves(&self.new.ring, &key)
                        && from.name() == node.name()
                    {
                        *moving.entry((from.name(), to.name())).or_default() += 1;
                    }
                }
                Ok(())
            })?;
        }
        for ((from, to), keys) in &moving {
            eprintln!("{from} → {to}: {keys} keys");
        }
        let moved: u64 = moving.values().sum();
        eprintln!("{moved} of {names} keys would move");
        Ok(())
    }

    /// Tells a server what is to come, when it has done what an earlier mover asked for.
    fn begin(&self, server: &mut Server) -> Result<(), ReshardError> {
        let (name, old, new) = (server.name.clone(), &self.old.text, &self.new.text);
        let (old, new) = (old.as_bytes(), new.as_bytes());
        let since = Instant::now();
        loop {
            let token = &self.token;
            match server.ask(&[b"RESHARD", b"BEGIN", token, name.as_bytes(), old, new]) {
                Err(ReshardError::Busy { .. }) if since.elapsed() < BUSY_PATIENCE => {
                    thread::sleep(BUSY_PAUSE);
                }
                begun => return begun.map(drop),
            }
        }
    }

    fn attempt(&self, began: &mut bool) -> Result<(), ReshardError> {
        let mut hands = self.connect()?;
        let found = self.look(&mut hands)?;
        let other = |status: &Status| !status.mover.is_empty() && status.mover != self.token;
        if *began && found.iter().any(other) {
            return Err(ReshardError::TakenOver);
        }
        let begun = self.check(&found)?;
        let databases = found[0].databases;
        self.check_keys(databases, &begun)?;
        *began = true;
        for server in &mut hands.servers {
            self.begin(server)?;
            self.step()?;
        }
        // Behind the last BEGIN nobody else changes anything.
        let mut placements = Vec::new();
        for (server, status) in hands.servers.iter().zip(self.look(&mut self.connect()?)?) {
            if status.mover != self.token {
                return Err(ReshardError::TakenOver);
            }
            let lost = || ReshardError::Lost {
                name: server.name.clone(),
            };
            placements.push(status.placement.ok_or_else(lost)?);
        }
        let mut attempt = Attempt {
            hands,
            databases,
            placements,
        };
        if !attempt.pending().is_empty() {
            attempt.open_fences()?;
            attempt.clear(&begun)?;
            attempt.copy()?;
            if self.has(Fault::SweptEarly) {
                attempt.sweep()?;
            }
            attempt.follow()?;
            attempt.hand_all_over()?;
        }
        attempt.sweep()
    }
}

impl Attempt<'_> {
    /// Removes from every server what `goes` says, in the background of its clients.
    fn remove_everywhere(
        &mut self,
        goes: impl Fn(usize, &[u8]) -> bool + Sync,
    ) -> Result<u64, ReshardError> {
        let (plan, databases) = (self.hands.plan, self.databases);
        let removed = AtomicU64::new(0);
        let remove = |index: usize| {
            let mut hands = plan.connect()?;
            let mut names = Server::connect(&plan.nodes[index], &plan.password)?;
            names.names(databases, |_, database, mut keys| {
                keys.retain(|key| goes(index, key));
                let count = keys.len() as u64;
                let before = removed.fetch_add(count, Ordering::Relaxed);
                let progress = &plan.progress;
                progress.tick(|| format!("{} keys removed where they were", before + count));
                progress.pace(count);
                hands.remove(index, database, &keys)
            })
        };
        at_once(plan.nodes.len(), remove)?;
        Ok(removed.into_inner())
    }

    /// Removes what an earlier attempt has brought to servers that have not taken it.
    fn clear(&mut self, begun: &[Begun]) -> Result<(), ReshardError> {
        let plan = self.hands.plan;
        if plan.has(Fault::ClearForgotten) {
            return Ok(());
        }
        let placements = self.placements.clone();
        self.remove_everywhere(|index, key| {
            let (name, placement) = (plan.nodes[index].name(), &placements[index]);
            if begun[index] == Begun::Anew {
                return false;
            }
            let moves = plan.old.ring.moves(&plan.new.ring, key);
            moves.is_some_and(|(_, to)| to.name() == name)
                && placement.state(placement.range_of(key)) != RangeState::New
        })?;
        plan.step()
    }

    fn copy(&mut self) -> Result<(), ReshardError> {
        let (plan, databases, placements) = (self.hands.plan, self.databases, &self.placements);
        let progress = &plan.progress;
        let mut total = 0;
        for server in &mut self.hands.servers {
            total += server.key_count(databases)?;
        }
        progress.total.store(total, Ordering::Relaxed);
        progress.names.store(0, Ordering::Relaxed);
        let began = Instant::now();
        let copy = |from: usize| {
            let mut hands = plan.connect()?;
            let mut names = Server::connect(&plan.nodes[from], &plan.password)?;
            let mut portions = 0;
            names.names(databases, |_, database, keys| {
                hands.copy(placements, from, database, &keys)?;
                progress
                    .names
                    .fetch_add(keys.len() as u64, Ordering::Relaxed);
                portions += 1;
                if portions % PORTIONS_BETWEEN == 0 {
                    hands.bring_changed(placements, from, None)?;
                }
                progress.tick(|| format!("{}, {}", progress.left(began), progress.copied()));
                plan.step()
            })
        };
        at_once(plan.nodes.len(), copy)
    }

    fn follow(&mut self) -> Result<(), ReshardError> {
        for _ in 0..ROUNDS_MAX {
            let mut changed = 0;
            for from in 0..self.hands.servers.len() {
                changed += self.hands.bring_changed(&self.placements, from, None)?;
            }
            let progress = &self.hands.plan.progress;
            progress.tick(|| format!("{changed} keys have changed, {}", progress.copied()));
            if changed < FEW_CHANGES {
                break;
            }
        }
        self.hands.plan.step()
    }

    /// Removes from every server what is not its own (RS2 swept-last).
    fn sweep(&mut self) -> Result<(), ReshardError> {
        let plan = self.hands.plan;
        let placements = self.placements.clone();
        let removed = self.remove_everywhere(|index, key| {
            let early = plan.has(Fault::SweptEarly);
            let goes = plan.new.ring.node_of(key).name() != plan.nodes[index].name();
            goes && (early || placements[index].may_place(key))
        })?;
        plan.progress.removed.fetch_add(removed, Ordering::Relaxed);
        plan.step()
    }
}

/// Does something for each node, on threads; the first error counts.
fn at_once(
    nodes: usize,
    work: impl Fn(usize) -> Result<(), ReshardError> + Sync,
) -> Result<(), ReshardError> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..nodes)
            .map(|index| scope.spawn(move || work(index)))
            .collect();
        let ended = threads.into_iter().map(|thread| match thread.join() {
            Ok(ended) => ended,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ended.fold(Ok(()), Result::and)
    })
}
