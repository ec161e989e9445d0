//! Where branches were made, and which trees databases had there.
//!
//! A merge compares two branches with the version where they part. That is where one of them was
//! made, or a branch that it comes from. Databases may have been emptied or swapped since, on any
//! side; so each branch remembers where it was made, and with it where those were that it comes
//! from. A branch that became a hidden one (`turn::branches::build`) has that one's way.
//!
//! Of two branches that were made from the same one, the one that was made from an earlier version
//! says what was there. Versions are ordered by how many changes of branches and lasting snapshots
//! there had been: the log and replicas count them alike.
//!
//! The log says it by what it says of branches. Behind a checkpoint's forest is, unless that is
//! older:
//!
//! | bytes | field |
//! |---|---|
//! | 1 for each branch | the bound of its descendant sets |
//! | number | how many forks there are |
//! | … | of each its number, its parent's index and 1 or else 0, its order, how many bases, these |
//! | number for each branch | the index of its fork and 1, or else 0 |
//! | two numbers for each snapshot | the same, its order |
//! | numbers for each branch, and for each snapshot | how many marks it has merged, these; absent in older ones |

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use pando_engine::TreeId;

use super::bytes::{Input, Malformed, Sink, malformed};
use super::catalog::{Forest, put_trees, take_descendants, take_trees};
#[cfg(test)]
use super::testing::{Fault, is};
use crate::limits;

/// Forks of a checkpoint, at most.
const FORKS_MAX: usize = 1 << 22;

/// The numbers of marks: what a version has merged (`turn::branches::marks`).
pub(crate) type Merged = Arc<[u64]>;

/// The number of the branch that a mark of this name is of, if it is one.
pub(crate) fn source_of(name: &[u8]) -> Option<u64> {
    let rest = name.strip_prefix(limits::MARK_PREFIX)?;
    let digits = rest.split(|byte| *byte == b':').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

pub(super) fn put_merged(out: &mut Vec<u8>, marks: &[u64]) {
    out.number(marks.len() as u64);
    for mark in marks {
        out.number(*mark);
    }
}

pub(super) fn take_merged(input: &mut Input<'_>) -> Result<Merged, Malformed> {
    let count = input.length(limits::MARKS_MAX)?;
    (0..count).map(|_| input.number()).collect()
}

/// A branch was made.
#[derive(Debug, Eq)]
pub(crate) struct Fork {
    /// Where the branch was made that it was made from; none of the first.
    parent: Option<Arc<Fork>>,
    /// The branch's.
    number: u64,
    /// See [`Place`].
    order: u64,
    /// What its databases had in pages; nothing if that is not known.
    bases: Vec<TreeId>,
}

impl PartialEq for Fork {
    fn eq(&self, other: &Self) -> bool {
        let facts = |fork: &Self| (fork.number, fork.order, fork.above());
        facts(self) == facts(other) && self.bases == other.bases
    }
}

impl Drop for Fork {
    /// One after the other, however many there are.
    fn drop(&mut self) {
        let mut next = self.parent.take();
        while let Some(mut fork) = next.and_then(Arc::into_inner) {
            next = fork.parent.take();
        }
    }
}

impl Fork {
    fn above(&self) -> Option<u64> {
        self.parent.as_ref().map(|parent| parent.number)
    }

    /// One of which nothing is known.
    fn unknown(number: u64) -> Arc<Self> {
        Arc::new(Self {
            parent: None,
            number,
            order: 0,
            bases: Vec::new(),
        })
    }
}

/// A version that a branch is made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// Where its branch was made.
    forks: Option<Arc<Fork>>,
    /// Of two versions of a branch, the earlier one has a smaller order, or the same if nothing is
    /// known.
    order: u64,
    pub(crate) merged: Merged,
}

impl Place {
    /// What a branch is as another one is made, which gets a number.
    pub(crate) fn of_branch(forks: Option<&Arc<Fork>>, number: u64) -> Self {
        Self {
            forks: forks.cloned(),
            order: 2 * number,
            merged: Merged::default(),
        }
    }

    /// It has merged these.
    pub(crate) fn with(self, merged: &Merged) -> Self {
        Self {
            merged: Arc::clone(merged),
            ..self
        }
    }

    /// What a branch of this name has merged that is made from it. A mark needs not know.
    pub(crate) fn merged_by(&self, name: &[u8]) -> Merged {
        match source_of(name) {
            Some(_) => Merged::default(),
            None => Arc::clone(&self.merged),
        }
    }

    /// Whether what a branch was made from comes before this, and this from it.
    pub(crate) fn comes_from(&self, made: Option<&Arc<Fork>>) -> bool {
        let Some(made) = made else {
            return true;
        };
        let (to, here) = (way(made.parent.as_ref()), way(self.forks.as_ref()));
        let is_along = here.len() >= to.len()
            && to
                .iter()
                .zip(&here)
                .all(|(one, other)| one.number == other.number);
        let left = here.get(to.len()).map_or(self.order, |fork| fork.order);
        is_along && made.order <= left
    }

    /// A snapshot of a branch, after so many changes, its own among them if it is one.
    pub(crate) fn of_snapshot(forks: Option<&Arc<Fork>>, changes: u64) -> Self {
        Self {
            forks: forks.cloned(),
            order: 2 * changes + 1,
            merged: Merged::default(),
        }
    }

    /// A branch is made of it, and gets a number.
    pub(crate) fn fork(&self, number: u64, bases: Vec<TreeId>) -> Arc<Fork> {
        Arc::new(Fork {
            parent: self.forks.clone(),
            number,
            order: self.order,
            bases,
        })
    }
}

/// All forks on the way to a branch, the first one first.
fn way(mut last: Option<&Arc<Fork>>) -> Vec<&Arc<Fork>> {
    let mut way = Vec::new();
    while let Some(fork) = last {
        way.push(fork);
        last = fork.parent.as_ref();
    }
    way.reverse();
    way
}

/// The order of the version where two branches part: of two such versions, one that comes from the
/// other has a greater one.
pub(crate) fn parting_order(one: Option<&Arc<Fork>>, other: Option<&Arc<Fork>>) -> u64 {
    let (one, other) = (way(one), way(other));
    let both = one.iter().zip(&other);
    let along = both.take_while(|(one, other)| one.number == other.number);
    let along = along.count();
    let left = [one.get(along), other.get(along)].into_iter().flatten();
    // A mark in place of both is what it was made from.
    let last = along.checked_sub(1).map_or(0, |last| one[last].order);
    left.map(|fork| fork.order).min().unwrap_or(last)
}

/// What databases had in pages where two branches part, as far as that is known.
pub(crate) fn parted<'f>(one: Option<&'f Arc<Fork>>, other: Option<&'f Arc<Fork>>) -> &'f [TreeId] {
    let (one, other) = (way(one), way(other));
    let both = one.iter().zip(&other);
    let along = both.take_while(|(one, other)| one.number == other.number);
    let along = along.count();
    #[cfg(test)]
    let (one, other) = if is(Fault::LaterFork)
        && let (Some(first), Some(second)) = (one.get(along), other.get(along))
    {
        let later = if first.order > second.order {
            one
        } else {
            other
        };
        (later, Vec::new())
    } else {
        (one, other)
    };
    match (one.get(along), other.get(along)) {
        (Some(fork), None) | (None, Some(fork)) => &fork.bases,
        (Some(one), Some(other)) if one.order < other.order => &one.bases,
        (Some(one), Some(other)) if one.order > other.order || one.bases == other.bases => {
            &other.bases
        }
        _ => &[],
    }
}

/// Forks, each behind its parent, and where each is among them.
#[derive(Default)]
struct Table {
    forks: Vec<Arc<Fork>>,
    places: HashMap<u64, usize>,
}

impl Table {
    fn add(&mut self, last: Option<&Arc<Fork>>) {
        let (mut up, mut new) = (last, Vec::new());
        while let Some(fork) = up
            && !self.places.contains_key(&fork.number)
        {
            new.push(Arc::clone(fork));
            up = fork.parent.as_ref();
        }
        for fork in new.into_iter().rev() {
            self.places.insert(fork.number, self.forks.len());
            self.forks.push(fork);
        }
    }

    fn index(&self, fork: Option<&Arc<Fork>>) -> u64 {
        fork.map_or(0, |fork| self.places[&fork.number] as u64 + 1)
    }
}

fn take_fork(input: &mut Input<'_>, forks: &[Arc<Fork>]) -> Result<Option<Arc<Fork>>, Malformed> {
    let index = input.length(forks.len())?;
    Ok(index.checked_sub(1).map(|index| Arc::clone(&forks[index])))
}

impl Forest {
    /// Whether it says more than forests did at first.
    fn has_more(&self) -> bool {
        self.branches.len() > 1
            || !self.snapshots.is_empty()
            || self.branches[0].forks.is_some()
            || !self.branches[0].merged.is_empty()
    }

    fn table(&self) -> Table {
        let mut table = Table::default();
        for branch in &self.branches {
            table.add(branch.forks.as_ref());
        }
        for snapshot in &self.snapshots {
            table.add(snapshot.place.forks.as_ref());
        }
        table
    }

    /// Trees that databases had in pages where branches were made.
    pub(crate) fn fork_bases(&self) -> impl Iterator<Item = TreeId> {
        let forks = self.table().forks.into_iter();
        forks.flat_map(|fork| fork.bases.clone())
    }

    /// The same of where a branch or a snapshot, by its place among all, comes from.
    pub(crate) fn way_bases(&self, item: usize) -> Vec<TreeId> {
        let branches = self.branches.iter().map(|branch| branch.forks.as_ref());
        let snapshots = self.snapshots.iter();
        let mut all = branches.chain(snapshots.map(|snapshot| snapshot.place.forks.as_ref()));
        let mut found = Vec::new();
        let (mut last, mut next) = (&[][..], all.nth(item).flatten());
        while let Some(fork) = next {
            if fork.bases != last {
                found.extend(&fork.bases);
                last = &fork.bases;
            }
            next = fork.parent.as_ref();
        }
        found
    }

    /// Gives those trees other numbers.
    pub(super) fn renumber_forks(&mut self, mut number: impl FnMut(TreeId) -> TreeId) {
        let table = self.table();
        let mut forks: Vec<Arc<Fork>> = Vec::new();
        for fork in &table.forks {
            let parent = fork.above().map(|above| table.places[&above]);
            forks.push(Arc::new(Fork {
                parent: parent.map(|index| Arc::clone(&forks[index])),
                number: fork.number,
                order: fork.order,
                bases: fork.bases.iter().map(|base| number(*base)).collect(),
            }));
        }
        let new = |fork: &mut Option<Arc<Fork>>| {
            if let Some(fork) = fork {
                *fork = Arc::clone(&forks[table.places[&fork.number]]);
            }
        };
        self.branches
            .iter_mut()
            .for_each(|branch| new(&mut branch.forks));
        let snapshots = self.snapshots.iter_mut();
        snapshots.for_each(|snapshot| new(&mut snapshot.place.forks));
    }

    pub(super) fn put_more(&self, out: &mut Vec<u8>) {
        if !self.has_more() {
            return;
        }
        for branch in &self.branches {
            out.put(&[branch.descendants_max]);
        }
        let table = self.table();
        out.number(table.forks.len() as u64);
        for fork in &table.forks {
            out.number(fork.number);
            out.number(table.index(fork.parent.as_ref()));
            out.number(fork.order);
            put_trees(out, &fork.bases);
        }
        for branch in &self.branches {
            out.number(table.index(branch.forks.as_ref()));
        }
        for snapshot in &self.snapshots {
            out.number(table.index(snapshot.place.forks.as_ref()));
            out.number(snapshot.place.order);
        }
        for branch in &self.branches {
            put_merged(out, &branch.merged);
        }
        for snapshot in &self.snapshots {
            put_merged(out, &snapshot.place.merged);
        }
    }

    pub(super) fn take_more(&mut self, input: &mut Input<'_>) -> Result<(), Malformed> {
        if input.is_empty() {
            self.know_nothing();
            return Ok(());
        }
        for branch in &mut self.branches {
            branch.descendants_max = take_descendants(input)?;
        }
        let mut forks = Vec::new();
        for _ in 0..input.length(FORKS_MAX)? {
            let number = input.number()?;
            let parent = take_fork(input, &forks)?;
            forks.push(Arc::new(Fork {
                parent,
                number,
                order: input.number()?,
                bases: take_trees(input)?,
            }));
        }
        let numbers: HashSet<u64> = forks.iter().map(|fork| fork.number).collect();
        if numbers.len() < forks.len() {
            return malformed("a branch was made twice");
        }
        for branch in &mut self.branches {
            branch.forks = take_fork(input, &forks)?;
        }
        for snapshot in &mut self.snapshots {
            snapshot.place = Place {
                forks: take_fork(input, &forks)?,
                order: input.number()?,
                merged: Merged::default(),
            };
        }
        if input.is_empty() {
            return Ok(());
        }
        for branch in &mut self.branches {
            branch.merged = take_merged(input)?;
        }
        for snapshot in &mut self.snapshots {
            snapshot.place.merged = take_merged(input)?;
        }
        Ok(())
    }

    /// It is of a version that did not say where branches were made.
    fn know_nothing(&mut self) {
        for branch in self.branches.iter_mut().skip(1) {
            branch.forks = Some(Fork::unknown(branch.number));
        }
        for snapshot in &mut self.snapshots {
            // No branch has such a number.
            let fork = Fork::unknown(snapshot.epoch.0 | 1 << 63);
            snapshot.place = Place::of_snapshot(Some(&fork), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a branch's database had at which time: the branch that it was, then its own.
    type Past = Vec<(u64, u64, TreeId)>;

    /// Any branches of branches and snapshots, whose databases change now and then: what is said of
    /// where two part is what was there.
    #[test]
    fn where_two_part_databases_had_what_they_had_then() {
        for seed in 0..300 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut branches: Vec<(Option<Arc<Fork>>, Past)> =
                vec![(None, vec![(0, 0, TreeId(0))])];
            let mut snapshots: Vec<(Place, Past)> = Vec::new();
            let (mut changes, mut time) = (0, 0);
            for _ in 0..40 {
                time += 1;
                let of = rng.usize(..branches.len());
                let (forks, past) = branches[of].clone();
                let (.., tree) = *past.last().expect("it has a tree");
                match rng.u8(..4) {
                    0 => {
                        changes += 1;
                        let place = Place::of_snapshot(forks.as_ref(), changes);
                        let seen = past.last().expect("it has a tree").0;
                        let past = past.iter().copied().chain([(seen, time, tree)]).collect();
                        snapshots.push((place, past));
                    }
                    1 => {
                        changes += 1;
                        let place = Place::of_branch(forks.as_ref(), changes);
                        let fork = place.fork(changes, vec![tree]);
                        let past = past
                            .iter()
                            .copied()
                            .chain([(changes, time, tree)])
                            .collect();
                        branches.push((Some(fork), past));
                    }
                    2 if !snapshots.is_empty() => {
                        let (place, past) = snapshots[rng.usize(..snapshots.len())].clone();
                        changes += 1;
                        let (.., tree) = *past.last().expect("it has a tree");
                        let fork = place.fork(changes, vec![tree]);
                        let past = past
                            .iter()
                            .copied()
                            .chain([(changes, time, tree)])
                            .collect();
                        branches.push((Some(fork), past));
                    }
                    _ => {
                        let own = past.last().expect("it has a tree").0;
                        let tree = TreeId(rng.u32(..4));
                        branches[of].1.push((own, time, tree));
                    }
                }
            }
            for (index, (one, past)) in branches.iter().enumerate() {
                for (other, others) in &branches[index + 1..] {
                    let both = past.iter().zip(others);
                    let last = both.take_while(|(one, other)| one == other).last();
                    let (.., tree) = *last.expect("all come from the first").0;
                    for (one, other) in [(one, other), (other, one)] {
                        let found = parted(one.as_ref(), other.as_ref());
                        assert_eq!(found, [tree], "seed {seed}");
                    }
                }
            }
        }
    }
}
