//! The scheduler: proxies, memnodes, messages between them, crashes.

mod bound;
mod building;
mod draw;
mod judge;
mod lending;
mod outcome;

use std::collections::{BTreeMap, BTreeSet};

use pando_memnode::{CoordinatorId, Limits, Memnode, MemnodeId, MinitransactionId, Reply, Request};

use super::history::{History, Ran};
use super::script::{Effects, Script, Work};
use crate::branch::BranchId;
use crate::collect::Collector;
use crate::job::Job;
use crate::lease::LeaseId;
use crate::limits::{Config, DESCENDANTS_MAX, DESCENDANTS_MIN, InnerNodes};
use crate::proxy::{JobId, Proxy};
use crate::snapshot::View;
use crate::transport::{Outbox, Ticket};
use crate::tree::Diffed;
use bound::Bounds;
use building::Site;
use lending::{Asked, Lending};

/// Something that must not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("seed {seed}: {what}")]
pub struct Violation {
    /// The seed that shows it.
    pub seed: u64,
    /// What it is.
    pub what: String,
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Transactions that committed.
    pub committed: usize,
    /// Transactions that committed though their client never heard of it.
    pub unheard: usize,
    /// Messages that arrived.
    pub messages: usize,
    /// Crashes, of anyone.
    pub crashes: usize,
    /// Pages that were collected.
    pub collected: u64,
    /// Branches that became the ones that large merges had built for them.
    pub adopted: usize,
    /// Snapshots that clients borrowed from each other.
    pub borrowed: usize,
}

/// Faults of the world, not of the code in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// None.
    Nothing,
    /// A memnode that crashes forgets the vote that it gave last.
    LostVote,
    /// A repeated request looks like a new one.
    Repeated,
    /// Memnodes are not told that a coordinator is dead.
    Unretired,
    /// A branch becomes the hidden one that was built for it, without what was written to it since.
    Overtaken,
}

/// Ticks come this often.
const TICK: u64 = 20;

#[derive(Clone, Copy, Debug)]
struct Weather {
    /// Of ten thousand messages, how many.
    lost: u32,
    repeated: u32,
    slow: u32,
    /// Of ten thousand steps, how many crash somebody.
    crashes: u32,
}

/// A proxy in one of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Life {
    host: usize,
    life: u64,
}

#[derive(Clone, Debug)]
enum Message {
    Request {
        from: Life,
        ticket: Ticket,
        to: MemnodeId,
        request: Request,
    },
    Reply {
        to: Life,
        ticket: Ticket,
        reply: Reply,
    },
    /// To the snapshot service.
    Ask(Asked),
    /// From there.
    Lent(Asked, View),
    /// Within the service's host.
    Made(Life, BranchId, Option<View>),
}

struct Running {
    job: Job<Script>,
    begin: u64,
}

/// A transaction whose client will not hear how it ended.
struct Unheard {
    ran: Ran,
    effects: Effects,
    of: Life,
    committed: bool,
}

/// A lease of a client.
#[derive(Clone, Copy, Debug)]
struct Held {
    id: LeaseId,
    view: View,
    /// It stands until then, whatever the collector does; 0 while it is being taken.
    until: u64,
}

struct Host {
    proxy: Proxy,
    /// A view of the tip that its clients hold, perhaps an old one.
    held: Option<View>,
    /// A lease that a client holds, or is about to.
    lease: Option<Held>,
    life: u64,
    jobs: BTreeMap<JobId, Running>,
    next_job: u64,
}

/// A branch, as clients know it.
#[derive(Clone, Debug)]
struct Known {
    id: BranchId,
    name: Vec<u8>,
}

impl Known {
    fn first() -> Self {
        Self {
            id: BranchId::FIRST,
            name: b"main".to_vec(),
        }
    }
}

struct Node {
    memnode: Memnode,
    /// Before the last vote.
    before: Memnode,
    /// When it is back.
    down_until: u64,
    bounds: Bounds,
}

/// See the module's header.
pub(crate) struct World {
    seed: u64,
    planted: Planted,
    random: fastrand::Rng,
    weather: Weather,
    config: Config,
    now: u64,
    nodes: Vec<Node>,
    hosts: Vec<Host>,
    lives: u64,
    messages: BTreeMap<(u64, u64), Message>,
    sent: u64,
    jobs_max: usize,
    started: usize,
    transactions: usize,
    numbers: u64,
    history: History,
    /// Snapshots that clients know.
    snapshots: Vec<View>,
    /// Branches that they know, the first one first, and those that somebody began to drop.
    branches: Vec<Known>,
    dropping: BTreeSet<BranchId>,
    /// A large merge that is under way.
    site: Option<Site>,
    /// Transactions whose coordinator crashed, or gave them up, while they committed.
    unheard: BTreeMap<MinitransactionId, Unheard>,
    /// By host, the first life that is not known to be over.
    over: BTreeMap<usize, u64>,
    collector: Collector,
    /// The step of the collection that is under way.
    collecting: Option<(Life, JobId)>,
    lease_time: u64,
    lending: Lending,
    /// What the last comparison of two snapshots found.
    diffed: Diffed,
    report: Report,
}

/// Whether a seed's world compares the inner nodes on its ways.
pub(crate) fn compares_inner_nodes(seed: u64) -> bool {
    seed % 8 == 7
}

/// Attempts that follow each other at once in a seed's world: one, or all, since pauses keep
/// transactions apart, and some faults show only where they meet.
fn at_once(seed: u64) -> u32 {
    if matches!(seed % 8, 1 | 3 | 5) {
        1
    } else {
        u32::MAX
    }
}

/// The settings of a seed's proxies.
fn settings(seed: u64, random: &mut fastrand::Rng) -> Config {
    Config {
        memnodes: random.u16(1..=4),
        page_bytes: [448, 512, 768][random.usize(0..3)],
        cached_nodes: [16, 1000][random.usize(0..2)],
        reserved: random.u32(1..8),
        resend_ticks: 4,
        wait_ticks: 8,
        patience: random.u32(1..6),
        at_once: at_once(seed),
        newest_kept: random.u32(0..5),
        descendants_max: random.u8(DESCENDANTS_MIN..=DESCENDANTS_MAX),
        inner_nodes: if compares_inner_nodes(seed) {
            InnerNodes::Compared { slots: 1 << 12 }
        } else {
            InnerNodes::Dirty
        },
    }
}

impl World {
    pub(crate) fn new(seed: u64, transactions: usize, planted: Planted) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let stormy = [0, 1, 1, 3][random.usize(0..4)];
        let weather = Weather {
            lost: stormy * random.u32(0..100),
            repeated: stormy * random.u32(0..150),
            slow: stormy * random.u32(0..200),
            crashes: stormy * random.u32(0..8),
        };
        let config = settings(seed, &mut random);
        let limits = Limits {
            slots_fixed: config.slots_fixed(),
            slots_max: 1 << 20,
            reservations_max: 64,
            waiting_max: 8,
            outcomes_max: 64,
        };
        let memnode = Memnode::new(limits);
        let lease_time = random.u64(300..4000);
        let node = |_| Node {
            memnode: memnode.clone(),
            before: memnode.clone(),
            down_until: 0,
            bounds: Bounds::default(),
        };
        let mut world = Self {
            seed,
            planted,
            weather,
            now: 0,
            nodes: (0..config.memnodes).map(node).collect(),
            hosts: Vec::new(),
            lives: 0,
            messages: BTreeMap::new(),
            sent: 0,
            jobs_max: random.usize(1..5),
            started: 0,
            transactions,
            numbers: 0,
            history: History::default(),
            snapshots: Vec::new(),
            branches: vec![Known::first()],
            dropping: BTreeSet::new(),
            site: None,
            unheard: BTreeMap::new(),
            collector: Collector::new(config.memnodes, lease_time),
            collecting: None,
            lease_time,
            lending: Lending::of(seed),
            diffed: Diffed::default(),
            over: BTreeMap::new(),
            report: Report::default(),
            config,
            random,
        };
        world.history.branches.insert(BranchId::FIRST, 0);
        for _ in 0..world.random.usize(1..=4) {
            let host = world.host(world.hosts.len());
            world.hosts.push(host);
        }
        world
    }

    /// Another life of a host.
    fn host(&mut self, which: usize) -> Host {
        self.lives += 1;
        let id = CoordinatorId::of(which as u32, self.lives as u32);
        Host {
            proxy: Proxy::new(id, self.config),
            held: None,
            lease: None,
            life: self.lives,
            jobs: BTreeMap::new(),
            next_job: 0,
        }
    }

    fn violation(&self, what: impl Into<String>) -> Violation {
        Violation {
            seed: self.seed,
            what: what.into(),
        }
    }

    /// Runs everything, heals, and judges.
    pub(crate) fn run(mut self) -> Result<Report, Violation> {
        let weather = self.weather;
        let calm = Weather {
            lost: 0,
            repeated: 0,
            slow: 0,
            crashes: 0,
        };
        self.weather = calm;
        for work in [Work::Found, Work::Fund] {
            self.start(0, (work, BranchId::FIRST))?;
            self.rest()?;
        }
        self.weather = weather;
        let mut patience = 3_000 * self.transactions as u64;
        while self.started < self.transactions {
            self.step()?;
            patience -= 1;
            if patience == 0 {
                return Err(self.violation("no progress"));
            }
        }
        self.weather = calm;
        self.rest()?;
        for unheard in std::mem::take(&mut self.unheard).into_values() {
            if unheard.committed {
                self.report.unheard += 1;
                self.ran(unheard.ran, &unheard.effects);
            }
        }
        self.collect_all()?;
        self.compare_all()?;
        self.judge()
    }

    /// Goes on until nothing is under way, settling what the dead left behind.
    fn rest(&mut self) -> Result<(), Violation> {
        for _ in 0..200_000 {
            let idle = self
                .hosts
                .iter()
                .all(|host| host.jobs.is_empty() && host.proxy.is_quiet());
            if idle && self.messages.is_empty() {
                if self.nodes.iter().all(|node| node.memnode.is_quiet()) {
                    return Ok(());
                }
                self.settle_all();
            }
            self.pass_time()?;
        }
        Err(self.violation("it does not come to rest"))
    }

    fn settle_all(&mut self) {
        let mut replies = Vec::new();
        for node in &mut self.nodes {
            node.memnode.handle(0, Request::InDoubt, &mut replies);
        }
        for (_, reply) in replies {
            if let Reply::InDoubt(doubts) = reply {
                for doubt in &doubts {
                    self.hosts[0].proxy.settle(doubt);
                }
            }
        }
        self.flush(0);
    }

    fn step(&mut self) -> Result<(), Violation> {
        let host = self.random.usize(0..self.hosts.len());
        if self.hosts[host].jobs.len() < self.jobs_max && self.random.u32(0..4) == 0 {
            let on = self.draw_on();
            let work = match self.random.u32(0..120) {
                0..12 => self.draw_kept(host),
                12..20 => self.draw_branches(on),
                _ => self.draw(),
            };
            let work = (work, on);
            self.start(host, work)?;
        }
        if self.collecting.is_none() && self.random.u32(0..16) == 0 {
            self.collect(host)?;
        }
        self.build(host)?;
        self.ask(host);
        if self.random.u32(0..10_000) < self.weather.crashes {
            self.crash();
        }
        if self.random.u32(0..10_000) < self.weather.crashes {
            self.go();
        }
        self.pass_time()
    }

    /// The next message arrives, or a tick passes.
    fn pass_time(&mut self) -> Result<(), Violation> {
        let due = self.messages.first_key_value().map(|(at, _)| *at);
        let tick = (self.now / TICK + 1) * TICK;
        match due {
            Some(due) if due.0 < tick => {
                self.now = self.now.max(due.0);
                let message = self.messages.remove(&due).expect("the first");
                self.report.messages += 1;
                self.deliver(message)
            }
            _ => {
                self.now = tick;
                self.tick()
            }
        }
    }

    fn tick(&mut self) -> Result<(), Violation> {
        for which in 0..self.nodes.len() {
            let mut replies = Vec::new();
            self.nodes[which].memnode.tick(&mut replies);
            if !replies.is_empty() {
                self.note_all_commits(which)?;
                self.check_bounds(which)?;
            }
            self.answer(replies);
        }
        for which in 0..self.hosts.len() {
            let host = &mut self.hosts[which];
            host.proxy.tick();
            let jobs: Vec<_> = host.jobs.keys().copied().collect();
            for id in jobs {
                let host = &mut self.hosts[which];
                let running = host.jobs.get_mut(&id).expect("a job");
                let ended = running.job.tick(&mut host.proxy);
                self.ended(which, id, ended)?;
            }
            self.flush(which);
        }
        Ok(())
    }

    fn crash(&mut self) {
        self.report.crashes += 1;
        if self.random.bool() {
            let which = self.random.usize(0..self.nodes.len());
            let down_until = self.now + self.random.u64(1..200);
            let node = &mut self.nodes[which];
            if self.planted == Planted::LostVote {
                node.memnode = node.before.clone();
            }
            node.memnode = node.memnode.clone().restarted();
            node.down_until = down_until;
            return;
        }
        let which = self.random.usize(0..self.hosts.len());
        let fresh = self.host(which);
        let dead = std::mem::replace(&mut self.hosts[which], fresh);
        if self.collecting.is_some_and(|(life, _)| life.host == which) {
            self.collecting = None;
            self.collector = Collector::new(self.config.memnodes, self.lease_time);
        }
        self.leave_site(|(life, _)| life.host == which);
        if which == 0 {
            self.lending.crash();
        }
        for running in dead.jobs.into_values() {
            self.unhear(which, dead.life, &running);
        }
        self.flush(which);
    }

    /// A client goes before its transaction is over.
    fn go(&mut self) {
        let which = self.random.usize(0..self.hosts.len());
        let host = &mut self.hosts[which];
        let life = host.life;
        if let Some((id, running)) = host.jobs.pop_first() {
            if self
                .collecting
                .is_some_and(|(of, job)| of.host == which && job == id)
            {
                self.collecting = None;
            }
            if matches!(running.job.program().work, Work::Lease { .. }) {
                self.hosts[which].lease = None;
            }
            self.leave_site(|(of, job)| of.host == which && job == id);
            self.lending.gave_up((Life { host: which, life }, id));
            self.unhear(which, life, &running);
            running.job.abandon(&mut self.hosts[which].proxy);
        }
        self.flush(which);
    }

    fn start(&mut self, which: usize, (work, on): (Work, BranchId)) -> Result<(), Violation> {
        self.started += 1;
        self.now += 1;
        let held = self.hosts[which].held.take();
        let held = held.filter(|_| matches!(work, Work::Registers { .. } | Work::Scan { .. }));
        let on = held.and_then(|view| view.branch()).unwrap_or(on);
        let host = &mut self.hosts[which];
        host.next_job += 1;
        let id = JobId(host.next_job);
        let mut job = Job::new(id, Script::new(work, on, held));
        let ended = job.start(&mut host.proxy);
        host.jobs.insert(
            id,
            Running {
                job,
                begin: self.now,
            },
        );
        self.ended(which, id, ended)?;
        self.flush(which);
        Ok(())
    }

    fn flush(&mut self, which: usize) {
        let mut outbox = Outbox::default();
        let host = &mut self.hosts[which];
        host.proxy.flush(&mut outbox);
        let from = Life {
            host: which,
            life: host.life,
        };
        for (ticket, to, request) in outbox.0 {
            self.post(Message::Request {
                from,
                ticket,
                to,
                request,
            });
        }
    }

    fn answer(&mut self, replies: Vec<(u64, Reply)>) {
        for (token, reply) in replies {
            let host = (token & 0xff) as usize;
            let to = Life {
                host,
                life: (token >> 8) & 0xff_ffff,
            };
            self.post(Message::Reply {
                to,
                ticket: Ticket(token >> 32),
                reply,
            });
        }
    }

    /// Puts a message on its way, or not, or twice.
    fn post(&mut self, message: Message) {
        let Weather {
            lost,
            repeated,
            slow,
            ..
        } = self.weather;
        if self.random.u32(0..10_000) < lost {
            return;
        }
        if self.random.u32(0..10_000) < repeated {
            let mut copy = message.clone();
            if self.planted == Planted::Repeated {
                renumber(&mut copy);
            }
            self.enqueue(copy, 400);
        }
        let delay = if self.random.u32(0..10_000) < slow {
            400
        } else {
            12
        };
        self.enqueue(message, delay);
    }

    fn enqueue(&mut self, message: Message, delay: u64) {
        self.sent += 1;
        let at = self.now + self.random.u64(1..=delay);
        self.messages.insert((at, self.sent), message);
    }

    fn deliver(&mut self, message: Message) -> Result<(), Violation> {
        match message {
            Message::Request {
                from,
                ticket,
                to,
                request,
            } => {
                let which = usize::from(to.0);
                let node = &mut self.nodes[which];
                if node.down_until > self.now {
                    return Ok(());
                }
                let written = node.bounds.written_by(&request);
                let about = match &request {
                    Request::Execute { id, .. }
                    | Request::Prepare { id, .. }
                    | Request::Decide { id, .. } => Some(*id),
                    _ => None,
                };
                if let Request::Forget { host, below } = request {
                    let over = self.over.entry(host as usize).or_default();
                    *over = (*over).max(u64::from(below));
                }
                if matches!(request, Request::Prepare { .. }) && self.planted == Planted::LostVote {
                    node.before = node.memnode.clone();
                }
                let token = (ticket.0 << 32) | (from.life << 8) | from.host as u64;
                let mut replies = Vec::new();
                let retires = matches!(request, Request::Retire { .. } | Request::Forget { .. });
                if retires && self.planted == Planted::Unretired {
                    replies.push((token, Reply::InDoubt(Vec::new())));
                } else {
                    node.memnode.handle(token, request, &mut replies);
                }
                match about {
                    _ if replies.len() > 1 => {
                        self.note_all_commits(which)?;
                        self.check_bounds(which)?;
                    }
                    Some(id) => {
                        self.note_commits(which, id)?;
                        self.check_bounds_of(which, &written)?;
                    }
                    None => {}
                }
                self.answer(replies);
                Ok(())
            }
            Message::Reply { to, ticket, reply } => {
                let host = &mut self.hosts[to.host];
                if host.life != to.life {
                    return Ok(());
                }
                if let Some((id, from)) = host.proxy.receive(ticket, &reply)
                    && let Some(running) = host.jobs.get_mut(&id)
                {
                    let ended = running.job.receive(&mut host.proxy, ticket, from, reply);
                    self.ended(to.host, id, ended)?;
                }
                self.flush(to.host);
                Ok(())
            }
            Message::Ask(asked) => self.asked(asked),
            Message::Lent(asked, view) => self.lent(asked, view),
            Message::Made(life, branch, view) => self.heard(life, branch, view),
        }
    }
}

/// Makes a repeated request one that no memnode has seen.
fn renumber(message: &mut Message) {
    if let Message::Request { request, .. } = message
        && let Request::Execute { id, .. } | Request::Prepare { id, .. } = request
    {
        id.coordinator.0 += 1_000_000;
    }
}
