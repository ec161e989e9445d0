//! What the transactions of one coordinator share: requests on their way, the cache of inner nodes,
//! free slots in reserve, and minitransactions that wait for nobody but must be seen through.
//!
//! | field | what it is | if it is wrong |
//! |---|---|---|
//! | `cache` | inner nodes, of any age | checks of the traversal, or the commit, fail |
//! | `replicas` | replicated slots, of any age | the commit fails |
//! | `directory` | the catalog's root, of any age | leaves say so by their fences |
//! | `lineages` | how lines came to be (`lineage`) | never: that does not change |
//! | `live` | what is seen (`live`) | it is compared with what it was found out from |
//! | `needed` | nodes that a round of the collection leaves | the next round finds them |
//! | `pools` | slots that were free | the commit fails |
//! | `open` | minitransactions that may still be sent again | must be right: it is what `settled` says |
//! | `closing` | decided, or being settled in another's place | resumed by anyone |
//! | `retiring` | lives of coordinators that are over (`retire`) | resumed by anyone |
//!
//! Invariants:
//! - **MX1 settled-is-over** A number leaves `open` when no request with it is sent ever again: one
//!   phase, when it is answered; two, when every participant has acknowledged the decision.
//! - **MX2 decide-by-votes** A decision is made when all participants have voted for it, or one
//!   against. It is never taken back, and sent until all have acknowledged it.
//! - **MX3 over-is-over** Whoever stops waiting for a commit (`give_up`), or follows a coordinator
//!   that died (`retire`), asks the memnodes until each has voted. Then it commits nowhere later.

mod retire;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use pando_memnode::{
    Address, Bytes, CoordinatorId, InDoubt, MemnodeId, MinitransactionId, Reply, Request, Sequence,
    Slot, SlotState, Standing,
};

use crate::catalog::Directory;
use crate::limits::{Config, LINEAGES_MAX};
use crate::lineage::Lineage;
use crate::live::Live;
use crate::transport::{Ticket, Transport};
use retire::Retiring;

/// A transaction that is being run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// Whom a reply is for.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Job(JobId),
    Closing(MinitransactionId),
    /// The lives of a host that are being retired.
    Retiring(u32),
}

#[derive(Clone, Debug)]
struct Outstanding {
    owner: Owner,
    to: MemnodeId,
    request: Request,
    ticks: u32,
}

/// A minitransaction in two phases that no job waits for any more.
#[derive(Clone, Debug)]
struct Closing {
    participants: Vec<MemnodeId>,
    /// Answers of the round that is under way: standings, then acknowledgements.
    answered: BTreeSet<MemnodeId>,
    commit: Option<bool>,
}

#[derive(Clone, Debug, Default)]
struct Pool {
    free: VecDeque<(Slot, Sequence)>,
    /// Slots in use when the memnode last said so, and those that were taken since.
    used: u64,
}

/// Inner nodes, the oldest evicted first.
#[derive(Debug, Default)]
struct Cache {
    nodes: HashMap<Address, SlotState>,
    order: VecDeque<Address>,
}

/// See the module's header.
#[derive(Debug)]
pub struct Proxy {
    pub(crate) config: Config,
    id: CoordinatorId,
    numbers: u64,
    open: BTreeSet<u64>,
    tickets: u64,
    outstanding: BTreeMap<Ticket, Outstanding>,
    outbox: VecDeque<(Ticket, MemnodeId, Request)>,
    closing: BTreeMap<MinitransactionId, Closing>,
    retiring: BTreeMap<u32, Retiring>,
    cache: Cache,
    replicas: BTreeMap<Slot, Bytes>,
    /// The root of the catalog, taken apart.
    pub(crate) directory: Option<(Bytes, Arc<Directory>)>,
    pub(crate) first_lineage: Arc<Lineage>,
    pub(crate) lineages: HashMap<u32, Arc<Lineage>>,
    /// Lines in all of them.
    lineages_size: usize,
    pub(crate) live: Option<Arc<Live>>,
    /// Nodes that the collection has found to be needed in this round.
    pub(crate) needed: HashSet<Address>,
    pools: Vec<Pool>,
    turn: u16,
}

impl Proxy {
    /// A proxy. No other may have had its id, one from before a restart least of all. It retires
    /// the lives of its host before this one.
    pub fn new(id: CoordinatorId, config: Config) -> Self {
        let first_lineage = Lineage {
            above: Vec::new(),
            descendants_max: config.descendants_max,
        };
        let mut proxy = Self {
            directory: None,
            first_lineage: Arc::new(first_lineage),
            lineages: HashMap::new(),
            lineages_size: 0,
            live: None,
            needed: HashSet::new(),
            config,
            id,
            numbers: 0,
            open: BTreeSet::new(),
            tickets: 0,
            outstanding: BTreeMap::new(),
            outbox: VecDeque::new(),
            closing: BTreeMap::new(),
            retiring: BTreeMap::new(),
            cache: Cache::default(),
            replicas: BTreeMap::new(),
            pools: vec![Pool::default(); usize::from(config.memnodes)],
            turn: 0,
        };
        if id.life() > 0 {
            proxy.retire(id.host(), id.life());
        }
        proxy
    }

    /// Sends what is to be sent.
    pub fn flush(&mut self, transport: &mut dyn Transport) {
        for (ticket, to, request) in self.outbox.drain(..) {
            transport.send(ticket, to, request);
        }
    }

    /// A tick of the host's clock has passed: what was not answered for a while is sent again.
    pub fn tick(&mut self) {
        let now_settled = self.settled();
        for (ticket, waiting) in &mut self.outstanding {
            waiting.ticks += 1;
            if waiting.ticks % self.config.resend_ticks == 0 {
                // A memnode drops what is too far above `settled`; what it said once may be old.
                if let Request::Execute { id, settled, .. } | Request::Prepare { id, settled, .. } =
                    &mut waiting.request
                    && id.number > 0
                {
                    *settled = now_settled;
                }
                self.outbox
                    .push_back((*ticket, waiting.to, waiting.request.clone()));
            }
        }
    }

    /// Takes a reply. If a job waits for it, this says which; a copy is for nobody.
    pub fn receive(&mut self, ticket: Ticket, reply: &Reply) -> Option<(JobId, MemnodeId)> {
        let Outstanding { owner, to, .. } = self.outstanding.remove(&ticket)?;
        match owner {
            Owner::Job(job) => Some((job, to)),
            Owner::Closing(id) => {
                self.close_further(id, to, reply);
                None
            }
            Owner::Retiring(host) => {
                self.retire_further(host, to, reply);
                None
            }
        }
    }

    /// Which coordinator it is.
    pub(crate) fn id(&self) -> CoordinatorId {
        self.id
    }

    /// Whether no minitransaction waits to be seen through.
    pub fn is_quiet(&self) -> bool {
        self.closing.is_empty() && self.retiring.is_empty()
    }

    /// Settles a minitransaction in its coordinator's place: asks all participants, decides by
    /// their votes. It does no harm whoever else is at it.
    pub fn settle(&mut self, doubt: &InDoubt) {
        let own = doubt.id.coordinator == self.id && self.open.contains(&doubt.id.number);
        if !own && !self.closing.contains_key(&doubt.id) {
            self.ask(doubt.id, doubt.participants.clone());
        }
    }

    /// Asks all participants how a minitransaction stands, so that it is decided.
    fn ask(&mut self, id: MinitransactionId, participants: Vec<MemnodeId>) {
        for to in &participants {
            self.send(Owner::Closing(id), *to, Request::Settle { id });
        }
        let closing = Closing {
            participants,
            answered: BTreeSet::new(),
            commit: None,
        };
        self.closing.insert(id, closing);
    }

    /// Nobody waits any more for the commit of a job of this proxy (MX3 over-is-over).
    pub(crate) fn give_up(&mut self, id: MinitransactionId, participants: Vec<MemnodeId>) {
        debug_assert!(self.open.contains(&id.number), "{id:?} is over");
        self.ask(id, participants);
    }

    /// Whether one of this proxy's minitransactions may still commit.
    pub(crate) fn is_open(&self, id: MinitransactionId) -> bool {
        self.open.contains(&id.number)
    }

    /// Sees a decision through.
    pub(crate) fn decide(&mut self, id: MinitransactionId, to: Vec<MemnodeId>, commit: bool) {
        for participant in &to {
            self.send(
                Owner::Closing(id),
                *participant,
                Request::Decide { id, commit },
            );
        }
        let closing = Closing {
            participants: to,
            answered: BTreeSet::new(),
            commit: Some(commit),
        };
        self.closing.insert(id, closing);
    }

    fn close_further(&mut self, id: MinitransactionId, from: MemnodeId, reply: &Reply) {
        let Some(closing) = self.closing.get_mut(&id) else {
            return;
        };
        let asking = closing.commit.is_none();
        match reply {
            Reply::Standing(Standing::Settled) if asking => return self.closed(id),
            Reply::Standing(Standing::Aborted) if asking => closing.commit = Some(false),
            Reply::Standing(_) if asking => {
                closing.answered.insert(from);
            }
            Reply::Decided if !asking => {
                closing.answered.insert(from);
            }
            // A late answer of the round before.
            _ => return,
        }
        let all = closing.answered.len() == closing.participants.len();
        let decision = match (asking, closing.commit) {
            (true, None) => all.then_some(true),
            (true, commit) => commit,
            (false, _) if all => return self.closed(id),
            (false, _) => None,
        };
        if let Some(commit) = decision {
            let participants = closing.participants.clone();
            self.forget_requests(id);
            self.decide(id, participants, commit);
        }
    }

    fn closed(&mut self, id: MinitransactionId) {
        self.closing.remove(&id);
        self.forget_requests(id);
        if id.coordinator == self.id {
            self.close(id);
        }
        self.retire_settled(id);
    }

    fn forget_requests(&mut self, id: MinitransactionId) {
        self.outstanding
            .retain(|_, waiting| !matches!(waiting.owner, Owner::Closing(of) if of == id));
    }

    /// A number for a minitransaction (MX1).
    pub(crate) fn open(&mut self) -> MinitransactionId {
        self.numbers += 1;
        self.open.insert(self.numbers);
        MinitransactionId {
            coordinator: self.id,
            number: self.numbers,
        }
    }

    pub(crate) fn close(&mut self, id: MinitransactionId) {
        self.open.remove(&id.number);
    }

    /// The lowest number that may be sent again.
    pub(crate) fn settled(&self) -> u64 {
        self.open.first().copied().unwrap_or(self.numbers + 1)
    }

    pub(crate) fn send_for(&mut self, job: JobId, to: MemnodeId, request: Request) -> Ticket {
        self.send(Owner::Job(job), to, request)
    }

    fn send(&mut self, owner: Owner, to: MemnodeId, request: Request) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let outstanding = Outstanding {
            owner,
            to,
            request: request.clone(),
            ticks: 0,
        };
        self.outstanding.insert(ticket, outstanding);
        self.outbox.push_back((ticket, to, request));
        ticket
    }

    /// Sends nothing more for a job. Returns whom its requests went to.
    pub(crate) fn drop_requests(&mut self, job: JobId) -> Vec<MemnodeId> {
        let dropped = self.outstanding.extract_if(
            ..,
            |_, waiting| matches!(waiting.owner, Owner::Job(of) if of == job),
        );
        dropped.map(|(_, waiting)| waiting.to).collect()
    }

    /// Sends nothing more for a ticket.
    pub(crate) fn drop_ticket(&mut self, ticket: Ticket) {
        self.outstanding.remove(&ticket);
    }

    pub(crate) fn cached(&self, address: Address) -> Option<&SlotState> {
        self.cache.nodes.get(&address)
    }

    pub(crate) fn cache(&mut self, address: Address, state: SlotState) {
        let Cache { nodes, order } = &mut self.cache;
        if nodes.insert(address, state).is_none() {
            order.push_back(address);
        }
        while order.len() > self.config.cached_nodes {
            if let Some(oldest) = order.pop_front() {
                nodes.remove(&oldest);
            }
        }
    }

    pub(crate) fn uncache(&mut self, address: Address) {
        // Its place in the order stays; an address that comes back has two, and leaves early.
        self.cache.nodes.remove(&address);
    }

    /// Forgets a node, unless it has been read since it had this sequence: one that misleads many
    /// of the proxy's transactions is fetched once, not once for each.
    pub(crate) fn uncache_up_to(&mut self, address: Address, sequence: Sequence) {
        if (self.cached(address)).is_some_and(|cached| cached.sequence <= sequence) {
            self.uncache(address);
        }
    }

    pub(crate) fn replica(&self, slot: Slot) -> Option<&Bytes> {
        self.replicas.get(&slot)
    }

    pub(crate) fn set_replica(&mut self, slot: Slot, bytes: Bytes) {
        self.replicas.insert(slot, bytes);
    }

    pub(crate) fn forget_replica(&mut self, slot: Slot) {
        self.replicas.remove(&slot);
    }

    pub(crate) fn know_lineage(&mut self, line: u32, lineage: Arc<Lineage>) {
        if self.lineages_size > LINEAGES_MAX {
            self.lineages.clear();
            self.lineages_size = 0;
        }
        self.lineages_size += lineage.above.len() + 1;
        self.lineages.insert(line, lineage);
    }

    /// The memnode for a new node: the one with the fewest slots in use, in turn.
    pub(crate) fn place(&mut self) -> MemnodeId {
        self.turn = (self.turn + 1) % self.config.memnodes;
        let (turn, all) = (self.turn, self.config.memnodes);
        let order = (0..all).map(|index| (index + turn) % all);
        let least = order.min_by_key(|index| self.pools[usize::from(*index)].used);
        MemnodeId(least.expect("a memnode"))
    }

    pub(crate) fn take_free(&mut self, memnode: MemnodeId) -> Option<Address> {
        let pool = &mut self.pools[usize::from(memnode.0)];
        let (slot, generation) = pool.free.pop_front()?;
        pool.used += 1;
        Some(Address {
            memnode,
            slot,
            generation,
        })
    }

    pub(crate) fn give_back(&mut self, address: Address) {
        let pool = &mut self.pools[usize::from(address.memnode.0)];
        pool.free.push_front((address.slot, address.generation));
        pool.used = pool.used.saturating_sub(1);
    }

    pub(crate) fn stock(&mut self, memnode: MemnodeId, slots: &[(Slot, Sequence)], used: u64) {
        let pool = &mut self.pools[usize::from(memnode.0)];
        pool.free.extend(slots);
        pool.used = used;
    }
}

#[cfg(test)]
mod tests {
    use pando_memnode::{Items, Write};

    use super::*;

    #[derive(Default)]
    struct Sent(Vec<Request>);

    impl Transport for Sent {
        fn send(&mut self, _: Ticket, _: MemnodeId, request: Request) {
            self.0.push(request);
        }

        fn receive(&mut self) -> Option<(Ticket, Reply)> {
            None
        }
    }

    fn execute(proxy: &mut Proxy) -> (MinitransactionId, Ticket) {
        let (id, settled) = (proxy.open(), proxy.settled());
        let items = Items {
            writes: vec![Write::Whole(Slot(1), b"x".as_slice().into())],
            ..Items::default()
        };
        let request = Request::Execute {
            id,
            settled,
            items,
            wait: 0,
        };
        (id, proxy.send_for(JobId(1), MemnodeId(0), request))
    }

    /// Many whom a node misled have one of them fetch it.
    #[test]
    fn a_node_that_was_read_since_stays_cached() {
        let mut proxy = Proxy::new(CoordinatorId::default(), Config::default());
        let address = Address::default();
        let read = |number| SlotState {
            sequence: Sequence(number),
            ..SlotState::default()
        };
        proxy.cache(address, read(7));
        proxy.uncache_up_to(address, Sequence(6));
        assert_eq!(proxy.cached(address), Some(&read(7)));
        proxy.uncache_up_to(address, Sequence(7));
        assert_eq!(proxy.cached(address), None);
    }

    #[test]
    fn what_is_sent_again_says_what_is_settled_by_then() {
        let config = Config {
            resend_ticks: 1,
            ..Config::default()
        };
        let mut proxy = Proxy::new(CoordinatorId::default(), config);
        let (first, ticket) = execute(&mut proxy);
        execute(&mut proxy);
        proxy.drop_ticket(ticket);
        proxy.close(first);
        proxy.flush(&mut Sent::default());
        proxy.tick();
        let mut sent = Sent::default();
        proxy.flush(&mut sent);
        assert!(matches!(sent.0[..], [Request::Execute { settled: 2, .. }]));
    }
}
