//! Merges of branches whose databases are emptied and swapped beside a model, with the process
//! ended in between.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::durable::testing::{self, Fault};
use crate::turn::small::{self, Bounds};

const DATABASES: usize = 3;
const KEYS: usize = 6;

type Map = BTreeMap<String, String>;
type Databases = Vec<Map>;
type Past = Vec<(usize, Databases)>;

/// A branch or a snapshot.
#[derive(Clone)]
struct Version {
    /// When it was made.
    id: usize,
    name: String,
    now: Databases,
    /// What it was whenever something was made of it, and when.
    past: Past,
    /// The same of those that it has merged, as they were then, by their ids.
    marks: BTreeMap<usize, Past>,
}

struct Model {
    disk: SimulatedDisk,
    shell: Shell,
    rng: fastrand::Rng,
    branches: Vec<Version>,
    snapshots: Vec<Version>,
    time: usize,
    /// Merges whose databases were others where the branches parted.
    merges_of_others: usize,
}

fn setup() -> Setup {
    Setup {
        engine: EngineKind::Minuet,
        databases: DATABASES,
        ..Setup::default()
    }
}

impl Version {
    /// The latest version that is in both and in the past of one.
    fn latest_in<'v>(&'v self, other: &'v Self) -> &'v Databases {
        let marks_of_other = other.marks.values().map(|mark| (&self.past, mark));
        let own_marks = self.marks.values().map(|mark| (mark, &other.past));
        let pairs = [(&self.past, &other.past)].into_iter();
        let pairs = pairs.chain(marks_of_other).chain(own_marks);
        let pairs = pairs.map(|(one, other)| one.iter().zip(other));
        let along =
            pairs.filter_map(|both| both.take_while(|(one, other)| one.0 == other.0).last());
        let latest = along.max_by_key(|(one, _)| one.0);
        &latest.expect("all come from the first").0.1
    }
}

impl Model {
    fn new(seed: u64) -> Self {
        let disk = SimulatedDisk::new();
        let shell = setup().open(&disk).expect("the disk is empty");
        let main = Version {
            id: 0,
            marks: BTreeMap::new(),
            name: "main".into(),
            now: vec![Map::new(); DATABASES],
            past: vec![(0, vec![Map::new(); DATABASES])],
        };
        Self {
            disk,
            shell,
            rng: fastrand::Rng::with_seed(seed),
            branches: vec![main],
            snapshots: Vec::new(),
            time: 0,
            merges_of_others: 0,
        }
    }

    fn any(&mut self) -> usize {
        self.rng.usize(..self.branches.len())
    }

    /// Runs a line on a branch, in a database.
    fn line(&mut self, (branch, database): (usize, usize), line: &str) -> String {
        let name = &self.branches[branch].name;
        let words = [format!("BRANCH USE {name}"), format!("SELECT {database}")];
        for word in words {
            assert_eq!(self.shell.line(&word), "+OK");
        }
        self.shell.line(line)
    }

    fn write(&mut self) {
        let place = (self.any(), self.rng.usize(..DATABASES));
        let (key, value) = (self.rng.usize(..KEYS), self.rng.u8(..3));
        let (key, value) = (format!("k{key}"), value.to_string());
        let map = &mut self.branches[place.0].now[place.1];
        let line = if self.rng.u8(..4) == 0 {
            map.remove(&key);
            format!("DEL {key}")
        } else {
            map.insert(key.clone(), value.clone());
            format!("SET {key} {value}")
        };
        self.line(place, &line);
    }

    fn remap(&mut self) {
        let place = (self.any(), self.rng.usize(..DATABASES));
        let other = self.rng.usize(..DATABASES);
        let databases = &mut self.branches[place.0].now;
        let line = if self.rng.bool() {
            databases[place.1].clear();
            "FLUSHDB".to_owned()
        } else {
            databases.swap(place.1, other);
            format!("SWAPDB {} {other}", place.1)
        };
        assert_eq!(self.line(place, &line), "+OK");
    }

    /// Makes a branch or a snapshot; returns what it was made of, under another name.
    fn part(&mut self, branch: usize, name: &str) -> Version {
        self.time += 1;
        let of = &mut self.branches[branch];
        of.past.push((self.time, of.now.clone()));
        Version {
            id: self.time,
            name: name.into(),
            ..of.clone()
        }
    }

    fn make(&mut self) {
        let (of, name) = (self.any(), format!("b{}", self.time));
        if self.branches.len() > 5 {
            let last = self.rng.usize(1..self.branches.len());
            let Version {
                id, name: dropped, ..
            } = self.branches.remove(last);
            let all = self.branches.iter_mut().chain(&mut self.snapshots);
            all.for_each(|version| _ = version.marks.remove(&id));
            assert_eq!(self.line((0, 0), &format!("BRANCH DROP {dropped}")), "+OK");
        } else if self.snapshots.is_empty() || self.rng.bool() {
            let made = self.line((of, 0), &format!("BRANCH CREATE {name}"));
            assert!(made.starts_with("*3"), "{made}");
            let made = self.part(of, &name);
            self.branches.push(made);
        } else {
            let from = self.rng.usize(..self.snapshots.len());
            let from = self.snapshots[from].clone();
            let line = format!("BRANCH CREATE {name} FROM {}", from.name);
            let made = self.line((of, 0), &line);
            assert!(made.starts_with("*3"), "{made}");
            self.time += 1;
            let id = self.time;
            self.branches.push(Version { id, name, ..from });
        }
    }

    fn freeze(&mut self) {
        if self.snapshots.len() > 3 {
            let dropped = self.rng.usize(..self.snapshots.len());
            let dropped = self.snapshots.remove(dropped).name;
            assert_eq!(self.shell.line(&format!("SNAPSHOT DROP {dropped}")), ":1");
        }
        let (of, name) = (self.any(), format!("s{}", self.time));
        let made = self.line((of, 0), &format!("SNAPSHOT CREATE {name} PERSIST"));
        assert!(made.starts_with('*'), "{made}");
        let made = self.part(of, &name);
        self.snapshots.push(made);
    }

    /// Has steps be small or large ones.
    fn bound(&mut self) {
        let bounds = Bounds {
            keys: 0,
            slice: 2,
            near: 1,
        };
        small::set(self.rng.bool().then_some(bounds));
    }

    fn merge(&mut self) -> Result<(), String> {
        let (theirs, ours) = (self.any(), self.any());
        if theirs == ours {
            return Ok(());
        }
        let [there, here] = [theirs, ours].map(|branch| self.branches[branch].clone());
        let base = there.latest_in(&here);
        let policy = ["FAIL", "OURS", "THEIRS"][self.rng.usize(..3)];
        let (mut merged, mut conflicts, mut now) = (0, 0, here.now.clone());
        for database in 0..DATABASES {
            let sides = [base, &there.now, &here.now].map(|side| &side[database]);
            for key in (0..KEYS).map(|key| format!("k{key}")) {
                let [was, theirs, ours] = sides.map(|side| side.get(&key));
                if theirs == was || theirs == ours {
                    continue;
                }
                conflicts += usize::from(ours != was);
                if ours == was || policy == "THEIRS" {
                    merged += 1;
                    match theirs {
                        Some(value) => _ = now[database].insert(key, value.clone()),
                        None => _ = now[database].remove(&key),
                    }
                }
            }
        }
        if policy == "FAIL" && conflicts > 0 {
            (merged, now) = (0, here.now.clone());
        }
        let (one, other) = (&there.name, &here.name);
        let line = format!("BRANCH MERGE {one} INTO {other} ON CONFLICT {policy}");
        let newest_mark = self.newest_mark();
        self.bound();
        let reply = self.shell.line(&line);
        small::set(None);
        let expected = format!("*6 $6 merged :{merged} $9 conflicts :{conflicts} ");
        if !reply.starts_with(&expected) {
            return Err(format!("{line}: {reply} for {expected}"));
        }
        let is_other = *base != there.now;
        let is_over = policy != "FAIL" || conflicts == 0;
        if is_over {
            let is_marked = self.newest_mark() != newest_mark;
            self.remember([theirs, ours], is_marked);
        }
        if self.rng.bool() {
            self.shell.turn().drop_unfinished();
        }
        self.branches[ours].now = now;
        self.merges_of_others += usize::from(merged > 0 && is_other);
        self.check(ours)
    }

    fn newest_mark(&self) -> Option<u64> {
        let marks = self.shell.database.branches.marks();
        marks.last().map(|mark| mark.number)
    }

    /// One branch was merged into another, and a mark was made, unless nothing had changed.
    fn remember(&mut self, [theirs, ours]: [usize; 2], is_marked: bool) {
        self.time += 1;
        let there = &mut self.branches[theirs];
        let mut marks = there.marks.clone();
        if is_marked {
            there.past.push((self.time, there.now.clone()));
            marks.insert(there.id, there.past.clone());
        }
        let here = &mut self.branches[ours];
        for (id, past) in marks.into_iter().filter(|(id, _)| *id != here.id) {
            let own = here.marks.entry(id).or_default();
            if own.last().map(|it| it.0) < past.last().map(|it| it.0) {
                *own = past;
            }
        }
    }

    /// A branch became what a snapshot shows.
    fn unmerge(&mut self, branch: usize, to: &Version) {
        let id = self.branches[branch].id;
        let all = self.branches.iter_mut().chain(&mut self.snapshots);
        for version in all {
            let mark = version.marks.get(&id).and_then(|past| past.last());
            let stays = mark.is_some_and(|(time, _)| to.past.iter().any(|it| it.0 == *time));
            if !stays {
                version.marks.remove(&id);
            }
        }
        let mut marks = to.marks.clone();
        let mark = marks.get(&id).and_then(|past| past.last());
        if !mark.is_some_and(|(time, _)| to.past.iter().any(|it| it.0 == *time)) {
            marks.remove(&id);
        }
        self.branches[branch].marks = marks;
    }

    fn reset(&mut self) -> Result<(), String> {
        if self.snapshots.is_empty() {
            return Ok(());
        }
        let (branch, to) = (self.any(), self.rng.usize(..self.snapshots.len()));
        let to = self.snapshots[to].clone();
        let line = format!("BRANCH RESET {} TO {}", self.branches[branch].name, to.name);
        self.bound();
        let reply = self.shell.line(&line);
        small::set(None);
        if reply != "$-1" && !reply.starts_with(':') {
            return Err(format!("{line}: {reply}"));
        }
        self.unmerge(branch, &to);
        let of = &mut self.branches[branch];
        if reply == "$-1" {
            of.past.clone_from(&to.past);
        }
        of.now = to.now;
        self.check(branch)
    }

    fn check(&mut self, branch: usize) -> Result<(), String> {
        let expected = self.branches[branch].clone();
        for (database, map) in expected.now.iter().enumerate() {
            let keys: Vec<_> = (0..KEYS).map(|key| format!("k{key}")).collect();
            let values = keys.iter().map(|key| match map.get(key) {
                Some(value) => format!(" $1 {value}"),
                None => " $-1".to_owned(),
            });
            let values: String = values.collect();
            let line = format!("MGET {}", keys.join(" "));
            let found = self.line((branch, database), &line);
            let size = self.line((branch, database), "DBSIZE");
            let name = &expected.name;
            if found != format!("*{KEYS}{values}") || size != format!(":{}", map.len()) {
                return Err(format!("{name} {database}: {found} {size} for {map:?}"));
            }
        }
        Ok(())
    }

    /// Ends the process, and goes on with another.
    fn restart(mut self) -> Result<Self, String> {
        if self.rng.bool() {
            let taken = self
                .shell
                .database
                .checkpoint(&CheckpointOptions::default());
            taken.expect("the disk works");
        }
        self.shell.database.close_log().expect("the disk works");
        let disk = self.disk.restart();
        drop(self.shell);
        let shell = setup().open(&disk).expect("the disk is whole");
        let mut next = Self {
            disk,
            shell,
            ..self
        };
        (0..next.branches.len()).try_for_each(|branch| next.check(branch))?;
        Ok(next)
    }
}

/// A seed's run; returns how many of its merges met other databases, or what is wrong.
fn run(seed: u64) -> Result<usize, String> {
    let mut model = Model::new(seed);
    for _ in 0..120 {
        match model.rng.u8(..24) {
            0..=9 => model.write(),
            10..=12 => model.remap(),
            13..=15 => model.make(),
            16 => model.freeze(),
            17..=21 => model.merge()?,
            22 => model.reset()?,
            _ => model = model.restart()?,
        }
    }
    Ok(model.merges_of_others)
}

#[test]
fn databases_that_were_emptied_or_swapped_are_merged_as_they_were_where_branches_parted() {
    let mut merges = 0;
    for seed in 0..20 {
        merges += run(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
    assert!(merges > 40, "{merges}");
}

fn is_noticed(fault: Fault) -> bool {
    let fails = |seed| catch_unwind(AssertUnwindSafe(|| run(seed).is_err())).unwrap_or(true);
    let found = testing::with(fault, || (0..200).any(fails));
    small::set(None);
    found
}

#[test]
fn the_later_of_two_forks_in_place_of_the_earlier_is_noticed() {
    assert!(is_noticed(Fault::LaterFork));
}

#[test]
fn a_merge_that_is_forgotten_is_noticed() {
    assert!(is_noticed(Fault::MergeForgotten));
}

#[test]
fn a_merge_that_is_forgotten_at_the_next_start_is_noticed() {
    assert!(is_noticed(Fault::MergedUnlogged));
}

#[test]
fn a_checkpoint_without_what_all_have_emptied_is_noticed() {
    assert!(is_noticed(Fault::EmptiedForgotten));
}
