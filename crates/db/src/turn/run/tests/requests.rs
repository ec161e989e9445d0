//! Requests drawn from the syntax in the command table.

use fastrand::Rng;
use pando_protocol::RequestBuffer;
use pando_protocol::command::{self, Argument, ArgumentKind, CommandId, CommandSpec};

use crate::commands::testing::{START_MS, words};

/// Draws requests; everything follows from the seed.
pub(super) struct Requests {
    random: Rng,
    specs: Vec<&'static CommandSpec>,
    /// What comes next, with its client.
    script: Vec<(usize, Vec<Vec<u8>>)>,
}

/// One argument in so many is not what stands there in the table.
const WRONG_ONE_IN: u32 = 40;

impl Requests {
    pub(super) fn new(seed: u64) -> Self {
        let of_keys = |spec: &&CommandSpec| matches!(spec.id, CommandId::Keyspace(_));
        Self {
            random: Rng::with_seed(seed),
            specs: command::all().filter(of_keys).collect(),
            script: Vec::new(),
        }
    }

    /// The next request, and its client out of so many.
    pub(super) fn next(&mut self, clients: usize) -> (usize, RequestBuffer) {
        if self.script.is_empty() {
            let who = self.random.usize(..clients);
            match self.random.u32(..24) {
                0..3 => self.transaction(who, clients),
                3..9 => {
                    let request = self.frequent();
                    self.script.push((who, request));
                }
                _ => {
                    let request = self.any_command();
                    self.script.push((who, request));
                }
            }
        }
        let (who, request) = self.script.remove(0);
        (who, RequestBuffer::from_args(request))
    }

    /// How many milliseconds pass, and whether maintenance comes.
    pub(super) fn time(&mut self) -> (u64, bool) {
        let passes = self.one_in(8);
        let milliseconds = if passes { self.random.u64(..40) } else { 0 };
        (milliseconds, self.one_in(40))
    }

    fn one_in(&mut self, count: u32) -> bool {
        self.random.u32(..count) == 0
    }

    fn pick(&mut self, from: &[&str]) -> String {
        from[self.random.usize(..from.len())].to_owned()
    }

    /// Requests that fill the keyspace, or are the connection's.
    fn frequent(&mut self) -> Vec<Vec<u8>> {
        let (key, other, number) = (self.key(), self.key(), self.random.u32(..200));
        let line = match self.random.u32(..21) {
            17 => format!("XADD {key} * f {number}"),
            18 => format!("XGROUP CREATE {key} g 0 MKSTREAM"),
            19 => format!("XREADGROUP GROUP g c STREAMS {key} >"),
            20 => format!("XAUTOCLAIM {key} g d 0 0"),
            0 => format!("SET {key} {number}"),
            1 => format!("SET {key} {number} PX {}", 1 + number % 60),
            2 => format!("SET {key} {number} NX PX {}", 1 + number % 60),
            3..6 => {
                let fields = (0..number % 12).map(|field| format!(" f{field} {number}"));
                format!("HSET {key} f {number}{}", fields.collect::<String>())
            }
            6 => format!("HSCAN {key} 0 COUNT 2"),
            7 => "SCAN 0 COUNT 3".to_owned(),
            8 => format!("WATCH {key} {other}"),
            9 => format!("SELECT {}", number % 3),
            10 => self.hosted(),
            11 => format!("DEL {key}"),
            12 => "RANDOMKEY".to_owned(),
            13 => format!("HRANDFIELD {key} -3"),
            14 => format!("OBJECT FREQ {key}"),
            15 => return self.snapshot(),
            _ => format!("PEXPIRE {key} {}", 1 + number % 60),
        };
        words(&line)
    }

    /// One that makes, drops or uses a snapshot, or reads in it.
    fn snapshot(&mut self) -> Vec<Vec<u8>> {
        let name = self.pick(&["a", "b", "c"]);
        let line = match self.random.u32(..12) {
            0..2 => format!("SNAPSHOT CREATE {name}"),
            2 => format!("SNAPSHOT DROP {name}"),
            3 => format!("SNAPSHOT USE {name}"),
            4..6 => "SNAPSHOT USE NONE".to_owned(),
            6 => "SNAPSHOT LIST".to_owned(),
            _ => format!("SNAPSHOT READ {name}"),
        };
        let mut request = words(&line);
        if line.starts_with("SNAPSHOT READ") {
            request.extend(self.any_command());
        }
        request
    }

    /// A command of the host's.
    fn hosted(&mut self) -> String {
        match self.random.u32(..5) {
            0 => self.pick(&["HELLO 2", "HELLO 3"]),
            1 => self.pick(&["CLIENT NO-TOUCH ON", "CLIENT NO-TOUCH OFF"]),
            2 => format!("MEMORY USAGE {}", self.key()),
            _ => "CLIENT ID".to_owned(),
        }
    }

    /// A transaction, with what others do in between.
    fn transaction(&mut self, who: usize, clients: usize) {
        self.script.push((who, words("MULTI")));
        for _ in 0..self.random.usize(..7) {
            let other = self.random.usize(..clients);
            let request = match self.random.u32(..10) {
                0 => (other, self.any_command()),
                1..4 => (who, words(&self.hosted())),
                4 => {
                    let line = ["SELECT 0", "SELECT 1", "SWAPDB 0 1", "FLUSHDB", "DBSIZE"];
                    (who, words(&self.pick(&line)))
                }
                5..7 => (who, self.frequent()),
                _ => (who, self.any_command()),
            };
            self.script.push(request);
        }
        let end = if self.one_in(12) { "DISCARD" } else { "EXEC" };
        self.script.push((who, words(end)));
    }

    /// A command on the keyspace, as the table says.
    fn any_command(&mut self) -> Vec<Vec<u8>> {
        let mut spec = self.specs[self.random.usize(..self.specs.len())];
        // Rarely what empties the databases.
        while spec.name.starts_with("flush") && !self.one_in(8) {
            spec = self.specs[self.random.usize(..self.specs.len())];
        }
        let mut request = vec![spec.name.as_bytes().to_vec()];
        if !spec.subcommands.is_empty() {
            spec = &spec.subcommands[self.random.usize(..spec.subcommands.len())];
            request.push(spec.own_name().as_bytes().to_vec());
        }
        self.arguments(spec.arguments, &mut request);
        request
    }

    fn arguments(&mut self, arguments: &[Argument], request: &mut Vec<Vec<u8>>) {
        for argument in arguments {
            if argument.optional && self.random.bool() {
                continue;
            }
            let times = if argument.multiple {
                self.random.usize(1..4)
            } else {
                1
            };
            for time in 0..times {
                if let Some(token) = argument.token
                    && (time == 0 || argument.multiple_token)
                {
                    request.push(token.into());
                }
                self.argument(argument, request);
            }
        }
    }

    fn argument(&mut self, argument: &Argument, request: &mut Vec<Vec<u8>>) {
        let word = match argument.kind {
            ArgumentKind::PureToken => return,
            ArgumentKind::Block => return self.arguments(argument.parts, request),
            ArgumentKind::OneOf => {
                let part = self.random.usize(..argument.parts.len());
                return self.arguments(&argument.parts[part..=part], request);
            }
            _ if self.one_in(WRONG_ONE_IN) => "wrong".to_owned(),
            ArgumentKind::Key => self.key(),
            ArgumentKind::Integer if argument.name == "cursor" => "0".to_owned(),
            ArgumentKind::Integer => match self.random.u32(..6) {
                0 => "-3".to_owned(),
                1 => self.random.u32(..200).to_string(),
                _ => self.random.u32(..5).to_string(),
            },
            ArgumentKind::Double => "0.5".to_owned(),
            ArgumentKind::Pattern => self.pick(&["*", "k[1-4]", "f1*"]),
            ArgumentKind::UnixTime => (START_MS + self.random.u64(..500)).to_string(),
            ArgumentKind::String => match argument.name {
                "start" | "min" => "-".to_owned(),
                "stop" | "max" | "end" => "+".to_owned(),
                name if name.contains("field") => format!("f{}", self.random.u32(..9)),
                _ => self.random.u32(..50).to_string(),
            },
        };
        request.push(word.into_bytes());
    }

    fn key(&mut self) -> String {
        format!("k{}", self.random.u32(..10))
    }
}

#[test]
fn every_command_on_the_keyspace_is_drawn() {
    let mut requests = Requests::new(1);
    let all = requests.specs.len();
    let drawn = (0..20_000).map(|_| requests.any_command().swap_remove(0));
    let drawn: std::collections::BTreeSet<_> = drawn.collect();
    assert_eq!(drawn.len(), all);
}
