//! Random requests: few keys, so that they meet each other, and some that are wrong.

use std::time::{SystemTime, UNIX_EPOCH};

use fastrand::Rng;

/// Which cas token stands where a request's text has `@`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// That of the key at this moment.
    Current,
    /// One before that.
    Older,
    /// One that no item has had.
    Newest,
}

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) text: Vec<u8>,
    pub(super) key: String,
    pub(super) token: Token,
}

/// See the module's header.
pub(super) struct Generator<'r> {
    rng: &'r mut Rng,
}

const KEYS: [&str; 5] = ["a", "b", "key:1", "key:2", "k\u{fc}"];

/// Keys of numbers that only grow: a shorter one is padded, and keeps its state, only where nothing
/// in memcached holds on to the item.
const NUMBERS: [&str; 3] = ["n1", "n2", "n3"];

/// Base 64 of keys that are used in that form only.
const BASE64_KEYS: [&str; 3] = ["AAEC", "/+8=", "Zm9vIGJhcg=="];

impl<'r> Generator<'r> {
    pub(super) fn new(rng: &'r mut Rng) -> Self {
        Self { rng }
    }

    fn pick<'t>(&mut self, words: &[&'t str]) -> &'t str {
        words[self.rng.usize(..words.len())]
    }

    fn exptime(&mut self) -> String {
        match self.rng.u8(..12) {
            0 => "-1".into(),
            1 => "100".into(),
            2 => "1000".into(),
            3 => "2592000".into(),
            4 => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                (now.unwrap_or_default().as_secs() + 5000).to_string()
            }
            5 => "1000000000".into(),
            _ => "0".into(),
        }
    }

    fn data(&mut self) -> Vec<u8> {
        match self.rng.u8(..8) {
            0 => Vec::new(),
            1 => b"a\r\nb \n".to_vec(),
            2 => vec![b'x'; self.rng.usize(..5000)],
            3 => self.rng.u64(..).to_string().into_bytes(),
            4 => u64::MAX.to_string().into_bytes(),
            5 => self.rng.u8(..).to_string().into_bytes(),
            6 => {
                let odd = [" 12 ", "+5", "-0", "007", "12 x", "12x", "-5", ""];
                self.pick(&odd).into()
            }
            _ => {
                let len = self.rng.usize(..20);
                (0..len).map(|_| self.rng.lowercase() as u8).collect()
            }
        }
    }

    fn noreply(&mut self) -> &'static str {
        if self.rng.u8(..6) == 0 {
            " noreply"
        } else {
            ""
        }
    }

    fn token(&mut self) -> Token {
        match self.rng.u8(..4) {
            0 => Token::Older,
            1 => Token::Newest,
            _ => Token::Current,
        }
    }

    pub(super) fn next(&mut self) -> Request {
        let key = self.pick(&KEYS).to_owned();
        let token = self.token();
        let mut text = match self.rng.u8(..20) {
            0..5 => self.store(&key),
            5..8 => {
                let verb = self.pick(&["get", "gets", "get", "bget"]);
                let mut line = verb.to_owned();
                for _ in 0..=self.rng.usize(..6) {
                    line.push(' ');
                    line.push_str(self.pick(&KEYS));
                }
                line.into()
            }
            8 => {
                let verb = self.pick(&["gat", "gats"]);
                let (exptime, other) = (self.exptime(), self.pick(&KEYS));
                format!("{verb} {exptime} {key} {other}").into()
            }
            9 | 10 => return self.number(),
            11 => format!("touch {key} {}{}", self.exptime(), self.noreply()).into(),
            12 => format!(
                "delete {key}{}{}",
                self.pick(&["", "", " 0"]),
                self.noreply()
            )
            .into(),
            13..18 => self.meta(&key),
            18 if self.rng.u8(..20) == 0 => "flush_all".into(),
            _ => self.odd(&key).into(),
        };
        text.extend_from_slice(b"\r\n");
        Request { text, key, token }
    }

    /// A request on a number.
    fn number(&mut self) -> Request {
        let key = self.pick(&NUMBERS).to_owned();
        let token = self.token();
        let noreply = self.noreply();
        let text = match self.rng.u8(..8) {
            0 => {
                let data = self.rng.u8(..).to_string();
                format!("set {key} 7 0 {}\r\n{data}", data.len())
            }
            1 => format!("set {key} 0 0 3{noreply}\r\nabc"),
            2 => format!("gets {key}"),
            3 => format!("delete {key}{noreply}"),
            4 | 5 => {
                let delta = self.pick(&["1", "10", "+3", "-1", "x", "0", "4294967296"]);
                format!("incr {key} {delta}{noreply}")
            }
            6 => format!("decr {key} {}", self.pick(&["0", "x"])),
            _ => {
                let mut flags = String::new();
                for flag in [
                    " c", " k", " q", " O7", " N0", " J13", " D5", " C@", " MI", " v", " t",
                ] {
                    // Who makes a number and is quiet hears nothing any more: listed.
                    let is_newer = flag == " N0" && flags.contains(" q");
                    if self.rng.u8(..3) == 0 && !is_newer {
                        flags.push_str(flag);
                    }
                }
                format!("ma {key}{flags}")
            }
        };
        let text = format!("{text}\r\n").into_bytes();
        Request { text, key, token }
    }

    fn store(&mut self, key: &str) -> Vec<u8> {
        let verb = self.pick(&[
            "set", "set", "set", "add", "replace", "append", "prepend", "cas",
        ]);
        let (flags, exptime, data) = (
            self.pick(&["0", "7", "4294967295"]),
            self.exptime(),
            self.data(),
        );
        let cas = if verb == "cas" { " @" } else { "" };
        let noreply = self.noreply();
        let mut text = format!(
            "{verb} {key} {flags} {exptime} {}{cas}{noreply}\r\n",
            data.len()
        )
        .into_bytes();
        text.extend_from_slice(&data);
        text
    }

    /// Flags that a meta command may have.
    fn meta_flags(&mut self, verb: &str) -> Vec<String> {
        let exptime = self.exptime();
        let plain: &[&str] = match verb {
            "mg" => &[
                "v", "v", "c", "f", "k", "s", "t", "q", "u", "h", "l", "L1", "P", "Oq1", "N100",
                "R500", "R3000",
            ],
            "ms" => &["c", "k", "q", "Oq123", "F999", "I", "C@", "P1", "h"],
            _ => &["k", "q", "O", "L", "f", "c", "I", "C@", "T100"],
        };
        let mut flags: Vec<_> = plain.iter().map(ToString::to_string).collect();
        if verb != "md" {
            flags.push(format!("T{exptime}"));
        }
        if verb == "ms" {
            flags.push(format!(
                "M{}",
                self.pick(&["E", "A", "P", "R", "S", "X", "ab"])
            ));
        }
        flags
    }

    /// A meta command, without the flags that its answers differ in.
    fn meta(&mut self, plain: &str) -> Vec<u8> {
        let base64 = self.rng.u8(..5) == 0;
        let key = if base64 {
            self.pick(&BASE64_KEYS)
        } else {
            plain
        };
        let verb = self.pick(&["mg", "mg", "ms", "md"]);
        let mut flags: Vec<String> = Vec::new();
        if base64 {
            flags.push("b".into());
        }
        let candidates = self.meta_flags(verb);
        for candidate in candidates {
            if self.rng.u8(..3) == 0 {
                flags.push(candidate);
            }
        }
        if self.rng.u8(..30) == 0 {
            flags.push(
                self.pick(&["z", "!", "T", "v", "5", "Nx", "Fx", "Jx", "Mxx", "C", "Dx"])
                    .into(),
            );
        }
        // An item that is made has the expiry that is said last: listed.
        if flags.iter().any(|flag| flag.starts_with('N')) {
            flags.retain(|flag| !flag.starts_with('T'));
        }
        // A time that has passed, beside `t`, `c` or `R`: listed.
        let past = ["T-1", "T1000000000"];
        if flags.iter().any(|flag| past.contains(&flag.as_str())) {
            flags.retain(|flag| flag != "t" && flag != "c" && !flag.starts_with('R'));
        }
        // A token is asked for by a plain key; an item forgets the form of its key: listed.
        if base64 {
            let tells = verb == "mg";
            flags.retain(|flag| flag != "C@" && !(tells && flag == "k"));
        }
        self.rng.shuffle(&mut flags);
        // What sets the expiry comes before what tells it: listed.
        flags.sort_by_key(|flag| flag == "t");
        flags.insert(0, String::new());
        let flags = flags.join(" ");
        if verb == "ms" {
            let data = self.data();
            let mut text = format!("ms {key} {}{flags}\r\n", data.len()).into_bytes();
            text.extend_from_slice(&data);
            return text;
        }
        format!("{verb} {key}{flags}").into()
    }

    /// Lines that are wrong, or say little.
    fn odd(&mut self, key: &str) -> String {
        match self.rng.u8(..14) {
            0 => String::new(),
            1 => "get".into(),
            2 => format!("GET {key}"),
            3 => format!("set {key} 0 0 -1"),
            4 => format!("set {key} 0 0"),
            5 => format!("incr {key}"),
            6 => format!("touch {key} x"),
            7 => format!("delete {key} 5"),
            8 => "verbosity 1".into(),
            9 => "mn x".into(),
            10 => format!("ms {key}"),
            11 => format!("mg {key} {}", "k ".repeat(20)),
            12 => format!("set {key} 0 0 1\r\nxy"),
            _ => "mg".into(),
        }
    }
}

/// Those of [`odd_lines`] that are short.
const ODD_LINES: &[&str] = &[
    "delete noreply|set noreply 0 0 1|1|delete noreply|delete noreply noreply|mn|",
    "touch noreply 0|incr noreply 1|mn|",
    "mg a Rx b|",
    "mg a b Rx|",
    "mg a Fx b1|",
    "mg a b1 Fx|",
    "mg YQ== Rx b|",
    "set a 0 0 1 noreply x|x|",
    "set a x 0 1|x|",
    "set a -1 0 1|x|",
    "set a 0 x 1|x|",
    "set a 0 0 x|",
    "set a 0 0 99999999999999999999|",
    "set a +5 +0 +1|x|get a|",
    "set a 00 00 01|x|get a|",
    "cas a 0 0 1|x|",
    "cas a 0 0 1 x|x|",
    "cas a 0 0 1 noreply|",
    "cas nope 0 0 1 1|x|",
    "delete a 0 noreply|delete a noreply|delete a x noreply|delete a 0 noreply x|delete a 00|",
    "incr a 1 2|incr a noreply|incr a|incr a 1 noreply x|",
    "touch a 0 x|touch a 0 0 0|touch a noreply|touch a x noreply|",
    "gat|gat 0|gat x a|gats 0 a|",
    "flush_all 0|flush_all noreply|flush_all x|flush_all 0 1 2|flush_all x noreply|",
    "verbosity|verbosity x|verbosity 1 2|verbosity 1 2 3|verbosity noreply|",
    "cache_memlimit|cache_memlimit x|cache_memlimit 1|cache_memlimit 64 x|",
    "cache_memlimit 64 x y|",
    "shutdown|slabs|lru|extstore|misbehave|stats foo|stats a b|stats reset|",
    "stats detail|stats detail x|stats detail on|stats detail off|",
    "stats cachedump|stats cachedump 1|stats cachedump x 1|stats cachedump 1 x|",
    "set a 0 0 1|x|flush_all 2592001|get a|flush_all 1000000000|get a|flush_all -1|get a|",
    "mn x y z|me|m|mx a|MG a|mget a|",
    "mg a|mg  a  v|mg a v |mg a v v|mg a q|mg a k Oab q|mg nope k Oab b|",
    "mg Y b|mg YQ= b|mg Y$== b|mg ==== b|mg Y=== b|mg YW== b k|mg YWFh-_== b|md Y b|ma Y b|",
    "ms a|ms a S2|ms a x|ms a -1|ms a b 2|ms a 2 M|hi|ms a 2 MX|hi|ms a 2 F|hi|",
    "set a 0 0 1|1|ms a 1 C0|2|ms a 1 C0 I|2|ms a 1 C0 MA|2|ms a 1 C0 MR|2|ms none 1 C0|2|",
    "set a 0 0 1|1|ms a 1 C1 I MR|2|mg a v|ms a 1 C1 I MA|2|ms a 1 C1 I ME|2|md a|",
    "md a C0|ma a C0|ma a C0 N0|ma none C0|ma none C0 N0 J7 v|cas a 0 0 1 0|1|get a|",
    "mg a T Fx|mg a Fx T|mg a J T h|mg a Mset T|ms a 1 Fx M|1|ms a 1 Mxx Jx|1|ma a Jx T|",
    "mg a T O0123456789abcdef0123456789abcdef|md a O0123456789abcdef0123456789abcdef T|",
    "md a x x|md a ! |md nope q k O1|ma nope q|ma a J|ma a D-1|ma a N|",
    "ma v N0 J18446744073709551615 v|ma v v|ma v MD D3 v|ma v MI D10 v q|md v|",
    " get a|get a\r|get  a  b|set a 0 0 2|\r\n|get a|",
];

/// Lines that stand for a rule each.
pub(super) fn odd_lines() -> Vec<Vec<u8>> {
    let (long, longest) = ("k".repeat(251), "k".repeat(250));
    let huge = "x".repeat(2_000_000);
    let mut lines = vec![
        format!("get {longest}|get {long}|"),
        format!("get a {long}|"),
        format!("set {long} 0 0 1|x|"),
        format!("set {long} 0 0 1 noreply|x|"),
        format!("mg {long} v|md {long}|ma {long}|me {long}|"),
        format!("set a 0 0 1|x|set a 0 0 {}|{huge}|get a|", huge.len()),
        format!(
            "set a 0 0 1|x|add a 0 0 {} noreply|{huge}|get a|",
            huge.len()
        ),
        format!("ms a {} q k|{huge}|mg a v|", huge.len()),
        format!("set a 0 0 1|x|ms a {} ME|{huge}|mg a v|", huge.len()),
        format!("set a 0 0 1|x|ms a {} MA k|{huge}|mg a v|", huge.len()),
        format!("set a 0 0 1|x|ms a {} MP|{huge}|mg a v|", huge.len()),
        format!("set a 0 0 1|x|ms a {} MR q|{huge}|mg a v|", huge.len()),
        format!("ms {long} 1|x|"),
        format!("mg a O{}|", "x".repeat(31)),
        format!("mg a O{}|", "x".repeat(32)),
        format!("ms a 1 O{}|x|", "x".repeat(32)),
        format!("mg {} b|", "YWFh".repeat(62)),
        format!("mg {} b|", "YWFh".repeat(63)),
        "x".repeat(2000) + "|",
        format!("ms a 1 O{} Mz|x|", "x".repeat(32)),
        format!("ma a Mz O{}|", "x".repeat(32)),
    ];
    lines.extend(ODD_LINES.iter().map(ToString::to_string));
    let lines = lines
        .into_iter()
        .map(|line| line.replace('|', "\r\n").into_bytes());
    lines.collect()
}
