//! Tests of the tree on embedded memnodes, against a map.

use std::collections::{BTreeMap, VecDeque};

use pando_memnode::{
    Address, CoordinatorId, Items, Limits, Memnode, MemnodeId, MinitransactionId, Reply, Request,
    Sequence, Slot, Write,
};

use crate::error::Stop;
use crate::fault::{Fault, plant};
use crate::simulator::audit::{audit, tip};
use crate::tree::found;
use crate::{
    Change, Collector, Config, Database, Embedded, Entry, Error, FIXED_SLOTS, Job, JobId, LeaseId,
    Merge, Merged, OnConflict, Probe, Proxy, Ticket, Transaction, Transport, TreeId, View,
};

fn database(memnodes: u16, page_bytes: usize) -> Database {
    let limits = Limits {
        slots_fixed: FIXED_SLOTS,
        ..Limits::default()
    };
    let config = Config {
        memnodes,
        page_bytes,
        reserved: 4,
        ..Config::default()
    };
    Database::found(CoordinatorId(1), config, Embedded::new(memnodes, limits)).unwrap()
}

type Model = BTreeMap<(TreeId, Vec<u8>), (u64, Vec<u8>)>;

/// A key of one to ten bytes; few enough are drawn that they meet.
fn key(random: &mut fastrand::Rng) -> Vec<u8> {
    let number = random.u32(0..400);
    let text = number.to_string();
    [text.as_bytes(), &vec![b'-'; (number % 8) as usize]].concat()
}

fn step(database: &mut Database, model: &mut Model, random: &mut fastrand::Rng, removals: u32) {
    let tree = TreeId(random.u32(1..3));
    let key = key(random);
    let value = vec![random.u8(..); random.usize(0..30)];
    let old = model.get(&(tree, key.clone())).cloned();
    match random.u32(0..100) {
        draw if draw < removals => {
            let removed = database.run(|t| {
                let tip = t.tip()?;
                tree.remove(t, tip, &key)
            });
            assert_eq!(removed.unwrap(), old.as_ref().map(|(version, _)| *version));
            model.remove(&(tree, key.clone()));
            let probe = database.run(|t| {
                let tip = t.tip()?;
                tree.get(t, tip, &key)
            });
            let Probe { version, value } = probe.unwrap();
            assert_eq!(value, None);
            assert!(
                old.is_none_or(|(old, _)| version >= old),
                "versions never go back"
            );
        }
        draw if draw < 90 => {
            let version = database.run(|t| {
                let tip = t.tip()?;
                let version = tree.put(t, tip, &key, &value)?;
                let read = tree.get(t, tip, &key)?;
                assert_eq!(
                    read,
                    Probe {
                        version,
                        value: Some(value.clone())
                    }
                );
                Ok(version)
            });
            let version = version.unwrap();
            assert!(old.is_none_or(|(old, _)| version > old));
            model.insert((tree, key), (version, value));
        }
        _ => {
            let limit = random.usize(1..50);
            let scanned = database.run(|t| {
                let tip = t.tip()?;
                tree.scan(t, tip, &key, limit)
            });
            let scanned = scanned.unwrap();
            let range = model
                .range((tree, key)..)
                .take_while(|((of, _), _)| *of == tree);
            let mut expected = range.map(|((_, key), (version, value))| Entry {
                key: key.clone(),
                version: *version,
                value: value.clone(),
            });
            let first: Vec<_> = expected.by_ref().take(limit).collect();
            assert_eq!(scanned.entries, first);
            assert_eq!(scanned.next, expected.next().map(|entry| entry.key));
        }
    }
}

fn audited(database: &Database, model: &Model) {
    let memnodes = database.memnodes().memnodes();
    let tip = tip(memnodes).unwrap();
    let contents = audit(memnodes, database.config(), true)
        .unwrap()
        .remove(&tip.snapshot);
    let contents = contents.unwrap().contents;
    let expected: BTreeMap<_, _> = model
        .iter()
        .map(|((tree, key), held)| ([&tree.0.to_be_bytes()[..], key].concat(), held.clone()))
        .collect();
    assert_eq!(contents, expected);
}

#[test]
fn the_tree_is_a_map() {
    for seed in 0..12 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut database = database(1 + (seed % 3) as u16, 448);
        let mut model = Model::new();
        // It grows, is emptied almost, and grows again.
        for removals in [10, 80, 20, 85] {
            for _ in 0..400 {
                step(&mut database, &mut model, &mut random, removals);
            }
            audited(&database, &model);
        }
    }
}

#[test]
fn sizes_are_bounded_by_clear_errors() {
    let mut database = database(1, 512);
    let put = |database: &mut Database, key: usize, value: usize| {
        database.run(|t| {
            let tip = t.tip()?;
            TreeId(1).put(t, tip, &vec![7; key], &vec![8; value])
        })
    };
    assert_eq!(put(&mut database, 28, 64), Ok(1));
    assert_eq!(
        put(&mut database, 29, 1),
        Err(Error::KeyTooLong { bytes: 29, max: 28 })
    );
    assert_eq!(
        put(&mut database, 1, 65),
        Err(Error::ValueTooLong { bytes: 65, max: 64 })
    );
    audit(database.memnodes().memnodes(), database.config(), true).unwrap();
}

#[test]
fn the_longest_keys_and_values_fit_everywhere() {
    let mut database = database(2, crate::limits::PAGE_BYTES_MIN);
    let config = Config {
        page_bytes: crate::limits::PAGE_BYTES_MIN,
        ..Config::default()
    };
    let mut random = fastrand::Rng::with_seed(5);
    let mut model = Model::new();
    for _ in 0..500 {
        let mut key = vec![b'x'; config.key_bytes_max() - 4];
        let last = key.len() - 2;
        key[random.usize(0..=last)] = random.u8(..);
        key[last + 1] = random.u8(..);
        let long = random.bool();
        let value = vec![
            1;
            if long {
                config.value_bytes_max()
            } else {
                random.usize(0..9)
            }
        ];
        let version = database.run(|t| {
            let tip = t.tip()?;
            TreeId(9).put(t, tip, &key, &value)
        });
        model.insert((TreeId(9), key), (version.unwrap(), value));
    }
    audited(&database, &model);
}

#[test]
fn an_old_view_of_the_tip_leads_into_no_snapshot() {
    let mut database = database(2, 448);
    let put = |database: &mut Database, view, value: &[u8]| {
        database.run(|t| TreeId(1).put(t, view, b"key", value))
    };
    let old = database.run(|t| found(t).and_then(|()| t.tip())).unwrap();
    assert_eq!(put(&mut database, old, b"before"), Ok(1));
    let past = database.run(crate::create_snapshot).unwrap();
    assert_eq!(put(&mut database, old, b"after"), Err(Error::Outdated));
    let read = database.run(|t| TreeId(1).get(t, old, b"key"));
    assert_eq!(read, Err(Error::Outdated));
    let read = database.run(|t| TreeId(1).get(t, past, b"key")).unwrap();
    assert_eq!(read.value.as_deref(), Some(&b"before"[..]));
    // Nor does the view that a transaction had before it made a snapshot itself.
    let refused = database.run(|t| {
        let tip = t.tip()?;
        crate::create_snapshot(t)?;
        TreeId(1).put(t, tip, b"key", b"within")
    });
    assert_eq!(refused, Err(Error::Outdated));
}

/// Runs the collection for some rounds; time passes from each to the next.
fn collect(database: &mut Database, collector: &mut Collector, now: &mut u64, rounds: u64) {
    let end = collector.collected().rounds + rounds;
    while collector.collected().rounds < end {
        *now += 1;
        let step = collector.step().clone();
        let done = database.run(|t| step.run(t)).unwrap();
        collector.done(*now, done);
    }
}

/// Pages in use.
fn pages(database: &Database) -> usize {
    let memnodes = database.memnodes().memnodes().iter();
    let used = memnodes.flat_map(Memnode::used_slots);
    used.filter(|(slot, _)| slot.0 >= FIXED_SLOTS).count()
}

#[test]
fn what_nobody_keeps_is_collected() {
    let mut database = database(2, 448);
    let mut random = fastrand::Rng::with_seed(4);
    let mut model = Model::new();
    let mut views = Vec::new();
    for _ in 0..30 {
        for _ in 0..40 {
            step(&mut database, &mut model, &mut random, 30);
        }
        views.push(database.run(crate::create_snapshot).unwrap());
    }
    let (named, leased, lost) = (views[3], views[7], views[9]);
    let id = LeaseId {
        coordinator: CoordinatorId(1),
        number: 1,
    };
    let name = |t: &mut Transaction<'_>| t.name_snapshot(named.snapshot, b"gold");
    database.run(name).unwrap();
    database.run(|t| t.lease(leased, id)).unwrap();
    let (mut collector, mut now) = (Collector::new(2, 1000), 0);
    let before = pages(&database);
    collect(&mut database, &mut collector, &mut now, 1);
    let newest = Config::default().newest_kept as usize;
    let views_kept = |t: &mut Transaction<'_>| {
        let kept = t.kept()?;
        Ok(kept.into_iter().map(|kept| kept.view).collect::<Vec<_>>())
    };
    let kept = database.run(views_kept).unwrap();
    let expected = [&[named, leased], &views[30 - newest..]].concat();
    assert_eq!(kept, expected);
    let collected = collector.collected();
    assert_eq!(before - pages(&database), collected.pages as usize);
    assert!(
        collected.pages > 50 && collected.snapshots == 12,
        "{collected:?}"
    );
    let memnodes = database.memnodes().memnodes();
    audit(memnodes, database.config(), true).unwrap();
    // What is gone says so, whatever is asked of it.
    let gone = |ended| assert_eq!(ended, Err(Error::NoSnapshot));
    gone(database.run(|t| TreeId(1).get(t, lost, b"1").map(|_| ())));
    gone(database.run(|t| t.lease(lost, LeaseId { number: 2, ..id })));
    gone(database.run(|t| t.name_snapshot(lost.snapshot, b"late")));
    // A lease that is renewed stands, another ends.
    for _ in 0..3 {
        now += 600;
        database.run(|t| t.renew(id)).unwrap();
        collect(&mut database, &mut collector, &mut now, 1);
    }
    database.run(|t| TreeId(1).get(t, leased, b"1")).unwrap();
    now += 1000;
    collect(&mut database, &mut collector, &mut now, 3);
    assert_eq!(database.run(|t| t.renew(id)), Err(Error::NoLease));
    gone(database.run(|t| TreeId(1).get(t, leased, b"1").map(|_| ())));
    // And so does a name that is taken away.
    database.run(|t| t.named_snapshot(b"gold")).unwrap();
    database.run(|t| t.unname_snapshot(b"gold")).unwrap();
    gone(database.run(|t| t.named_snapshot(b"gold").map(|_| ())));
    collect(&mut database, &mut collector, &mut now, 1);
    gone(database.run(|t| TreeId(1).get(t, named, b"1").map(|_| ())));
}

/// All that differs, asked for in parts.
fn diff_all(
    database: &mut Database,
    (before, after): (View, View),
    prefix: &[u8],
    limit: usize,
) -> Vec<Change> {
    let (tree, mut from) = (TreeId(1), Vec::new());
    let mut all = Vec::new();
    loop {
        let part = database.run(|t| tree.diff(t, (before, after), prefix, &from, limit));
        let part = part.unwrap();
        assert!(part.changes.len() <= limit);
        all.extend(part.changes);
        let Some((of, next)) = part.next else {
            return all;
        };
        assert!(of == tree && next > from, "it goes on");
        from = next;
    }
}

#[test]
fn a_diff_applied_to_the_old_version_is_the_new_one() {
    for seed in 0..3 {
        let mut database = database(1 + (seed % 3) as u16, 448);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut model = Model::new();
        let mut states = Vec::new();
        for (steps, removals) in [(400, 10), (3, 10), (40, 50), (300, 80), (0, 0), (300, 20)] {
            for _ in 0..steps {
                step(&mut database, &mut model, &mut random, removals);
            }
            let view = database.run(crate::create_snapshot).unwrap();
            states.push((view, model.clone()));
        }
        for (before, old) in &states {
            for (after, new) in &states {
                let prefix: &[u8] = [b"".as_slice(), b"1", b"23"][random.usize(0..3)];
                let limit = random.usize(1..40);
                let changes = diff_all(&mut database, (*before, *after), prefix, limit);
                let value =
                    |model: &Model, key: &[u8]| model.get(&(TreeId(1), key.to_vec())).cloned();
                let keys = old.keys().chain(new.keys());
                let keys = keys.filter(|(tree, key)| *tree == TreeId(1) && key.starts_with(prefix));
                let keys: std::collections::BTreeSet<_> = keys.map(|(_, key)| key).collect();
                let differs = |key: &&Vec<u8>| {
                    let only = |entry: Option<(u64, Vec<u8>)>| entry.map(|(_, value)| value);
                    only(value(old, key)) != only(value(new, key))
                };
                let expected = keys.into_iter().filter(differs).map(|key| Change {
                    tree: TreeId(1),
                    key: key.clone(),
                    before: value(old, key),
                    after: value(new, key),
                });
                assert_eq!(changes, expected.collect::<Vec<_>>(), "seed {seed}");
            }
        }
    }
}

#[test]
fn a_diff_trusts_no_cached_node() {
    let found = |fault| {
        let mut database = database(1, 448);
        let config = Config {
            page_bytes: 448,
            ..Config::default()
        };
        let mut other = Proxy::new(CoordinatorId::of(7, 0), config);
        let put = |database: &mut Database, key: u8, value: &[u8]| {
            let put = database.run(|t| {
                let tip = t.tip()?;
                TreeId(1).put(t, tip, &[key], value)
            });
            put.unwrap()
        };
        for key in 0..100 {
            put(&mut database, key, b"old");
        }
        let before = database.run(crate::create_snapshot).unwrap();
        database.swap_proxy(&mut other);
        let read = database.run(|t| {
            let tip = t.tip()?;
            TreeId(1).get(t, tip, &[99])
        });
        read.unwrap();
        database.swap_proxy(&mut other);
        // The other proxy remembers the root as it is now; it will be that of a snapshot.
        put(&mut database, 1, b"new");
        let after = database.run(crate::create_snapshot).unwrap();
        database.swap_proxy(&mut other);
        plant(fault);
        let changes = diff_all(&mut database, (before, after), b"", 10);
        plant(None);
        changes
            .into_iter()
            .map(|change| change.key)
            .collect::<Vec<_>>()
    };
    assert_eq!(found(None), [[1]]);
    assert!(found(Some(Fault::DiffCached)).is_empty());
}

/// Two snapshots with a difference, and a tip that has gone on from the later one.
fn three(seed: u64) -> (Database, [(View, Model); 2], Model) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut database = database(1 + (seed % 3) as u16, 448);
    let mut model = Model::new();
    let mut states = [400, 60].map(|steps| {
        for _ in 0..steps {
            step(&mut database, &mut model, &mut random, 30);
        }
        let view = database.run(crate::create_snapshot).unwrap();
        (view, model.clone())
    });
    states.reverse();
    for _ in 0..60 {
        step(&mut database, &mut model, &mut random, 30);
    }
    (database, states, model)
}

fn merge(database: &mut Database, of: &Merge) -> Merged {
    let merged = database.run(|t| {
        let into = t.tip()?;
        Merge { into, ..*of }.run(t)
    });
    merged.unwrap()
}

fn values(model: &Model) -> BTreeMap<&(TreeId, Vec<u8>), &[u8]> {
    let entries = model.iter();
    entries.map(|(key, (_, value))| (key, &**value)).collect()
}

/// All keys and values of the tip.
fn at_the_tip(database: &Database) -> BTreeMap<(TreeId, Vec<u8>), Vec<u8>> {
    let memnodes = database.memnodes().memnodes();
    let tip = tip(memnodes).unwrap();
    let contents = audit(memnodes, database.config(), false)
        .unwrap()
        .remove(&tip.snapshot);
    let entries = contents
        .unwrap()
        .contents
        .into_iter()
        .map(|(key, (_, value))| {
            let (tree, key) = key.split_first_chunk().unwrap();
            ((TreeId(u32::from_be_bytes(*tree)), key.to_vec()), value)
        });
    entries.collect()
}

#[test]
fn a_merge_is_of_three_versions() {
    for seed in 0..6 {
        let (mut database, [(base, old), (theirs, new)], ours) = three(seed);
        let policies = [OnConflict::Fail, OnConflict::Ours, OnConflict::Theirs];
        let on_conflict = policies[(seed % 3) as usize];
        let of = Merge {
            base,
            theirs,
            into: base,
            tree: None,
            on_conflict,
            dry_run: true,
        };
        let before = at_the_tip(&database);
        let planned = merge(&mut database, &of);
        assert_eq!(at_the_tip(&database), before, "a dry run changes nothing");
        let merged = merge(
            &mut database,
            &Merge {
                dry_run: false,
                ..of
            },
        );
        let plan = planned.keys.iter().map(|key| key.takes_theirs);
        assert!(plan.eq(merged.keys.iter().map(|key| key.takes_theirs)));
        let (old, new, ours) = (values(&old), values(&new), values(&ours));
        let keys: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).copied().collect();
        let changed = keys.into_iter().filter(|key| old.get(key) != new.get(key));
        let (mut expected, mut conflicts) = (ours.clone(), 0);
        for key in changed {
            let (base, theirs, our) = (old.get(key), new.get(key), ours.get(key));
            let is_conflict = our != base && our != theirs;
            conflicts += usize::from(is_conflict);
            if !is_conflict || on_conflict == OnConflict::Theirs {
                match theirs {
                    Some(value) => expected.insert(key, value),
                    None => expected.remove(key),
                };
            }
        }
        if on_conflict == OnConflict::Fail && conflicts > 0 {
            expected = ours;
        }
        assert_eq!(merged.conflicts().count(), conflicts);
        assert!(conflicts > 0, "seed {seed}");
        let found = at_the_tip(&database);
        let found: BTreeMap<_, _> = found.iter().map(|(key, value)| (key, &**value)).collect();
        assert_eq!(found, expected, "seed {seed}");
    }
}

#[test]
fn a_merge_into_a_snapshot_is_refused() {
    let (mut database, [(base, _), (theirs, _)], _) = three(1);
    let into = base;
    let refused = database.run(|t| {
        let (tree, on_conflict, dry_run) = (None, OnConflict::Ours, false);
        let merge = Merge {
            base,
            theirs,
            into,
            tree,
            on_conflict,
            dry_run,
        };
        merge.run(t)
    });
    assert_eq!(refused, Err(Error::ReadOnly));
}

#[test]
fn names_are_unique_and_bounded() {
    let mut database = database(1, 448);
    let first = database.run(crate::create_snapshot).unwrap();
    let second = database.run(crate::create_snapshot).unwrap();
    let mut name = |view: View, name: &[u8]| database.run(|t| t.name_snapshot(view.snapshot, name));
    assert_eq!(name(first, b"a"), Ok(()));
    assert_eq!(name(first, b"a"), Ok(()));
    assert_eq!(name(second, b"a"), Err(Error::NameTaken));
    assert_eq!(name(first, b"b"), Ok(()));
    assert_eq!(name(second, b"a"), Ok(()));
    assert_eq!(name(second, b""), Err(Error::BadName { bytes: 0 }));
    assert_eq!(
        name(second, &[b'x'; 200]),
        Err(Error::BadName { bytes: 200 })
    );
    let found = database.run(|t| t.named_snapshot(b"b")).unwrap();
    assert_eq!(found, first);
}

#[test]
fn a_snapshot_stays_as_it_was() {
    let mut database = database(2, 448);
    let mut random = fastrand::Rng::with_seed(3);
    let mut model = Model::new();
    let mut kept = Vec::new();
    for _ in 0..6 {
        for _ in 0..200 {
            step(&mut database, &mut model, &mut random, 30);
        }
        kept.push((database.run(crate::create_snapshot).unwrap(), model.clone()));
    }
    for (view, model) in &kept {
        for tree in [TreeId(1), TreeId(2)] {
            let scanned = database.run(|t| tree.scan(t, *view, b"", 10_000)).unwrap();
            let held: Vec<_> = scanned
                .entries
                .into_iter()
                .map(|e| (e.key, e.value))
                .collect();
            let expected = model.iter().filter(|((of, _), _)| *of == tree);
            let expected = expected.map(|((_, key), (_, value))| (key.clone(), value.clone()));
            assert_eq!(held, expected.collect::<Vec<_>>());
        }
    }
    let past = kept[0].0;
    let refused = database.run(|t| TreeId(1).put(t, past, b"x", b"y"));
    assert_eq!(refused, Err(Error::ReadOnly));
}

/// Keeps what a proxy sends.
#[derive(Default)]
struct Sent(VecDeque<(Ticket, MemnodeId, Request)>);

impl Transport for Sent {
    fn send(&mut self, ticket: Ticket, to: MemnodeId, request: Request) {
        self.0.push_back((ticket, to, request));
    }

    fn receive(&mut self) -> Option<(Ticket, Reply)> {
        None
    }
}

/// Runs a transaction; shows each of its requests after it was answered.
fn by_hand<R>(
    nodes: &mut [Memnode],
    proxy: &mut Proxy,
    program: impl FnMut(&mut Transaction<'_>) -> Result<R, Stop>,
    mut answered: impl FnMut(&mut [Memnode], &Request),
) -> R {
    let mut job = Job::new(JobId(0), program);
    let mut ended = job.start(proxy);
    let mut sent = Sent::default();
    while ended.is_none() {
        proxy.flush(&mut sent);
        let (ticket, to, request) = sent.0.pop_front().expect("a request");
        let mut replies = Vec::new();
        nodes[usize::from(to.0)].handle(ticket.0, request.clone(), &mut replies);
        answered(nodes, &request);
        for (ticket, reply) in replies {
            if let Some((_, from)) = proxy.receive(Ticket(ticket), &reply) {
                ended = ended.or(job.receive(proxy, Ticket(ticket), from, reply));
            }
        }
    }
    ended.expect("it is over").unwrap()
}

#[test]
fn what_comes_in_one_wave_from_two_memnodes_is_of_two_moments() {
    let (replicated, other) = (Slot(1), Slot(5));
    let mut nodes = [(); 2].map(|()| Memnode::new(Limits::default()));
    let write = |nodes: &mut [Memnode], number, value: &[u8]| {
        for node in nodes {
            let writes = [replicated, other].map(|slot| Write::Whole(slot, value.into()));
            let request = Request::Execute {
                id: MinitransactionId {
                    coordinator: CoordinatorId::of(3, 0),
                    number,
                },
                settled: 0,
                items: Items {
                    writes: writes.to_vec(),
                    ..Items::default()
                },
                wait: 0,
            };
            node.handle(0, request, &mut Vec::new());
        }
    };
    write(&mut nodes, 1, b"old");
    let config = Config {
        memnodes: 2,
        ..Config::default()
    };
    let mut proxy = Proxy::new(CoordinatorId::default(), config);
    let address = Address {
        memnode: MemnodeId(1),
        slot: other,
        generation: Sequence(0),
    };
    let program = |t: &mut Transaction<'_>| {
        let (one, other) = (t.replica(replicated), t.read(address));
        Ok((one?.to_vec(), other?.to_vec()))
    };
    let mut asked = 0;
    let read = by_hand(&mut nodes, &mut proxy, program, |nodes, _| {
        asked += 1;
        if asked == 1 {
            // Between the two requests of the first wave.
            write(nodes, 2, b"new");
        }
    });
    assert_eq!(read, (b"new".to_vec(), b"new".to_vec()));
}

#[test]
fn a_diff_reads_what_changed() {
    let mut nodes = [Memnode::new(Limits::default())];
    let config = Config {
        page_bytes: 448,
        ..Config::default()
    };
    let mut proxy = Proxy::new(CoordinatorId::default(), config);
    let mut put = |nodes: &mut [Memnode], keys: &[u32]| {
        let program = |t: &mut Transaction<'_>| {
            found(t)?;
            let tip = t.tip()?;
            for key in keys {
                TreeId(1).put(t, tip, &key.to_be_bytes(), &keys.len().to_le_bytes())?;
            }
            Ok(())
        };
        by_hand(nodes, &mut proxy, program, |_, _| {});
        by_hand(nodes, &mut proxy, crate::create_snapshot, |_, _| {})
    };
    let all: Vec<u32> = (0..6000).collect();
    let before = put(&mut nodes, &all);
    let changed = [7, 8, 2000, 5990];
    let after = put(&mut nodes, &changed);
    let pages = nodes[0].used_slots().count();
    let mut fresh = Proxy::new(CoordinatorId::of(2, 0), config);
    let (mut trips, mut read) = (0, 0);
    let program = |t: &mut Transaction<'_>| TreeId(1).diff(t, (before, after), b"", b"", 100);
    let diffed = by_hand(&mut nodes, &mut fresh, program, |_, request| {
        if let Request::Execute { items, .. } = request {
            read += items.reads.len();
            trips += 1;
        }
    });
    let keys = diffed.changes.iter().map(|change| change.key.clone());
    let expected = changed.map(|key| key.to_be_bytes().to_vec());
    assert_eq!(keys.collect::<Vec<_>>(), expected);
    // What is kept; three leaves of each version and the way to each, through six heights; a wave
    // for each.
    assert!(pages > 800, "{pages}");
    assert!(read <= 1 + 2 * 3 * 6 && trips <= 7, "{read} in {trips}");
}
