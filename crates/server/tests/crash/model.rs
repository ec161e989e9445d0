//! What a writer's commands make of its keys, and whether what a crash has left is what some prefix
//! of them makes.
//!
//! Each writer has keys of its own and one connection, so its commands form one sequence, in the
//! log as in the model. What recovery finds of it must be a prefix: nothing within it missing, torn
//! or exchanged, nothing removed that comes back. The prefix holds at least what was acknowledged
//! in a mode that promises it, and what a reader of `sync` was shown; at most what was sent.

use std::collections::BTreeMap;

/// Strings and hashes of one writer.
pub(crate) const STRINGS: usize = 12;
pub(crate) const HASHES: usize = 4;

/// One command of a writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Set {
        key: usize,
        value: Vec<u8>,
    },
    /// SET with a deadline far ahead, in milliseconds.
    SetAt {
        key: usize,
        value: Vec<u8>,
        at_ms: u64,
    },
    Append {
        key: usize,
        bytes: Vec<u8>,
    },
    SetRange {
        key: usize,
        offset: usize,
        bytes: Vec<u8>,
    },
    Delete {
        key: usize,
    },
    ExpireAt {
        key: usize,
        at_ms: u64,
    },
    Persist {
        key: usize,
    },
    HashSet {
        hash: usize,
        field: usize,
        value: Vec<u8>,
    },
    HashDelete {
        hash: usize,
        field: usize,
    },
    HashRemove {
        hash: usize,
    },
    /// Exchanges the writer's two databases, of which it uses the first.
    Swap,
    /// Empties the writer's first database.
    Flush,
}

/// What stands at a string's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) bytes: Vec<u8>,
    pub(crate) at_ms: Option<u64>,
}

/// The contents of one database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) strings: BTreeMap<usize, Text>,
    pub(crate) hashes: BTreeMap<usize, BTreeMap<usize, Vec<u8>>>,
}

/// What a writer's commands have made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) first: Contents,
    pub(crate) second: Contents,
}

impl State {
    /// What one more command makes of it.
    pub(crate) fn apply(&mut self, operation: &Operation) {
        let strings = &mut self.first.strings;
        let hashes = &mut self.first.hashes;
        match operation {
            Operation::Set { key, value } => {
                let (bytes, at_ms) = (value.clone(), None);
                strings.insert(*key, Text { bytes, at_ms });
            }
            Operation::SetAt { key, value, at_ms } => {
                let (bytes, at_ms) = (value.clone(), Some(*at_ms));
                strings.insert(*key, Text { bytes, at_ms });
            }
            Operation::Append { key, bytes } => {
                let text = strings.entry(*key).or_insert_with(Text::empty);
                text.bytes.extend_from_slice(bytes);
            }
            Operation::SetRange { key, offset, bytes } => {
                let text = strings.entry(*key).or_insert_with(Text::empty);
                let end = offset + bytes.len();
                if text.bytes.len() < end {
                    text.bytes.resize(end, 0);
                }
                text.bytes[*offset..end].copy_from_slice(bytes);
            }
            Operation::Delete { key } => {
                strings.remove(key);
            }
            Operation::ExpireAt { key, at_ms } => {
                if let Some(text) = strings.get_mut(key) {
                    text.at_ms = Some(*at_ms);
                }
            }
            Operation::Persist { key } => {
                if let Some(text) = strings.get_mut(key) {
                    text.at_ms = None;
                }
            }
            Operation::HashSet { hash, field, value } => {
                hashes
                    .entry(*hash)
                    .or_default()
                    .insert(*field, value.clone());
            }
            Operation::HashDelete { hash, field } => {
                if let Some(fields) = hashes.get_mut(hash) {
                    fields.remove(field);
                    if fields.is_empty() {
                        hashes.remove(hash);
                    }
                }
            }
            Operation::HashRemove { hash } => {
                hashes.remove(hash);
            }
            Operation::Swap => std::mem::swap(&mut self.first, &mut self.second),
            Operation::Flush => self.first = Contents::default(),
        }
    }
}

impl Text {
    fn empty() -> Self {
        Self {
            bytes: Vec::new(),
            at_ms: None,
        }
    }
}

/// What one writer did between a start of the server and its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// What stood there at the start.
    pub(crate) before: State,
    /// What was sent, in order.
    pub(crate) sent: Vec<Operation>,
    /// How many of them must be there: acknowledged in a mode that promises it by the time of the
    /// end, or shown to a reader of `sync`.
    pub(crate) promised: usize,
}

/// Why what was found cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// Only a prefix that is too short gives what was found.
    Lost { found: usize, promised: usize },
    /// No prefix does.
    NoPrefix,
}

impl History {
    /// The longest prefix that gives `found`, if it holds what was promised.
    pub(crate) fn check(&self, found: &State) -> Result<usize, Violation> {
        let mut state = self.before.clone();
        let mut longest = (state == *found).then_some(0);
        for (index, operation) in self.sent.iter().enumerate() {
            state.apply(operation);
            if state == *found {
                longest = Some(index + 1);
            }
        }
        match longest {
            None => Err(Violation::NoPrefix),
            Some(prefix) if prefix < self.promised => Err(Violation::Lost {
                found: prefix,
                promised: self.promised,
            }),
            Some(prefix) => Ok(prefix),
        }
    }
}

/// Random commands of one writer.
#[derive(Debug)]
pub(crate) struct Generator {
    random: fastrand::Rng,
    writer: usize,
    /// Commands so far, over all rounds: every value is told from every other by it.
    count: u64,
}

/// The first deadline, in milliseconds: the year 2100.
const FAR_MS: u64 = 4_102_444_800_000;

impl Generator {
    pub(crate) fn new(seed: u64, writer: usize) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed ^ (writer as u64) << 32),
            writer,
            count: 0,
        }
    }

    /// A value that says which command wrote it; now and then a long one.
    fn value(&mut self) -> Vec<u8> {
        let mut value = format!("{}:{}:", self.writer, self.count).into_bytes();
        let bytes = match self.random.usize(..100) {
            0 => self.random.usize(20_000..200_000),
            1..10 => self.random.usize(500..5000),
            _ => self.random.usize(..60),
        };
        let letter = self.random.alphanumeric() as u8;
        value.resize(value.len() + bytes, letter);
        value
    }

    pub(crate) fn next(&mut self) -> Operation {
        self.count += 1;
        let key = self.random.usize(..STRINGS);
        let hash = self.random.usize(..HASHES);
        let field = self.random.usize(..200);
        let at_ms = FAR_MS + self.count;
        match self.random.usize(..1000) {
            0..420 => Operation::Set {
                key,
                value: self.value(),
            },
            420..470 => Operation::SetAt {
                key,
                value: self.value(),
                at_ms,
            },
            470..560 => Operation::Append {
                key,
                bytes: self.value(),
            },
            560..600 => Operation::SetRange {
                key,
                offset: self.random.usize(..300),
                bytes: format!("<{}>", self.count).into_bytes(),
            },
            600..680 => Operation::Delete { key },
            680..720 => Operation::ExpireAt { key, at_ms },
            720..750 => Operation::Persist { key },
            750..930 => Operation::HashSet {
                hash,
                field,
                value: format!("{}", self.count).into_bytes(),
            },
            930..980 => Operation::HashDelete { hash, field },
            980..990 => Operation::HashRemove { hash },
            990..996 => Operation::Swap,
            _ => Operation::Flush,
        }
    }
}
