//! How a transaction is run to its end: fetching, running again, validating, committing.
//!
//! ```text
//!           ┌────────────────────── conflict ──────────────────────┐
//!           v                                                      │
//!   run ── away ──> Fetching ──> run ── done ──┬─> (confirmed at once: over)
//!    ^                 │                       ├─> Validating ─────┤
//!    │           busy, overtaken               ├─> Executing ──────┤──> over
//!    └──── tick ──── Paused <── the same ──────┴─> Preparing ──────┘
//! ```
//!
//! - Nothing written, and all that was read was so in one wave at one memnode, because the wave
//!   compared what was read before: over, without a further trip (§2.2, piggy-backed validation).
//! - Nothing written otherwise: `Validating` compares everything once more, at each memnode by
//!   itself. Why that is enough, `pando_memnode`'s `minitransaction` says.
//! - One memnode: `Executing`, one phase. More: `Preparing`, then the proxy sees the decision
//!   through. A transaction is over when all have voted for it.
//! - What writes replicated slots takes part at all memnodes, one by one in their order, and waits
//!   there for locks (§4.1, blocking minitransactions).
//! - Where inner nodes are compared ([`crate::InnerNodes`]), what writes one takes part at all
//!   memnodes, too, at once and without waiting, as it did in Aguilera et al.'s B-tree.
//!
//! Departs from the paper: a wave, too, compares what was read before at the memnodes that it
//! visits, so that a transaction that cannot commit ends early.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pando_memnode::{
    Address, Bytes, Compare, Items, MemnodeId, MinitransactionId, Outcome, Reply, Request, Slot,
    SlotState, Write,
};

use crate::catalog::HEAD;
use crate::error::{Error, Stop};
use crate::fault::{Fault, planted};
use crate::limits::{ATTEMPTS_MAX, SWEPT_SLOTS};
use crate::page::HEADER_BYTES;
use crate::patience::Patience;
use crate::proxy::{JobId, Proxy};
use crate::transaction::{
    Compared, Confirmed, Listed, Read, Replica, Sets, Transaction, Want, Written,
};
use crate::transport::Ticket;

/// What a transaction does. It runs again whenever something was not here, or did not fit; only the
/// last run counts. It changes nothing but the transaction and itself.
pub trait Program {
    /// What the last run returns.
    type Output;

    /// One run.
    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<Self::Output, Stop>;
}

impl<R, F: FnMut(&mut Transaction<'_>) -> Result<R, Stop>> Program for F {
    type Output = R;

    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<R, Stop> {
        self(transaction)
    }
}

#[derive(Debug)]
enum Phase {
    /// To be run.
    Ready,
    /// To be run after so many ticks, once every participant has let go of the last commit: until
    /// then another would only wait behind it.
    Paused(u32, Option<MinitransactionId>),
    Fetching(BTreeMap<Ticket, Vec<Want>>),
    Validating(BTreeSet<Ticket>),
    Executing(MinitransactionId),
    Preparing(Preparing),
}

/// The first phase at several memnodes.
#[derive(Debug)]
struct Preparing {
    id: MinitransactionId,
    participants: Vec<MemnodeId>,
    pending: BTreeSet<Ticket>,
    /// Who is asked later, one by one.
    later: VecDeque<(MemnodeId, Items)>,
}

/// What came back and did not help.
#[derive(Debug, Default)]
struct Trouble {
    conflict: bool,
    busy: bool,
    error: Option<Error>,
}

/// A transaction on its way.
#[derive(Debug)]
pub struct Job<P: Program> {
    id: JobId,
    program: P,
    sets: Sets,
    phase: Phase,
    /// What the last run returned. An error, too, counts only if what was read stands.
    output: Option<Result<P::Output, Error>>,
    trouble: Trouble,
    /// What each memnode was last asked to compare, as its answer numbers it.
    compared: BTreeMap<MemnodeId, Vec<Compared>>,
    wave: u32,
    attempts: u32,
    /// Ticks of all attempts, pauses aside.
    ticks: u32,
    patience: Patience,
}

/// How a transaction ended.
pub type Ended<P> = Result<<P as Program>::Output, Error>;

impl<P: Program> Job<P> {
    /// A transaction to be advanced. No other of the proxy's has its id.
    pub fn new(id: JobId, program: P) -> Self {
        Self {
            id,
            program,
            sets: Sets::default(),
            phase: Phase::Ready,
            output: None,
            trouble: Trouble::default(),
            compared: BTreeMap::new(),
            wave: 0,
            attempts: 0,
            ticks: 0,
            patience: Patience::default(),
        }
    }

    /// The program.
    pub fn program(&self) -> &P {
        &self.program
    }

    /// Begins the transaction. It ends here if it needs nobody.
    pub fn start(&mut self, proxy: &mut Proxy) -> Option<Ended<P>> {
        self.run(proxy)
    }

    /// A tick of the host's clock: who met locks, or was overtaken, tries again, sooner or later.
    pub fn tick(&mut self, proxy: &mut Proxy) -> Option<Ended<P>> {
        match &mut self.phase {
            Phase::Paused(ticks @ 2.., _) => {
                *ticks -= 1;
                None
            }
            Phase::Paused(_, Some(last)) if proxy.is_open(*last) => None,
            Phase::Paused(..) => self.run(proxy),
            _ => {
                self.ticks = self.ticks.saturating_add(1);
                None
            }
        }
    }

    /// Whether nothing but ticks brings it on.
    pub(crate) fn is_paused(&self) -> bool {
        matches!(self.phase, Phase::Paused(..))
    }

    /// The minitransaction that commits it, once the memnodes may have heard of that: if this
    /// coordinator dies now, they know how the transaction ends.
    pub fn committing(&self) -> Option<MinitransactionId> {
        match &self.phase {
            Phase::Executing(id) | Phase::Preparing(Preparing { id, .. }) => Some(*id),
            Phase::Ready | Phase::Paused(..) | Phase::Fetching(_) | Phase::Validating(_) => None,
        }
    }

    /// Nobody waits for it any more. A commit that was under way may succeed; once the proxy is
    /// quiet, it has, or never will (MX3 over-is-over).
    pub fn abandon(mut self, proxy: &mut Proxy) {
        let asked = proxy.drop_requests(self.id);
        let (id, participants) = match self.phase {
            Phase::Executing(id) => (id, asked),
            // Those who were not asked yet, too: if all others have voted for it, they decide.
            Phase::Preparing(preparing) => (preparing.id, preparing.participants),
            Phase::Ready | Phase::Paused(..) | Phase::Fetching(_) | Phase::Validating(_) => {
                self.sets.return_held(proxy);
                return;
            }
        };
        self.sets.spend_held(proxy);
        if planted(Fault::Abandoned) {
            proxy.close(id);
        } else {
            proxy.give_up(id, participants);
        }
    }

    fn run(&mut self, proxy: &mut Proxy) -> Option<Ended<P>> {
        loop {
            self.phase = Phase::Ready;
            self.sets.begin_run();
            let result = self
                .program
                .run(&mut Transaction::new(proxy, &mut self.sets));
            let stop = match result {
                // A program that swallowed a stop has read nothing there.
                Ok(_) if !self.sets.wants.is_empty() => Stop::Away,
                Ok(_) if self.sets.writes_one_slot_twice() => {
                    self.sets.spend_held(proxy);
                    Stop::Conflict
                }
                Ok(output) => {
                    self.output = Some(Ok(output));
                    return self.commit(proxy);
                }
                Err(stop) => stop,
            };
            match stop {
                Stop::Away => {
                    self.fetch(proxy);
                    return None;
                }
                Stop::Conflict => {
                    if let Err(error) = self.begin_attempt(proxy) {
                        return self.over(proxy, Err(error));
                    }
                }
                Stop::Error(Error::TooLarge) => return self.over(proxy, Err(Error::TooLarge)),
                Stop::Error(error) => {
                    self.sets.begin_run();
                    self.output = Some(Err(error));
                    return self.commit(proxy);
                }
            }
        }
    }

    fn begin_attempt(&mut self, proxy: &mut Proxy) -> Result<(), Error> {
        let is_stuck = self.attempts % 4 == 3;
        if is_stuck {
            // Perhaps a slot in reserve is used by now: a memnode that restarts forgets what it
            // reserved. The commit fails then, or the run finds its new page in an old one's place.
            self.sets.spend_held(proxy);
        }
        self.sets.begin_attempt(proxy, is_stuck);
        self.output = None;
        self.attempts += 1;
        if self.attempts > ATTEMPTS_MAX {
            Err(Error::Contended)
        } else {
            Ok(())
        }
    }

    fn over(&mut self, proxy: &mut Proxy, ended: Ended<P>) -> Option<Ended<P>> {
        if ended.is_ok() {
            self.sets.spend_held(proxy);
            proxy.live = self.sets.live.take().or(proxy.live.take());
        } else {
            self.sets.return_held(proxy);
        }
        Some(ended)
    }

    /// Asks for all that the run lacked.
    fn fetch(&mut self, proxy: &mut Proxy) {
        self.wave += 1;
        let mut waves: BTreeMap<MemnodeId, Vec<Want>> = BTreeMap::new();
        let mut pending = BTreeMap::new();
        for want in std::mem::take(&mut self.sets.wants) {
            let home = MemnodeId((self.id.0 % u64::from(proxy.config.memnodes)) as u16);
            let to = match want {
                Want::Read(address) | Want::Dirty(address) => address.memnode,
                Want::Replica(_) | Want::DirtyReplica(_) => home,
                Want::List(memnode, from) => {
                    let request = Request::List {
                        from,
                        count: SWEPT_SLOTS,
                        prefix: HEADER_BYTES as u32,
                    };
                    pending.insert(proxy.send_for(self.id, memnode, request), vec![want]);
                    continue;
                }
                Want::Free(memnode) => {
                    let request = Request::Reserve {
                        count: proxy.config.reserved,
                    };
                    pending.insert(proxy.send_for(self.id, memnode, request), vec![want]);
                    continue;
                }
            };
            waves.entry(to).or_default().push(want);
        }
        for (to, wants) in waves {
            let slot = |want: &Want| match want {
                Want::Read(address) | Want::Dirty(address) => address.slot,
                Want::Replica(slot) | Want::DirtyReplica(slot) => *slot,
                Want::Free(_) | Want::List(..) => unreachable!("asked for by itself"),
            };
            let items = Items {
                compares: self.compares(to),
                reads: wants.iter().map(slot).collect(),
                writes: Vec::new(),
            };
            let request = Request::Execute {
                id: MinitransactionId::default(),
                settled: 0,
                items,
                wait: 0,
            };
            pending.insert(proxy.send_for(self.id, to, request), wants);
        }
        self.phase = Phase::Fetching(pending);
    }

    /// What was read, as far as `memnode` can compare it.
    fn compares(&mut self, memnode: MemnodeId) -> Vec<Compare> {
        let skipped = usize::from(planted(Fault::OneRead));
        let is_left_out = |slot: Slot| {
            let is_branch = slot > HEAD;
            memnode.0 == 0
                && ((planted(Fault::OneTip) && !is_branch)
                    || (planted(Fault::OneBranch) && is_branch))
        };
        let reads = self.sets.reads.iter();
        let reads = reads.filter(|(address, _)| address.memnode == memnode);
        let reads = reads.map(|(address, read)| {
            let compare = Compare::Sequence(address.slot, read.state.sequence);
            (compare, Compared::Slot(*address))
        });
        let replicas = self.sets.replicas.iter();
        let replicas = replicas.filter(|(slot, _)| !is_left_out(**slot));
        let replicas = replicas.map(|(slot, replica)| {
            let compare = Compare::Bytes(*slot, replica.bytes.clone());
            (compare, Compared::Replica(*slot))
        });
        let (compares, compared) = reads.skip(skipped).chain(replicas).unzip();
        self.compared.insert(memnode, compared);
        compares
    }

    fn commit(&mut self, proxy: &mut Proxy) -> Option<Ended<P>> {
        if self.sets.writes_nothing() {
            if self.sets.is_confirmed_at_once() {
                let output = self.output.take().expect("the run is done");
                return self.over(proxy, output);
            }
            self.validate(proxy);
            return None;
        }
        let sequences = match self.sets.sequence_writes(&proxy.config) {
            Ok(sequences) => sequences,
            Err(error) => return self.over(proxy, Err(error)),
        };
        let mut participants = self.participants(proxy, &sequences);
        let id = proxy.open();
        if participants.len() == 1 {
            let (to, items) = participants.pop_front().expect("one");
            let wait = self.wait(proxy);
            let request = Request::Execute {
                id,
                settled: proxy.settled(),
                items,
                wait,
            };
            proxy.send_for(self.id, to, request);
            self.phase = Phase::Executing(id);
            return None;
        }
        let mut preparing = Preparing {
            id,
            participants: participants.iter().map(|(memnode, _)| *memnode).collect(),
            pending: BTreeSet::new(),
            later: participants,
        };
        let at_once = if self.sets.replica_writes.is_empty() {
            preparing.later.len()
        } else {
            1
        };
        for _ in 0..at_once {
            self.prepare_next(&mut preparing, proxy);
        }
        self.phase = Phase::Preparing(preparing);
        None
    }

    /// Whether it takes part at all memnodes, to make a snapshot or a branch.
    fn writes_replicas(&self) -> bool {
        !self.sets.replica_writes.is_empty()
    }

    fn wait(&self, proxy: &Proxy) -> u16 {
        if self.writes_replicas() {
            proxy.config.wait_ticks
        } else {
            0
        }
    }

    fn prepare_next(&self, preparing: &mut Preparing, proxy: &mut Proxy) {
        if let Some((to, items)) = preparing.later.pop_front() {
            let request = Request::Prepare {
                id: preparing.id,
                settled: proxy.settled(),
                participants: preparing.participants.clone(),
                items,
                wait: self.wait(proxy),
            };
            preparing
                .pending
                .insert(proxy.send_for(self.id, to, request));
        }
    }

    /// Compares what was read, at each memnode by itself.
    fn validate(&mut self, proxy: &mut Proxy) {
        let participants = self.participants(proxy, &[]);
        let requests = participants.into_iter().map(|(to, items)| {
            let id = MinitransactionId::default();
            (
                to,
                Request::Execute {
                    id,
                    settled: 0,
                    items,
                    wait: 0,
                },
            )
        });
        let tickets = requests.map(|(to, request)| proxy.send_for(self.id, to, request));
        self.phase = Phase::Validating(tickets.collect());
    }

    /// Who takes part in the commit, in their order, and with what.
    fn participants(
        &mut self,
        proxy: &Proxy,
        sequences: &[(Slot, Bytes)],
    ) -> VecDeque<(MemnodeId, Items)> {
        // What was allocated and freed again is compared, too: its hint may have been old, and what
        // was read and freed under that address may have been another's.
        let sets = &self.sets;
        let touched = sets.reads.keys().chain(sets.writes.keys()).copied();
        let mut memnodes: BTreeSet<_> = touched
            .chain(sets.allocated())
            .map(|address| address.memnode)
            .collect();
        if memnodes.is_empty() {
            memnodes.insert(MemnodeId(0));
        }
        if !self.sets.replica_writes.is_empty() || !sequences.is_empty() {
            memnodes.extend((0..proxy.config.memnodes).map(MemnodeId));
        }
        let mut participants = VecDeque::new();
        for memnode in memnodes {
            let mut items = Items {
                compares: self.compares(memnode),
                ..Items::default()
            };
            let sets = &self.sets;
            let is_here =
                |address: &Address| address.memnode == memnode && !planted(Fault::Generation);
            for address in sets.allocated().filter(is_here) {
                items
                    .compares
                    .push(Compare::Sequence(address.slot, address.generation));
            }
            let writes = sets
                .writes
                .iter()
                .filter(|(address, _)| address.memnode == memnode);
            items
                .writes
                .extend(writes.map(|(address, written)| match written {
                    Written::Page(page) => match page.pieces() {
                        Some(pieces) => Write::Patch(address.slot, pieces.to_vec()),
                        None => Write::Whole(address.slot, page.bytes().clone()),
                    },
                    Written::Bytes(bytes) => Write::Whole(address.slot, bytes.clone()),
                    Written::Free => Write::Free(address.slot),
                }));
            let replicas = sets.replica_writes.iter();
            items
                .writes
                .extend(replicas.map(|(slot, bytes)| Write::Whole(*slot, bytes.clone())));
            let told = sequences
                .iter()
                .filter(|_| memnode.0 != 0 || !planted(Fault::OneTable));
            items
                .writes
                .extend(told.map(|(slot, bytes)| Write::Whole(*slot, bytes.clone())));
            participants.push_back((memnode, items));
        }
        participants
    }

    /// Takes a reply to one of the job's requests.
    pub fn receive(
        &mut self,
        proxy: &mut Proxy,
        ticket: Ticket,
        from: MemnodeId,
        reply: Reply,
    ) -> Option<Ended<P>> {
        match &mut self.phase {
            Phase::Fetching(pending) => {
                let wants = pending.remove(&ticket)?;
                let over = pending.is_empty();
                self.fetched(proxy, &wants, from, reply);
                over.then(|| self.go_on(proxy)).flatten()
            }
            Phase::Validating(pending) => {
                pending.remove(&ticket);
                let over = pending.is_empty();
                self.note(proxy, from, &reply);
                over.then(|| self.go_on(proxy)).flatten()
            }
            Phase::Executing(id) => {
                let id = *id;
                proxy.close(id);
                self.note(proxy, from, &reply);
                self.go_on(proxy)
            }
            Phase::Preparing(_) => self.voted(proxy, ticket, from, &reply),
            Phase::Ready | Phase::Paused(..) => None,
        }
    }

    fn fetched(&mut self, proxy: &mut Proxy, wants: &[Want], from: MemnodeId, reply: Reply) {
        match reply {
            Reply::Reserved { slots, used } => {
                if slots.is_empty() {
                    self.trouble.error = Some(Error::Full);
                }
                proxy.stock(from, &slots, used);
            }
            Reply::Listed { slots, next } => {
                for want in wants {
                    if let Want::List(memnode, from) = want {
                        let listed = Listed {
                            slots: slots.clone(),
                            next,
                        };
                        self.sets.lists.insert((*memnode, *from), listed);
                    }
                }
            }
            Reply::Outcome(Outcome::Done(states)) => {
                let confirmed = (self.wave, from);
                let reads = self.sets.reads.iter_mut();
                for (_, read) in reads.filter(|(address, _)| address.memnode == from) {
                    read.confirmed = Some(confirmed);
                }
                // What came with this wave was not yet compared by it.
                let wave = self.wave;
                let is_older =
                    |replica: &&mut Replica| replica.confirmed.is_none_or(|(of, _)| of < wave);
                for replica in self.sets.replicas.values_mut().filter(is_older) {
                    replica.confirmed = Some(confirmed);
                }
                for (want, state) in wants.iter().zip(states) {
                    self.store(proxy, *want, state, confirmed);
                }
            }
            other => self.note(proxy, from, &other),
        }
    }

    fn store(&mut self, proxy: &mut Proxy, want: Want, state: SlotState, confirmed: Confirmed) {
        let confirmed = Some(confirmed);
        match want {
            Want::Read(address) => {
                self.sets.reads.insert(address, Read { state, confirmed });
            }
            Want::Dirty(address) => {
                self.sets.fresh.insert(address);
                self.sets.dirty.insert(address, state);
            }
            Want::Replica(slot) => {
                proxy.set_replica(slot, state.bytes.clone());
                self.sets.replicas.insert(
                    slot,
                    Replica {
                        bytes: state.bytes,
                        confirmed,
                    },
                );
            }
            Want::DirtyReplica(slot) => {
                proxy.set_replica(slot, state.bytes.clone());
                self.sets.dirty_replicas.insert(slot, state.bytes);
            }
            Want::Free(_) | Want::List(..) => {}
        }
    }

    fn note(&mut self, proxy: &mut Proxy, from: MemnodeId, reply: &Reply) {
        match reply {
            Reply::Outcome(Outcome::Done(_)) => {}
            Reply::Outcome(Outcome::Busy(holder)) => {
                self.trouble.busy = true;
                let least = proxy.config.patience;
                if let Some(holder) = holder
                    && self.patience.ends_with(holder.id, least)
                {
                    proxy.settle(holder);
                }
            }
            Reply::Outcome(Outcome::Failed(failed)) => {
                self.trouble.conflict = true;
                // Those beyond are free slots that are free no more.
                let compared = &self.compared[&from];
                let stale = failed
                    .iter()
                    .filter_map(|index| compared.get(*index as usize));
                self.sets.stale.extend(stale);
            }
            Reply::Outcome(Outcome::Aborted) => self.trouble.conflict = true,
            Reply::Stale => self.trouble.error = Some(Error::Retired),
            _ => self.trouble.error = Some(Error::Refused),
        }
    }

    /// All replies of a phase are here.
    fn go_on(&mut self, proxy: &mut Proxy) -> Option<Ended<P>> {
        let trouble = std::mem::take(&mut self.trouble);
        if let Some(error) = trouble.error {
            return self.over(proxy, Err(error));
        }
        let committing = !matches!(self.phase, Phase::Fetching(_));
        if !trouble.conflict && !trouble.busy {
            if !committing {
                return self.run(proxy);
            }
            self.update_cache(proxy);
            let output = self.output.take().expect("the run is done");
            return self.over(proxy, output);
        }
        let (mut pauses, mut shortest) = (trouble.busy, 0);
        let is_awaited = self.writes_replicas();
        if trouble.conflict {
            if let Err(error) = self.begin_attempt(proxy) {
                return self.over(proxy, Err(error));
            }
            if self.patience.is_overtaken(proxy.config.at_once) {
                // It would be stale by then, and the pause in vain.
                self.sets.forget_all();
                (pauses, shortest) = (true, self.ticks);
            }
        }
        if self.patience.has_paused_often() {
            shortest = self.ticks;
        }
        if is_awaited {
            // A backlog is others', who wait for it, too.
            shortest = 0;
        }
        if pauses {
            let which = u64::from(proxy.id().host()) << 24 ^ self.id.0;
            let pause = self.patience.pause(which, shortest);
            self.phase = Phase::Paused(pause, self.committing());
            return None;
        }
        self.run(proxy)
    }

    /// What was committed is better known now.
    fn update_cache(&mut self, proxy: &mut Proxy) {
        for address in self.sets.writes.keys() {
            proxy.uncache(*address);
        }
        for (slot, bytes) in &self.sets.replica_writes {
            proxy.set_replica(*slot, bytes.clone());
        }
    }

    fn voted(
        &mut self,
        proxy: &mut Proxy,
        ticket: Ticket,
        from: MemnodeId,
        reply: &Reply,
    ) -> Option<Ended<P>> {
        self.note(proxy, from, reply);
        let Phase::Preparing(mut preparing) = std::mem::replace(&mut self.phase, Phase::Ready)
        else {
            unreachable!("votes are for what is prepared");
        };
        preparing.pending.remove(&ticket);
        if matches!(reply, Reply::Stale) {
            // No vote. Whoever retired this proxy settles what it voted for.
            proxy.drop_requests(self.id);
            proxy.close(preparing.id);
            return self.over(proxy, Err(Error::Retired));
        }
        let against = self.trouble.conflict || self.trouble.busy || self.trouble.error.is_some();
        if !against && !preparing.later.is_empty() && preparing.pending.is_empty() {
            self.prepare_next(&mut preparing, proxy);
        }
        if !against && !preparing.pending.is_empty() {
            self.phase = Phase::Preparing(preparing);
            return None;
        }
        // MX2 decide-by-votes: no vote that is still to come can change it.
        for ticket in &preparing.pending {
            proxy.drop_ticket(*ticket);
        }
        let asked = preparing.participants.len() - preparing.later.len();
        let mut participants = preparing.participants;
        participants.truncate(asked);
        proxy.decide(preparing.id, participants, !against);
        self.phase = Phase::Executing(preparing.id);
        self.go_on(proxy)
    }
}
