//! Commands about the connection: transactions, its database, its name; and words that name none.

use super::super::compare::Compare;
use super::{Generator, Step};

impl Generator {
    pub(super) fn transaction(&mut self) -> Step {
        let name = match self.random.u32(..12) {
            0..4 => "multi",
            4..8 => "exec",
            8 => "discard",
            9 => "unwatch",
            _ => {
                let key = self.any_key();
                return self.exact("watch", args![key]);
            }
        };
        self.exact(name, vec![])
    }

    pub(super) fn connection(&mut self) -> Step {
        match self.random.u32(..12) {
            0 => self.exact("ping", vec![]),
            1 => {
                let value = self.value();
                let name = self.pick(&["ping", "echo"]);
                self.exact(name, args![value])
            }
            2 | 3 => {
                let database = self.number_word(0, 3);
                self.exact("select", args![database])
            }
            4 => {
                let name = self.pick(&["app", "", "two words", "x"]);
                self.exact("client", args!["SETNAME", name])
            }
            5 => self.exact("client", args!["GETNAME"]),
            6 => self.exact("wait", args!["0", "0"]),
            7 => self.step("command", args!["COUNT"], Compare::Shape),
            8 => {
                let key = self.any_key();
                self.exact("command", args!["GETKEYS", "set", key, "v"])
            }
            9 => self.exact("config", args!["GET", "databases"]),
            10 => self.exact("acl", args!["WHOAMI"]),
            _ => self.step("time", vec![], Compare::Shape),
        }
    }

    pub(super) fn garbage(&mut self) -> Step {
        let name = self.pick(&["nosuch", "getx", "", "client|list", "lpush2", "get set"]);
        let count = self.random.usize(..4);
        let arguments = (0..count).map(|_| self.value()).collect();
        self.exact(name, arguments)
    }
}
