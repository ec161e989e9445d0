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
//! **Branches.** A key is another one on each line of versions. Whoever began a line wrote all keys
//! of it: with what the version had that it came from. Whoever left a version behind, by a snapshot
//! or a branch, read all keys of its line, and has seen what others see there. So a read of what a
//! line had when it began is one of the version that it came from, and so on up to the line where
//! it was written, which its version says (`SnapshotId::version_floor`). A write that shows on
//! another branch is a read that nothing explains. The floor that an absent key was read at is that
//! of a leaf on the line where it was missed; above that line, no more is known than that the key
//! was not there. All who found out what a version has must agree.
//!
//! Who uses a line comes before whoever dropped or reset its branch.
//!
//! **Large merges.** A branch that became a hidden one goes on from that one's last version. What
//! the hidden branch was not given is what the branch had at last, not what it had when the hidden
//! one was made: a write in between that is missing was lost.
//!
//! **What is lent.** Whoever borrows a snapshot comes before whoever made it: so all that had
//! committed before it asked is in there.
//!
//! Of a transaction whose coordinator crashed while it committed, the memnodes know how it ended.
//!
//! Versions are not trusted alone: money is counted, and a list is a prefix of every longer one.

use std::collections::{BTreeMap, BTreeSet};

use super::script::{ACCOUNTS, At, Effects, Key, MONEY, Seen, account, list};
use crate::branch::BranchId;
use crate::snapshot::SnapshotId;
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
    /// Who left a version behind.
    pub(crate) makers: BTreeMap<SnapshotId, usize>,
    /// Who began a line, and from which version.
    lines: BTreeMap<u32, (usize, SnapshotId)>,
    /// Who took a line from its branch.
    over: BTreeMap<u32, usize>,
    /// The line of each hidden branch that a branch became, and the line that this one had.
    adopted: BTreeMap<u32, u32>,
    /// Who was lent which version, which it asked for before that was made.
    lent: Vec<(usize, SnapshotId)>,
    /// The branches that there are, each with its line.
    pub(crate) branches: BTreeMap<BranchId, u32>,
}

/// Where a write stands among those of its key on a line.
type Place = u64;

/// The writes of a key on a line: by place, who wrote what.
type Places<'h> = BTreeMap<Place, (usize, Option<&'h [u8]>)>;

/// The writes of all keys.
type Writes<'h> = BTreeMap<(u32, &'h Key), Places<'h>>;

/// What versions that stayed behind have, as far as anybody saw: the key's version, or nothing.
type States<'h> = BTreeMap<(SnapshotId, &'h Key), Option<u64>>;

/// What somebody found.
#[derive(Clone, Copy, Debug)]
struct Found<'h> {
    at: At,
    key: &'h Key,
    version: u64,
    value: Value<'h>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value<'h> {
    Absent,
    /// Some value.
    Any,
    This(&'h [u8]),
}

fn present(version: u64) -> Place {
    2 * version
}

fn removed(version: u64) -> Place {
    2 * version + 1
}

impl History {
    /// Notes a transaction that committed.
    pub(crate) fn add(&mut self, ran: Ran, effects: &Effects) {
        let number = self.ran.len();
        self.ran.push(ran);
        self.makers
            .extend(effects.left.map(|version| (version, number)));
        self.over.extend(effects.over.map(|line| (line, number)));
        if let Some((hidden, line)) = effects.adopted {
            self.over.insert(hidden, number);
            self.adopted.insert(hidden, line);
        }
        if let Some(began) = effects.began {
            self.lines.insert(began.line, (number, began.from));
            if effects.over.is_none() {
                self.branches.insert(began.branch, began.line);
            } else if let Some(line) = self.branches.get_mut(&began.branch) {
                // Of two resets, the later one has the higher line.
                *line = began.line.max(*line);
            }
        }
        if let Some(dropped) = effects.dropped {
            self.branches.remove(&dropped);
        }
    }

    /// Notes that a version was lent to somebody who had asked by then.
    pub(crate) fn lend(&mut self, asked: u64, version: SnapshotId) {
        self.lent.push((self.ran.len(), version));
        self.ran.push(Ran {
            begin: asked,
            end: None,
            seen: Vec::new(),
        });
    }

    /// All keys that were ever written.
    pub(crate) fn keys(&self) -> BTreeSet<Key> {
        let all = self.ran.iter().flat_map(|ran| &ran.seen);
        let written = all.filter_map(|seen| match seen {
            Seen::Wrote { key, .. } => Some(key.clone()),
            Seen::Read { .. } | Seen::Removed { .. } => None,
        });
        written.collect()
    }

    /// Whether some order explains everything.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.money()?;
        self.lists()?;
        let writes = self.writes()?;
        let (mut edges, mut states) = (self.real_time(), States::new());
        for places in writes.values() {
            for (writer, next) in places.values().zip(places.values().skip(1)) {
                edges.add(writer.0, next.0);
            }
        }
        for index in 0..self.ran.len() {
            for seen in &self.ran[index].seen {
                self.uses(index, seen, &mut edges);
                let found = match seen {
                    Seen::Wrote { .. } => continue,
                    Seen::Read { at, key, probe } => Found {
                        at: *at,
                        key,
                        version: probe.version,
                        value: probe.value.as_deref().map_or(Value::Absent, Value::This),
                    },
                    // It was there.
                    Seen::Removed { line, key, version } => Found {
                        at: At::Tip(*line),
                        key,
                        version: *version,
                        value: Value::Any,
                    },
                };
                let explained = self.explain(index, found, &writes, (&mut edges, &mut states));
                let begin = self.ran[index].begin;
                explained.map_err(|what| format!("{what} {seen:?} (at {begin})"))?;
            }
        }
        for (asker, version) in &self.lent {
            let maker = self.makers.get(version);
            edges.add(*asker, *maker.ok_or("nobody made what was lent")?);
        }
        edges.is_acyclic()
    }

    /// Money is the same in everything that reads all accounts.
    fn money(&self) -> Result<(), String> {
        for ran in &self.ran {
            let mut banks: BTreeMap<At, BTreeMap<&Key, u64>> = BTreeMap::new();
            for seen in &ran.seen {
                if let Seen::Read { at, key, probe } = seen
                    && (0..ACCOUNTS).any(|number| account(number) == *key)
                    && let Some(value) = &probe.value
                    && let Ok(bytes) = value.as_slice().try_into()
                {
                    let bank = banks.entry(*at).or_default();
                    bank.insert(key, u64::from_le_bytes(bytes));
                }
            }
            for (at, accounts) in banks {
                let sum: u64 = accounts.values().sum();
                if accounts.len() == ACCOUNTS as usize && sum != MONEY * u64::from(ACCOUNTS) {
                    let begin = ran.begin;
                    return Err(format!("{sum} is all the money of {at:?} (at {begin})"));
                }
            }
        }
        Ok(())
    }

    /// Of two states of a list that were seen on one line, one is a prefix of the other.
    fn lists(&self) -> Result<(), String> {
        let is_list = |key: &Key| key.0 >= TreeId(5) && (0..64).any(|number| list(number) == *key);
        let mut states: BTreeMap<(u32, &Key), BTreeSet<&[u8]>> = BTreeMap::new();
        for seen in self.ran.iter().flat_map(|ran| &ran.seen) {
            if let Seen::Read { at, key, probe } = seen
                && let Some(value) = &probe.value
                && is_list(key)
            {
                let states = states.entry((at.line(), key)).or_default();
                states.insert(value);
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
                let (line, key, place, value) = match seen {
                    Seen::Read { .. } => continue,
                    Seen::Wrote {
                        line,
                        key,
                        version,
                        value,
                    } => (*line, key, present(*version), Some(value.as_slice())),
                    Seen::Removed { line, key, version } => (*line, key, removed(*version), None),
                };
                let places = writes.entry((line, key)).or_default();
                if places.insert(place, (index, value)).is_some() {
                    return Err(format!("{key:?} was written twice at {place} on {line}"));
                }
            }
        }
        Ok(writes)
    }

    /// Who uses a line comes after its beginning and before its end.
    fn uses(&self, index: usize, seen: &Seen, edges: &mut Edges) {
        let line = match seen {
            Seen::Read {
                at: At::Past(version),
                ..
            } => {
                if let Some(maker) = self.makers.get(version) {
                    edges.add(*maker, index);
                }
                return;
            }
            Seen::Read { at, .. } => at.line(),
            Seen::Wrote { line, .. } | Seen::Removed { line, .. } => *line,
        };
        if let Some((by, _)) = self.lines.get(&line) {
            edges.add(*by, index);
        }
        if let Some(over) = self.over.get(&line) {
            edges.add(index, *over);
        }
    }

    /// Finds who wrote what was found, up to the line where that was.
    fn explain<'h>(
        &'h self,
        index: usize,
        found: Found<'h>,
        writes: &Writes<'h>,
        (edges, states): (&mut Edges, &mut States<'h>),
    ) -> Result<(), &'static str> {
        let Found {
            at,
            key,
            version,
            value,
        } = found;
        let maker = |version| {
            let maker = self.makers.get(&version).copied();
            maker.ok_or("nobody made the version of")
        };
        let is_absent = value == Value::Absent;
        let state = (!is_absent).then_some(version);
        let mut agree = |version| {
            let known = *states.entry((version, key)).or_insert(state);
            let agrees = known == state;
            agrees.then_some(()).ok_or("others saw something else than")
        };
        let mut reader = index;
        if let At::Past(version) = at {
            agree(version)?;
            reader = maker(version)?;
        }
        let upto = if is_absent {
            removed(version)
        } else {
            present(version)
        };
        let (mut line, none) = (at.line(), Places::new());
        // Of a branch that became another one: that one's line, on the way, and then, where this is
        // the line that the branch had.
        let (mut hidden, mut became) = (None, None);
        loop {
            let places = writes.get(&(line, key)).unwrap_or(&none);
            if let Some((_, (overwriter, _))) = places.range(upto + 1..).next() {
                let last = places.values().next_back().and_then(|(_, value)| *value);
                let is_lost = || matches!(value, Value::This(value) if last != Some(value));
                if became.is_some_and(|hidden| is_lost() && !self.has_merged(hidden, key)) {
                    return Err("a merge has lost what was written since:");
                }
                if at == At::End(line) {
                    return Err("it is not what was written last:");
                }
                edges.add(reader, *overwriter);
            }
            if let Some((place, (writer, written))) = places.range(..=upto).next_back() {
                edges.add(*writer, reader);
                let explained = match (value, written) {
                    (Value::Absent, written) => written.is_none(),
                    (_, None) => false,
                    (Value::Any, Some(_)) => *place == upto,
                    (Value::This(value), Some(written)) => *place == upto && value == *written,
                };
                return explained.then_some(()).ok_or("nobody wrote");
            }
            let Some((by, from)) = self.lines.get(&line) else {
                return is_absent.then_some(()).ok_or("nobody wrote");
            };
            edges.add(*by, reader);
            agree(*from)?;
            if is_absent {
                return self.was_absent(from.line(), key, writes);
            }
            reader = maker(*from)?;
            edges.add(reader, *by);
            let is_former = hidden == Some(line) && self.adopted.get(&line) == Some(&from.line());
            became = is_former.then_some(line);
            hidden = self
                .adopted
                .contains_key(&from.line())
                .then_some(from.line());
            line = from.line();
        }
    }

    /// Whether a key may be absent of which nothing was written since a line began, if that was by
    /// becoming the hidden branch whose line is `hidden`.
    fn was_absent(&self, hidden: u32, key: &Key, writes: &Writes<'_>) -> Result<(), &'static str> {
        let Some(former) = self.adopted.get(&hidden) else {
            return Ok(());
        };
        let last = |line: u32| writes.get(&(line, key))?.values().next_back();
        match last(hidden).or_else(|| last(*former)) {
            Some((_, Some(_))) if !self.has_merged(hidden, key) => {
                Err("a merge has lost what was written:")
            }
            _ => Ok(()),
        }
    }

    /// Whether whoever let a branch become the hidden one has looked at a key of that: then it has
    /// what the two sides have made of it by then.
    fn has_merged(&self, hidden: u32, key: &Key) -> bool {
        let looked = |seen: &Seen| match seen {
            Seen::Read { at, key: of, .. } => at.line() == hidden && of == key,
            Seen::Wrote { .. } | Seen::Removed { .. } => false,
        };
        let number = self.over.get(&hidden);
        number.is_some_and(|number| self.ran[*number].seen.iter().any(looked))
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
