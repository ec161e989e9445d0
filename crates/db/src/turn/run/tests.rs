//! The canary of repetitions: the reference engine, answering "not here" at random and conflicting.
//! Nothing that a client, an operator or a restart can see tells it from the plain one.
//!
//! Requests are drawn from the syntax in the command table, so that a new command takes part.

mod requests;

use std::sync::Arc;

use pando_durability::disk::SimulatedDisk;
use pando_protocol::command::{CommandSpec, HostCommand};
use pando_protocol::{Reply, Request, RequestBuffer, RespVersion};

use self::requests::Requests;
use crate::commands::testing::{START_MS, Shell, seed};
use crate::dump::{self, Form};
use crate::effects::{Leftover, testing::plant};
use crate::error::CommandError;
use crate::{
    Client, Durability, DurabilityOptions, EngineKind, EvictionPolicy, Host, Options, Progress,
    Turn, Wait,
};

const CLIENTS: usize = 3;
const DATABASES: usize = 3;

/// A host that notes what it is told, and what it did.
#[derive(Debug, Default)]
struct Teller {
    /// Of commands of the database's.
    told: Vec<String>,
    /// Of its own, which come first within an EXEC.
    hosted: Vec<String>,
    acted: i64,
}

impl Host for Teller {
    fn execute(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        command: HostCommand,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<Progress, CommandError> {
        match command {
            HostCommand::Memory => {
                let mut keyspace = turn.keyspace(client.database);
                let there = keyspace.look(request.arg(2), |value| value.is_some());
                reply.boolean(there);
            }
            HostCommand::Hello => {
                client.protocol = if request.is(1, "3") {
                    RespVersion::Resp3
                } else {
                    RespVersion::Resp2
                };
                reply.set_version(client.protocol);
                reply.map(0);
            }
            HostCommand::Client if request.is(1, "NO-TOUCH") => {
                client.no_touch = request.is(2, "ON");
                reply.ok();
            }
            _ => {
                self.acted += 1;
                reply.integer(self.acted);
            }
        }
        Ok(Progress::Done)
    }

    fn starting(&mut self, _: &Client, _: &'static CommandSpec, _: Request<'_>) {}

    fn queued(&mut self, client: &Client) {
        self.told.push(format!(
            "{} queued: {:?}",
            client.id,
            client.queued_requests()
        ));
    }

    fn finished(
        &mut self,
        client: &Client,
        spec: &'static CommandSpec,
        request: Request<'_>,
        reply_bytes: usize,
        error: Option<&CommandError>,
    ) {
        let notes = match spec.id {
            pando_protocol::command::CommandId::Host(_) => &mut self.hosted,
            _ => &mut self.told,
        };
        let (id, database) = (client.id, client.database);
        notes.push(format!(
            "{id} in {database}: {request:?}, {reply_bytes}, {error:?}"
        ));
    }

    fn refused(&mut self, spec: Option<&'static CommandSpec>, error: &CommandError) {
        let name = spec.map(|spec| spec.name);
        self.told.push(format!("refused: {name:?}, {error}"));
    }
}

/// A database with its clients.
struct World {
    disk: SimulatedDisk,
    clients: Vec<Shell>,
    host: Teller,
    /// How often a request had to wait for what was not here.
    waits: usize,
}

impl World {
    fn options(disk: &SimulatedDisk, engine: EngineKind, absences: Option<u64>) -> Options {
        Options {
            engine,
            databases: DATABASES,
            seed: 7,
            absences,
            durability: Some(DurabilityOptions {
                disk: Arc::new(disk.clone()),
                threads: false,
                segment_bytes: 256 * 1024,
                ..DurabilityOptions::new("/data")
            }),
            ..Options::default()
        }
    }

    fn new(engine: EngineKind, absences: Option<u64>) -> Self {
        let disk = SimulatedDisk::new();
        let first =
            Shell::on_disk(Self::options(&disk, engine, absences), START_MS).expect("it opens");
        first
            .database
            .set_eviction_policy(EvictionPolicy::AllKeysLfu);
        // It removes keys in an order that differs from database to database.
        first.database.set_active_expire(false);
        let mut clients: Vec<Shell> = (1..CLIENTS).map(|_| first.connect()).collect();
        clients.insert(0, first);
        for (index, shell) in clients.iter_mut().enumerate() {
            shell.client().id = index as u64;
        }
        clients[CLIENTS - 1].client().durability = Durability::Sync;
        Self {
            disk,
            clients,
            host: Teller::default(),
            waits: 0,
        }
    }

    /// Executes a request until it is answered.
    fn run(&mut self, who: usize, request: &RequestBuffer) -> Seen {
        let shell = &mut self.clients[who];
        let (mut reply, mut slices) = (Vec::new(), 0);
        let progress = loop {
            let request = request.as_request();
            match shell.begin_with(request, &mut reply, &mut self.host) {
                Progress::Waits(Wait::Away) => self.waits += 1,
                Progress::Waits(Wait::Others(mut work)) => {
                    while !shell.slice(&mut work, &mut reply) {
                        slices += 1;
                        assert!(slices < 1000, "a command comes to its end");
                    }
                    break "in slices".to_owned();
                }
                progress => break format!("{progress:?}"),
            }
        };
        Seen {
            reply: reply.escape_ascii().to_string(),
            progress,
            told: std::mem::take(&mut self.host.told),
            hosted: std::mem::take(&mut self.host.hosted),
            state: self.state(),
        }
    }

    /// What can be asked for at any time.
    fn state(&mut self) -> String {
        let database = Arc::clone(&self.clients[0].database);
        let clients = self.clients.iter_mut().map(|shell| {
            let client = shell.client();
            (
                (client.database, client.protocol, client.no_touch),
                (client.queued_requests(), client.watched_keys()),
                (client.heap_bytes(), client.awaits()),
                client.unacknowledged(),
            )
        });
        let clients: Vec<_> = clients.collect();
        let summaries: Vec<_> = (0..DATABASES)
            .map(|index| database.summary(index))
            .collect();
        format!(
            "{clients:?} {summaries:?} {:?} {} {}",
            database.statistics(),
            database.expiring_keys(),
            database.watch_horizon.is_held(),
        )
    }

    /// Lets time pass, as the maintenance thread sees it.
    fn pass(&mut self, milliseconds: u64, maintains: bool) {
        self.clients[0].pass_ms(milliseconds);
        if maintains {
            while self.clients[0].session.maintain() {}
        }
    }

    /// What a restart finds: the values, and how many records it took to make them.
    fn restart(self) -> (u64, Vec<String>) {
        let now_ms = self.clients[0].database.options.clock.now().milliseconds();
        let engine = self.clients[0].database.options.engine;
        self.clients[0].database.close_log().expect("it closes");
        drop(self.clients);
        let options = Self::options(&self.disk, engine, None);
        let mut shell = Shell::on_disk(options, now_ms.0).expect("it opens again");
        let recovery = shell.database.recovery().expect("it is kept on disk");
        let replayed = recovery.replayed;
        let mut found = Vec::new();
        for index in 0..DATABASES {
            let mut turn = shell.turn();
            let mut keyspace = turn.keyspace(index);
            keyspace.keys().each(|key, value| {
                if let Some(value) = value {
                    let bytes = dump::encode(value.body, Form::Table);
                    let (deadline, key) = (value.attributes.deadline, key.escape_ascii());
                    let value = bytes.escape_ascii();
                    found.push(format!("{index} {key} {deadline:?} {value}"));
                }
                std::ops::ControlFlow::Continue(())
            });
        }
        (replayed, found)
    }
}

/// What is seen of a request.
#[derive(Debug, PartialEq)]
struct Seen {
    reply: String,
    progress: String,
    told: Vec<String>,
    hosted: Vec<String>,
    state: String,
}

/// Runs the same requests on both engines; the first difference, if there is one, and how often
/// something was not here.
fn compare(engine: EngineKind, seed: u64, requests: usize) -> Result<usize, String> {
    let [mut plain, mut canary] = [None, Some(seed)].map(|seed| World::new(engine, seed));
    let mut generator = Requests::new(seed);
    for index in 0..requests {
        let (who, request) = generator.next(CLIENTS);
        let (passes, maintains) = generator.time();
        let expected = plain.run(who, &request);
        let seen = canary.run(who, &request);
        if expected != seen {
            return Err(format!(
                "request {index}, {request:?}: {expected:#?}, {seen:#?}"
            ));
        }
        plain.pass(passes, maintains);
        canary.pass(passes, maintains);
    }
    let waits = canary.waits;
    if plain.restart() != canary.restart() {
        return Err("a restart finds something else".to_owned());
    }
    Ok(waits)
}

/// RR1 effects-once, RR2 same-draws, RR3 hosts-once.
#[test]
fn rr1_nothing_tells_of_repetitions() {
    let seed = seed();
    for seed in seed..seed + 3 {
        match compare(EngineKind::Reference, seed, 4000) {
            Ok(waits) => assert!(waits > 450, "{waits} waits of seed {seed}"),
            Err(difference) => panic!("seed {seed}, {difference}"),
        }
    }
}

/// The same of Minuet, of which requests of several keys are runs, and every other run conflicts.
#[test]
fn rr1_nothing_tells_of_conflicts() {
    let seed = seed();
    for seed in seed..seed + 3 {
        if let Err(difference) = compare(EngineKind::Minuet, seed, 4000) {
            panic!("seed {seed}, {difference}");
        }
    }
}

#[test]
fn av1_what_expires_meanwhile_is_gone() {
    for engine in EngineKind::ALL {
        assert_eq!(alive_too_long(engine), None, "{engine:?}");
    }
}

/// A reply that takes something for alive whose deadline passes while the command runs.
fn alive_too_long(engine: EngineKind) -> Option<String> {
    let deadline = START_MS + 10;
    for (request, gone) in [
        (vec!["MGET k0 k1"], "*2 $-1 $-1"),
        (vec!["EXISTS k0 k1"], ":0"),
        (vec!["SUNION k0 k1"], "*0"),
        (vec!["KEYS k*"], "*0"),
        (vec!["KRANGE - +"], "*2 $-1 *0"),
        (vec!["MSETNX k0 a k1 b"], ":1"),
        (vec!["MULTI", "GET k0", "SET k2 v", "EXEC"], "*2 $-1 +OK"),
        (vec!["MULTI", "GET k0", "GET k1", "EXEC"], "*2 $-1 $-1"),
        (vec!["MULTI", "HGET h f", "SET k2 v", "EXEC"], "*2 $-1 +OK"),
        (vec!["WATCH k0", "MULTI", "SET k2 v", "EXEC"], "*-1"),
    ] {
        if request[0].starts_with("KRANGE") && !engine.is_ordered() {
            continue;
        }
        let mut shell = Shell::with_options(Options {
            engine,
            ..Options::default()
        });
        for line in [
            &format!("SET k0 v PXAT {deadline}"),
            &format!("SET k1 v PXAT {deadline}"),
            "HSET h f v",
            &format!("HPEXPIREAT h {deadline} FIELDS 1 f"),
        ] {
            shell.line(line);
        }
        shell.pass_ms(9);
        let (last, before) = request.split_last().expect("requests");
        for line in before {
            shell.line(line);
        }
        // The turn's reading is the last one before the deadline.
        shell.pass_ms_per_reading(1);
        let reply = shell.line(last);
        if reply != gone {
            return Some(format!("{request:?}: {reply}"));
        }
    }
    None
}

/// Where something expires within each attempt, a command ends all the same.
#[test]
fn av1_expiry_without_end_holds_nobody_up() {
    const KEYS: u64 = 64;
    for engine in EngineKind::ALL {
        let mut shell = Shell::with_options(Options {
            engine,
            ..Options::default()
        });
        let mut request = vec!["EXISTS".to_owned()];
        for key in 0..KEYS {
            let deadline = START_MS + 10 + key;
            shell.line(&format!("SET k{key} v PXAT {deadline}"));
            request.push(format!("k{key}"));
        }
        shell.pass_ms(9);
        shell.pass_ms_per_reading(1);
        let reply = shell.line(&request.join(" "));
        let there = reply.strip_prefix(':').and_then(|it| it.parse().ok());
        let at_least = KEYS * 2 / 3;
        assert!(there >= Some(at_least), "{engine:?}: {reply}");
    }
}

/// Slices see whole trees, which are large where there are many.
#[test]
fn rr1_slices_are_repeated() {
    assert_eq!(compare_slices(), None);
}

fn compare_slices() -> Option<String> {
    let mut worlds = [None, Some(3)].map(|seed| World::new(EngineKind::Reference, seed));
    for world in &mut worlds {
        for key in 0..4500 {
            world.clients[0].store(format!("key{key:04}").as_bytes(), b"value");
        }
    }
    let [plain, canary] = &mut worlds;
    for line in [
        "KCOUNT - +",
        "SCAN 0 COUNT 4400 MATCH *9",
        "KEYS *77",
        "KRANGEDEL [key1 [key4 LIMIT 4300",
        "DBSIZE",
    ] {
        let request = RequestBuffer::from_args(crate::commands::testing::words(line));
        let (expected, seen) = (plain.run(0, &request), canary.run(0, &request));
        if expected != seen {
            return Some(format!("{line}: {expected:?}, {seen:?}"));
        }
    }
    None
}

/// Each of what a run could leave behind is noticed.
#[test]
fn canary_leftovers() {
    struct Mend;
    impl Drop for Mend {
        fn drop(&mut self) {
            plant(None);
        }
    }
    let _mend = Mend;
    for leftover in Leftover::ALL {
        plant(Some(leftover));
        let run = std::panic::AssertUnwindSafe(|| match leftover {
            Leftover::Slice => compare_slices().is_some(),
            Leftover::Alive => alive_too_long(EngineKind::Masstree).is_some(),
            _ => (1..9).any(|seed| compare(EngineKind::Reference, seed, 2000).is_err()),
        });
        // An assertion in between has noticed it as well.
        let noticed = std::panic::catch_unwind(run).unwrap_or(true);
        assert!(noticed, "{leftover:?}");
    }
}
