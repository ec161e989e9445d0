//! `SORT` and `SORT_RO`, on keys of their own: in Redis they change the encoding of a sorted set,
//! so these are large, and no other command makes one of them.
//!
//! Where Redis leaves the order of equal elements to chance, only the elements are compared.

use super::{Compare, Generator, Step};

/// What a key holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    List,
    Words,
    Set,
    SortedSet,
}

const MEMBERS: usize = 150;

impl Generator {
    pub(super) fn sort(&mut self) -> Step {
        let kinds = [Kind::List, Kind::Words, Kind::Set, Kind::SortedSet];
        let kind = self.pick(&kinds);
        let name = match kind {
            Kind::List => "sort-list",
            Kind::Words => "sort-words",
            Kind::Set => "sort-set",
            Kind::SortedSet => "sort-zset",
        };
        let key = format!("{name}{}", self.random.u32(..2)).into_bytes();
        match self.random.u32(..10) {
            0 => self.exact("del", vec![key]),
            1..4 => self.fill(kind, key),
            _ => self.sort_key(kind, key),
        }
    }

    fn fill(&mut self, kind: Kind, key: Vec<u8>) -> Step {
        let count = self.random.usize(1..9);
        match kind {
            Kind::List => {
                let odd = [
                    &b" 4"[..],
                    b"5.0",
                    b"+6",
                    b"",
                    b"0x10",
                    b"inf",
                    b"-0",
                    b"3 ",
                    b"nan",
                ];
                let elements = (0..count).map(|_| {
                    if self.one_in(60) {
                        self.pick(&odd).to_vec()
                    } else {
                        self.random.i32(-3..24).to_string().into_bytes()
                    }
                });
                let elements = [vec![key], elements.collect()].concat();
                self.exact("rpush", elements)
            }
            Kind::Words => {
                let words = (0..count).map(|_| match self.random.u32(..3) {
                    0 => self.random.u32(..24).to_string().into_bytes(),
                    _ => format!("i{}", self.random.u32(..24)).into_bytes(),
                });
                let words = [vec![key], words.collect()].concat();
                self.exact("rpush", words)
            }
            Kind::Set => {
                let members = (0..count).map(|_| self.random.u32(..24).to_string().into_bytes());
                let members = [vec![key], members.collect()].concat();
                self.exact("sadd", members)
            }
            Kind::SortedSet => {
                let mut arguments = vec![key];
                for member in 0..MEMBERS {
                    arguments.push(self.random.i32(-5..5).to_string().into_bytes());
                    arguments.push(member.to_string().into_bytes());
                }
                self.exact("zadd", arguments)
            }
        }
    }

    fn sort_key(&mut self, kind: Kind, key: Vec<u8>) -> Step {
        let alpha = self.one_in(if kind == Kind::Words { 1 } else { 3 }) && !self.one_in(20);
        let by = match self.random.u32(..6) {
            0 => Some("nosort"),
            1 => Some("n*"),
            2 => Some("h*->f1"),
            3 if alpha => Some("s*"),
            _ => None,
        };
        let in_place = by == Some("nosort");
        let in_order = matches!(kind, Kind::List | Kind::Words);
        let ties = alpha && by.is_some() && !in_place;
        let stores = self.one_in(4) && (in_order || !ties);
        let mut options: Vec<Vec<Vec<u8>>> = Vec::new();
        let mut option = |words: &[&str]| {
            options.push(words.iter().map(|word| word.as_bytes().to_vec()).collect());
        };
        if let Some(by) = by {
            option(&["BY", by]);
        }
        if alpha {
            option(&["alpha"]);
        }
        if self.one_in(3) {
            option(&[self.pick(&["DESC", "asc"])]);
        }
        let is_open = ties || (in_place && kind == Kind::Set && !stores);
        if self.one_in(3) && !is_open {
            let (offset, count) = (self.number_word(-2, 9), self.number_word(-2, 9));
            options.push(vec![b"LIMIT".to_vec(), offset, count]);
        }
        while self.one_in(4) {
            let pattern = self.pick(&["#", "s*", "n*", "h*->f1", "h*->f2", "none", "h*->", "*"]);
            options.push(vec![b"GET".to_vec(), pattern.into()]);
        }
        if stores {
            let to = self.key_of(b'l');
            options.push(vec![b"STORE".to_vec(), to]);
        }
        self.random.shuffle(&mut options);
        if self.one_in(100) {
            let wrong = self.pick(&["LIMIT", "BY", "GET", "STORE", "", "nosort"]);
            options.push(vec![wrong.into()]);
        }
        let name = if self.one_in(4) { "sort_ro" } else { "sort" };
        let compare = if is_open && !(in_order && ties) {
            Compare::Unordered
        } else {
            Compare::Exact
        };
        let arguments = [vec![key], options.concat()].concat();
        self.step(name, arguments, compare)
    }
}
