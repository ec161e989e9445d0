//! What one server knows while the keys of a changed ring move: both rings, its own name, and how
//! far each range of keys is.
//!
//! All keys are cut into [`RANGES`] ranges by a hash that no ring decides on. A key whose node both
//! rings agree on is always there. Of the others,
//!
//! | range is | a key belongs to | becomes |
//! |---|---|---|
//! | old | its node of the old ring | fenced at the key's old node, new at any other |
//! | fenced | nobody: it is on its way | new, or old again if no new node has taken it |
//! | new | its node of the new ring | |
//!
//! Each server has its own states, and they change one after the other: all old nodes are fenced
//! before the first new one takes the range.
//!
//! | bytes | field of the file |
//! |---|---|
//! | text | `pando-placement 1`, a line |
//! | text | `checksum` and XXH3-64 of all that follows, in 16 hexadecimal digits, a line |
//! | text | `node` and the server's name in the rings, a line |
//! | text | `ranges` and a letter for each: `o` old, `f` fenced, `n` new; a line |
//! | text | `old` and a number of bytes, a line; the old ring's file; a line's end |
//! | text | `new`, the same |
//!
//! Invariants:
//! - **OW1 one-owner** Of servers with the same rings, of which those that have a range old or
//!   fenced at the key's old node, and new at its new node, never are both old there and new here,
//!   at most one calls a key its own.
//! - **OW2 strangers-only** [`Placement::may_place`] allows nothing on a key that is served here,
//!   nor on one that waits here to be handed over.
//!
//! Deliberately absent: who changes a state and when (`pando-db`), disks, the mover.

use std::sync::Arc;

use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::RingError;
use crate::limits::{FILE_BYTES_MAX, RANGES};
use crate::ring::{Hashed, Node, Ring};

const TITLE: &str = "pando-placement 1";

/// Bytes of a placement's file: both rings and a little more.
pub const PLACEMENT_BYTES_MAX: u64 = 2 * FILE_BYTES_MAX + 4096;

/// How far a range is, on one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RangeState {
    /// Keys belong to their nodes of the old ring.
    #[default]
    Old,
    /// Keys that move from or to this server are on their way.
    Fenced,
    /// Keys belong to their nodes of the new ring.
    New,
}

impl RangeState {
    const LETTERS: [(Self, char); 3] = [(Self::Old, 'o'), (Self::Fenced, 'f'), (Self::New, 'n')];

    /// The letter that stands for it.
    pub fn letter(self) -> char {
        let found = Self::LETTERS.iter().find(|(state, _)| *state == self);
        found.expect("each has a letter").1
    }

    /// The state that this letter stands for.
    pub fn of(letter: char) -> Option<Self> {
        let found = Self::LETTERS.iter().find(|(_, one)| *one == letter);
        found.map(|(state, _)| *state)
    }
}

/// What a server says of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'p> {
    /// It is served here.
    Here,
    /// It belongs to this node.
    There(&'p Node),
    /// It is on its way from here or to here.
    OnItsWay,
}

/// A ring, and the file it was read from.
#[derive(Clone, Debug)]
struct Source {
    text: Arc<str>,
    ring: Ring,
    /// This server's index among its nodes.
    own: Option<usize>,
}

impl Source {
    fn parse(text: &str, name: &str) -> Result<Self, RingError> {
        let ring = Ring::from_toml(text)?;
        Ok(Self {
            text: text.into(),
            own: ring.nodes().iter().position(|node| node.name() == name),
            ring,
        })
    }

    /// Whether the key is this server's.
    #[inline]
    fn is_mine(&self, key: Hashed<'_>) -> bool {
        Some(self.ring.index_of_hashed(key)) == self.own
    }
}

/// See the module's header.
#[derive(Clone, Debug)]
pub struct Placement {
    node: Box<str>,
    old: Source,
    new: Source,
    states: Box<[RangeState; RANGES]>,
}

/// How a placement came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Nothing has moved.
    Anew,
    /// It goes on where it was.
    Again,
    /// It goes back to the ring that it came from.
    Back,
}

/// Why there is no such placement.
#[derive(Debug, Error)]
pub enum PlacementError {
    /// The old ring is none.
    #[error("the old ring: {0}")]
    Old(RingError),
    /// The new ring is none.
    #[error("the new ring: {0}")]
    New(RingError),
    /// One heeds tags, the other does not.
    #[error("one of the rings heeds tags and the other does not; keys would have two hashes")]
    Tags,
    /// No node has this name.
    #[error("neither ring has a node named `{name}`")]
    Unknown {
        /// The name.
        name: String,
    },
    /// The server has another name.
    #[error("this server is node `{present}`, not `{name}`")]
    OtherNode {
        /// Its name.
        present: String,
        /// What it was called.
        name: String,
    },
    /// Keys move between other rings.
    #[error(
        "another resharding is under way here ({done} of {RANGES} ranges are handed over): finish \
         it with its own two rings, or go back with these exchanged"
    )]
    UnderWay {
        /// Ranges that are handed over.
        done: usize,
    },
    /// The old ring is not the one by which keys are placed here.
    #[error("keys are placed here by another ring than the old one given")]
    OtherRing,
    /// A range is between two servers, so there is no going back from here.
    #[error("range {range} is being handed over: go on first")]
    Fenced {
        /// The range.
        range: usize,
    },
    /// The file is damaged.
    #[error("the file of the placement is damaged: {0}")]
    Damaged(&'static str),
}

impl Placement {
    /// The placement of node `name` from the `old` ring to the `new` one, both as files' texts,
    /// where `present` is the one that the server has. Addresses may differ from those that it has.
    pub fn begin(
        present: Option<&Self>,
        name: &str,
        old: &str,
        new: &str,
    ) -> Result<(Self, Begun), PlacementError> {
        let old = Source::parse(old, name).map_err(PlacementError::Old)?;
        let new = Source::parse(new, name).map_err(PlacementError::New)?;
        if old.ring.has_tags() != new.ring.has_tags() {
            return Err(PlacementError::Tags);
        }
        if old.own.is_none() && new.own.is_none() {
            let name = name.to_owned();
            return Err(PlacementError::Unknown { name });
        }
        let (states, begun) = match present {
            None => (Box::new([RangeState::Old; RANGES]), Begun::Anew),
            Some(present) => present.lead_to(name, &old.ring, &new.ring)?,
        };
        let placement = Self {
            node: name.into(),
            old,
            new,
            states,
        };
        Ok((placement, begun))
    }

    /// The states with which it becomes one of these rings.
    fn lead_to(
        &self,
        name: &str,
        old: &Ring,
        new: &Ring,
    ) -> Result<(Box<[RangeState; RANGES]>, Begun), PlacementError> {
        let is_same = |one: &Source, other: &Ring| one.ring.places_alike(other);
        let other_node = || PlacementError::OtherNode {
            present: self.node.to_string(),
            name: name.to_owned(),
        };
        if is_same(&self.old, old) && is_same(&self.new, new) {
            if *self.node != *name {
                return Err(other_node());
            }
            return Ok((self.states.clone(), Begun::Again));
        }
        if is_same(&self.old, new) && is_same(&self.new, old) && !self.is_settled() {
            if *self.node != *name {
                return Err(other_node());
            }
            if let Some(range) = self.first(RangeState::Fenced) {
                return Err(PlacementError::Fenced { range });
            }
            let turned = self.states.map(|state| match state {
                RangeState::Old => RangeState::New,
                RangeState::Fenced => RangeState::Fenced,
                RangeState::New => RangeState::Old,
            });
            return Ok((Box::new(turned), Begun::Back));
        }
        if !self.is_settled() {
            let done = self.count(RangeState::New);
            return Err(PlacementError::UnderWay { done });
        }
        if !is_same(&self.new, old) {
            return Err(PlacementError::OtherRing);
        }
        if *self.node != *name && self.new.ring.node(&self.node).is_some() {
            return Err(other_node());
        }
        Ok((Box::new([RangeState::Old; RANGES]), Begun::Anew))
    }

    /// The server's name.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The old ring.
    pub fn old_ring(&self) -> &Ring {
        &self.old.ring
    }

    /// The new ring.
    pub fn new_ring(&self) -> &Ring {
        &self.new.ring
    }

    /// The texts of the old ring and of the new one.
    pub fn texts(&self) -> (&str, &str) {
        (&self.old.text, &self.new.text)
    }

    /// How far a range is.
    pub fn state(&self, range: usize) -> RangeState {
        self.states[range]
    }

    /// A letter for each range: see [`RangeState::letter`].
    pub fn states(&self) -> String {
        self.states.iter().map(|state| state.letter()).collect()
    }

    /// The same with a range in another state.
    #[must_use]
    pub fn with(&self, range: usize, state: RangeState) -> Self {
        let mut changed = self.clone();
        changed.states[range] = state;
        changed
    }

    /// Whether all ranges are handed over.
    pub fn is_settled(&self) -> bool {
        self.count(RangeState::New) == RANGES
    }

    /// How many ranges are in this state.
    pub fn count(&self, state: RangeState) -> usize {
        self.states.iter().filter(|one| **one == state).count()
    }

    /// The first range in this state.
    pub fn first(&self, state: RangeState) -> Option<usize> {
        self.states.iter().position(|one| *one == state)
    }

    /// The range of a key.
    pub fn range_of(&self, key: &[u8]) -> usize {
        self.new.ring.range_of(key)
    }

    /// Whether a key is served here. Costs a hash of it and a look-up in a ring, or two.
    #[inline]
    pub fn is_here(&self, key: &[u8]) -> bool {
        let key = self.new.ring.hash(key);
        match self.states[key.range()] {
            RangeState::New => self.new.is_mine(key),
            RangeState::Old => self.old.is_mine(key),
            RangeState::Fenced => self.old.is_mine(key) && self.new.is_mine(key),
        }
    }

    /// Whose a key is.
    pub fn judge(&self, key: &[u8]) -> Verdict<'_> {
        if self.is_here(key) {
            return Verdict::Here;
        }
        let owner = match self.states[self.range_of(key)] {
            RangeState::New => self.new.ring.node_of(key),
            RangeState::Old => self.old.ring.node_of(key),
            RangeState::Fenced => {
                let from = self.old.ring.node_of(key);
                let to = self.new.ring.node_of(key);
                let concerns = |node: &Node| node.name() == &*self.node;
                if concerns(from) || concerns(to) {
                    return Verdict::OnItsWay;
                }
                from
            }
        };
        // The newer file has the newer address.
        Verdict::There(self.new.ring.node(owner.name()).unwrap_or(owner))
    }

    /// Whether a change of this key here is to be told to the mover: it leaves this server and has
    /// not left.
    #[inline]
    pub fn leaves(&self, key: &[u8]) -> Option<usize> {
        let key = self.new.ring.hash(key);
        let range = key.range();
        let leaves = self.states[range] != RangeState::New
            && self.old.is_mine(key)
            && !self.new.is_mine(key);
        leaves.then_some(range)
    }

    /// Whether the mover may write or remove this key here (OW2 strangers-only).
    pub fn may_place(&self, key: &[u8]) -> bool {
        match self.judge(key) {
            Verdict::Here => false,
            Verdict::There(_) => true,
            Verdict::OnItsWay => !self.old.is_mine(self.old.ring.hash(key)),
        }
    }

    /// As a file.
    pub fn encode(&self) -> Vec<u8> {
        let ring = |name: &str, source: &Source| {
            let text = &source.text;
            format!("{name} {}\n{text}\n", text.len())
        };
        let body = format!(
            "node {}\nranges {}\n{}{}",
            self.node,
            self.states(),
            ring("old", &self.old),
            ring("new", &self.new)
        );
        let checksum = xxh3_64(body.as_bytes());
        format!("{TITLE}\nchecksum {checksum:016x}\n{body}").into_bytes()
    }

    /// Reads a file.
    pub fn parse(bytes: &[u8]) -> Result<Self, PlacementError> {
        let damaged = PlacementError::Damaged;
        let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is no text"))?;
        let (title, rest) = text.split_once('\n').ok_or(damaged("it has no title"))?;
        if title != TITLE {
            return Err(damaged("it is of another version, or none"));
        }
        let (checksum, body) = word(rest, "checksum")?;
        if checksum != format!("{:016x}", xxh3_64(body.as_bytes())) {
            return Err(damaged("its checksum is wrong"));
        }
        let (node, body) = word(body, "node")?;
        let (letters, body) = word(body, "ranges")?;
        let states: Option<Vec<RangeState>> = letters.chars().map(RangeState::of).collect();
        let states = states.and_then(|states| Box::try_from(states.into_boxed_slice()).ok());
        let (old, body) = ring_text(body, "old")?;
        let (new, body) = ring_text(body, "new")?;
        if !body.is_empty() {
            return Err(damaged("something follows it"));
        }
        let (mut placement, _) = Self::begin(None, node, old, new)?;
        placement.states = states.ok_or(damaged("its ranges are wrong"))?;
        Ok(placement)
    }
}

/// The rest of a line that begins with `name`, and what follows it.
fn word<'t>(text: &'t str, name: &str) -> Result<(&'t str, &'t str), PlacementError> {
    let found = text.split_once('\n').and_then(|(line, rest)| {
        let value = line.strip_prefix(name)?.strip_prefix(' ')?;
        Some((value, rest))
    });
    found.ok_or(PlacementError::Damaged("a line is missing"))
}

fn ring_text<'t>(text: &'t str, name: &str) -> Result<(&'t str, &'t str), PlacementError> {
    let (bytes, rest) = word(text, name)?;
    let bytes = bytes.parse::<usize>().ok();
    let found = bytes.and_then(|bytes| rest.split_at_checked(bytes));
    let found = found.and_then(|(ring, rest)| Some((ring, rest.strip_prefix('\n')?)));
    found.ok_or(PlacementError::Damaged("a ring is cut off"))
}

/// Checks that any fields, under a right checksum, cause nothing worse than an error.
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub fn fuzz(body: &[u8]) {
    let checksum = xxh3_64(body);
    let mut file = format!("{TITLE}\nchecksum {checksum:016x}\n").into_bytes();
    file.extend_from_slice(body);
    if let Ok(read) = Placement::parse(&file) {
        let again = Placement::parse(&read.encode()).expect("it was encoded");
        assert_eq!(again.states(), read.states());
        read.judge(body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(names: &[&str]) -> String {
        let node = |(index, name): (usize, &&str)| {
            format!("[[node]]\nname = '{name}'\naddress = 'h:{}'\n", index + 1)
        };
        names.iter().enumerate().map(node).collect()
    }

    fn placement(node: &str) -> Placement {
        let (old, new) = (ring(&["oak", "ash"]), ring(&["oak", "ash", "elm"]));
        Placement::begin(None, node, &old, &new).unwrap().0
    }

    fn keys() -> impl Iterator<Item = Vec<u8>> {
        (0..20_000).map(|index| format!("key:{index}").into_bytes())
    }

    fn all(name: &str, state: RangeState) -> Placement {
        (0..RANGES).fold(placement(name), |placement, range| {
            placement.with(range, state)
        })
    }

    #[test]
    fn ow1_a_key_has_one_owner_at_every_step_of_a_hand_over() {
        use RangeState::{Fenced, New, Old};
        let names = ["oak", "ash", "elm"];
        // Of the two sources and the destination, in the order of a hand-over.
        let steps = [
            [Old, Old, Old],
            [Fenced, Old, Old],
            [Fenced, Fenced, Old],
            [Fenced, Fenced, New],
            [New, Fenced, New],
            [New, New, New],
        ];
        for step in steps {
            let servers: Vec<_> = names.iter().zip(step).map(|(n, s)| all(n, s)).collect();
            let mut served = 0;
            for key in keys() {
                let here = |one: &&Placement| one.judge(&key) == Verdict::Here;
                let owners = servers.iter().filter(here).count();
                assert!(owners <= 1, "{step:?}: {owners} have {key:?}");
                served += owners;
                for one in &servers {
                    assert!(
                        !one.may_place(&key) || one.judge(&key) != Verdict::Here,
                        "OW2 strangers-only"
                    );
                }
            }
            let whole = step == [Old; 3] || step[2] == New;
            assert_eq!(served == 20_000, whole, "{step:?}");
        }
        // A planted fault: the fence is forgotten.
        let servers = [all("oak", Old), all("elm", New)];
        let two = |key: Vec<u8>| servers.iter().all(|one| one.judge(&key) == Verdict::Here);
        assert!(keys().any(two), "two servers with one key are noticed");
    }

    #[test]
    fn a_fenced_range_keeps_what_does_not_move() {
        let fenced = all("oak", RangeState::Fenced);
        let (mut here, mut away) = (0, 0);
        for key in keys() {
            let moves = fenced.old_ring().moves(fenced.new_ring(), &key);
            match fenced.judge(&key) {
                Verdict::Here => {
                    here += 1;
                    assert!(moves.is_none());
                }
                Verdict::OnItsWay => {
                    away += 1;
                    assert_eq!(moves.unwrap().0.name(), "oak");
                    assert!(!fenced.may_place(&key), "OW2 strangers-only");
                    assert!(fenced.leaves(&key).is_some());
                }
                Verdict::There(node) => assert_eq!(node.name(), "ash"),
            }
        }
        assert!(here > 5_000 && away > 2_000, "{here} {away}");
    }

    #[test]
    fn a_range_has_its_share_of_the_keys_of_every_node() {
        let placement = placement("oak");
        let mut counts = vec![[0_u32; 3]; RANGES];
        for index in 0..300_000 {
            let key = format!("user:{index}").into_bytes();
            counts[placement.range_of(&key)][placement.new_ring().index_of(&key)] += 1;
        }
        let (least, most) = counts
            .iter()
            .flatten()
            .fold((u32::MAX, 0), |(l, m), count| {
                (l.min(*count), m.max(*count))
            });
        assert!(least > 50 && most < 160, "{least} to {most}, 98 expected");
    }

    #[test]
    fn a_file_is_read_as_it_was_written_and_no_other() {
        let placement = placement("oak")
            .with(3, RangeState::Fenced)
            .with(7, RangeState::New);
        let bytes = placement.encode();
        let read = Placement::parse(&bytes).unwrap();
        assert_eq!(read.encode(), bytes);
        assert_eq!(read.state(3), RangeState::Fenced);
        assert_eq!((read.node(), read.texts()), ("oak", placement.texts()));
        assert!(bytes.len() as u64 <= PLACEMENT_BYTES_MAX);
        for length in 0..bytes.len() {
            assert!(Placement::parse(&bytes[..length]).is_err(), "{length}");
        }
        let mut flipped = bytes.clone();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                flipped[at] ^= 1 << bit;
                assert!(Placement::parse(&flipped).is_err(), "byte {at}");
                flipped[at] ^= 1 << bit;
            }
        }
    }

    /// The fuzz target's function, seeded.
    #[test]
    fn wrong_fields_are_refused_without_panic() {
        let body = |text: &[u8]| {
            let head = text.splitn(3, |byte| *byte == b'\n').nth(2).unwrap();
            head.to_vec()
        };
        let sound = body(&placement("oak").encode());
        let mut seed = 22_u64;
        let mut draw = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % below
        };
        for _ in 0..20_000 {
            let mut body = sound.clone();
            for _ in 0..=draw(3) {
                let at = draw(body.len());
                match draw(3) {
                    0 => body[at] = draw(256) as u8,
                    1 => body.truncate(at.max(1)),
                    _ => body.insert(at, b"\n 0fno"[draw(6)]),
                }
            }
            super::fuzz(&body);
        }
    }

    #[test]
    fn a_placement_goes_on_back_and_to_the_next_ring() {
        let (two, three) = (ring(&["oak", "ash"]), ring(&["oak", "ash", "elm"]));
        let four = ring(&["oak", "ash", "elm", "fir"]);
        let begin = |present: Option<&Placement>, node: &str, old: &str, new: &str| {
            Placement::begin(present, node, old, new)
        };
        let (first, begun) = begin(None, "oak", &two, &three).unwrap();
        assert_eq!(begun, Begun::Anew);
        let half = first.with(1, RangeState::New);
        let (again, begun) = begin(Some(&half), "oak", &two, &three).unwrap();
        assert_eq!((again.states(), begun), (half.states(), Begun::Again));
        let (back, begun) = begin(Some(&half), "oak", &three, &two).unwrap();
        assert_eq!((back.state(1), begun), (RangeState::Old, Begun::Back));
        assert_eq!(back.count(RangeState::New), RANGES - 1);
        for key in keys().take(2000) {
            let name = |verdict: Verdict<'_>| match verdict {
                Verdict::There(node) => node.name().to_owned(),
                verdict => format!("{verdict:?}"),
            };
            assert_eq!(name(half.judge(&key)), name(back.judge(&key)));
        }
        let fenced = half.with(5, RangeState::Fenced);
        let refused = |result: Result<(Placement, Begun), PlacementError>| result.unwrap_err();
        let error = refused(begin(Some(&fenced), "oak", &three, &two));
        assert!(
            matches!(error, PlacementError::Fenced { range: 5 }),
            "{error}"
        );
        let error = refused(begin(Some(&half), "oak", &three, &four));
        assert!(
            matches!(error, PlacementError::UnderWay { done: 1 }),
            "{error}"
        );
        let error = refused(begin(Some(&half), "ash", &two, &three));
        assert!(matches!(error, PlacementError::OtherNode { .. }), "{error}");
        let settled = all("oak", RangeState::New);
        let (next, begun) = begin(Some(&settled), "oak", &three, &four).unwrap();
        assert_eq!((next.count(RangeState::Old), begun), (RANGES, Begun::Anew));
        let error = refused(begin(Some(&settled), "oak", &two, &four));
        assert!(matches!(error, PlacementError::OtherRing), "{error}");
        let error = refused(begin(None, "yew", &two, &three));
        assert!(matches!(error, PlacementError::Unknown { .. }), "{error}");
        let error = refused(begin(None, "oak", &two, &format!("tags = false\n{three}")));
        assert!(matches!(error, PlacementError::Tags), "{error}");
        let error = refused(begin(None, "oak", "x", &three));
        assert!(error.to_string().contains("the old ring"), "{error}");
    }
}
