//! Commands on lists; the blocking ones find something, or are queued by MULTI.

use pando_protocol::number::parse_f64;

use super::{Generator, Step};

impl Generator {
    /// Nobody pushes what a client would wait for: a timeout is short. LPOS takes no least number,
    /// of which Redis 7.0 makes rank -1.
    pub(super) fn end_waits(name: &[u8], arguments: &mut [Vec<u8>]) {
        let at = match name {
            b"lpos" => {
                let least = i64::MIN.to_string().into_bytes();
                let ranks = arguments.iter_mut().skip(3).filter(|rank| **rank == least);
                ranks.for_each(|rank| *rank = b"-2".to_vec());
                return;
            }
            b"blpop" | b"brpop" | b"bzpopmin" | b"bzpopmax" | b"blmove" | b"brpoplpush" => {
                arguments.len() - 1
            }
            b"bzmpop" | b"blmpop" => 1,
            _ => return,
        };
        let timeout = arguments.get_mut(at).filter(|_| at > 0);
        if let Some(timeout) = timeout
            && parse_f64(timeout).is_some_and(|seconds| seconds >= 0.0)
        {
            *timeout = b"0.001".to_vec();
        }
    }

    fn element(&mut self) -> Vec<u8> {
        match self.random.u32(..10) {
            0 => self.value(),
            1..4 => self.number_word(0, 20),
            _ => format!("i{}", self.random.u32(..12)).into_bytes(),
        }
    }

    fn index(&mut self) -> Vec<u8> {
        self.number_word(-12, 12)
    }

    fn end(&mut self) -> Vec<u8> {
        self.pick(&["LEFT", "right", "LEFT", "RIGHT", "middle"])
            .into()
    }

    pub(super) fn list(&mut self) -> Step {
        let key = self.key_of(b'l');
        match self.random.u32(..30) {
            0..9 => {
                let name = self.pick(&["lpush", "rpush", "lpushx", "rpushx"]);
                let count = self.random.usize(1..6);
                let elements: Vec<_> = (0..count).map(|_| self.element()).collect();
                self.exact(name, [vec![key], elements].concat())
            }
            9 => {
                // Sometimes more than one block holds.
                let count = self.pick(&[3, 200, 900]);
                let numbers = (0..count).map(|number: u32| number.to_string().into_bytes());
                self.exact("rpush", [vec![key], numbers.collect()].concat())
            }
            10..13 => {
                let name = self.pick(&["lpop", "rpop"]);
                self.exact(name, vec![key])
            }
            13 => {
                let name = self.pick(&["lpop", "rpop"]);
                let count = self.number_word(-1, 9);
                self.exact(name, vec![key, count])
            }
            14..16 => {
                let (start, stop) = (self.index(), self.index());
                self.exact("lrange", vec![key, start, stop])
            }
            16 => self.exact("llen", vec![key]),
            17 => {
                let index = self.index();
                self.exact("lindex", vec![key, index])
            }
            18 => {
                let (index, element) = (self.index(), self.element());
                self.exact("lset", vec![key, index, element])
            }
            19..26 => self.search_in_list(key),
            26..29 => self.move_elements(key),
            _ => {
                let name = self.pick(&["blpop", "brpop"]);
                self.exact(name, vec![key, b"0.001".to_vec()])
            }
        }
    }

    fn search_in_list(&mut self, key: Vec<u8>) -> Step {
        match self.random.u32(..7) {
            0..2 => {
                let place = self.pick(&["BEFORE", "after", "beside"]).into();
                let (pivot, element) = (self.element(), self.element());
                self.exact("linsert", vec![key, place, pivot, element])
            }
            2 | 3 => {
                let (count, element) = (self.number_word(-3, 3), self.element());
                self.exact("lrem", vec![key, count, element])
            }
            4 => {
                let (start, stop) = (self.index(), self.index());
                self.exact("ltrim", vec![key, start, stop])
            }
            _ => {
                let mut arguments = vec![key, self.element()];
                for option in ["RANK", "COUNT", "MAXLEN"] {
                    if self.one_in(3) {
                        arguments.push(option.into());
                        arguments.push(self.number_word(-3, 4));
                    }
                }
                self.exact("lpos", arguments)
            }
        }
    }

    fn move_elements(&mut self, key: Vec<u8>) -> Step {
        let waits = self.one_in(8);
        let timeout = waits.then(|| b"0.001".to_vec());
        match self.random.u32(..3) {
            0 => {
                let name = if waits { "brpoplpush" } else { "rpoplpush" };
                let to = self.key_of(b'l');
                self.exact(name, [key, to].into_iter().chain(timeout).collect())
            }
            1 => {
                let name = if waits { "blmove" } else { "lmove" };
                let (to, from_end, to_end) = (self.key_of(b'l'), self.end(), self.end());
                let arguments = [key, to, from_end, to_end].into_iter().chain(timeout);
                self.exact(name, arguments.collect())
            }
            _ => {
                let name = if waits { "blmpop" } else { "lmpop" };
                let (other, end) = (self.key_of(b'l'), self.end());
                let arguments = timeout.into_iter().chain([b"2".to_vec(), key, other, end]);
                let mut arguments: Vec<_> = arguments.collect();
                if self.one_in(2) {
                    arguments.push(b"COUNT".to_vec());
                    arguments.push(self.number_word(0, 5));
                }
                self.exact(name, arguments)
            }
        }
    }
}
