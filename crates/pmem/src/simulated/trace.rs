//! What was done to a simulated memory, and what of it a crash may leave.
//!
//! A replay goes through the events and keeps, per line, the stores that are not durable yet. At
//! each fence, before it takes effect, and at the end it stops and shows the [`Crash`]: whatever
//! a crash between two fences may leave, the next fence may leave too, since stores only add to
//! what a line may hold.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;
use std::sync::Arc;

use pando_sync::shim::thread::ThreadId;

use super::images::{Sampling, Unit};
use super::{COMMIT_AFTER, COMMIT_BEFORE, COMMIT_FLUSH, Image};
use crate::{LINE_BYTES, Mark, Offset, WORD_BYTES};

/// Words of a line.
pub(super) const LINE_WORDS: usize = (LINE_BYTES / WORD_BYTES) as usize;

#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) thread: ThreadId,
    pub(super) what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Store(Offset, Vec<u64>),
    Flush(Offset, usize, Option<Mark>),
    Fence(Option<Mark>),
    /// The word of a commit is durable.
    Committed,
    Note(u64),
}

impl What {
    /// Whether it is what a mark names.
    pub(super) fn takes_mark(&self) -> bool {
        matches!(self, Self::Flush(..) | Self::Fence(_))
    }

    fn mark(&self) -> Option<Mark> {
        match self {
            Self::Flush(_, _, mark) | Self::Fence(mark) => *mark,
            _ => None,
        }
    }
}

/// What the machine keeps whole, and what it writes back by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// Lines: each holds a prefix of the stores to it (PS2 prefixes).
    Lines,
    /// Words only: of a line that is on its way, any words may have arrived.
    Words,
    /// Nothing reaches the medium but by commits, whole, with every line that was flushed.
    Commits,
}

/// How often a mark was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkCount {
    /// The name; `None`: what nobody named.
    pub mark: Option<Mark>,
    /// Flushes under this name.
    pub flushes: usize,
    /// Fences under this name.
    pub fences: usize,
}

/// Everything that was done to a memory.
#[derive(Clone, Debug)]
pub struct Trace {
    base: Arc<Vec<u64>>,
    events: Vec<Event>,
    left_out: Vec<(Mark, Option<usize>)>,
}

impl Trace {
    pub(super) fn new(base: Vec<u64>) -> Self {
        Self {
            base: Arc::new(base),
            events: Vec::new(),
            left_out: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, event: Event) {
        self.events.push(event);
    }

    /// The same run without the flush or fence of this name: without its `which`-th occurrence,
    /// from 0, or without all of them.
    #[must_use]
    pub fn without(&self, mark: Mark, which: Option<usize>) -> Self {
        let mut trace = self.clone();
        trace.left_out.push((mark, which));
        trace
    }

    /// Every name of a flush or fence, in order of the names; those of a commit come last.
    #[must_use]
    pub fn marks(&self) -> Vec<MarkCount> {
        let mut counts = BTreeMap::new();
        for event in self.events.iter().filter(|event| event.what.takes_mark()) {
            let mark = event.what.mark();
            let of_commit = [COMMIT_BEFORE, COMMIT_FLUSH, COMMIT_AFTER]
                .map(Some)
                .contains(&mark);
            let (flushes, fences) = counts.entry((of_commit, mark)).or_insert((0, 0));
            match event.what {
                What::Flush(..) => *flushes += 1,
                _ => *fences += 1,
            }
        }
        let counts = counts.into_iter();
        counts
            .map(|((_, mark), (flushes, fences))| MarkCount {
                mark,
                flushes,
                fences,
            })
            .collect()
    }

    /// Lines that were flushed and fences, of the whole run.
    #[must_use]
    pub fn cost(&self) -> (u64, u64) {
        let (mut lines, mut fences) = (0, 0);
        for event in &self.events {
            match event.what {
                What::Flush(at, length, _) => lines += lines_of(at, length).count() as u64,
                What::Fence(_) => fences += 1,
                _ => {}
            }
        }
        (lines, fences)
    }

    /// Visits every place where the machine may crash, in order.
    pub fn crashes(&self, platform: Platform, mut visit: impl FnMut(&Crash<'_>)) {
        let mut replay = Replay::new(platform, &self.base);
        let mut met: HashMap<Mark, usize> = HashMap::new();
        for event in &self.events {
            if let Some(mark) = event.what.mark() {
                let count = met.entry(mark).or_default();
                let leave = |(left, which): &(Mark, Option<usize>)| {
                    *left == mark && which.is_none_or(|which| which == *count)
                };
                let is_left_out = self.left_out.iter().any(leave);
                *count += 1;
                if is_left_out {
                    continue;
                }
            }
            let stops = match platform {
                Platform::Commits => matches!(event.what, What::Committed),
                _ => matches!(event.what, What::Fence(_)),
            };
            if stops {
                visit(&replay.crash(event.what.mark()));
                replay.crashes += 1;
            }
            replay.step(event);
        }
        visit(&replay.crash(None));
    }
}

/// The lines that a range touches, by number.
fn lines_of(at: Offset, length: usize) -> impl Iterator<Item = usize> {
    let first = at.get() / LINE_BYTES;
    let end = (at.get() + length as u64).div_ceil(LINE_BYTES);
    (first as usize..end as usize).take(if length == 0 { 0 } else { usize::MAX })
}

/// The stores of one event to a line: word of the memory, value.
type Group = Vec<(usize, u64)>;

/// What of a line is not durable.
#[derive(Debug, Default)]
struct Pending {
    /// Groups before the first of `groups`, since the beginning.
    durable: usize,
    groups: Vec<Group>,
}

struct Replay {
    platform: Platform,
    /// What is durable whatever happens.
    durable: Vec<u64>,
    /// What is loaded.
    current: Vec<u64>,
    pending: BTreeMap<usize, Pending>,
    /// Lines that a thread has flushed and not fenced, with the number of groups flushed.
    flushed: HashMap<ThreadId, BTreeMap<usize, usize>>,
    /// Lines flushed since the last commit.
    dirty: BTreeSet<usize>,
    /// The groups that are pending, in the order of the run: line, number.
    order: Vec<(usize, usize)>,
    notes: Vec<u64>,
    crashes: usize,
}

impl Replay {
    fn new(platform: Platform, base: &[u64]) -> Self {
        Self {
            platform,
            durable: base.to_vec(),
            current: base.to_vec(),
            pending: BTreeMap::new(),
            flushed: HashMap::new(),
            dirty: BTreeSet::new(),
            order: Vec::new(),
            notes: Vec::new(),
            crashes: 0,
        }
    }

    fn step(&mut self, event: &Event) {
        match &event.what {
            What::Store(at, words) => self.store(*at, words),
            What::Flush(at, length, _) => {
                let of_thread = self.flushed.entry(event.thread).or_default();
                for line in lines_of(*at, *length) {
                    self.dirty.insert(line);
                    if let Some(pending) = self.pending.get(&line) {
                        of_thread.insert(line, pending.durable + pending.groups.len());
                    }
                }
            }
            What::Fence(_) => self.fence(event.thread),
            What::Committed if self.platform == Platform::Commits => {
                for line in mem::take(&mut self.dirty) {
                    let words = line * LINE_WORDS..(line + 1) * LINE_WORDS;
                    self.durable[words.clone()].copy_from_slice(&self.current[words]);
                }
            }
            What::Committed => {}
            What::Note(number) => self.notes.push(*number),
        }
    }

    fn store(&mut self, at: Offset, words: &[u64]) {
        let first = (at.get() / WORD_BYTES) as usize;
        self.current[first..first + words.len()].copy_from_slice(words);
        if self.platform == Platform::Commits {
            return;
        }
        let mut places = (first..).zip(words.iter().copied()).peekable();
        while let Some((place, _)) = places.peek() {
            let line = place / LINE_WORDS;
            let pending = self.pending.entry(line).or_default();
            self.order
                .push((line, pending.durable + pending.groups.len()));
            let mut group = Group::new();
            while let Some(store) = places.next_if(|(place, _)| place / LINE_WORDS == line) {
                group.push(store);
            }
            pending.groups.push(group);
        }
    }

    fn fence(&mut self, thread: ThreadId) {
        if self.platform == Platform::Commits {
            return;
        }
        for (line, count) in self.flushed.remove(&thread).unwrap_or_default() {
            let Some(pending) = self.pending.get_mut(&line) else {
                continue;
            };
            let arrived = count.saturating_sub(pending.durable);
            for (place, word) in pending.groups.drain(..arrived).flatten() {
                self.durable[place] = word;
            }
            pending.durable += arrived;
        }
        let pending = &self.pending;
        self.order
            .retain(|(line, number)| *number >= pending[line].durable);
    }

    fn crash(&self, mark: Option<Mark>) -> Crash<'_> {
        let units = match self.platform {
            Platform::Lines => self.lines(),
            Platform::Words => self.words(),
            Platform::Commits => self.whole(),
        };
        let group = |(line, number): &(usize, usize)| {
            let pending = &self.pending[line];
            pending.groups[number - pending.durable].as_slice()
        };
        Crash {
            number: self.crashes,
            mark,
            notes: &self.notes,
            durable: &self.durable,
            units,
            order: self.order.iter().map(group).collect(),
        }
    }

    /// A unit per line: every prefix of its groups, and of the next group's words some, first to
    /// last and last to first, since words of one write have no order (PS2 prefixes).
    fn lines(&self) -> Vec<Unit> {
        let mut units = Vec::new();
        for (line, pending) in &self.pending {
            let at = line * LINE_WORDS;
            let mut content = self.durable[at..at + LINE_WORDS].to_vec();
            let mut unit = Unit::new(at, content.clone());
            for group in &pending.groups {
                for torn in 1..group.len() {
                    unit.add(patched(&content, at, &group[..torn]));
                    unit.add(patched(&content, at, &group[torn..]));
                }
                content = patched(&content, at, group);
                unit.add(content.clone());
            }
            unit.end_with(content);
            units.push(unit);
        }
        units.retain(Unit::is_open);
        units
    }

    /// A unit per word, with every value that it had.
    fn words(&self) -> Vec<Unit> {
        let mut units: BTreeMap<usize, (Unit, u64)> = BTreeMap::new();
        for group in self.pending.values().flat_map(|pending| &pending.groups) {
            for &(place, word) in group {
                let durable = self.durable[place];
                let (unit, last) = units
                    .entry(place)
                    .or_insert_with(|| (Unit::new(place, vec![durable]), durable));
                unit.add(vec![word]);
                *last = word;
            }
        }
        let units = units.into_values().map(|(mut unit, last)| {
            unit.end_with(vec![last]);
            unit
        });
        units.filter(Unit::is_open).collect()
    }

    /// One unit: the last commit, or the one that is on its way.
    fn whole(&self) -> Vec<Unit> {
        let mut unit = Unit::new(0, self.durable.clone());
        let mut next = self.durable.clone();
        for line in &self.dirty {
            let words = line * LINE_WORDS..(line + 1) * LINE_WORDS;
            next[words.clone()].copy_from_slice(&self.current[words]);
        }
        unit.add(next);
        vec![unit]
    }
}

/// A line's content after some stores to it.
fn patched(content: &[u64], at: usize, stores: &[(usize, u64)]) -> Vec<u64> {
    let mut content = content.to_vec();
    for (place, word) in stores {
        content[place - at] = *word;
    }
    content
}

/// A place where the machine crashes.
#[derive(Debug)]
pub struct Crash<'a> {
    /// Its place among the crashes of the trace.
    pub number: usize,
    /// The fence that did not take effect; `None` for one without a name, and at the end.
    pub mark: Option<Mark>,
    notes: &'a [u64],
    pub(super) durable: &'a [u64],
    pub(super) units: Vec<Unit>,
    /// The stores that are not durable, in the order of the run.
    pub(super) order: Vec<&'a [(usize, u64)]>,
}

impl Crash<'_> {
    /// What was noted before, in order.
    #[must_use]
    pub fn noted(&self) -> &[u64] {
        self.notes
    }

    /// How many contents it may leave, at most.
    #[must_use]
    pub fn image_count(&self) -> u128 {
        let counts = self.units.iter().map(|unit| unit.options() as u128);
        counts.fold(1, u128::saturating_mul)
    }

    /// What it may leave: everything where that is little, else a choice.
    pub fn images(&self, sampling: Sampling) -> impl Iterator<Item = Image> {
        super::images::images(self, sampling)
    }
}
