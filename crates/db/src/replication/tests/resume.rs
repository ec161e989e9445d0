//! Three servers whose power ends, which are restored from copies, promoted, and which go on where
//! they stood: at the end all have what the last primary has.

use std::time::Duration;

use super::branches::{all_content, change, is_of_passing};
use super::differences::PoolFile;
use super::*;
use crate::commands::testing::START_MS;
use crate::durable::testing;
use crate::persistence::CheckpointOptions;
use crate::{Acknowledged, CheckStep, CheckWish, CopyReason, Database, LogEpoch, Verdict};

pub(super) const NODES: usize = 3;

/// A server.
struct Node {
    engine: EngineKind,
    /// Where it keeps its data, if it does.
    files: Option<Files>,
    /// Taken while it is down.
    shell: Option<Shell>,
    /// Its link to the primary.
    link: Option<Link>,
}

struct Link {
    source: Option<Source>,
    replica: Replica,
    wire: VecDeque<Vec<u8>>,
}

/// What outlives a server.
enum Files {
    Disk(SimulatedDisk),
    Pool(PoolFile),
}

impl Files {
    fn new(engine: EngineKind) -> Self {
        if engine.has_pool() {
            Self::Pool(PoolFile::new())
        } else {
            Self::Disk(SimulatedDisk::new())
        }
    }

    /// What is left when the power, or the process, ends.
    fn crash(&self, seed: u64) -> Self {
        match self {
            Self::Disk(disk) => Self::Disk(disk.crash(seed)),
            Self::Pool(pool) => Self::Pool(pool.copy()),
        }
    }

    fn copy(&self) -> Self {
        match self {
            Self::Disk(disk) => Self::Disk(disk.copy()),
            Self::Pool(pool) => Self::Pool(pool.copy()),
        }
    }
}

fn open(files: Option<&Files>, engine: EngineKind) -> Shell {
    let options = match files {
        None => return shell(engine),
        Some(Files::Disk(disk)) => options_on(disk, engine),
        Some(Files::Pool(pool)) => pool.options(),
    };
    Shell::on_disk(options, START_MS).expect("what is on disk can be recovered")
}

impl Node {
    fn new(kept: bool, engine: EngineKind) -> Self {
        let files = kept.then(|| Files::new(engine));
        Self {
            shell: Some(open(files.as_ref(), engine)),
            engine,
            files,
            link: None,
        }
    }

    fn shell(&mut self) -> &mut Shell {
        self.shell.as_mut().expect("it is up")
    }

    fn database(&self) -> &Arc<Database> {
        &self.shell.as_ref().expect("it is up").database
    }

    /// How far it is in what it follows.
    fn position(&self) -> Option<Position> {
        self.link.as_ref().and_then(|link| link.replica.position())
    }

    fn follow(&mut self) {
        if self.link.is_none() {
            self.shell().line("SELECT 0");
            let database = Arc::clone(self.database());
            let set = database.set_follows(true, Refusal::ReadOnly);
            set.expect("a session is free");
            self.link = Some(Link {
                source: None,
                replica: Replica::new(&database).expect("a session is free"),
                wire: VecDeque::new(),
            });
        }
        self.link.as_mut().expect("there is one").cut();
    }

    fn promote(&mut self) {
        self.link = None;
        let set = self.database().set_follows(false, Refusal::Nothing);
        set.expect("a session is free");
    }
}

impl Link {
    fn cut(&mut self) {
        self.source = None;
        self.wire.clear();
        self.replica.cut_off();
    }
}

/// Three servers, one of which is the primary.
pub(super) struct Servers {
    nodes: Vec<Node>,
    primary: usize,
    kept: bool,
    /// An earlier copy of a server's disk.
    copy: Option<(usize, Files)>,
    /// How often a stream went on, and why others were full copies.
    pub(super) resumed: usize,
    pub(super) copies: Vec<CopyReason>,
    /// A reader has seen half of a transaction.
    torn: bool,
}

impl Servers {
    fn new(kept: bool) -> Self {
        Self::of(kept, [EngineKind::Masstree; NODES])
    }

    fn of(kept: bool, engines: [EngineKind; NODES]) -> Self {
        let mut servers = Self {
            nodes: engines.map(|engine| Node::new(kept, engine)).into(),
            primary: 0,
            kept,
            copy: None,
            resumed: 0,
            copies: Vec::new(),
            torn: false,
        };
        servers.point();
        servers
    }

    /// Everybody follows the primary.
    fn point(&mut self) {
        for (index, node) in self.nodes.iter_mut().enumerate() {
            if index == self.primary {
                node.promote();
            } else {
                node.follow();
            }
        }
    }

    fn is_branched(&self) -> bool {
        self.nodes[0].engine == EngineKind::Minuet
    }

    fn replica(&self, random: &mut Rng) -> usize {
        let index = random.usize(0..NODES - 1);
        index + usize::from(index >= self.primary)
    }

    /// Sends a replica its next message; `false`: there is none.
    fn send(&mut self, index: usize) -> bool {
        let primary = Arc::clone(self.nodes[self.primary].database());
        let link = self.nodes[index].link.as_mut().expect("it follows");
        if link.source.is_none() {
            link.replica.force();
            primary.keep_histories().expect("there is power");
            let source = Source::new(&primary, link.replica.position(), true);
            let source = source.expect("a session is free");
            match source.copies() {
                None => self.resumed += 1,
                Some(reason) => self.copies.push(reason),
            }
            link.source = Some(source);
        }
        let mut message = Vec::new();
        let source = link.source.as_mut().expect("there is one");
        match source.next_whole(&mut message) {
            Sent::Message => link.wire.push_back(message),
            Sent::Nothing => return false,
            Sent::Gone => link.cut(),
            // On a check.
            Sent::Worked => {}
            Sent::Epoch(_) => unreachable!("messages are whole"),
        }
        true
    }

    fn deliver(&mut self, index: usize) -> Result<(), ReplicationError> {
        let link = self.nodes[index].link.as_mut().expect("it follows");
        let Some(message) = link.wire.pop_front() else {
            return Ok(());
        };
        let taken = link.replica.take(&message);
        if taken.is_err() {
            link.cut();
        }
        let shell = self.nodes[index].shell();
        if !shell.database.awaits_copy() {
            self.torn |= shell.line("GET {pair}a") != shell.line("GET {pair}b");
        }
        match taken {
            Err(error) if is_of_passing(&error) => Ok(()),
            taken => taken,
        }
    }

    /// Its power ends, or it is restored from a copy of its disk.
    fn restart(&mut self, index: usize, files: Option<Files>) {
        for node in &mut self.nodes {
            if let Some(link) = &mut node.link {
                link.cut();
            }
        }
        let node = &mut self.nodes[index];
        node.link = None;
        node.shell = None;
        node.shell = Some(open(files.as_ref(), node.engine));
        node.files = files;
        self.point();
    }

    fn crash(&mut self, index: usize, seed: u64) {
        let files = self.nodes[index].files.as_ref();
        let files = files.map(|files| files.crash(seed));
        self.restart(index, files);
    }

    /// One step; an error is what the network may not cause.
    fn step(&mut self, random: &mut Rng) -> Result<(), ReplicationError> {
        let any = random.usize(0..NODES);
        match random.u32(0..1000) {
            0..=99 if self.is_branched() => {
                change(self.nodes[self.primary].shell(), random);
            }
            0..=399 => write(self.nodes[self.primary].shell(), random),
            400..=499 => self.nodes[any].database().end_epoch(),
            500..=699 => {
                let replica = self.replica(random);
                self.send(replica);
            }
            700..=939 => {
                let replica = self.replica(random);
                self.deliver(replica)?;
            }
            940..=954 => {
                let replica = self.replica(random);
                self.nodes[replica].link.as_mut().expect("it follows").cut();
            }
            955..=959 => {
                let _busy = self.nodes[any]
                    .database()
                    .checkpoint(&CheckpointOptions::default());
            }
            960..=969 => {
                // The primary is fenced, or not; whoever follows best takes its place.
                let position = |index: &usize| {
                    let position = self.nodes[*index].position();
                    position.map_or(LogEpoch::NONE, |position| position.epoch)
                };
                let replicas = (0..NODES).filter(|index| *index != self.primary);
                self.primary = replicas.max_by_key(position).expect("there are two");
                self.point();
            }
            // In memory, nothing of its histories is left.
            970..=979 if self.kept || any == self.primary && random.u8(0..8) == 0 => {
                self.crash(any, random.u64(..));
            }
            980..=984 if self.kept => {
                let files = self.nodes[any].files.as_ref().expect("it has some");
                self.copy = Some((any, files.copy()));
            }
            985..=987 => {
                if let Some((index, files)) = self.copy.take() {
                    self.restart(index, Some(files.crash(0)));
                }
            }
            988..=990 if self.kept => {
                // A replica begins with a copy of the primary's files.
                let (replica, seed) = (self.replica(random), random.u64(..));
                let primary = &self.nodes[self.primary];
                if primary.engine == self.nodes[replica].engine {
                    let files = primary.files.as_ref().expect("it has some");
                    let files = files.copy().crash(seed);
                    self.restart(replica, Some(files));
                }
            }
            _ => {
                let bytes = random.usize(0..20_000);
                self.nodes[any].database().set_backlog_bytes_max(bytes);
                self.nodes[any].database().set_log_hold(bytes as u64);
            }
        }
        Ok(())
    }

    /// Delivers everything.
    fn settle(&mut self) -> Result<(), ReplicationError> {
        let primary = self.primary;
        for replica in (0..NODES).filter(|index| *index != primary) {
            for round in 0.. {
                assert!(round < 20_000, "it goes on for ever: {:?}", self.copies);
                self.nodes[self.primary].database().end_epoch();
                let sent = self.send(replica);
                self.deliver(replica)?;
                let link = self.nodes[replica].link.as_ref().expect("it follows");
                if !sent && link.wire.is_empty() && !link.replica.is_loading() {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// One run; an error says that the servers differ at the end, or that one refused what came.
fn run(seed: u64, kept: bool) -> Result<Servers, String> {
    run_of(seed, kept, [EngineKind::Masstree; NODES])
}

pub(super) fn run_of(
    seed: u64,
    kept: bool,
    engines: [EngineKind; NODES],
) -> Result<Servers, String> {
    let mut random = Rng::with_seed(seed);
    let mut servers = Servers::of(kept, engines);
    for _ in 0..random.usize(200..900) {
        let step = servers.step(&mut random);
        step.map_err(|error| error.to_string())?;
    }
    servers.settle().map_err(|error| error.to_string())?;
    // Once more, so that those that went on on the wrong data show it.
    for _ in 0..20 {
        write(servers.nodes[servers.primary].shell(), &mut random);
    }
    servers.settle().map_err(|error| error.to_string())?;
    if servers.torn {
        return Err("half of a transaction was seen".to_owned());
    }
    let contents: Vec<_> = servers
        .nodes
        .iter_mut()
        .map(|node| match node.engine {
            EngineKind::Minuet => all_content(node.shell()),
            _ => content(node.shell()),
        })
        .collect();
    if contents.windows(2).all(|pair| pair[0] == pair[1]) {
        Ok(servers)
    } else {
        Err("they differ".to_owned())
    }
}

/// FW1 one-history, HL1 fork-is-known.
#[test]
fn servers_go_on_where_they_stood() {
    for kept in [true, false] {
        let (mut resumed, mut copies) = (0, Vec::new());
        for seed in 0..40 {
            let servers = run(seed, kept);
            let servers = servers.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            resumed += servers.resumed;
            copies.extend(servers.copies);
        }
        let count = |reason| copies.iter().filter(|found| **found == reason).count();
        let least = if kept { 100 } else { 20 };
        assert!(resumed > least, "{resumed}, {copies:?}");
        assert!(!kept || count(CopyReason::Ahead) > 5, "{copies:?}");
    }
}

/// RB1 same-names: with branches and lasting snapshots, too.
#[test]
fn servers_with_branches_go_on_where_they_stood() {
    for kept in [true, false] {
        let (mut resumed, mut kept_branches) = (0, 0);
        for seed in 0..30 {
            let servers = run_of(seed, kept, [EngineKind::Minuet; NODES]);
            let servers = servers.unwrap_or_else(|error| panic!("seed {seed}, {kept}: {error}"));
            resumed += servers.resumed;
            kept_branches += servers.nodes[0].database().branches.len() - 1;
        }
        let least = if kept { 50 } else { 10 };
        assert!(
            resumed > least && kept_branches > 30,
            "{resumed}, {kept_branches}"
        );
    }
}

/// The canaries: each fault is noticed by some seed.
#[test]
fn each_wrong_continuation_is_noticed() {
    let noticed = |run: &dyn Fn(u64) -> bool| (0..100).any(run);
    let stale = |seed| with(Fault::StaleHistory, || run(seed, true).is_err());
    assert!(noticed(&stale), "any position is taken");
    let fault = testing::Fault::ForkForgotten;
    let forked = |seed| testing::with(fault, || run(seed, true).is_err());
    assert!(noticed(&forked), "a lost epoch is taken for another");
}

/// A replica that is promoted has repeated several epochs in one of its own. Others have some of
/// these, and get the rest.
#[test]
fn a_promoted_server_goes_on_within_an_epoch() {
    for fault in [Fault::Nothing, Fault::GroupsRepeated] {
        for kept in [true, false] {
            let mut servers = Servers::new(kept);
            let long = "x".repeat(1000);
            servers.nodes[0].shell().line(&format!("SET k {long}"));
            servers.settle().expect("they follow");
            let copies = servers.copies.len();
            for node in &servers.nodes {
                node.database().end_epoch();
            }
            let lines = ["SETRANGE k 0 y", "DEL k", "SET other 1"];
            for (index, line) in lines.into_iter().enumerate() {
                servers.nodes[0].shell().line(line);
                servers.nodes[0].database().end_epoch();
                let replicas = if index < 2 { 1..3 } else { 1..2 };
                for replica in replicas {
                    assert!(servers.send(replica));
                    servers.deliver(replica).expect("it follows");
                }
            }
            servers.primary = 1;
            servers.point();
            let settled = with(fault, || servers.settle());
            assert_eq!(
                settled.is_ok(),
                fault == Fault::Nothing,
                "{kept}: {settled:?}"
            );
            if fault == Fault::Nothing {
                assert_eq!(servers.copies.len(), copies, "{:?}", servers.copies);
                let contents = servers.nodes.iter_mut().map(|node| content(node.shell()));
                let contents: Vec<_> = contents.collect();
                assert!(contents[0] == contents[1] && contents[1] == contents[2]);
                assert_eq!(contents[0].len(), 1);
            }
        }
    }
}

/// Each source counts epochs of its own: before it has said where a stream begins, what is
/// acknowledged would be of the source before.
#[test]
fn nothing_is_acknowledged_in_the_numbers_of_another_source() {
    let mut servers = Servers::new(true);
    for _ in 0..100 {
        servers.nodes[0].database().end_epoch();
    }
    servers.nodes[0].shell().line("SET k 1");
    servers.settle().expect("they follow");
    let acknowledged = |servers: &mut Servers| {
        let link = servers.nodes[2].link.as_mut().expect("it follows");
        link.replica.acknowledged().0
    };
    let before = acknowledged(&mut servers).applied;
    assert!(before >= LogEpoch(100));
    servers.primary = 1;
    servers.point();
    assert_eq!(acknowledged(&mut servers), Acknowledged::default());
    servers.settle().expect("they follow");
    let closed = servers.nodes[1].database().closed_epoch();
    let applied = acknowledged(&mut servers).applied;
    assert!(applied > LogEpoch::NONE && applied <= closed);
}

/// A replica that has been told the trees of another source, and nothing of what is in them.
#[test]
fn a_source_that_has_sent_nothing_leaves_no_trees_behind() {
    let mut servers = Servers::new(true);
    servers.nodes[0].shell().line("SET k 1");
    servers.settle().expect("they follow");
    let copies = servers.copies.len();
    servers.primary = 1;
    servers.point();
    // Where the stream goes on, and no epoch of it.
    assert!(servers.send(2));
    servers.deliver(2).expect("it follows");
    servers.primary = 0;
    servers.point();
    servers.nodes[0].shell().line("SET k 2");
    servers.settle().expect("they follow");
    assert_eq!(servers.copies.len(), copies + 1, "{:?}", servers.copies);
    let [first, _, last] = &mut servers.nodes[..] else {
        unreachable!("there are three");
    };
    assert_eq!(content(first.shell()), content(last.shell()));
}

/// A stream that comes out of files goes on behind the epoch that a check has begun at: it begins
/// anew, and what is the same is found to be (CK1 same-moment).
#[test]
fn a_check_while_files_are_read_finds_no_difference() {
    let mut servers = Servers::new(true);
    let write = |servers: &mut Servers, numbers: std::ops::Range<u32>| {
        for number in numbers {
            servers.nodes[0].shell().line(&format!("SET k {number}"));
            servers.nodes[0].database().end_epoch();
        }
    };
    write(&mut servers, 0..1);
    servers.settle().expect("they follow");
    servers.nodes[0].database().set_backlog_bytes_max(0);
    write(&mut servers, 1..20);
    assert!(servers.send(2));
    let ask = |servers: &mut Servers, wish| {
        let link = servers.nodes[2].link.as_mut().expect("it follows");
        link.source.as_mut().expect("there is one").check(wish);
    };
    ask(&mut servers, CheckWish::Begin);
    write(&mut servers, 20..40);
    for _ in 0..1000 {
        servers.send(2);
        servers.deliver(2).expect("it follows");
        servers.nodes[0].database().end_epoch();
        let replica = &mut servers.nodes[2].link.as_mut().expect("it follows").replica;
        if let CheckStep::Ask(wish) = replica.check() {
            ask(&mut servers, wish);
        }
    }
    let link = servers.nodes[2].link.as_ref().expect("it follows");
    let verdict = link.replica.verdict();
    assert!(matches!(verdict, Some(Verdict::Same { .. })), "{verdict:?}");
}

/// What a database becomes by a full copy does not follow from what it was: whoever reads its log
/// must not go on over that.
#[test]
fn a_full_copy_ends_the_streams_below() {
    for fault in [Fault::Nothing, Fault::CopyPassed] {
        let down = open(
            Some(&Files::new(EngineKind::Masstree)),
            EngineKind::Masstree,
        );
        let mut pair = Pair::new(shell(EngineKind::Masstree), down);
        pair.up.line("SET k 1");
        pair.settle().expect("it follows");
        let mut source = Source::new(&pair.down.database, None, true).expect("a session is free");
        let mut next = |pair: &Pair| {
            pair.down.database.end_epoch();
            source.next(&mut Vec::new())
        };
        while next(&pair) != Sent::Nothing {}
        // Another primary.
        pair.cut();
        pair.up = shell(EngineKind::Masstree);
        pair.up.line("SET k 2");
        pair.settle().expect("it takes a full copy");
        let mut sent = with(fault, || next(&pair));
        while sent == Sent::Message {
            sent = with(fault, || next(&pair));
        }
        let ends = sent == Sent::Gone;
        assert_eq!(ends, fault == Fault::Nothing, "{sent:?}");
    }
}

/// The same for whoever followed: its data came from there, so it needs no force, though the
/// servers above it began empty.
#[test]
fn a_full_copy_is_followed_without_force() {
    let mut pair = Pair::new(shell(EngineKind::Masstree), shell(EngineKind::Masstree));
    let mut below = shell(EngineKind::Masstree);
    follow(&below, true, Refusal::ReadOnly);
    let mut replica = Replica::new(&below.database).expect("a session is free");
    for round in 0..3 {
        pair.cut();
        pair.up = shell(EngineKind::Masstree);
        pair.up.line(&format!("SET k {round}"));
        pair.settle().expect("it takes a full copy");
        let source = Source::new(&pair.down.database, replica.position(), true);
        let mut source = source.expect("a session is free");
        assert!(source.is_copying());
        loop {
            pair.down.database.end_epoch();
            let mut message = Vec::new();
            match source.next_whole(&mut message) {
                Sent::Message => replica.take(&message).expect("its data came from there"),
                Sent::Nothing if source.is_copying() => {}
                Sent::Nothing => break,
                Sent::Gone => panic!("nothing replaces the data"),
                // On a check.
                Sent::Worked => {}
                Sent::Epoch(_) => unreachable!("messages are whole"),
            }
        }
        assert_eq!(content(&mut pair.up), content(&mut below));
    }
}

/// Else what is written while a feed waits for its replica would be one long epoch.
#[test]
fn a_long_epoch_ends_while_a_feed_waits() {
    const LIMIT: Duration = Duration::from_millis(5);
    let mut pair = Pair::new(shell(EngineKind::Masstree), shell(EngineKind::Masstree));
    pair.up.line("SET k 0");
    pair.settle().expect("it takes a full copy");
    pair.up.line("SET k 1");
    pair.settle().expect("it follows");
    let ended = |pair: &Pair| {
        let before = pair.up.database.closed_epoch();
        let source = pair.source.as_ref().expect("it is fed");
        source.end_long_epoch(LIMIT);
        pair.up.database.closed_epoch() > before
    };
    pair.up.line("SET k 2");
    assert!(!ended(&pair), "one has just ended");
    pair.up.pass_ms(5);
    assert!(ended(&pair));
    pair.up.pass_ms(5);
    assert!(!ended(&pair), "nothing was written");
    pair.settle().expect("it follows");
    assert_eq!(pair.down.line("GET k"), "$1 2");
}
