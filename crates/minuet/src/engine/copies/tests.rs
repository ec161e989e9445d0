//! Copies against maps, and by the audit that the simulator's oracles use; the planted faults are
//! found.

use std::collections::BTreeMap;
use std::panic::catch_unwind;

use pando_engine::{Engine, Key, Point, TreeId};

use super::super::branches::From;
use super::super::tests::{len_of, maintain, open, put, used};
use super::super::{Minuet, MinuetSession};
use crate::BranchId;
use crate::fault::{Fault, plant};
use crate::limits::{DESCENDANTS_MAX, DESCENDANTS_MIN};
use crate::simulator::audit::audit;

const KEYS: u32 = 1_200;

struct Branch {
    name: String,
    id: BranchId,
    tree: TreeId,
    changed: BTreeMap<u32, usize>,
}

fn key_of(number: u32) -> Vec<u8> {
    format!("{number:06}").into_bytes()
}

fn is_audited(engine: &Minuet) -> bool {
    let state = engine.read();
    let (memnodes, config) = (
        state.database.memnodes().memnodes(),
        state.database.config(),
    );
    let found = audit(memnodes, config, false);
    found.inspect_err(|finding| eprintln!("{finding}")).is_ok()
}

fn is_shown(session: &mut MinuetSession, branch: &Branch) -> bool {
    (0..KEYS).step_by(7).all(|number| {
        let expected = branch.changed.get(&number).copied().unwrap_or(3);
        let key = key_of(number);
        let len = session.get(Key::new(branch.tree, &key), |value| value.map(len_of));
        len == Some(expected)
    })
}

/// Whether branches of the first one and of each other, which come and go, show what was written in
/// each, be it a key of every leaf, and all pages are as they must be, and go when nobody has them.
fn is_as_written(memnodes: u16, seed: u64) -> bool {
    let (clock, engine) = open(memnodes);
    let (tree, mut session) = (engine.create_tree(), engine.session().unwrap());
    let mut random = fastrand::Rng::with_seed(seed);
    for number in 0..KEYS {
        put(&mut session, tree, &key_of(number), &[0; 3]);
    }
    let before = used(&engine);
    let mut branches = vec![Branch {
        name: String::new(),
        id: BranchId::FIRST,
        tree,
        changed: BTreeMap::new(),
    }];
    let mut is_right = true;
    for round in 1..30_u32 {
        let from = random.usize(..branches.len().min(3));
        let (of, like) = (branches[from].id, branches[from].tree);
        let name = format!("b{round}");
        let most = random.u8(DESCENDANTS_MIN..=DESCENDANTS_MAX);
        let made = engine.create_branch(name.as_bytes(), From::Branch(of), most);
        let id = made.unwrap();
        branches.push(Branch {
            name,
            id,
            tree: engine.branch_tree(id, like, u64::from(KEYS)),
            changed: branches[from].changed.clone(),
        });
        let writer = random.usize(..branches.len());
        let step = [1, 40, 700][random.usize(..3)];
        for number in (random.u32(..step)..KEYS).step_by(step as usize) {
            let len = 1 + random.usize(..3);
            put(
                &mut session,
                branches[writer].tree,
                &key_of(number),
                &vec![0; len],
            );
            branches[writer].changed.insert(number, len);
        }
        if round % 4 == 0 {
            let gone = branches.remove(1 + random.usize(..branches.len() - 1));
            engine.drop_branch(gone.name.as_bytes()).unwrap();
            engine.drop_tree(gone.tree);
            maintain(&clock, &mut session);
        }
        is_right &= is_audited(&engine);
        is_right &= branches.iter().all(|branch| is_shown(&mut session, branch));
    }
    for gone in &branches[1..] {
        engine.drop_branch(gone.name.as_bytes()).unwrap();
        engine.drop_tree(gone.tree);
    }
    for _ in 0..4 {
        engine.write().collecting.note_released();
        maintain(&clock, &mut session);
    }
    let left = used(&engine);
    assert!(left >= before, "the first branch is there");
    is_right && left <= before + 4
}

#[test]
fn copies_are_what_a_transaction_makes() {
    for seed in 0..3 {
        assert!(is_as_written(1 + (seed % 2) as u16, seed), "seed {seed}");
    }
}

#[test]
fn canary_copies_that_nobody_is_told_of_are_found() {
    for fault in [Fault::CopyUnnoted, Fault::FanStale, Fault::Forwarding] {
        plant(Some(fault));
        let found = catch_unwind(|| !is_as_written(1, 0));
        plant(None);
        assert!(found.unwrap_or(true), "{fault:?} shows nowhere");
    }
}
