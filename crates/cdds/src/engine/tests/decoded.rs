//! Wide rows are read as they were stored, whatever became of their versions meanwhile.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use fastrand::Rng;

use super::*;
use crate::canary::{Fault, plant};
use pando_engine::{BodyRef, HashDraft, HashRef, Refused};

const KEYS: usize = 6;

type Fields = BTreeMap<Vec<u8>, Vec<u8>>;
type Model = BTreeMap<usize, Fields>;

fn fields_of(value: Option<ValueRef<'_>>) -> Option<Fields> {
    let Some(BodyRef::Row(_, row)) = value.map(|value| value.body) else {
        return None;
    };
    let flat = |(name, value): (&[u8], pando_engine::StringRef<'_>)| {
        let mut bytes = Vec::new();
        value.for_each_piece(0..value.len(), |piece| bytes.extend_from_slice(piece));
        (name.to_vec(), bytes)
    };
    Some(row.iter().map(flat).collect())
}

struct Run {
    clock: Arc<EpochClock>,
    engine: Arc<Cdds>,
    tree: TreeId,
    session: CddsSession,
    now: Model,
}

impl Run {
    fn new() -> Self {
        let clock = Arc::new(EpochClock::starting_at(LogEpoch(1)));
        let options = Options {
            bytes: 8 << 20,
            ..Options::default()
        };
        let engine = Cdds::open(Arc::clone(&clock), options).expect("memory");
        let session = engine.session().expect("few sessions");
        Self {
            tree: engine.create_tree(),
            session,
            clock,
            engine,
            now: Model::new(),
        }
    }

    /// Sets some fields of a row, most often one of many.
    fn set(&mut self, random: &mut Rng) {
        let number = random.usize(0..KEYS);
        let count = if random.u32(0..4) == 0 { 200 } else { 1 };
        let fields: Fields = (0..count)
            .map(|_| {
                let name = random.u32(0..400).to_be_bytes().to_vec();
                (name, vec![random.u8(..); random.usize(0..40)])
            })
            .collect();
        let key = number.to_be_bytes();
        let at = Key::new(self.tree, &key);
        let written = self.session.update(at, &mut NoHook, |old| {
            let row = match old.map(|old| old.body) {
                Some(BodyRef::Row(_, row)) => Some(row),
                _ => None,
            };
            let mut draft = HashDraft::new(row);
            for (field, value) in &fields {
                draft.set(field, value);
            }
            Decision::Write(NewValue::new(draft.finish()))
        });
        assert!(written.is_some());
        self.now.entry(number).or_default().extend(fields);
    }

    fn remove(&mut self, random: &mut Rng) {
        let number = random.usize(0..KEYS);
        let key = number.to_be_bytes();
        let at = Key::new(self.tree, &key);
        self.session.update(at, &mut NoHook, |_| Decision::Remove);
        self.now.remove(&number);
    }

    /// A group that is refused, since one of its values is too long.
    fn refused(&mut self, random: &mut Rng) {
        let before = self.now.clone();
        self.session.begin_group();
        for _ in 0..random.usize(1..4) {
            self.set(random);
        }
        let long = vec![0; 9 << 20];
        let at = Key::new(self.tree, b"long");
        let refused = self.session.update(at, &mut NoHook, |_| {
            Decision::Write(NewValue::new(Body::string(&long)))
        });
        assert_eq!(refused, None);
        assert_eq!(self.session.end_group(), Some(Refused::TooLong));
        assert_eq!(self.session.take_refusal(), Some(Refused::TooLong));
        self.now = before;
    }

    fn commit(&mut self) {
        let epoch = LogEpoch(self.clock.tick().0 - 1);
        self.engine.commit(epoch).expect("there is room");
        self.session.maintain(1);
    }

    fn check(&mut self) -> Result<(), String> {
        let mut scanned = Model::new();
        let (tree, scan) = (self.tree, Direction::Forward);
        (self.session).scan(tree, Bound::Unbounded, scan, |key, value| {
            let number = usize::from_be_bytes(key.try_into().expect("a number"));
            scanned.insert(number, fields_of(Some(value)).expect("a row"));
            ControlFlow::Continue(())
        });
        for number in 0..KEYS {
            let key = number.to_be_bytes();
            let at = Key::new(self.tree, &key);
            let found = self.session.get(at, fields_of);
            let expected = self.now.get(&number);
            if found.as_ref() != expected || scanned.get(&number) != expected {
                return Err(format!("key {number}"));
            }
        }
        Ok(())
    }
}

fn run(seed: u64) -> Result<(), String> {
    let mut random = Rng::with_seed(seed);
    let mut run = Run::new();
    for _ in 0..60 {
        match random.u32(0..10) {
            0 => run.remove(&mut random),
            1 => run.refused(&mut random),
            2 => run.commit(),
            _ => run.set(&mut random),
        }
        if random.u32(0..4) == 0 {
            run.check()?;
        }
    }
    run.check()
}

#[test]
fn a_row_is_read_as_it_was_stored() {
    for seed in 0..8 {
        run(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn a_row_that_outlives_its_group_is_noticed() {
    plant(Some(Fault::RowOutlived));
    let noticed = (0..8).any(|seed| run(seed).is_err());
    plant(None);
    assert!(noticed, "CV1 same-version");
}

/// A read or a change of one field of many looks at no other, and a snapshot sees its own.
#[test]
fn a_row_is_decoded_once() {
    let mut run = Run::new();
    let mut random = Rng::with_seed(1);
    while run.now.len() < KEYS || run.engine.decoded.bytes() == 0 {
        run.set(&mut random);
    }
    run.check().expect("it is as it was stored");
    let (key, tree) = (0_usize.to_be_bytes(), run.tree);
    let address = |session: &mut CddsSession| {
        session.get(Key::new(tree, &key), |value| {
            match value.map(|value| value.body) {
                Some(BodyRef::Row(_, HashRef::Wide(row))) => std::ptr::from_ref(row).addr(),
                other => panic!("{other:?}"),
            }
        })
    };
    while run.now[&0].len() < 300 {
        run.set(&mut random);
    }
    assert_eq!(address(&mut run.session), address(&mut run.session));
    run.engine.drop_tree(run.tree);
    assert_eq!(run.engine.decoded.bytes(), 0);
}
