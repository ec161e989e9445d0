//! Hosts of a proxy and a memnode each, with their clients, and the service that makes snapshots.

use std::collections::{BTreeMap, HashMap, VecDeque};

use pando_memnode::{CoordinatorId, Memnode, MemnodeId, Reply, Request};
use pando_minuet::{
    BranchId, Collector, Config, Database, Ended, InnerNodes, Job, JobId, Outbox, Proxy,
    SnapshotService, Ticket, View, Wanted,
};

use super::clock::{
    BYTE_NS, Clock, MEMNODE_CORES, MEMNODE_NS, PROXY_CORES, PROXY_NS, Station, TICK_NS, WAY_NS,
};
use super::measured::Measured;
use super::work::{Keys, Out, SCAN_PART, TREES, Work, is_right};
use super::{ClusterOptions, System};
use crate::embedded::threads::thread_seconds;
use crate::embedded::value_of;

/// Snapshots that stay for those who scan at them.
const KEPT: u32 = 64;

/// Slots of each memnode whose inner nodes' sequences the others have.
const SEQUENCES: u32 = 1 << 14;

/// What reaches a proxy.
#[derive(Debug)]
enum Message {
    /// A client's next operation.
    Begin,
    Reply(Ticket, Reply),
    /// A scanner asks the service for a snapshot.
    Ask(usize),
    /// The service's answer.
    Answer(usize, View),
}

#[derive(Debug)]
enum Event {
    /// At a proxy, which has other things to do first.
    Arrive(usize, Message),
    Take(usize, Message),
    /// At a memnode: from this host.
    Request(usize, MemnodeId, Ticket, Request),
    Execute(usize, MemnodeId, Ticket, Request),
    /// Nobody's snapshot.
    Snapshot,
    Tick,
}

/// Whom a job is for.
#[derive(Clone, Copy, Debug)]
enum For {
    Client,
    Scanner(usize),
    Service,
    Collector,
    Nobody,
}

struct Running {
    job: Job<Work>,
    of: For,
    began: u64,
    /// Round trips for which it has waited.
    waited: u64,
    /// Memnodes that it has asked, a bit each.
    asked: u64,
}

struct Host {
    proxy: Proxy,
    station: Station,
    jobs: BTreeMap<JobId, Running>,
    next_job: u64,
    /// Whose request it was, and which round trip.
    outstanding: HashMap<Ticket, (JobId, u64)>,
}

struct Node {
    memnode: Memnode,
    station: Station,
}

/// A client that scans.
struct Scanner {
    host: usize,
    began: u64,
    at: Option<View>,
    from: Vec<u8>,
    left: usize,
}

/// Who waits for a snapshot, and who makes it.
#[derive(Default)]
struct Service {
    sharing: SnapshotService<usize>,
    /// Where nobody shares: one after the other.
    queue: VecDeque<usize>,
    is_making: bool,
}

/// See the module's header.
pub(super) struct World<'o> {
    options: &'o ClusterOptions,
    clock: Clock<Event>,
    nodes: Vec<Node>,
    hosts: Vec<Host>,
    keys: Keys,
    scanners: Vec<Scanner>,
    service: Service,
    collector: Collector,
    measured: Measured,
}

/// The memnodes, when each tree has its keys.
fn loaded(config: Config, keys: &Keys, trees: usize) -> Vec<Memnode> {
    let database = Database::in_process(config);
    let mut database = database.expect("memnodes of this process answer");
    for key in &keys.there {
        for tree in &TREES[..trees] {
            let put = database.run(|transaction| {
                let tip = transaction.tip()?;
                tree.put(transaction, tip, key, &value_of(key).to_le_bytes())
            });
            put.expect("nobody is in the way of the only proxy");
        }
    }
    database.memnodes().memnodes().to_vec()
}

impl<'o> World<'o> {
    pub(super) fn new(options: &'o ClusterOptions) -> Self {
        let keys = Keys::draw(options.keys, options.seed);
        let config = Config {
            memnodes: options.hosts,
            newest_kept: KEPT,
            // Nothing is lost.
            resend_ticks: u32::MAX,
            inner_nodes: if options.system == System::Compared {
                InnerNodes::Compared { slots: SEQUENCES }
            } else {
                InnerNodes::Dirty
            },
            ..Config::default()
        };
        let memnodes = loaded(config, &keys, options.asked.trees());
        let nodes = memnodes.into_iter().map(|memnode| Node {
            memnode,
            station: Station::new(MEMNODE_CORES),
        });
        let host = |host| Host {
            // The loading proxy was the first.
            proxy: Proxy::new(CoordinatorId::of(2 + u32::from(host), 0), config),
            station: Station::new(PROXY_CORES),
            jobs: BTreeMap::new(),
            next_job: 0,
            outstanding: HashMap::new(),
        };
        let last = usize::from(options.hosts) - 1;
        let scanner = |index: usize| Scanner {
            host: last - index % usize::from(options.scan_hosts()),
            began: 0,
            at: None,
            from: Vec::new(),
            left: 0,
        };
        Self {
            clock: Clock::default(),
            nodes: nodes.collect(),
            hosts: (0..options.hosts).map(host).collect(),
            keys,
            scanners: (0..options.scanners).map(scanner).collect(),
            service: Service::default(),
            collector: Collector::new(options.hosts, u64::MAX),
            measured: Measured::new(options),
            options,
        }
    }

    /// Runs all clients until the measurement ends.
    pub(super) fn run(mut self) -> Measured {
        let began = thread_seconds();
        let busy = self.options.busy_hosts.unwrap_or(self.options.hosts);
        for host in 0..usize::from(busy) {
            for _ in 0..self.options.clients {
                self.clock.at(0, Event::Arrive(host, Message::Begin));
            }
        }
        for scanner in 0..self.scanners.len() {
            self.begin_scan(scanner);
        }
        if !self.scanners.is_empty() {
            self.collect();
        }
        if self.options.snapshot {
            self.clock.at(self.measured.begin, Event::Snapshot);
        }
        self.clock.at(TICK_NS, Event::Tick);
        while let Some(event) = self.clock.next_before(self.measured.end) {
            self.happen(event);
        }
        self.measured.processor_seconds = thread_seconds() - began;
        self.measured
    }

    fn happen(&mut self, event: Event) {
        let now = self.clock.now;
        match event {
            Event::Arrive(host, message) => {
                let done = self.hosts[host].station.serve(now, PROXY_NS);
                self.clock.at(done, Event::Take(host, message));
            }
            Event::Take(host, message) => self.take(host, message),
            Event::Request(host, to, ticket, request) => {
                let bytes = request.message_bytes();
                self.measured.carried(now, bytes);
                let station = &mut self.nodes[usize::from(to.0)].station;
                let done = station.serve(now, MEMNODE_NS + BYTE_NS * bytes as u64);
                self.clock
                    .at(done, Event::Execute(host, to, ticket, request));
            }
            Event::Execute(host, to, ticket, request) => {
                let mut replies = Vec::new();
                let token = (ticket.0 << 16) | host as u64;
                let node = &mut self.nodes[usize::from(to.0)];
                node.memnode.handle(token, request, &mut replies);
                self.answer(usize::from(to.0), replies);
            }
            Event::Snapshot => self.start(0, Work::Snapshot, For::Nobody, now),
            Event::Tick => self.tick(),
        }
    }

    fn answer(&mut self, from: usize, replies: Vec<(u64, Reply)>) {
        let now = self.clock.now;
        for (token, reply) in replies {
            let bytes = reply.message_bytes();
            self.measured.carried(now, bytes);
            let sent = self.nodes[from].station.serve(now, BYTE_NS * bytes as u64);
            let (host, ticket) = ((token & 0xffff) as usize, Ticket(token >> 16));
            let message = Message::Reply(ticket, reply);
            self.clock.at(sent + WAY_NS, Event::Arrive(host, message));
        }
    }

    fn tick(&mut self) {
        for which in 0..self.nodes.len() {
            let mut replies = Vec::new();
            self.nodes[which].memnode.tick(&mut replies);
            self.answer(which, replies);
        }
        for which in 0..self.hosts.len() {
            let ids: Vec<_> = self.hosts[which].jobs.keys().copied().collect();
            for id in ids {
                let Host { proxy, jobs, .. } = &mut self.hosts[which];
                let running = jobs.get_mut(&id).expect("a job");
                let ended = running.job.tick(proxy);
                self.stepped(which, id, ended);
            }
        }
        self.clock.at(self.clock.now + TICK_NS, Event::Tick);
    }

    fn take(&mut self, host: usize, message: Message) {
        let now = self.clock.now;
        match message {
            Message::Begin => {
                let asked = self.options.asked;
                let keys = self.keys.of(asked);
                let is_read = asked.is_read();
                // The time at the proxy counts.
                let began = now - PROXY_NS;
                self.start(host, Work::Rows { is_read, keys }, For::Client, began);
            }
            Message::Reply(ticket, reply) => {
                let Host {
                    proxy,
                    jobs,
                    outstanding,
                    ..
                } = &mut self.hosts[host];
                let counted = outstanding.remove(&ticket);
                let Some((id, from)) = proxy.receive(ticket, &reply) else {
                    return self.flush(host, None);
                };
                let Some(running) = jobs.get_mut(&id) else {
                    return self.flush(host, None);
                };
                running.waited = running.waited.max(counted.map_or(0, |(_, trip)| trip));
                let ended = running.job.receive(proxy, ticket, from, reply);
                self.stepped(host, id, ended);
            }
            Message::Ask(scanner) => self.ask(scanner),
            Message::Answer(scanner, view) => {
                self.scanners[scanner].at = Some(view);
                self.scan_on(scanner);
            }
        }
    }

    fn start(&mut self, host: usize, work: Work, of: For, began: u64) {
        let Host {
            proxy,
            jobs,
            next_job,
            ..
        } = &mut self.hosts[host];
        *next_job += 1;
        let id = JobId(*next_job);
        let mut job = Job::new(id, work);
        let ended = job.start(proxy);
        let running = Running {
            job,
            of,
            began,
            waited: 0,
            asked: 0,
        };
        jobs.insert(id, running);
        self.stepped(host, id, ended);
    }

    /// A job has sent something, or ended.
    fn stepped(&mut self, host: usize, id: JobId, ended: Option<Ended<Work>>) {
        self.flush(host, Some(id));
        if let Some(ended) = ended {
            let running = self.hosts[host].jobs.remove(&id).expect("a job");
            self.ended(host, &running, ended);
        }
    }

    /// What a proxy sends, for a job or for nobody.
    fn flush(&mut self, which: usize, of: Option<JobId>) {
        let mut outbox = Outbox::default();
        let host = &mut self.hosts[which];
        host.proxy.flush(&mut outbox);
        for (ticket, to, request) in outbox.0 {
            if let Some(id) = of {
                let running = host.jobs.get_mut(&id).expect("a job");
                running.asked |= 1 << to.0;
                host.outstanding.insert(ticket, (id, running.waited + 1));
            }
            let event = Event::Request(which, to, ticket, request);
            self.clock.at(self.clock.now + WAY_NS, event);
        }
    }

    fn ended(&mut self, host: usize, running: &Running, ended: Ended<Work>) {
        let now = self.clock.now;
        match (running.of, ended) {
            (For::Client, ended) => {
                let is_right = matches!(ended, Ok(Out::Rows { is_right: true }));
                self.measured.wrong += u64::from(!is_right);
                let memnodes = u64::from(running.asked.count_ones());
                let trips = running.waited;
                self.measured.ended(now, running.began, trips, memnodes);
                self.clock.at(now, Event::Arrive(host, Message::Begin));
            }
            (For::Scanner(scanner), Ok(Out::Scanned(scanned))) => {
                self.measured.wrong += u64::from(!is_right(&scanned));
                let count = scanned.entries.len();
                if self.measured.counts(now) {
                    self.measured.keys_scanned += count as u64;
                }
                let this = &mut self.scanners[scanner];
                this.left = this.left.saturating_sub(count);
                // Beyond the last key it goes on with the first.
                this.from = scanned.next.unwrap_or_default();
                self.scan_on(scanner);
            }
            (For::Service, Ok(Out::Made(view))) => {
                self.measured.snapshots += u64::from(self.measured.counts(now));
                self.service.is_making = false;
                for scanner in self.service.sharing.made(BranchId::FIRST, Some(view)) {
                    self.tell(scanner, view);
                }
                self.make_next();
            }
            (For::Nobody, Ok(Out::Made(_))) => self.measured.snapshots += 1,
            (For::Collector, Ok(Out::Collected(done))) => {
                self.collector.done(now, done);
                self.collect();
            }
            (of, ended) => {
                debug_assert!(false, "{of:?}: {ended:?}");
                self.measured.wrong += 1;
            }
        }
    }

    fn collect(&mut self) {
        let step = self.collector.step().clone();
        self.start(0, Work::Collect(step), For::Collector, self.clock.now);
    }

    fn begin_scan(&mut self, scanner: usize) {
        let from = self.keys.from();
        let this = &mut self.scanners[scanner];
        this.began = self.clock.now;
        this.at = None;
        this.from = from;
        this.left = self.options.scanned;
        let event = Event::Arrive(0, Message::Ask(scanner));
        self.clock.at(self.clock.now + WAY_NS, event);
    }

    /// The next part of a scan, or the next scan.
    fn scan_on(&mut self, scanner: usize) {
        let now = self.clock.now;
        let this = &self.scanners[scanner];
        if this.left == 0 {
            if self.measured.counts(now) {
                self.measured.scans += 1;
                self.measured.scan_ns += now - this.began;
            }
            return self.begin_scan(scanner);
        }
        let work = Work::Scan {
            at: this.at.expect("a snapshot"),
            from: this.from.clone(),
            limit: this.left.min(SCAN_PART),
        };
        self.start(this.host, work, For::Scanner(scanner), now);
    }

    fn tell(&mut self, scanner: usize, view: View) {
        let host = self.scanners[scanner].host;
        let event = Event::Arrive(host, Message::Answer(scanner, view));
        self.clock.at(self.clock.now + WAY_NS, event);
    }

    /// Somebody asks the service (Figure 7).
    fn ask(&mut self, scanner: usize) {
        if self.options.borrows_none {
            self.service.queue.push_back(scanner);
        } else {
            let staleness = self.options.staleness_us * 1000;
            if let Some(view) = self.request(scanner, staleness) {
                return self.tell(scanner, view);
            }
        }
        self.make_next();
    }

    /// A request that comes now; returns what it may borrow.
    fn request(&mut self, scanner: usize, staleness: u64) -> Option<View> {
        let sharing = &mut self.service.sharing;
        let wanted = Wanted {
            came: sharing.begun(),
            now: self.clock.now,
            staleness,
        };
        let served = sharing.request(BranchId::FIRST, scanner, wanted);
        served.map(|(_, view)| view)
    }

    fn make_next(&mut self) {
        if self.service.is_making {
            return;
        }
        let now = self.clock.now;
        if let Some(scanner) = self.service.queue.pop_front() {
            let served = self.request(scanner, 0);
            debug_assert!(served.is_none(), "nobody gets an old one");
        }
        if self.service.sharing.begin(BranchId::FIRST, now) {
            self.service.is_making = true;
            self.start(0, Work::Snapshot, For::Service, now);
        }
    }
}
