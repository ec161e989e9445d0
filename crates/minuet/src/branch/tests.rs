//! Branches on embedded memnodes, against a map for each.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pando_memnode::{CoordinatorId, Limits};

use crate::error::Stop;
use crate::fault::{Fault, plant};
use crate::limits::{DESCENDANTS_MAX, DESCENDANTS_MIN};
use crate::simulator::audit::{Contents, audit};
use crate::{
    BranchId, Collector, Config, Database, Embedded, Error, FIXED_SLOTS, Kept, Origin, Proxy,
    SnapshotId, Transaction, TreeId, View, create_snapshot_of,
};

const TREE: TreeId = TreeId(1);

fn database(memnodes: u16, descendants_max: u8) -> Database {
    let limits = Limits {
        slots_fixed: FIXED_SLOTS,
        ..Limits::default()
    };
    let config = Config {
        memnodes,
        page_bytes: 448,
        newest_kept: 3,
        descendants_max,
        ..Config::default()
    };
    Database::found(CoordinatorId(1), config, Embedded::new(memnodes, limits)).unwrap()
}

fn put(database: &mut Database, branch: BranchId, key: &[u8], value: &[u8]) -> u64 {
    let put = database.run(|t| {
        let tip = t.tip_of(branch)?;
        TREE.put(t, tip, key, value)
    });
    put.unwrap()
}

fn get(database: &mut Database, branch: BranchId, key: &[u8]) -> Option<Vec<u8>> {
    let read = database.run(|t| {
        let tip = t.tip_of(branch)?;
        TREE.get(t, tip, key)
    });
    read.unwrap().value
}

fn main_tip(transaction: &mut Transaction<'_>) -> Result<View, Stop> {
    transaction.tip()
}

fn mainline(transaction: &mut Transaction<'_>) -> Result<BranchId, Stop> {
    transaction.mainline()
}

fn count(transaction: &mut Transaction<'_>) -> Result<u32, Stop> {
    transaction.branch_count()
}

fn kept(transaction: &mut Transaction<'_>) -> Result<Vec<Kept>, Stop> {
    transaction.kept()
}

fn create(database: &mut Database, name: &[u8], origin: Origin) -> Result<BranchId, Error> {
    database.run(|t| t.create_branch(name, origin, DESCENDANTS_MAX))
}

fn collect(database: &mut Database, rounds: u64) {
    let mut collector = Collector::new(database.memnodes().memnodes().len() as u16, 1);
    while collector.collected().rounds < rounds {
        let step = collector.step().clone();
        let done = database.run(|t| step.run(t)).unwrap();
        collector.done(0, done);
    }
}

type Held = BTreeMap<Vec<u8>, Vec<u8>>;

/// Branches and snapshots with what they are to hold.
struct World {
    database: Database,
    random: fastrand::Rng,
    branches: Vec<(BranchId, Vec<u8>, Held)>,
    snapshots: Vec<(View, Held)>,
    named: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let first_max = random.u8(DESCENDANTS_MIN..=DESCENDANTS_MAX);
        Self {
            database: database(1 + (seed % 3) as u16, first_max),
            random,
            branches: vec![(BranchId::FIRST, b"main".to_vec(), Held::new())],
            snapshots: Vec::new(),
            named: 0,
        }
    }

    fn write(&mut self) {
        let which = self.random.usize(0..self.branches.len());
        for _ in 0..self.random.usize(1..6) {
            let key = self.random.u32(0..150).to_string().into_bytes();
            let (branch, _, held) = &mut self.branches[which];
            if self.random.u32(0..3) == 0 {
                let removed = self.database.run(|t| {
                    let tip = t.tip_of(*branch)?;
                    TREE.remove(t, tip, &key)
                });
                assert_eq!(removed.unwrap().is_some(), held.remove(&key).is_some());
            } else {
                let value = vec![self.random.u8(..); self.random.usize(0..30)];
                put(&mut self.database, *branch, &key, &value);
                held.insert(key, value);
            }
        }
    }

    fn snapshot(&mut self) {
        let (branch, _, held) = &self.branches[self.random.usize(0..self.branches.len())];
        let made = self.database.run(|t| create_snapshot_of(t, *branch));
        self.snapshots.push((made.unwrap(), held.clone()));
    }

    fn create(&mut self) {
        let from = self
            .random
            .usize(0..self.branches.len() + self.snapshots.len());
        let (origin, held) = if let Some((branch, _, held)) = self.branches.get(from) {
            (Origin::Branch(*branch), held)
        } else {
            let (view, held) = &self.snapshots[from - self.branches.len()];
            (Origin::Snapshot(*view), held)
        };
        self.named += 1;
        let name = format!("branch{}", self.named).into_bytes();
        let max = self.random.u8(DESCENDANTS_MIN..=DESCENDANTS_MAX);
        let made = self.database.run(|t| t.create_branch(&name, origin, max));
        let held = held.clone();
        self.branches.push((made.unwrap(), name, held));
    }

    fn drop_one(&mut self) {
        if self.branches.len() > 1 {
            let which = self.random.usize(1..self.branches.len());
            let (_, name, _) = self.branches.swap_remove(which);
            self.database.run(|t| t.drop_branch(&name)).unwrap();
        }
    }

    fn reset(&mut self) {
        if let Some((view, held)) = self.random.choice(&self.snapshots) {
            let which = self.random.usize(0..self.branches.len());
            let (_, name, now) = &mut self.branches[which];
            self.database.run(|t| t.reset_branch(name, *view)).unwrap();
            now.clone_from(held);
        }
    }

    /// A branch becomes what another one is, which goes.
    fn adopt(&mut self) {
        let dropped = self.random.usize(1..self.branches.len());
        let (_, name, held) = self.branches.swap_remove(dropped);
        let which = self.random.usize(0..self.branches.len());
        let (branch, _, now) = &mut self.branches[which];
        let adopted = self.database.run(|t| t.adopt_branch(*branch, &name));
        adopted.unwrap();
        *now = held;
    }

    /// Some rounds of the collection; what is not kept any more is no snapshot any more.
    fn collect(&mut self) {
        collect(&mut self.database, 2);
        let kept = self.database.run(kept).unwrap();
        self.snapshots
            .retain(|(view, _)| kept.iter().any(|kept| kept.view == *view));
    }

    /// Whether everything is as it is to be.
    fn audit(&mut self, leaks_nothing: bool, seed: u64) {
        let Self {
            database,
            branches,
            snapshots,
            ..
        } = self;
        let tips = branches.iter().map(|(branch, _, held)| {
            let tip = database.run(|t| t.tip_of(*branch)).unwrap();
            (tip, held.clone())
        });
        let all: Vec<_> = tips.chain(snapshots.iter().cloned()).collect();
        let memnodes = database.memnodes().memnodes();
        let found = audit(memnodes, database.config(), leaks_nothing);
        let found = found.unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        let values = |contents: &Contents| {
            let values = contents.iter();
            let values = values.map(|(key, (_, value))| (key[4..].to_vec(), value.clone()));
            values.collect::<Held>()
        };
        for (view, held) in all {
            let contents = values(&found[&view.snapshot()].contents);
            assert_eq!(contents, held, "seed {seed}: {view:?}");
        }
    }
}

/// A seed of everything that is done with branches.
fn run(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..60 {
        world.write();
    }
    for step in 0..250 {
        match world.random.u32(0..100) {
            0..60 => world.write(),
            60..72 => world.snapshot(),
            72..84 => world.create(),
            84..92 if world.branches.len() > 3 => world.drop_one(),
            92..96 => world.reset(),
            96..98 => world.collect(),
            98.. if world.branches.len() > 3 => world.adopt(),
            _ => {}
        }
        if step % 25 == 0 {
            world.audit(false, seed);
        }
    }
    world.collect();
    world.collect();
    world.audit(true, seed);
}

#[test]
fn branches_are_maps_of_their_own() {
    let seeds = std::env::var("PANDO_MINUET_SEEDS").ok();
    let seeds = seeds.and_then(|seeds| seeds.parse().ok()).unwrap_or(12);
    for seed in 0..seeds {
        run(seed);
    }
}

/// It seemed to go on in three ways, by what the proxy remembered of the fork before.
#[test]
fn a_snapshot_gets_another_fork_when_the_first_is_gone() {
    run(111);
}

#[test]
fn planted_faults_of_branches_are_found() {
    let mut missed = Vec::new();
    for fault in [
        Fault::BranchCopied,
        Fault::Forwarding,
        Fault::DescendantBound,
        Fault::PartingFreed,
        Fault::EarlyFree,
    ] {
        plant(Some(fault));
        let shows = |seed: &u64| catch_unwind(AssertUnwindSafe(|| run(*seed))).is_err();
        let seed = (0..12).find(shows);
        plant(None);
        println!("{fault:?}: {seed:?}");
        if seed.is_none() {
            missed.push(fault);
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn what_is_wrong_has_a_name() {
    let mut database = database(2, 4);
    let main = Origin::Branch(BranchId::FIRST);
    let trial = create(&mut database, b"trial", main).unwrap();
    assert_eq!(create(&mut database, b"trial", main), Err(Error::NameTaken));
    assert_eq!(
        create(&mut database, b"", main),
        Err(Error::BadName { bytes: 0 })
    );
    let none = Origin::Branch(BranchId(9));
    assert_eq!(create(&mut database, b"x", none), Err(Error::NoBranch));
    let descendants_max = 9;
    let bad = database.run(|t| t.create_branch(b"x", main, descendants_max));
    assert_eq!(bad, Err(Error::BadDescendants { descendants_max }));
    let gone = Err(Error::NoBranch);
    assert_eq!(database.run(|t| t.drop_branch(b"x")), gone);
    assert_eq!(database.run(|t| t.rename_branch(b"x", b"y")), gone);
    assert_eq!(database.run(|t| t.set_mainline(b"x")), gone);
    let taken = database.run(|t| t.rename_branch(b"main", b"trial"));
    assert_eq!(taken, Err(Error::NameTaken));
    assert_eq!(
        database.run(|t| t.drop_branch(b"main")),
        Err(Error::Mainline)
    );
    // A tip is no snapshot, nor is what is not kept.
    let tip = database.run(|t| t.tip_of(trial)).unwrap();
    let refused = create(&mut database, b"x", Origin::Snapshot(tip));
    assert_eq!(refused, Err(Error::NoSnapshot));
    assert_eq!(
        database.run(|t| t.reset_branch(b"trial", tip)),
        Err(Error::NoSnapshot)
    );
    // A branch that is gone has no tip, and its views are of no use.
    put(&mut database, trial, b"k", b"v");
    database.run(|t| t.drop_branch(b"trial")).unwrap();
    assert_eq!(
        database.run(|t| TREE.put(t, tip, b"k", b"w")),
        Err(Error::NoBranch)
    );
    assert_eq!(database.run(|t| TREE.get(t, tip, b"k").map(|_| ())), gone);
    assert_eq!(database.run(count), Ok(1));
}

#[test]
fn a_branch_has_names_and_may_be_the_mainline() {
    let mut database = database(2, 4);
    let trial = create(&mut database, b"trial", Origin::Branch(BranchId::FIRST)).unwrap();
    database
        .run(|t| t.rename_branch(b"trial", b"attempt"))
        .unwrap();
    database
        .run(|t| t.rename_branch(b"attempt", b"attempt"))
        .unwrap();
    let all = database.run(|t| t.branches(b"", 10)).unwrap();
    assert_eq!(
        all,
        [
            (b"attempt".to_vec(), trial),
            (b"main".to_vec(), BranchId::FIRST)
        ]
    );
    assert_eq!(database.run(|t| t.branches(b"b", 10)).unwrap().len(), 1);
    database.run(|t| t.set_mainline(b"attempt")).unwrap();
    assert_eq!(database.run(mainline), Ok(trial));
    let info = database.run(|t| t.branch_info(trial)).unwrap();
    assert!(info.is_mainline && info.name == b"attempt" && info.descendants_max == 4);
    assert_eq!(info.parent.map(SnapshotId::line), Some(0));
    // Then even the first branch may go.
    put(&mut database, trial, b"k", b"v");
    database.run(|t| t.drop_branch(b"main")).unwrap();
    assert_eq!(database.run(main_tip), Err(Error::NoBranch));
    collect(&mut database, 3);
    audit(database.memnodes().memnodes(), database.config(), true).unwrap();
    assert_eq!(get(&mut database, trial, b"k").as_deref(), Some(&b"v"[..]));
}

#[test]
fn a_reset_breaks_views_and_versions_go_on() {
    let mut database = database(1, 4);
    let main = BranchId::FIRST;
    put(&mut database, main, b"k", b"old");
    let past = database.run(|t| create_snapshot_of(t, main)).unwrap();
    let versions = [1, 2, 3].map(|value| put(&mut database, main, b"k", &[value]));
    let tip = database.run(main_tip).unwrap();
    database.run(|t| t.reset_branch(b"main", past)).unwrap();
    assert_eq!(
        database.run(|t| TREE.put(t, tip, b"k", b"")),
        Err(Error::Outdated)
    );
    assert_eq!(get(&mut database, main, b"k").as_deref(), Some(&b"old"[..]));
    let version = put(&mut database, main, b"k", b"new");
    assert!(versions.iter().all(|before| *before < version));
}

/// A reader remembers the root of a branch that began at a snapshot. The branch goes on, and goes,
/// and so does its line: the leaf that the root led to does not say any more that it was copied
/// there, and the snapshot of the branch seems to have the leaf.
#[test]
fn a_read_at_a_snapshot_that_was_let_go_is_refused() {
    let read = |fault| {
        let mut database = database(1, DESCENDANTS_MIN);
        let mut reader = Proxy::new(CoordinatorId::of(7, 0), *database.config());
        let main = BranchId::FIRST;
        for key in 0..100 {
            put(&mut database, main, &[key], b"old");
        }
        let past = database.run(|t| create_snapshot_of(t, main)).unwrap();
        database
            .run(|t| t.name_snapshot(past.snapshot, b"past"))
            .unwrap();
        put(&mut database, main, b"\0", b"main");
        let gone = create(&mut database, b"gone", Origin::Snapshot(past)).unwrap();
        database.swap_proxy(&mut reader);
        get(&mut database, gone, b"\x63");
        database.swap_proxy(&mut reader);
        put(&mut database, gone, b"\0", b"new");
        let let_go = database.run(|t| create_snapshot_of(t, gone)).unwrap();
        database.run(|t| t.drop_branch(b"gone")).unwrap();
        for _ in 0..3 {
            database.run(|t| create_snapshot_of(t, main)).unwrap();
        }
        collect(&mut database, 3);
        let other = create(&mut database, b"other", Origin::Snapshot(past)).unwrap();
        put(&mut database, other, b"\0", b"other");
        database.swap_proxy(&mut reader);
        plant(fault);
        let read = database.run(|t| TREE.get(t, let_go, b"\0"));
        plant(None);
        read.map(|probe| probe.value)
    };
    assert_eq!(read(None), Err(Error::NoSnapshot));
    assert_eq!(read(Some(Fault::LetGo)), Ok(Some(b"old".to_vec())));
}

/// Whichever of the two began later.
#[test]
fn a_branch_that_becomes_another_breaks_views_of_both() {
    let mut database = database(2, 4);
    let main = BranchId::FIRST;
    put(&mut database, main, b"k", b"old");
    let from = Origin::Branch(main);
    let one = create(&mut database, b"one", from).unwrap();
    put(&mut database, main, b"k", b"new");
    let two = create(&mut database, b"two", Origin::Branch(main)).unwrap();
    for (branch, other, name, value) in [(two, one, b"one", b"old"), (main, two, b"two", b"old")] {
        let views = [branch, other].map(|of| database.run(|t| t.tip_of(of)).unwrap());
        let version = put(&mut database, branch, b"k", b"lost");
        assert_eq!(database.run(|t| t.adopt_branch(branch, name)), Ok(other));
        let [here, gone] = views.map(|view| database.run(|t| TREE.put(t, view, b"k", b"")));
        assert_eq!(here, Err(Error::Outdated));
        assert_eq!(gone, Err(Error::NoBranch));
        assert_eq!(
            get(&mut database, branch, b"k").as_deref(),
            Some(&value[..])
        );
        assert!(put(&mut database, branch, b"other", b"") > version);
    }
    let itself = database.run(|t| t.adopt_branch(main, b"main"));
    assert_eq!(itself, Err(Error::NoBranch));
    let trial = create(&mut database, b"trial", from).unwrap();
    let mainline = database.run(|t| t.adopt_branch(trial, b"main"));
    assert_eq!(mainline, Err(Error::Mainline));
    database.run(|t| t.drop_branch(b"trial")).unwrap();
    collect(&mut database, 4);
    audit(database.memnodes().memnodes(), database.config(), true).unwrap();
    assert_eq!(database.run(count), Ok(1));
}

#[test]
fn a_branch_of_a_branch_a_thousand_deep() {
    let mut database = database(1, 2);
    let mut above = BranchId::FIRST;
    put(&mut database, above, b"same", b"root");
    for depth in 0..1000_u32 {
        let name = format!("deep{depth}");
        let next = create(&mut database, name.as_bytes(), Origin::Branch(above)).unwrap();
        put(&mut database, next, b"own", &depth.to_le_bytes());
        above = next;
    }
    assert_eq!(
        get(&mut database, above, b"same").as_deref(),
        Some(&b"root"[..])
    );
    assert_eq!(get(&mut database, BranchId::FIRST, b"own"), None);
    let middle = database.run(|t| t.branch(b"deep500")).unwrap();
    assert_eq!(
        get(&mut database, middle, b"own"),
        Some(500_u32.to_le_bytes().to_vec())
    );
    // The way to the deepest stays when those between are gone, and the pages of these go.
    for depth in 0..999 {
        let name = format!("deep{depth}");
        database.run(|t| t.drop_branch(name.as_bytes())).unwrap();
    }
    collect(&mut database, 3);
    audit(database.memnodes().memnodes(), database.config(), true).unwrap();
    assert_eq!(
        get(&mut database, above, b"same").as_deref(),
        Some(&b"root"[..])
    );
}

#[test]
fn many_branches_of_one_snapshot_write_one_leaf() {
    let mut database = database(1, 2);
    put(&mut database, BranchId::FIRST, b"k", b"first");
    let from = database
        .run(|t| create_snapshot_of(t, BranchId::FIRST))
        .unwrap();
    database
        .run(|t| t.name_snapshot(from.snapshot(), b"from"))
        .unwrap();
    let many = std::env::var("PANDO_MINUET_BRANCHES").ok();
    let many: u32 = many.and_then(|many| many.parse().ok()).unwrap_or(300);
    let mut all = Vec::new();
    for number in 0..many {
        let name = format!("{number:05}");
        let branch = create(&mut database, name.as_bytes(), Origin::Snapshot(from)).unwrap();
        all.push(branch);
        if number % 2 == 0 {
            put(&mut database, branch, b"k", &number.to_le_bytes());
        }
    }
    for (number, branch) in (0_u32..).zip(&all).step_by(37) {
        let expected = if number % 2 == 0 {
            number.to_le_bytes().to_vec()
        } else {
            b"first".to_vec()
        };
        assert_eq!(get(&mut database, *branch, b"k"), Some(expected));
    }
    collect(&mut database, 2);
    audit(database.memnodes().memnodes(), database.config(), true).unwrap();
    for number in 0..many {
        let name = format!("{number:05}");
        database.run(|t| t.drop_branch(name.as_bytes())).unwrap();
    }
    // All is gone again, 64 lines a round.
    collect(&mut database, u64::from(many) / 32 + 4);
    audit(database.memnodes().memnodes(), database.config(), true).unwrap();
    assert_eq!(database.run(count), Ok(1));
}
