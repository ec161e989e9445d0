//! Random command sequences: mostly sensible, sometimes wrong in one of the ways that clients are.
//!
//! Deliberately absent: deadlines that could pass while the test runs (they are far away or long
//! past), since the two servers do not share a clock.

macro_rules! args {
    ($($argument:expr),* $(,)?) => { vec![$(Vec::<u8>::from($argument)),*] };
}

mod lists;
mod places;
mod session;
mod sets;
mod sort;
mod streams;

use fastrand::Rng;

use super::compare::Compare;

/// A command and how its two replies are compared.
pub(super) struct Step {
    pub(super) arguments: Vec<Vec<u8>>,
    pub(super) compare: Compare,
}

/// Draws arguments; everything follows from the seed.
pub(super) struct Generator {
    random: Rng,
    /// Whether MULTI was the last of MULTI, EXEC and DISCARD.
    in_multi: bool,
    /// The arguments of WATCH since it ended last.
    watched: Vec<Vec<u8>>,
    /// The time of the next entries of streams.
    stream_ms: u64,
}

const KEYS: usize = 24;

/// Milliseconds since the Unix epoch in the year 2100: a deadline that does not pass.
const FAR_MS: u64 = 4_102_444_800_000;

/// What SCAN asks for.
const TYPES: [&str; 6] = ["string", "hash", "list", "set", "zset", "stream"];

type Family = fn(&mut Generator) -> Step;

/// Families with their weights.
const FAMILIES: [(u32, Family); 16] = [
    (30, Generator::string),
    (14, Generator::number),
    (14, Generator::bitmap),
    (6, Generator::hyperloglog),
    (24, Generator::hash),
    (30, Generator::list),
    (24, Generator::set_of_members),
    (40, Generator::sorted_set),
    (40, Generator::stream),
    (10, Generator::place_command),
    (14, Generator::sort),
    (20, Generator::key),
    (14, Generator::expiry),
    (6, Generator::transaction),
    (6, Generator::connection),
    (3, Generator::garbage),
];

fn number(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

impl Generator {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: Rng::with_seed(seed),
            in_multi: false,
            watched: Vec::new(),
            stream_ms: 1,
        }
    }

    /// The next command. Not MULTI or WATCH inside MULTI, which end the transaction as they do in
    /// later versions than the peer's; nor a change of a watched stream's groups, which does not
    /// end it there.
    pub(super) fn next(&mut self) -> Step {
        loop {
            let step = self.draw();
            let name = step.arguments[0].to_ascii_lowercase();
            let (is_alone, is_multi) = (step.arguments.len() == 1, name == b"multi");
            if self.in_multi && (is_multi || name == b"watch") {
                continue;
            }
            let is_watched = |word: &Vec<u8>| self.watched.contains(word);
            if streams::OF_GROUPS.contains(&&name[..]) && step.arguments.iter().any(is_watched) {
                continue;
            }
            let ends = [&b"exec"[..], b"discard", b"reset"].contains(&&name[..]);
            if name == b"watch" {
                self.watched.extend_from_slice(&step.arguments[1..]);
            } else if is_alone && (name == b"unwatch" || ends && self.in_multi) {
                self.watched.clear();
            }
            if is_alone && (is_multi || ends) {
                self.in_multi = is_multi;
            }
            return step;
        }
    }

    fn draw(&mut self) -> Step {
        let total: u32 = FAMILIES.iter().map(|(weight, _)| weight).sum();
        let mut ticket = self.random.u32(..total);
        for (weight, family) in FAMILIES {
            if ticket < weight {
                let step = family(self);
                return self.spoil(step);
            }
            ticket -= weight;
        }
        unreachable!("the ticket is below the sum of the weights")
    }

    /// Now and then drops, doubles or replaces an argument, or changes the name's case.
    fn spoil(&mut self, mut step: Step) -> Step {
        let special = matches!(
            step.compare,
            Compare::Scan | Compare::ScanReply | Compare::MembersReply | Compare::Dump
        );
        // Of a spoilt SORT, nobody knows how the replies are to be compared.
        if special || step.arguments[0].starts_with(b"sort") {
            return step;
        }
        match self.random.u32(..200) {
            0 if step.arguments.len() > 1 => {
                // It may have been the order of what is found.
                let is_search = step.arguments[0].to_ascii_lowercase().starts_with(b"geo");
                step.arguments.pop();
                if is_search && step.compare == Compare::Exact {
                    step.compare = Compare::Unordered;
                }
            }
            1 => {
                let extra = self.value();
                step.arguments.push(extra);
            }
            2 if step.arguments.len() > 1 => {
                let index = self.random.usize(1..step.arguments.len());
                step.arguments[index] = self.value();
            }
            3..23 => step.arguments[0].make_ascii_uppercase(),
            _ => {}
        }
        Self::tame(&mut step.arguments);
        step
    }

    /// Takes out what would make a server wait: deadlines that pass while the test runs, replicas
    /// that do not exist, endless replies.
    fn tame(arguments: &mut Vec<Vec<u8>>) {
        let name = arguments[0].to_ascii_lowercase();
        if name == b"wait" && arguments.len() == 3 {
            arguments[1] = b"0".to_vec();
        }
        // Redis answers a large negative count with as many fields, whatever memory that takes.
        let picks = [&b"hrandfield"[..], b"srandmember", b"zrandmember"];
        if picks.contains(&&name[..]) && arguments.get(2).is_some_and(|count| count.len() > 3) {
            arguments[2] = b"-9".to_vec();
        }
        // Which members are left is up to the server.
        if name == b"spop" {
            let count = arguments.get(2).map_or(Some(1), |count| number(count));
            if count.is_some_and(|count| (1..1000).contains(&count)) {
                arguments.truncate(2);
                arguments.push(b"1000".to_vec());
            }
        }
        streams::tame(&name, arguments);
        Self::end_waits(&name, arguments);
        // WITHSCORE is newer than the peer.
        if [&b"zrank"[..], b"zrevrank"].contains(&&name[..]) {
            arguments.truncate(3);
        }
        // The scores of these keys are all one.
        if name == b"zadd" && arguments.get(1).is_some_and(|key| key.starts_with(b"y")) {
            let scores = arguments.iter_mut().skip(2).step_by(2);
            scores.for_each(|score| *score = b"0".to_vec());
        }
        for index in 1..arguments.len() {
            let least: i64 = match name.as_slice() {
                b"setex" | b"expire" if index == 2 => 1000,
                b"psetex" | b"pexpire" | b"restore" if index == 2 => 1_000_000,
                b"set" | b"getex" => match arguments[index - 1].to_ascii_lowercase().as_slice() {
                    b"ex" => 1000,
                    b"px" => 1_000_000,
                    _ => continue,
                },
                _ => continue,
            };
            let time = number(&arguments[index]);
            if time.is_some_and(|time| (1..least).contains(&time)) {
                arguments[index] = least.to_string().into_bytes();
            }
        }
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random.usize(..from.len())]
    }

    fn one_in(&mut self, count: u32) -> bool {
        self.random.u32(..count) == 0
    }

    /// A key; strings, numbers and hashes prefer keys of their own, so that types meet sometimes.
    fn key_of(&mut self, kind: u8) -> Vec<u8> {
        let kind = if self.one_in(12) {
            self.pick(b"snhbpezlx")
        } else {
            kind
        };
        match self.random.u32(..40) {
            0 => b"".to_vec(),
            1 => b"\x00\xff\r\n".to_vec(),
            _ => {
                let number = self.random.usize(..KEYS);
                format!("{}{number}", char::from(kind)).into_bytes()
            }
        }
    }

    fn any_key(&mut self) -> Vec<u8> {
        let kind = self.pick(b"snhbpezlx");
        self.key_of(kind)
    }

    fn value(&mut self) -> Vec<u8> {
        match self.random.u32(..12) {
            0 => Vec::new(),
            1..4 => self.integer(),
            4 => self.float(),
            5 => {
                let len = self.random.usize(..300);
                (0..len).map(|_| self.random.u8(..)).collect()
            }
            6 => {
                let len = self.random.usize(30..70);
                vec![b'x'; len]
            }
            _ => {
                let len = self.random.usize(..20);
                (0..len).map(|_| self.pick(b"abcXYZ019 -.")).collect()
            }
        }
    }

    fn integer(&mut self) -> Vec<u8> {
        let value = match self.random.u32(..10) {
            0 => i64::MAX - self.random.i64(0..3),
            1 => i64::MIN + self.random.i64(0..3),
            2 => self.random.i64(..),
            3..6 => self.random.i64(-5..5),
            _ => self.random.i64(-1000..20_000),
        };
        value.to_string().into_bytes()
    }

    /// What stands where a number is wanted: usually a small one.
    fn number_word(&mut self, low: i64, high: i64) -> Vec<u8> {
        match self.random.u32(..40) {
            0 => self.integer(),
            1 => self
                .pick(&[
                    &b"abc"[..],
                    b"",
                    b" 1",
                    b"1 ",
                    b"+1",
                    b"01",
                    b"1.5",
                    b"-0",
                    b"1e3",
                ])
                .to_vec(),
            _ => self.random.i64(low..=high).to_string().into_bytes(),
        }
    }

    fn float(&mut self) -> Vec<u8> {
        match self.random.u32(..12) {
            0 => self
                .pick(&[
                    &b"1e3"[..],
                    b"-1.23E9",
                    b"inf",
                    b"-inf",
                    b"nan",
                    b"0x1p3",
                    b".5",
                    b"5.",
                    b"1e-5",
                    b"3.0e300",
                ])
                .to_vec(),
            1 => self.integer(),
            2 => format!("{}", self.random.f64() * 1e15).into_bytes(),
            _ => {
                let (whole, part) = (self.random.i64(-300..300), self.random.u32(..1000));
                format!("{whole}.{part}").into_bytes()
            }
        }
    }

    fn step(&self, name: &str, mut arguments: Vec<Vec<u8>>, compare: Compare) -> Step {
        arguments.insert(0, name.into());
        Step { arguments, compare }
    }

    fn exact(&self, name: &str, arguments: Vec<Vec<u8>>) -> Step {
        self.step(name, arguments, Compare::Exact)
    }

    fn string(&mut self) -> Step {
        let key = self.key_of(b's');
        let value = self.value();
        match self.random.u32(..24) {
            0..4 => self.exact("get", args![key]),
            4..9 => self.set(key, value),
            9 => self.exact("setnx", args![key, value]),
            10 => {
                let seconds = self.number_word(1000, 100_000);
                let name = self.pick(&["setex", "psetex"]);
                let seconds = if name == "psetex" {
                    [&seconds[..], b"000"].concat()
                } else {
                    seconds
                };
                self.exact(name, args![key, seconds, value])
            }
            11 => self.exact("getset", args![key, value]),
            12 => self.exact("getdel", args![key]),
            13 => self.getex(key),
            14 | 15 => self.exact("append", args![key, value]),
            16 => self.exact("strlen", args![key]),
            17 => {
                let name = self.pick(&["getrange", "substr"]);
                let (start, end) = (self.number_word(-30, 30), self.number_word(-30, 30));
                self.exact(name, args![key, start, end])
            }
            18 => {
                let offset = self.number_word(-1, 120);
                self.exact("setrange", args![key, offset, value])
            }
            19 => self.keys_of("mget", b's'),
            20 => self.pairs("mset"),
            21 => self.pairs("msetnx"),
            _ => self.lcs(key),
        }
    }

    fn set(&mut self, key: Vec<u8>, value: Vec<u8>) -> Step {
        let mut arguments = args![key, value];
        while self.one_in(3) && arguments.len() < 7 {
            match self.random.u32(..8) {
                0 => arguments.push(b"NX".to_vec()),
                1 => arguments.push(b"xx".to_vec()),
                2 => arguments.push(b"GET".to_vec()),
                3 => arguments.push(b"KEEPTTL".to_vec()),
                4 => {
                    let seconds = self.number_word(1000, 100_000);
                    arguments.extend([b"EX".to_vec(), seconds]);
                }
                5 => {
                    let milliseconds = self.number_word(1_000_000, 90_000_000);
                    arguments.extend([b"px".to_vec(), milliseconds]);
                }
                6 => {
                    let at = (FAR_MS / 1000 + self.random.u64(..1000)).to_string();
                    arguments.extend([b"EXAT".to_vec(), at.into()]);
                }
                _ => {
                    let at = (FAR_MS + self.random.u64(..1000)).to_string();
                    arguments.extend([b"PXAT".to_vec(), at.into()]);
                }
            }
        }
        self.exact("set", arguments)
    }

    fn getex(&mut self, key: Vec<u8>) -> Step {
        let mut arguments = args![key];
        match self.random.u32(..6) {
            0 => arguments.push(b"PERSIST".to_vec()),
            1 => {
                let seconds = self.number_word(1000, 100_000);
                arguments.extend([b"EX".to_vec(), seconds]);
            }
            2 => {
                let at = FAR_MS.to_string();
                arguments.extend([b"PXAT".to_vec(), at.into()]);
            }
            3 => arguments.extend(args!["EXAT", "1"]),
            _ => {}
        }
        self.exact("getex", arguments)
    }

    fn keys_of(&mut self, name: &str, kind: u8) -> Step {
        let count = self.random.usize(1..6);
        let keys = (0..count).map(|_| self.key_of(kind)).collect();
        self.exact(name, keys)
    }

    fn pairs(&mut self, name: &str) -> Step {
        let count = self.random.usize(1..5);
        let mut arguments = Vec::new();
        for _ in 0..count {
            let pair = [self.key_of(b's'), self.value()];
            arguments.extend(pair);
        }
        self.exact(name, arguments)
    }

    fn lcs(&mut self, key: Vec<u8>) -> Step {
        let mut arguments = args![key, self.key_of(b's')];
        for option in ["LEN", "IDX", "WITHMATCHLEN"] {
            if self.one_in(3) {
                arguments.push(option.into());
            }
        }
        if self.one_in(4) {
            let length = self.number_word(0, 5);
            arguments.extend([b"MINMATCHLEN".to_vec(), length]);
        }
        self.step("lcs", arguments, Compare::Exact)
    }

    fn number(&mut self) -> Step {
        let key = self.key_of(b'n');
        match self.random.u32(..8) {
            0 => self.exact("incr", args![key]),
            1 => self.exact("decr", args![key]),
            2 => {
                let by = self.number_word(-100, 100);
                let name = self.pick(&["incrby", "decrby"]);
                self.exact(name, args![key, by])
            }
            3 | 4 => {
                let by = self.float();
                self.exact("incrbyfloat", args![key, by])
            }
            5 => {
                let value = self.integer();
                self.exact("set", args![key, value])
            }
            6 => {
                let value = self.float();
                self.exact("set", args![key, value])
            }
            _ => self.exact("get", args![key]),
        }
    }

    fn bitmap(&mut self) -> Step {
        let key = self.key_of(b'b');
        match self.random.u32(..10) {
            0..3 => {
                let (offset, bit) = (self.number_word(-1, 600), self.number_word(0, 1));
                self.exact("setbit", args![key, offset, bit])
            }
            3 => {
                let offset = self.number_word(-1, 700);
                self.exact("getbit", args![key, offset])
            }
            4 => {
                let range = self.bit_range();
                self.exact("bitcount", [args![key], range].concat())
            }
            5 => {
                let bit = self.number_word(0, 1);
                let range = self.bit_range();
                self.exact("bitpos", [args![key, bit], range].concat())
            }
            6 => {
                let operation = self.pick(&["AND", "or", "XOR", "NOT", "NOR"]);
                let count = if operation == "NOT" {
                    1
                } else {
                    self.random.usize(1..4)
                };
                let target = self.key_of(b'b');
                let sources: Vec<_> = (0..count).map(|_| self.key_of(b'b')).collect();
                self.exact("bitop", [args![operation, target], sources].concat())
            }
            _ => self.bitfield(key),
        }
    }

    fn hyperloglog(&mut self) -> Step {
        let key = self.key_of(b'p');
        let keys = |generator: &mut Self| {
            let count = generator.random.usize(..3);
            let keys = (0..count).map(|_| generator.key_of(b'p'));
            [vec![key.clone()], keys.collect()].concat()
        };
        match self.random.u32(..16) {
            0..7 => {
                // Few elements for most keys, so that sketches stay sparse; many for some.
                let (count, range) = self.pick(&[(4, 50), (40, 2000), (400, 100_000)]);
                let elements = (0..self.random.usize(..count))
                    .map(|_| self.random.u32(..range).to_string().into_bytes());
                let elements: Vec<_> = elements.collect();
                self.exact("pfadd", [args![key], elements].concat())
            }
            7..11 => {
                let keys = keys(self);
                self.exact("pfcount", keys)
            }
            11..13 => {
                let keys = keys(self);
                self.exact("pfmerge", keys)
            }
            13 => {
                let subcommands = ["encoding", "DECODE", "TODENSE", "GETREG", "none"];
                let subcommand = self.pick(&subcommands);
                self.exact("pfdebug", args![subcommand, key])
            }
            _ => self.exact("get", args![key]),
        }
    }

    fn bit_range(&mut self) -> Vec<Vec<u8>> {
        let mut range = Vec::new();
        for _ in 0..self.random.u32(..3) {
            range.push(self.number_word(-50, 50));
        }
        if range.len() == 2 && self.one_in(2) {
            range.push(self.pick(&["BIT", "BYTE", "bit", "NIBBLE"]).into());
        }
        range
    }

    fn bitfield(&mut self, key: Vec<u8>) -> Step {
        let mut arguments = args![key];
        for _ in 0..self.random.u32(1..4) {
            let kind = match self.random.u32(..10) {
                0 => self.pick(&["u0", "u64", "i65", "x8", "u"]).to_owned(),
                _ => format!("{}{}", self.pick(&["u", "i"]), self.random.u32(1..64)),
            };
            let hash = if self.one_in(4) { "#" } else { "" };
            let offset = [hash.as_bytes(), &self.number_word(0, 80)].concat();
            match self.random.u32(..4) {
                0 => arguments.extend(args!["GET", kind, offset]),
                1 => {
                    let value = self.integer();
                    arguments.extend(args!["SET", kind, offset, value]);
                }
                2 => {
                    let by = self.integer();
                    arguments.extend(args!["INCRBY", kind, offset, by]);
                }
                _ => {
                    let mode = self.pick(&["WRAP", "SAT", "fail", "NONE"]);
                    arguments.extend(args!["OVERFLOW", mode]);
                }
            }
        }
        let name = if self.one_in(6) {
            "bitfield_ro"
        } else {
            "bitfield"
        };
        self.exact(name, arguments)
    }

    fn field(&mut self) -> Vec<u8> {
        match self.random.u32(..30) {
            0 => Vec::new(),
            1 => vec![b'f'; 70],
            _ => format!("f{}", self.random.u32(..12)).into_bytes(),
        }
    }

    fn hash(&mut self) -> Step {
        let key = self.key_of(b'h');
        match self.random.u32(..20) {
            0..5 => {
                let name = self.pick(&["hset", "hset", "hmset"]);
                let mut arguments = args![key];
                for _ in 0..self.random.u32(1..5) {
                    let pair = [self.field(), self.value()];
                    arguments.extend(pair);
                }
                self.exact(name, arguments)
            }
            5 => {
                let (field, value) = (self.field(), self.value());
                self.exact("hsetnx", args![key, field, value])
            }
            6 | 7 => {
                let name = self.pick(&["hget", "hexists", "hstrlen"]);
                let field = self.field();
                self.exact(name, args![key, field])
            }
            8 | 9 => {
                let name = self.pick(&["hmget", "hdel"]);
                let count = self.random.usize(1..5);
                let fields: Vec<_> = (0..count).map(|_| self.field()).collect();
                self.exact(name, [args![key], fields].concat())
            }
            10 | 11 => self.step("hgetall", args![key], Compare::Map),
            12 => {
                let name = self.pick(&["hkeys", "hvals"]);
                self.step(name, args![key], Compare::Unordered)
            }
            13 => self.exact("hlen", args![key]),
            14 | 15 => {
                let (field, by) = (self.field(), self.number_word(-100, 100));
                self.exact("hincrby", args![key, field, by])
            }
            16 => {
                let (field, by) = (self.field(), self.float());
                self.exact("hincrbyfloat", args![key, field, by])
            }
            17 => {
                let mut arguments = args![key];
                if self.one_in(2) {
                    arguments.push(self.number_word(-6, 6));
                    if self.one_in(2) {
                        arguments.push(b"WITHVALUES".to_vec());
                    }
                }
                self.step("hrandfield", arguments, Compare::Shape)
            }
            18 => self.step(
                "hscan",
                args![key, "0", "COUNT", "1000"],
                Compare::ScanReply,
            ),
            _ => self.exact("hset", args![key, "big", vec![b'v'; 100]]),
        }
    }

    fn key(&mut self) -> Step {
        match self.random.u32(..22) {
            0..3 => {
                let name = self.pick(&["del", "unlink", "exists", "touch"]);
                let count = self.random.usize(1..4);
                let keys = (0..count).map(|_| self.any_key()).collect();
                self.exact(name, keys)
            }
            3 | 4 => {
                let key = self.any_key();
                self.exact("type", args![key])
            }
            5 | 6 => {
                let name = self.pick(&["rename", "renamenx"]);
                let (from, to) = (self.any_key(), self.any_key());
                self.exact(name, args![from, to])
            }
            7 | 8 => {
                let mut arguments = args![self.any_key(), self.any_key()];
                if self.one_in(3) {
                    let database = self.number_word(0, 3);
                    arguments.extend([b"DB".to_vec(), database]);
                }
                if self.one_in(2) {
                    arguments.push(b"REPLACE".to_vec());
                }
                self.exact("copy", arguments)
            }
            9 => {
                let (key, database) = (self.any_key(), self.number_word(0, 3));
                self.exact("move", args![key, database])
            }
            10 => {
                let pattern = self.pick(&[
                    "*", "s*", "h?", "n[0-5]", "[^s]*", "*1*", "\\s1", "b[1", "zzz",
                ]);
                self.step("keys", args![pattern], Compare::Unordered)
            }
            11 => {
                let pattern = self.pick(&["*", "s*", "*1*"]);
                let mut arguments = args!["0", "MATCH", pattern, "COUNT", "7"];
                if self.one_in(3) {
                    arguments.extend(args!["TYPE", self.pick(&TYPES)]);
                }
                self.step("scan", arguments, Compare::Scan)
            }
            12 => {
                let key = self.any_key();
                self.step("dump", args![key], Compare::Dump)
            }
            13 => {
                let key = self.any_key();
                self.exact("object", args!["ENCODING", key])
            }
            14 => {
                let (word, key) = (self.pick(&["FREQ", "refcount", "nosuch"]), self.any_key());
                self.exact("object", args![word, key])
            }
            15..=18 => self.whole_database(),
            19 => {
                let payload = self.value();
                let key = self.any_key();
                self.exact("restore", args![key, "0", payload, "REPLACE"])
            }
            _ => {
                let key = self.any_key();
                self.exact("get", args![key])
            }
        }
    }

    fn whole_database(&mut self) -> Step {
        match self.random.u32(..32) {
            0..8 => self.exact("dbsize", vec![]),
            8..16 => self.step("randomkey", vec![], Compare::Shape),
            16 => {
                let name = self.pick(&["flushdb", "flushall"]);
                let mode = self.pick(&[&["ASYNC"][..], &["SYNC"], &[], &["NOW"]]);
                let mode = mode.iter().map(|word| word.as_bytes().to_vec());
                self.exact(name, mode.collect())
            }
            17 | 18 => {
                let (first, second) = (self.number_word(0, 3), self.number_word(0, 3));
                self.exact("swapdb", args![first, second])
            }
            _ => {
                let key = self.any_key();
                self.exact("get", args![key])
            }
        }
    }

    fn expiry(&mut self) -> Step {
        let key = self.any_key();
        match self.random.u32(..12) {
            0 => self.step("ttl", args![key], Compare::Seconds(1)),
            1 => self.step("pttl", args![key], Compare::Milliseconds(3_000)),
            2 => self.step("expiretime", args![key], Compare::Seconds(3)),
            3 => self.step("pexpiretime", args![key], Compare::Milliseconds(3_000)),
            4 => self.exact("persist", args![key]),
            _ => {
                let name = self.pick(&["expire", "pexpire", "expireat", "pexpireat"]);
                let time = match (self.random.u32(..12), name) {
                    (0, _) => self.pick(&["-1", "0", "1", "-100"]).into(),
                    (1, _) => self.number_word(10_000_000, 20_000_000),
                    (_, "expire") => self.random.u32(1000..100_000).to_string().into_bytes(),
                    (_, "pexpire") => self
                        .random
                        .u32(1_000_000..100_000_000)
                        .to_string()
                        .into_bytes(),
                    (_, "expireat") => (FAR_MS / 1000 + self.random.u64(..1000))
                        .to_string()
                        .into_bytes(),
                    _ => (FAR_MS + self.random.u64(..1000)).to_string().into_bytes(),
                };
                let mut arguments = args![key, time];
                while self.one_in(3) && arguments.len() < 4 {
                    arguments.push(self.pick(&["NX", "xx", "GT", "LT", "AB"]).into());
                }
                self.exact(name, arguments)
            }
        }
    }
}
