//! Commands on streams. Ids are given, or their time is: the two servers do not share a clock.
//! Idle times are far from those that commands ask for.

use super::super::compare::Compare;
use super::{Generator, Step};

/// Milliseconds that nothing becomes idle while the test runs, and more than that.
const LONG_MS: i64 = 500_000;
const LONGER_MS: i64 = 900_000;

/// Streams are few, so that they meet their groups.
const STREAMS: u32 = 5;

/// Nothing becomes idle, and nobody waits for long, while the test runs.
pub(super) fn tame(name: &[u8], arguments: &mut [Vec<u8>]) {
    let reads = name.starts_with(b"xread");
    let asks_idle = [&b"xclaim"[..], b"xautoclaim", b"xpending"].contains(&name);
    for index in 1..arguments.len() {
        let Some(time) = super::number(&arguments[index]) else {
            continue;
        };
        if reads && time >= 0 && arguments[index - 1].eq_ignore_ascii_case(b"block") {
            arguments[index] = b"1".to_vec();
        } else if asks_idle && index == 4 && (1..LONG_MS).contains(&time) {
            arguments[index] = LONG_MS.to_string().into_bytes();
        }
    }
}

/// Commands that change a stream's groups, or its ids, and no entries.
pub(super) const OF_GROUPS: [&[u8]; 6] = [
    b"xack",
    b"xautoclaim",
    b"xclaim",
    b"xgroup",
    b"xreadgroup",
    b"xsetid",
];

impl Generator {
    fn stream_key(&mut self) -> Vec<u8> {
        if self.one_in(12) {
            return self.any_key();
        }
        format!("x{}", self.random.u32(..STREAMS)).into_bytes()
    }

    /// An id around the last ones.
    fn id(&mut self) -> Vec<u8> {
        match self.random.u32(..30) {
            0 => self.number_word(-1, 5),
            1 => self
                .pick(&[
                    &b"18446744073709551615"[..],
                    b"0-0",
                    b"1-x",
                    b"x",
                    b"1-18446744073709551615",
                    b" 7",
                    b"+8-+1",
                    b"7-",
                    b"007-01",
                ])
                .to_vec(),
            2..6 => (self.stream_ms.saturating_sub(self.random.u64(..20)))
                .to_string()
                .into_bytes(),
            _ => {
                let ms = self.stream_ms.saturating_sub(self.random.u64(..20));
                format!("{ms}-{}", self.random.u32(..3)).into_bytes()
            }
        }
    }

    fn new_id(&mut self) -> Vec<u8> {
        if self.one_in(6) {
            return self.id();
        }
        self.stream_ms += self.random.u64(..2);
        let ms = self.stream_ms;
        if self.one_in(3) {
            format!("{ms}-*").into_bytes()
        } else {
            format!("{ms}-{}", self.random.u32(1..9)).into_bytes()
        }
    }

    /// A bound of a range.
    fn id_bound(&mut self, edge: &str) -> Vec<u8> {
        match self.random.u32(..4) {
            0 | 1 => edge.into(),
            2 => self.id(),
            _ => [&b"("[..], &self.id()].concat(),
        }
    }

    fn group_name(&mut self) -> Vec<u8> {
        self.pick(&["g", "g", "g", "h", ""]).into()
    }

    fn consumer_name(&mut self) -> Vec<u8> {
        self.pick(&["c", "d", "cc", ""]).into()
    }

    fn ids(&mut self) -> Vec<Vec<u8>> {
        (0..self.random.usize(1..5)).map(|_| self.id()).collect()
    }

    fn min_idle(&mut self) -> Vec<u8> {
        match self.random.u32(..8) {
            0 => self.number_word(-3, 0),
            1..4 => LONG_MS.to_string().into_bytes(),
            _ => b"0".to_vec(),
        }
    }

    pub(super) fn stream(&mut self) -> Step {
        let key = self.stream_key();
        match self.random.u32(..40) {
            0..9 => self.add(key),
            9 => self.exact("xlen", vec![key]),
            10..13 => {
                let name = self.pick(&["xrange", "xrevrange"]);
                let edges = if name == "xrange" {
                    ["-", "+"]
                } else {
                    ["+", "-"]
                };
                let mut arguments = vec![key, self.id_bound(edges[0]), self.id_bound(edges[1])];
                if self.one_in(3) {
                    arguments.push(b"COUNT".to_vec());
                    arguments.push(self.number_word(-1, 9));
                }
                self.exact(name, arguments)
            }
            13 | 14 => {
                let ids = self.ids();
                self.exact("xdel", [vec![key], ids].concat())
            }
            15 | 16 => {
                let trim = self.trim();
                self.exact("xtrim", [vec![key], trim].concat())
            }
            17 => {
                let mut arguments = vec![key, self.id()];
                if self.one_in(3) {
                    arguments.push(b"ENTRIESADDED".to_vec());
                    arguments.push(self.number_word(0, 90));
                }
                if self.one_in(3) {
                    arguments.push(b"maxdeletedid".to_vec());
                    arguments.push(self.id());
                }
                self.exact("xsetid", arguments)
            }
            18..20 => self.read(key),
            20..26 => self.read_group(key),
            26..28 => {
                let arguments = vec![key, self.group_name()];
                let ids = self.ids();
                self.exact("xack", [arguments, ids].concat())
            }
            28..30 => self.pending(key),
            30..33 => self.claim(key),
            33..36 => self.groups(key),
            _ => self.describe(key),
        }
    }

    fn trim(&mut self) -> Vec<Vec<u8>> {
        // Blocks are cut differently: whatever goes by blocks goes as a whole, or not.
        let (by_length, by_id) = match self.random.u32(..4) {
            0 => (&["~"][..], ["1000", "0-1"]),
            1 => (&["="][..], ["", ""]),
            _ => (&[][..], ["", ""]),
        };
        let mut arguments;
        if self.one_in(3) {
            arguments = vec![b"MINID".to_vec()];
            arguments.extend(by_length.iter().map(|word| word.as_bytes().to_vec()));
            let exact = self.id();
            arguments.push(if by_id[1].is_empty() {
                exact
            } else {
                by_id[1].into()
            });
        } else {
            arguments = vec![b"maxlen".to_vec()];
            arguments.extend(by_length.iter().map(|word| word.as_bytes().to_vec()));
            let exact = self.number_word(0, 12);
            arguments.push(if by_id[0].is_empty() {
                exact
            } else {
                by_id[0].into()
            });
        }
        if self.one_in(8) {
            arguments.push(b"LIMIT".to_vec());
            arguments.push(self.number_word(-1, 9));
        }
        arguments
    }

    fn add(&mut self, key: Vec<u8>) -> Step {
        let mut arguments = vec![key];
        if self.one_in(8) {
            arguments.push(b"NOMKSTREAM".to_vec());
        }
        if self.one_in(4) {
            let trim = self.trim();
            arguments.extend(trim);
        }
        arguments.push(self.new_id());
        for _ in 0..self.random.u32(1..4) {
            let field = self.pick(&["f", "g", "7", ""]).into();
            let value = self.number_word(0, 3000);
            arguments.extend([field, value]);
        }
        self.exact("xadd", arguments)
    }

    fn streams(&mut self, key: Vec<u8>, special: &str) -> Vec<Vec<u8>> {
        let mut arguments = Vec::new();
        if self.one_in(2) {
            arguments.push(b"COUNT".to_vec());
            arguments.push(self.number_word(-1, 5));
        }
        if self.one_in(8) {
            arguments.extend([b"BLOCK".to_vec(), b"1".to_vec()]);
        }
        arguments.push(b"STREAMS".to_vec());
        let mut id = || match self.random.u32(..3) {
            0 => special.as_bytes().to_vec(),
            1 => b"0".to_vec(),
            _ => self.id(),
        };
        let ids = [id(), id()];
        if self.one_in(3) {
            let other = self.stream_key();
            arguments.extend([key, other]);
            arguments.extend(ids);
        } else {
            arguments.push(key);
            arguments.extend(ids.into_iter().take(1));
        }
        arguments
    }

    fn read(&mut self, key: Vec<u8>) -> Step {
        let arguments = self.streams(key, "$");
        self.exact("xread", arguments)
    }

    fn read_group(&mut self, key: Vec<u8>) -> Step {
        let mut arguments = vec![b"GROUP".to_vec(), self.group_name(), self.consumer_name()];
        if self.one_in(6) {
            arguments.push(b"NOACK".to_vec());
        }
        let streams = self.streams(key, ">");
        self.exact("xreadgroup", [arguments, streams].concat())
    }

    fn pending(&mut self, key: Vec<u8>) -> Step {
        let mut arguments = vec![key, self.group_name()];
        if self.one_in(3) {
            return self.exact("xpending", arguments);
        }
        if self.one_in(3) {
            arguments.push(b"IDLE".to_vec());
            arguments.push(self.min_idle());
        }
        arguments.extend([self.id_bound("-"), self.id_bound("+")]);
        arguments.push(self.number_word(0, 9));
        if self.one_in(3) {
            arguments.push(self.consumer_name());
        }
        self.step("xpending", arguments, Compare::Timeless)
    }

    fn claim(&mut self, key: Vec<u8>) -> Step {
        let mut arguments = vec![
            key,
            self.group_name(),
            self.consumer_name(),
            self.min_idle(),
        ];
        if self.one_in(2) {
            arguments.push(self.id_bound("-"));
            if self.one_in(3) {
                arguments.push(b"COUNT".to_vec());
                arguments.push(self.number_word(0, 5));
            }
            if self.one_in(3) {
                arguments.push(b"justid".to_vec());
            }
            return self.exact("xautoclaim", arguments);
        }
        let ids = self.ids();
        arguments.extend(ids);
        while self.one_in(2) {
            match self.random.u32(..6) {
                0 => arguments.push(b"FORCE".to_vec()),
                1 => arguments.push(b"JUSTID".to_vec()),
                2 => {
                    arguments.push(b"IDLE".to_vec());
                    arguments.push(LONGER_MS.to_string().into_bytes());
                }
                3 => arguments.extend([b"time".to_vec(), b"1000".to_vec()]),
                4 => {
                    arguments.push(b"RETRYCOUNT".to_vec());
                    arguments.push(self.number_word(-1, 5));
                }
                _ => {
                    arguments.push(b"LASTID".to_vec());
                    arguments.push(self.id());
                }
            }
        }
        self.exact("xclaim", arguments)
    }

    fn groups(&mut self, key: Vec<u8>) -> Step {
        let name = self.group_name();
        let arguments = match self.random.u32(..12) {
            0..7 => {
                let subcommand = self.pick(&["CREATE", "create", "SETID"]);
                let id = if self.one_in(2) {
                    b"$".to_vec()
                } else {
                    self.id()
                };
                let mut arguments = vec![subcommand.into(), key, name, id];
                if subcommand != "SETID" && self.one_in(2) {
                    arguments.push(b"MKSTREAM".to_vec());
                }
                if self.one_in(4) {
                    arguments.push(b"ENTRIESREAD".to_vec());
                    arguments.push(self.number_word(-1, 9));
                }
                arguments
            }
            7 => vec![b"DESTROY".to_vec(), key, name],
            8 | 9 => vec![b"CREATECONSUMER".to_vec(), key, name, self.consumer_name()],
            _ => vec![b"DELCONSUMER".to_vec(), key, name, self.consumer_name()],
        };
        self.exact("xgroup", arguments)
    }

    fn describe(&mut self, key: Vec<u8>) -> Step {
        let arguments = match self.random.u32(..6) {
            0 | 1 => vec![b"STREAM".to_vec(), key],
            2 => vec![b"STREAM".to_vec(), key, b"FULL".to_vec()],
            3 => {
                let count = self.number_word(0, 3);
                vec![
                    b"STREAM".to_vec(),
                    key,
                    b"FULL".to_vec(),
                    b"COUNT".to_vec(),
                    count,
                ]
            }
            4 => vec![b"GROUPS".to_vec(), key],
            _ => vec![b"CONSUMERS".to_vec(), key, self.group_name()],
        };
        self.step("xinfo", arguments, Compare::Timeless)
    }
}
