//! Commands on places.
//!
//! Deliberately absent: searches around the poles and the 180th meridian, where Redis misses
//! members.

use super::{Compare, Generator, Step};

impl Generator {
    fn place(&mut self) -> [Vec<u8>; 2] {
        match self.random.u32(..30) {
            0 => ["200", "1e2"].map(Into::into),
            1 => [self.float(), self.value()],
            _ => {
                let longitude = self.random.f64() * 60.0 - 20.0;
                let latitude = self.random.f64() * 30.0 + 30.0;
                [longitude, latitude].map(|degrees| degrees.to_string().into_bytes())
            }
        }
    }

    fn place_name(&mut self) -> Vec<u8> {
        format!("p{}", self.random.u32(..40)).into_bytes()
    }

    fn unit(&mut self) -> Vec<u8> {
        self.pick(&["m", "KM", "mi", "ft", "km", "km", "x"]).into()
    }

    pub(super) fn place_command(&mut self) -> Step {
        let key = format!("g{}", self.random.u32(..4)).into_bytes();
        match self.random.u32(..17) {
            0..5 => {
                let mut arguments = vec![key];
                while self.one_in(4) {
                    let option = self.pick(&["NX", "xx", "CH"]);
                    arguments.push(option.into());
                }
                for _ in 0..self.random.u32(1..4) {
                    arguments.extend(self.place());
                    arguments.push(self.place_name());
                }
                self.exact("geoadd", arguments)
            }
            5 => {
                let mut arguments = vec![key, self.place_name(), self.place_name()];
                if self.one_in(2) {
                    arguments.push(self.unit());
                }
                self.exact("geodist", arguments)
            }
            6 | 7 => {
                let name = self.pick(&["geohash", "geopos"]);
                let members = [self.place_name(), self.place_name()];
                self.exact(name, [vec![key], members.into()].concat())
            }
            8 => {
                let name = self.pick(&["zrange", "zcard", "zrem"]);
                match name {
                    "zrange" => {
                        let rest = ["0", "-1", "WITHSCORES"].map(Vec::from);
                        self.exact(name, [vec![key], rest.into()].concat())
                    }
                    "zcard" => self.exact(name, vec![key]),
                    _ => {
                        let member = self.place_name();
                        self.exact(name, vec![key, member])
                    }
                }
            }
            9 => {
                let stored = b"gstored".to_vec();
                if self.one_in(2) {
                    let rest = ["0", "-1", "WITHSCORES"].map(Vec::from);
                    return self.exact("zrange", [vec![stored], rest.into()].concat());
                }
                let (mut shape, _) = self.search();
                if self.one_in(2) {
                    shape.push(b"STOREDIST".to_vec());
                }
                self.exact("geosearchstore", [vec![stored, key], shape].concat())
            }
            10..13 => self.older_search(key),
            _ => {
                let (mut shape, compare) = self.search();
                for option in ["WITHDIST", "withhash", "WITHCOORD"] {
                    if self.one_in(4) {
                        shape.push(option.into());
                    }
                }
                self.step("geosearch", [vec![key], shape].concat(), compare)
            }
        }
    }

    fn older_search(&mut self, key: Vec<u8>) -> Step {
        let by_member = self.one_in(2);
        let mut arguments = vec![key];
        if by_member {
            arguments.push(self.place_name());
        } else {
            arguments.extend(self.place());
        }
        arguments.push(self.number_word(0, 1200));
        arguments.push(self.unit());
        for option in ["WITHDIST", "withhash", "WITHCOORD"] {
            if self.one_in(6) {
                arguments.push(option.into());
            }
        }
        let mut compare = Compare::Unordered;
        if self.one_in(2) {
            arguments.push(self.pick(&["ASC", "desc"]).into());
            compare = Compare::Exact;
        }
        if self.one_in(3) {
            arguments.extend([b"COUNT".to_vec(), self.number_word(0, 5)]);
            compare = Compare::Exact;
        }
        while self.one_in(3) {
            let option = self.pick(&["STORE", "storedist"]);
            arguments.extend([option.into(), b"gstored".to_vec()]);
        }
        let names = if by_member {
            ["georadiusbymember", "georadiusbymember_ro"]
        } else {
            ["georadius", "georadius_ro"]
        };
        let name = self.pick(&names);
        self.step(name, arguments, compare)
    }

    /// What to look for, and how replies are compared.
    fn search(&mut self) -> (Vec<Vec<u8>>, Compare) {
        let mut arguments = Vec::new();
        if self.one_in(2) {
            arguments.extend([b"FROMMEMBER".to_vec(), self.place_name()]);
        } else {
            arguments.push(b"fromlonlat".to_vec());
            arguments.extend(self.place());
        }
        let length = |random: &mut fastrand::Rng| random.u32(1..1200).to_string().into_bytes();
        if self.one_in(2) {
            arguments.extend([b"BYRADIUS".to_vec(), length(&mut self.random)]);
        } else {
            let (width, height) = (length(&mut self.random), length(&mut self.random));
            arguments.extend([b"bybox".to_vec(), width, height]);
        }
        arguments.push(self.unit());
        let mut compare = Compare::Unordered;
        if self.one_in(2) {
            arguments.push(self.pick(&["ASC", "desc"]).into());
            compare = Compare::Exact;
        }
        if self.one_in(3) {
            arguments.extend([b"COUNT".to_vec(), self.number_word(0, 5)]);
            compare = Compare::Exact;
        }
        (arguments, compare)
    }
}
