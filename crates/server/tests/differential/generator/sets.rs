//! Commands on sets and sorted sets.
//!
//! Deliberately absent: a SPOP that leaves members (which ones is up to the server), and ranges by
//! member in sorted sets with different scores, about which Redis promises nothing.

use super::{Compare, Generator, Step};

impl Generator {
    fn member(&mut self) -> Vec<u8> {
        match self.random.u32(..10) {
            0 => self.value(),
            1..4 => self.number_word(0, 20),
            _ => format!("m{}", self.random.u32(..30)).into_bytes(),
        }
    }

    fn members(&mut self, key: Vec<u8>) -> Vec<Vec<u8>> {
        let count = self.random.usize(1..5);
        let members: Vec<_> = (0..count).map(|_| self.member()).collect();
        [vec![key], members].concat()
    }

    /// Keys of sets, or sometimes of sorted ones.
    fn sets(&mut self, kind: u8) -> Vec<Vec<u8>> {
        let count = self.random.usize(1..4);
        (0..count).map(|_| self.key_of(kind)).collect()
    }

    pub(super) fn set_of_members(&mut self) -> Step {
        let key = self.key_of(b'e');
        match self.random.u32(..24) {
            0..7 => {
                let arguments = self.members(key);
                self.exact("sadd", arguments)
            }
            7 => {
                // Sometimes more than an intset or a listpack holds.
                let count = self.pick(&[3, 100, 130, 500, 520]);
                let numbers = (0..count).map(|number: u32| number.to_string().into_bytes());
                let arguments = [vec![key], numbers.collect()].concat();
                self.exact("sadd", arguments)
            }
            8 | 9 => {
                let arguments = self.members(key);
                self.exact("srem", arguments)
            }
            10 => self.step("smembers", vec![key], Compare::Unordered),
            11 => self.exact("scard", vec![key]),
            12 => {
                let member = self.member();
                self.exact("sismember", vec![key, member])
            }
            13 => {
                let arguments = self.members(key);
                self.exact("smismember", arguments)
            }
            14 => {
                let (to, member) = (self.key_of(b'e'), self.member());
                self.exact("smove", vec![key, to, member])
            }
            15 => {
                let mut arguments = vec![key];
                if self.one_in(2) {
                    arguments.push(self.number_word(-6, 40));
                }
                self.step("srandmember", arguments, Compare::Shape)
            }
            16 => {
                let count = self.pick(&["0", "100000"]);
                self.step("spop", vec![key, count.into()], Compare::Unordered)
            }
            17 | 18 => {
                let name = self.pick(&["sinter", "sunion", "sdiff"]);
                let keys = self.sets(b'e');
                self.step(name, keys, Compare::Unordered)
            }
            19 | 20 => {
                let name = self.pick(&["sinterstore", "sunionstore", "sdiffstore"]);
                let keys = self.sets(b'e');
                self.exact(name, [vec![key], keys].concat())
            }
            21 => {
                let keys = self.sets(b'e');
                let mut arguments = [vec![keys.len().to_string().into()], keys].concat();
                if self.one_in(2) {
                    arguments.extend([b"LIMIT".to_vec(), self.number_word(-1, 5)]);
                }
                self.exact("sintercard", arguments)
            }
            22 => {
                let arguments = [&key[..], b"0", b"COUNT", b"10000"].map(<[u8]>::to_vec);
                self.step("sscan", arguments.into(), Compare::MembersReply)
            }
            _ => self.exact("object", vec![b"ENCODING".to_vec(), key]),
        }
    }

    fn score(&mut self) -> Vec<u8> {
        match self.random.u32(..8) {
            0 => self.float(),
            1 => self.pick(&["inf", "-inf", "+inf", "-0", "1e300"]).into(),
            _ => self.number_word(-10, 10),
        }
    }

    fn score_bound(&mut self) -> Vec<u8> {
        let score = self.score();
        if self.one_in(4) {
            [b"(", &score[..]].concat()
        } else {
            score
        }
    }

    fn member_bound(&mut self) -> Vec<u8> {
        if self.one_in(6) {
            return self.pick(&["-", "+", "x"]).into();
        }
        let edge = self.pick(&["[", "("]);
        [edge.as_bytes(), &self.member()].concat()
    }

    pub(super) fn sorted_set(&mut self) -> Step {
        let key = self.key_of(b'z');
        match self.random.u32(..40) {
            0..9 => self.zadd(key),
            9 => {
                let count = self.pick(&[3, 100, 130]);
                let scores = self.random.u32(1..60);
                let pairs = (0..count).flat_map(|number: u32| {
                    [(number % scores).to_string(), format!("m{number}")].map(String::into_bytes)
                });
                let arguments = [vec![key], pairs.collect()].concat();
                self.exact("zadd", arguments)
            }
            10 | 11 => {
                let (by, member) = (self.score(), self.member());
                self.exact("zincrby", vec![key, by, member])
            }
            12 | 13 => {
                let arguments = self.members(key);
                self.exact("zrem", arguments)
            }
            14 => self.exact("zcard", vec![key]),
            15 => {
                let name = self.pick(&["zscore", "zrank", "zrevrank"]);
                let member = self.member();
                self.exact(name, vec![key, member])
            }
            16 => {
                let arguments = self.members(key);
                self.exact("zmscore", arguments)
            }
            17 => {
                let bounds = [self.score_bound(), self.score_bound()];
                self.exact("zcount", [vec![key], bounds.into()].concat())
            }
            18..24 => self.zrange(key),
            24 => {
                let bounds = [self.number_word(-8, 8), self.number_word(-8, 8)];
                self.exact("zremrangebyrank", [vec![key], bounds.into()].concat())
            }
            25 => {
                let bounds = [self.score_bound(), self.score_bound()];
                self.exact("zremrangebyscore", [vec![key], bounds.into()].concat())
            }
            26 | 27 => {
                let name = self.pick(&["zpopmin", "zpopmax"]);
                let mut arguments = vec![key];
                if self.one_in(2) {
                    arguments.push(self.number_word(-1, 4));
                }
                self.exact(name, arguments)
            }
            28 if self.one_in(2) => {
                let name = self.pick(&["bzpopmin", "BZPOPMAX"]);
                self.exact(name, vec![key, b"0.001".to_vec()])
            }
            28 => self.zmpop(),
            29 => self.zrandmember(key),
            30..34 => self.zunion(key),
            34 => {
                let arguments = [&key[..], b"0", b"COUNT", b"10000"].map(<[u8]>::to_vec);
                self.step("zscan", arguments.into(), Compare::ScanReply)
            }
            35 => self.exact("object", vec![b"ENCODING".to_vec(), key]),
            _ => self.by_member(),
        }
    }

    fn zmpop(&mut self) -> Step {
        let keys = self.sets(b'z');
        let mut arguments = [vec![keys.len().to_string().into()], keys].concat();
        arguments.push(self.pick(&["MIN", "max"]).into());
        if self.one_in(2) {
            arguments.extend([b"COUNT".to_vec(), self.number_word(0, 4)]);
        }
        if self.one_in(2) {
            arguments.insert(0, b"0.001".to_vec());
            return self.exact("bzmpop", arguments);
        }
        self.exact("zmpop", arguments)
    }

    fn zrandmember(&mut self, key: Vec<u8>) -> Step {
        let mut arguments = vec![key];
        if self.one_in(2) {
            arguments.push(self.number_word(-6, 40));
            if self.one_in(2) {
                arguments.push(b"WITHSCORES".to_vec());
            }
        }
        self.step("zrandmember", arguments, Compare::Shape)
    }

    fn zadd(&mut self, key: Vec<u8>) -> Step {
        let mut arguments = vec![key];
        while self.one_in(3) {
            let option = self.pick(&["NX", "xx", "GT", "lt", "CH", "INCR"]);
            arguments.push(option.into());
        }
        for _ in 0..self.random.u32(1..4) {
            let pair = [self.score(), self.member()];
            arguments.extend(pair);
        }
        self.exact("zadd", arguments)
    }

    fn zrange(&mut self, key: Vec<u8>) -> Step {
        let by = self.random.u32(..3);
        let bounds = if by == 0 {
            [self.number_word(-8, 8), self.number_word(-8, 8)]
        } else {
            [self.score_bound(), self.score_bound()]
        };
        let (name, mut arguments) = match by {
            0 => (self.pick(&["zrange", "zrevrange"]), vec![key]),
            1 => (self.pick(&["zrangebyscore", "zrevrangebyscore"]), vec![key]),
            _ if self.one_in(3) => ("zrangestore", vec![self.key_of(b'z'), key]),
            _ => ("zrange", vec![key]),
        };
        arguments.extend(bounds);
        if by == 2 {
            arguments.push(b"BYSCORE".to_vec());
        }
        if self.one_in(3) && name.ends_with("range") {
            arguments.push(b"REV".to_vec());
        }
        if self.one_in(3) {
            let limit = [self.number_word(-1, 4), self.number_word(-1, 6)];
            arguments.push(b"LIMIT".to_vec());
            arguments.extend(limit);
        }
        if self.one_in(2) {
            arguments.push(b"WITHSCORES".to_vec());
        }
        self.exact(name, arguments)
    }

    fn zunion(&mut self, key: Vec<u8>) -> Step {
        let name = self.pick(&[
            "zunion",
            "zinter",
            "zdiff",
            "zunionstore",
            "zinterstore",
            "zdiffstore",
            "zintercard",
        ]);
        let kind = self.pick(b"zze");
        let keys = self.sets(kind);
        let count = keys.len();
        let mut arguments = [vec![count.to_string().into()], keys].concat();
        if name.ends_with("store") {
            arguments.insert(0, key);
        }
        if self.one_in(3) {
            arguments.push(b"WEIGHTS".to_vec());
            // Whole numbers: the order in which fractions are added shows.
            arguments.extend(
                (0..count)
                    .map(|_| self.number_word(-3, 4))
                    .collect::<Vec<_>>(),
            );
        }
        if self.one_in(3) {
            let aggregate = self.pick(&["sum", "MIN", "max", "x"]);
            arguments.extend([b"AGGREGATE".to_vec(), aggregate.into()]);
        }
        if self.one_in(3) {
            arguments.push(b"WITHSCORES".to_vec());
        }
        if self.one_in(6) {
            arguments.extend([b"LIMIT".to_vec(), self.number_word(-1, 4)]);
        }
        self.exact(name, arguments)
    }

    /// On sorted sets of keys that nothing else touches, whose scores are all 0.
    fn by_member(&mut self) -> Step {
        let key = format!("y{}", self.random.u32(..3)).into_bytes();
        match self.random.u32(..5) {
            0..2 => {
                let pairs = (0..3).flat_map(|_| [b"0".to_vec(), self.member()]);
                let arguments = [vec![key], pairs.collect()].concat();
                self.exact("zadd", arguments)
            }
            other => {
                let name = match other {
                    2 => "zlexcount",
                    3 => "zremrangebylex",
                    _ => self.pick(&["zrangebylex", "zrevrangebylex"]),
                };
                let bounds = [self.member_bound(), self.member_bound()];
                let mut arguments = [vec![key], bounds.into()].concat();
                if self.one_in(4) {
                    let limit = [self.number_word(0, 3), self.number_word(-1, 3)];
                    arguments.push(b"LIMIT".to_vec());
                    arguments.extend(limit);
                }
                self.exact(name, arguments)
            }
        }
    }
}
