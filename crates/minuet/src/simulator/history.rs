//! What transactions saw and did, and whether some order explains it.
//!
//! Versions of a key say in which order it was written, so every dependency between two
//! transactions is known: who wrote before whom, who read whose write, whose read was overwritten
//! by whom. With an edge from each transaction to all that began after its end, the history is
//! strictly serializable if and only if there is no cycle. A long fork, a write skew, a lost update
//! or a stale read is one.
//!
//! A removal of version v counts as written right after v, and an absent key read at floor f comes
//! after all that was written up to f.
//!
//! Of a transaction whose coordinator crashed while it committed, the memnodes know how it ended.
//!
//! Versions are not trusted alone: money is counted, and a list is a prefix of every longer one.

use std::collections::{BTreeMap, BTreeSet};

use super::audit::Contents;
use super::script::{ACCOUNTS, Key, MONEY, Seen, account, list};
use crate::tree::TreeId;

/// A transaction that committed.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) begin: u64,
    /// When its client knew; none if it never did.
    pub(crate) end: Option<u64>,
    pub(crate) seen: Vec<Seen>,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) ran: Vec<Ran>,
}

/// Where a write stands among those of its key.
type Place = u64;

/// The writes of each key: by place, who wrote what.
type Writes<'h> = BTreeMap<&'h Key, BTreeMap<Place, (usize, Option<&'h [u8]>)>>;

fn present(version: u64) -> Place {
    2 * version
}

fn removed(version: u64) -> Place {
    2 * version + 1
}

fn is_present(places: &BTreeMap<Place, (usize, Option<&[u8]>)>) -> bool {
    places
        .last_key_value()
        .is_some_and(|(_, (_, value))| value.is_some())
}

impl History {
    /// Whether some order explains everything, and leaves `contents`.
    pub(crate) fn check(&self, contents: &Contents) -> Result<(), String> {
        self.money()?;
        self.lists()?;
        let writes = self.writes()?;
        Self::last(&writes, contents)?;
        let mut edges = self.real_time();
        for places in writes.values() {
            for (writer, next) in places.values().zip(places.values().skip(1)) {
                edges.add(writer.0, next.0);
            }
        }
        for index in 0..self.ran.len() {
            self.reads(index, &writes, &mut edges)?;
        }
        edges.is_acyclic()
    }

    /// Money is the same in everything that reads all accounts.
    fn money(&self) -> Result<(), String> {
        for ran in &self.ran {
            let mut accounts = BTreeMap::new();
            for seen in &ran.seen {
                if let Seen::Read { key, probe } = seen
                    && (0..ACCOUNTS).any(|number| account(number) == *key)
                    && let Some(value) = &probe.value
                    && let Ok(bytes) = value.as_slice().try_into()
                {
                    accounts.insert(key, u64::from_le_bytes(bytes));
                }
            }
            let sum: u64 = accounts.values().sum();
            if accounts.len() == ACCOUNTS as usize && sum != MONEY * u64::from(ACCOUNTS) {
                return Err(format!("{sum} is all the money (at {})", ran.begin));
            }
        }
        Ok(())
    }

    /// Of two states of a list that were seen, one is a prefix of the other.
    fn lists(&self) -> Result<(), String> {
        let is_list = |key: &Key| key.0 >= TreeId(5) && (0..64).any(|number| list(number) == *key);
        let mut states: BTreeMap<&Key, BTreeSet<&[u8]>> = BTreeMap::new();
        for seen in self.ran.iter().flat_map(|ran| &ran.seen) {
            if let Seen::Read { key, probe } = seen
                && let Some(value) = &probe.value
                && is_list(key)
            {
                states.entry(key).or_default().insert(value);
            }
        }
        for (key, states) in states {
            let mut states: Vec<_> = states.into_iter().collect();
            states.sort_unstable_by_key(|state| state.len());
            for (shorter, longer) in states.iter().zip(states.iter().skip(1)) {
                if !longer.starts_with(shorter) {
                    return Err(format!("{key:?} was {shorter:?} and {longer:?}"));
                }
            }
        }
        Ok(())
    }

    fn writes(&self) -> Result<Writes<'_>, String> {
        let mut writes = Writes::new();
        for (index, ran) in self.ran.iter().enumerate() {
            for seen in &ran.seen {
                let (key, place, value) = match seen {
                    Seen::Read { .. } => continue,
                    Seen::Wrote {
                        key,
                        version,
                        value,
                    } => (key, present(*version), Some(value.as_slice())),
                    Seen::Removed { key, version } => (key, removed(*version), None),
                };
                let places = writes.entry(key).or_default();
                if places.insert(place, (index, value)).is_some() {
                    return Err(format!("{key:?} was written twice at {place}"));
                }
            }
        }
        Ok(writes)
    }

    /// What was written last is what is there.
    fn last(writes: &Writes<'_>, contents: &Contents) -> Result<(), String> {
        for (key, places) in writes {
            let full = [&key.0.0.to_be_bytes()[..], &key.1].concat();
            let held = contents
                .get(&full)
                .map(|(version, value)| (present(*version), &**value));
            let (place, (_, value)) = places.last_key_value().expect("a write");
            let written = value.map(|value| (*place, value));
            if held != written {
                return Err(format!(
                    "{key:?} is {held:?}, and {written:?} was written last"
                ));
            }
        }
        let present = writes.values().filter(|places| is_present(places)).count();
        if contents.len() == present {
            Ok(())
        } else {
            Err("there are keys that nobody wrote".to_owned())
        }
    }

    fn reads(&self, index: usize, writes: &Writes<'_>, edges: &mut Edges) -> Result<(), String> {
        let none = BTreeMap::new();
        for seen in &self.ran[index].seen {
            let Seen::Read { key, probe } = seen else {
                continue;
            };
            let places = writes.get(key).unwrap_or(&none);
            let upto = match probe.value {
                Some(_) => present(probe.version),
                None => removed(probe.version),
            };
            let before = places.range(..=upto).next_back();
            let explained = match (before, &probe.value) {
                (Some((place, (_, written))), Some(value)) => {
                    *place == upto && *written == Some(value.as_slice())
                }
                (Some((_, (_, written))), None) => written.is_none(),
                (None, value) => value.is_none(),
            };
            if !explained {
                return Err(format!(
                    "nobody wrote {seen:?} (at {})",
                    self.ran[index].begin
                ));
            }
            if let Some((_, (writer, _))) = before {
                edges.add(*writer, index);
            }
            if let Some((_, (overwriter, _))) = places.range(upto + 1..).next() {
                edges.add(index, *overwriter);
            }
        }
        Ok(())
    }

    /// Edges from each transaction to those that began after its end, through a chain of ends.
    fn real_time(&self) -> Edges {
        let ends: BTreeSet<u64> = self.ran.iter().filter_map(|ran| ran.end).collect();
        let numbered = ends.into_iter().zip(self.ran.len()..);
        let ends: BTreeMap<u64, usize> = numbered.collect();
        let mut edges = Edges {
            next: vec![Vec::new(); self.ran.len() + ends.len()],
        };
        for (one, next) in ends.values().zip(ends.values().skip(1)) {
            edges.add(*one, *next);
        }
        for (index, ran) in self.ran.iter().enumerate() {
            if let Some(end) = ran.end {
                edges.add(index, ends[&end]);
            }
            if let Some((_, before)) = ends.range(..ran.begin).next_back() {
                edges.add(*before, index);
            }
        }
        edges
    }
}

/// A graph of transactions, then of ends.
struct Edges {
    next: Vec<Vec<usize>>,
}

impl Edges {
    fn add(&mut self, from: usize, to: usize) {
        if from != to {
            self.next[from].push(to);
        }
    }

    /// Takes away whatever nothing leads to, until nothing is left, or only cycles and what
    /// follows.
    fn is_acyclic(&self) -> Result<(), String> {
        let mut incoming = vec![0_usize; self.next.len()];
        for to in self.next.iter().flatten() {
            incoming[*to] += 1;
        }
        let mut free: Vec<_> = (0..incoming.len())
            .filter(|index| incoming[*index] == 0)
            .collect();
        let mut taken = 0;
        while let Some(index) = free.pop() {
            taken += 1;
            for to in &self.next[index] {
                incoming[*to] -= 1;
                if incoming[*to] == 0 {
                    free.push(*to);
                }
            }
        }
        if taken < incoming.len() {
            let left = incoming.len() - taken;
            return Err(format!(
                "no order explains the history: {left} left in cycles"
            ));
        }
        Ok(())
    }
}
