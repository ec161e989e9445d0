//! Tests of one memnode, and of several under messages in any order.

mod agreement;

use crate::{
    Address, Beside, Bytes, Compare, CoordinatorId, InDoubt, Items, Limits, Memnode, MemnodeId,
    MinitransactionId, Outcome, Piece, Reply, Request, Sequence, Slot, Standing, Write,
};

const LIMITS: Limits = Limits {
    slots_fixed: 16,
    slots_max: 1 << 20,
    reservations_max: 4,
    waiting_max: 2,
    outcomes_max: 100,
};

fn id(number: u64) -> MinitransactionId {
    MinitransactionId {
        coordinator: CoordinatorId(1),
        number,
    }
}

fn bytes(text: &str) -> Bytes {
    text.as_bytes().into()
}

fn writes(writes: &[Write]) -> Items {
    Items {
        writes: writes.to_vec(),
        ..Items::default()
    }
}

fn whole(slot: u64, text: &str) -> Items {
    writes(&[Write::Whole(Slot(slot), bytes(text))])
}

fn is_at(slot: u64, sequence: u64) -> Compare {
    Compare::Sequence(Slot(slot), Sequence(sequence))
}

fn ask(memnode: &mut Memnode, request: Request) -> Vec<Reply> {
    let mut replies = Vec::new();
    memnode.handle(0, request, &mut replies);
    replies.into_iter().map(|(_, reply)| reply).collect()
}

fn outcome(replies: &[Reply]) -> &Outcome {
    match replies {
        [Reply::Outcome(outcome)] => outcome,
        other => panic!("{other:?}"),
    }
}

fn execute(number: u64, items: &Items) -> Request {
    Request::Execute {
        id: id(number),
        settled: 0,
        items: items.clone(),
        wait: 0,
    }
}

fn prepare(number: u64, items: &Items, wait: u16) -> Request {
    let participants = vec![MemnodeId(0), MemnodeId(1)];
    Request::Prepare {
        id: id(number),
        settled: 0,
        participants,
        items: items.clone(),
        wait,
    }
}

fn run(memnode: &mut Memnode, number: u64, items: &Items) -> Outcome {
    outcome(&ask(memnode, execute(number, items))).clone()
}

fn vote(memnode: &mut Memnode, number: u64, items: &Items) -> Outcome {
    outcome(&ask(memnode, prepare(number, items, 0))).clone()
}

/// SL1 latched-by-bytes: whatever is written to a slot, it is latched if and only if its bytes are
/// of that kind.
#[test]
fn slots_are_latched_by_their_bytes() {
    let mut memnode = Memnode::latching(LIMITS, |bytes| bytes.starts_with(b"l"));
    let is_latched = |memnode: &Memnode| memnode.latch(Slot(3)).is_some();
    run(&mut memnode, 1, &whole(3, "leaf"));
    assert!(is_latched(&memnode) && is_latched(&memnode.clone()));
    run(&mut memnode, 2, &whole(3, "inner"));
    assert!(!is_latched(&memnode) && memnode.see(Slot(3)).lasting() == Some(&b"inner"[..]));
    let piece = Piece::Bytes {
        at: 0,
        bytes: b"l".as_slice().into(),
    };
    run(
        &mut memnode,
        3,
        &writes(&[Write::Patch(Slot(3), vec![piece])]),
    );
    assert!(is_latched(&memnode) && is_latched(&memnode.clone().restarted()));
    assert_eq!(&*memnode.slot(Slot(3)).bytes, b"lnner");
    run(&mut memnode, 4, &writes(&[Write::Free(Slot(3))]));
    assert!(!is_latched(&memnode) && memnode.slot(Slot(3)).is_free());
}

/// SL3 beside-of-present: whatever is written to a slot, what lay beside it is gone.
#[test]
fn what_lies_beside_goes_with_the_bytes() {
    let mut memnode = Memnode::latching(LIMITS, |bytes| bytes.starts_with(b"l"));
    run(&mut memnode, 1, &whole(3, "inner and more"));
    let derive = |memnode: &Memnode| {
        let place = memnode.beside(Slot(3)).unwrap();
        assert!(place.get().is_none() && memnode.content_place(Slot(3)).is_null());
        let derived = Bytes::from(b"derived".as_slice());
        place.set(Beside::Bytes(derived.clone())).unwrap();
        assert_eq!(memnode.content_place(Slot(3)), derived.as_ptr());
    };
    let piece = Piece::Bytes {
        at: 1,
        bytes: b"x".as_slice().into(),
    };
    let (at, by) = (2, 1);
    let all = [
        Write::Patch(Slot(3), vec![piece]),
        Write::Add {
            slot: Slot(3),
            at,
            by,
        },
        Write::Free(Slot(3)),
        Write::Whole(Slot(3), b"inner".as_slice().into()),
    ];
    for (number, write) in (2..).zip(all) {
        derive(&memnode);
        run(&mut memnode, number, &writes(&[write]));
    }
    derive(&memnode);
    memnode.edit(Slot(3), |bytes| bytes[1] = b'x');
    derive(&memnode);
    memnode.mark(Slot(3), 1, b'y');
    derive(&memnode);
    derive(&memnode.clone());
    memnode.edit(Slot(3), |bytes| bytes[0] = b'l');
    run(&mut memnode, 9, &whole(3, "leaf"));
    assert!(memnode.beside(Slot(3)).is_none() && memnode.take_gone().is_empty());
    assert_eq!(
        memnode.content_place(Slot(3)),
        memnode.see(Slot(3)).as_ptr()
    );
    let latch = memnode.latch(Slot(3));
    assert!(memnode.content_place(Slot(3)).is_null(), "{latch:?}");
}

/// What may take long to drop is left to the host, once for each.
#[test]
fn what_lay_beside_is_left_to_the_host() {
    let mut memnode = Memnode::latching(LIMITS, |bytes| bytes.starts_with(b"l"));
    run(&mut memnode, 1, &whole(3, "body"));
    let place = memnode.beside(Slot(3)).unwrap();
    place.set(Beside::Other(Box::new(Box::new(7)))).unwrap();
    assert!(memnode.clone().beside(Slot(3)).unwrap().get().is_none());
    assert!(memnode.take_gone().is_empty());
    run(&mut memnode, 2, &writes(&[Write::Free(Slot(3))]));
    assert!(memnode.beside(Slot(3)).unwrap().get().is_none());
    assert!(memnode.clone().take_gone().is_empty());
    let gone = memnode.take_gone();
    let [Beside::Other(gone)] = &gone[..] else {
        panic!("what lay beside it: {gone:?}")
    };
    assert_eq!(gone.downcast_ref(), Some(&7));
    assert!(memnode.take_gone().is_empty());
}

/// A change under a latch is one more state of the slot; a mark is none. Who compares sees that.
#[test]
fn changes_under_a_latch_are_compared() {
    let mut memnode = Memnode::latching(LIMITS, |_| true);
    run(&mut memnode, 1, &whole(3, "one"));
    memnode.latch(Slot(3)).unwrap().mark()[0] = b'O';
    let reads = Items {
        compares: vec![is_at(3, 1)],
        ..Items::default()
    };
    assert_eq!(run(&mut memnode, 2, &reads), Outcome::Done(vec![]));
    let before = memnode.slot(Slot(3)).bytes;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let mut latch = memnode.latch(Slot(3)).unwrap();
                    let next = latch[2].wrapping_add(1);
                    latch.edit()[2] = next;
                }
            });
        }
    });
    // Whoever had the bytes before has them still.
    assert_eq!(&*before, b"One");
    assert_eq!(memnode.slot(Slot(3)).sequence, Sequence(201));
    assert_eq!(memnode.see(Slot(3))[2], b'e'.wrapping_add(200));
    assert_eq!(run(&mut memnode, 3, &reads), Outcome::Failed(vec![0]));
}

#[test]
fn comparisons_decide_and_reads_come_before_writes() {
    let mut memnode = Memnode::new(LIMITS);
    assert_eq!(
        run(&mut memnode, 1, &whole(3, "one")),
        Outcome::Done(vec![])
    );
    let items = Items {
        compares: vec![is_at(3, 1), Compare::Bytes(Slot(3), bytes("one"))],
        reads: vec![Slot(3), Slot(4)],
        writes: vec![Write::Whole(Slot(3), bytes("two"))],
    };
    let Outcome::Done(reads) = run(&mut memnode, 2, &items) else {
        panic!("the comparisons hold");
    };
    assert_eq!(
        (&*reads[0].bytes, reads[0].sequence),
        (&b"one"[..], Sequence(1))
    );
    assert!(reads[1].is_free());
    assert_eq!(run(&mut memnode, 3, &items), Outcome::Failed(vec![0, 1]));
    assert_eq!(&*memnode.slot(Slot(3)).bytes, b"two");
}

#[test]
fn pieces_numbers_and_bounds() {
    let mut memnode = Memnode::new(LIMITS);
    run(&mut memnode, 1, &whole(0, "abcdefgh--------"));
    let pieces = vec![
        Piece::Move {
            from: 0,
            to: 2,
            len: 4,
        },
        Piece::Bytes {
            at: 0,
            bytes: (*b"XY").into(),
        },
    ];
    run(&mut memnode, 2, &writes(&[Write::Patch(Slot(0), pieces)]));
    assert_eq!(&*memnode.slot(Slot(0)).bytes, b"XYabcdgh--------");
    let zero = writes(&[Write::Whole(Slot(1), [0; 8].as_slice().into())]);
    run(&mut memnode, 3, &zero);
    let add = writes(&[Write::Add {
        slot: Slot(1),
        at: 0,
        by: 300,
    }]);
    run(&mut memnode, 4, &add);
    run(&mut memnode, 5, &add);
    assert_eq!(memnode.slot(Slot(1)).bytes[..2], 600_u16.to_le_bytes());
    let piece = |at| Piece::Bytes {
        at,
        bytes: [7].as_slice().into(),
    };
    for (number, bad) in [
        Write::Patch(Slot(1), vec![piece(8)]),
        Write::Patch(
            Slot(1),
            vec![Piece::Move {
                from: u32::MAX,
                to: 0,
                len: u32::MAX,
            }],
        ),
        Write::Add {
            slot: Slot(1),
            at: 1,
            by: 1,
        },
        Write::Whole(Slot(2), Bytes::default()),
        Write::Whole(Slot(LIMITS.slots_fixed + 4), bytes("beyond every hint")),
        Write::Free(Slot(2)),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(
            run(&mut memnode, 6 + number as u64, &writes(&[bad])),
            Outcome::Invalid
        );
        memnode.handle(
            0,
            Request::Execute {
                id: id(20),
                settled: 7 + number as u64,
                items: Items::default(),
                wait: 0,
            },
            &mut Vec::new(),
        );
    }
}

#[test]
fn a_retry_gets_the_first_answer_over_restarts() {
    let mut memnode = Memnode::new(LIMITS);
    run(&mut memnode, 1, &whole(0, "first"));
    let mut items = whole(0, "second");
    items.reads.push(Slot(0));
    let first = run(&mut memnode, 2, &items);
    let mut memnode = memnode.restarted();
    run(&mut memnode, 3, &whole(0, "third"));
    assert_eq!(run(&mut memnode, 2, &items), first);
    assert_eq!(&*memnode.slot(Slot(0)).bytes, b"third");
    // What failed fails again, though it would hold by now.
    let mut items = whole(0, "fifth");
    items.compares.push(is_at(0, 4));
    assert_eq!(run(&mut memnode, 4, &items), Outcome::Failed(vec![0]));
    run(&mut memnode, 5, &whole(0, "fourth"));
    assert_eq!(run(&mut memnode, 4, &items), Outcome::Failed(vec![0]));
    // And what was settled never runs again.
    let settle = Request::Execute {
        id: id(6),
        settled: 6,
        items: whole(1, "x"),
        wait: 0,
    };
    ask(&mut memnode, settle);
    assert_eq!(
        ask(&mut memnode, execute(5, &whole(0, "again"))),
        [Reply::Stale]
    );
    assert_eq!(
        ask(&mut memnode, prepare(5, &whole(0, "again"), 0)),
        [Reply::Stale]
    );
    assert_eq!(&*memnode.slot(Slot(0)).bytes, b"fourth");
}

#[test]
fn a_vote_binds_over_restarts() {
    let mut memnode = Memnode::new(LIMITS);
    let mut items = whole(0, "voted");
    items.compares.push(is_at(1, 0));
    assert_eq!(vote(&mut memnode, 1, &items), Outcome::Done(vec![]));
    let mut memnode = memnode.restarted();
    let holder = InDoubt {
        id: id(1),
        participants: vec![MemnodeId(0), MemnodeId(1)],
    };
    let busy = Outcome::Busy(Some(holder));
    let read = Items {
        reads: vec![Slot(0)],
        ..Items::default()
    };
    let compare = Items {
        compares: vec![is_at(1, 0)],
        ..Items::default()
    };
    assert_eq!(run(&mut memnode, 2, &read), busy);
    assert_eq!(run(&mut memnode, 3, &whole(1, "compared")), busy);
    assert_eq!(run(&mut memnode, 4, &compare), Outcome::Done(vec![]));
    assert_eq!(vote(&mut memnode, 1, &items), Outcome::Done(vec![]));
    let settle = Request::Settle { id: id(1) };
    assert_eq!(
        ask(&mut memnode, settle.clone()),
        [Reply::Standing(Standing::Prepared)]
    );
    for _ in 0..2 {
        let decide = Request::Decide {
            id: id(1),
            commit: true,
        };
        assert_eq!(ask(&mut memnode, decide), [Reply::Decided]);
        assert_eq!(memnode.slot(Slot(0)).sequence, Sequence(1));
    }
    assert!(memnode.is_quiet());
    assert_eq!(
        ask(&mut memnode, settle),
        [Reply::Standing(Standing::Committed)]
    );
}

#[test]
fn who_is_asked_before_it_votes_votes_against() {
    let mut memnode = Memnode::new(LIMITS);
    for (number, request) in [
        (1, Request::Settle { id: id(1) }),
        (
            2,
            Request::Decide {
                id: id(2),
                commit: false,
            },
        ),
    ] {
        ask(&mut memnode, request);
        memnode = memnode.restarted();
        assert_eq!(
            vote(&mut memnode, number, &whole(0, "late")),
            Outcome::Aborted
        );
    }
    assert!(memnode.is_quiet());
}

fn in_doubt(replies: &[Reply]) -> Vec<u64> {
    match replies {
        [Reply::InDoubt(doubts)] => doubts.iter().map(|doubt| doubt.id.number).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_dead_commit_nothing_later_and_are_forgotten() {
    let mut memnode = Memnode::new(LIMITS);
    let (host, below) = (0, 2);
    run(&mut memnode, 1, &whole(0, "ran"));
    vote(&mut memnode, 2, &whole(1, "voted"));
    assert_eq!(ask(&mut memnode, prepare(3, &whole(1, "waits"), 9)), []);
    let mut replies = Vec::new();
    memnode.handle(7, Request::Retire { host, below }, &mut replies);
    assert_eq!(replies[0], (0, Reply::Stale));
    assert_eq!(in_doubt(&[replies[1].1.clone()]), [2]);
    let mut memnode = memnode.restarted();
    // What it was told before, it is told again; what comes late does not run.
    assert_eq!(
        run(&mut memnode, 1, &whole(0, "ran")),
        Outcome::Done(vec![])
    );
    let late = ask(&mut memnode, execute(4, &whole(0, "late")));
    assert_eq!(late, [Reply::Stale]);
    let settle = |number| Request::Settle { id: id(number) };
    let aborted = [Reply::Standing(Standing::Aborted)];
    assert_eq!(ask(&mut memnode, settle(3)), aborted);
    // While something is in doubt, nothing is forgotten.
    let forget = Request::Forget { host, below };
    assert_eq!(in_doubt(&ask(&mut memnode, forget.clone())), [2]);
    let decide = Request::Decide {
        id: id(2),
        commit: true,
    };
    ask(&mut memnode, decide);
    assert!(memnode.has_committed(id(2)));
    assert_eq!(in_doubt(&ask(&mut memnode, forget)), []);
    assert!(!memnode.has_committed(id(2)));
    let settled = [Reply::Standing(Standing::Settled)];
    assert_eq!(ask(&mut memnode, settle(2)), settled);
    assert_eq!(
        ask(&mut memnode, execute(1, &whole(0, "ran"))),
        [Reply::Stale]
    );
    assert_eq!(&*memnode.slot(Slot(0)).bytes, b"ran");
    // The next life on the host is none of those.
    let mut next = execute(1, &whole(0, "next"));
    if let Request::Execute { id, .. } = &mut next {
        id.coordinator = CoordinatorId::of(host, below);
    }
    assert!(matches!(
        outcome(&ask(&mut memnode, next)),
        Outcome::Done(_)
    ));
}

#[test]
fn waiting_is_bounded_and_nobody_overtakes() {
    let mut memnode = Memnode::new(LIMITS);
    let compare = Items {
        compares: vec![is_at(0, 0)],
        ..Items::default()
    };
    vote(&mut memnode, 1, &compare);
    assert_eq!(ask(&mut memnode, prepare(2, &whole(0, "tip"), 3)), []);
    // Shared locks would be compatible with the first one's.
    assert!(matches!(vote(&mut memnode, 3, &compare), Outcome::Busy(_)));
    let mut replies = Vec::new();
    memnode.handle(
        9,
        Request::Decide {
            id: id(1),
            commit: true,
        },
        &mut replies,
    );
    let woken = (0, Reply::Outcome(Outcome::Done(vec![])));
    assert_eq!(replies, [woken, (9, Reply::Decided)]);
    // Two wait, a third may not; after their ticks they are told.
    assert_eq!(ask(&mut memnode, prepare(4, &whole(0, "a"), 2)), []);
    assert_eq!(ask(&mut memnode, prepare(5, &whole(0, "b"), 1)), []);
    let third = ask(&mut memnode, prepare(6, &whole(0, "c"), 5));
    assert!(matches!(outcome(&third), Outcome::Busy(Some(holder)) if holder.id == id(2)));
    for _ in 0..2 {
        let mut replies = Vec::new();
        memnode.tick(&mut replies);
        assert!(matches!(
            replies[..],
            [(0, Reply::Outcome(Outcome::Busy(_)))]
        ));
    }
    ask(
        &mut memnode,
        Request::Decide {
            id: id(2),
            commit: false,
        },
    );
    assert!(memnode.is_quiet());
    assert!(memnode.slot(Slot(0)).is_free());
}

fn reserve(memnode: &mut Memnode, count: u32) -> Vec<Address> {
    match &ask(memnode, Request::Reserve { count })[..] {
        [Reply::Reserved { slots, .. }] => slots
            .iter()
            .map(|(slot, generation)| Address {
                memnode: MemnodeId(0),
                slot: *slot,
                generation: *generation,
            })
            .collect(),
        other => panic!("{other:?}"),
    }
}

fn allocate(memnode: &mut Memnode, number: u64, address: Address) -> Outcome {
    let mut items = whole(address.slot.0, "used");
    items
        .compares
        .push(Compare::Sequence(address.slot, address.generation));
    run(memnode, number, &items)
}

#[test]
fn an_address_is_used_once_and_hints_leak_nothing() {
    let mut memnode = Memnode::new(LIMITS);
    let first = reserve(&mut memnode, 2);
    assert_eq!(first[0].slot, Slot(LIMITS.slots_fixed));
    // A restart forgets hints: the same slot is handed out again, and one commit wins.
    let mut memnode = memnode.restarted();
    let second = reserve(&mut memnode, 1);
    assert_eq!(second[0], first[0]);
    assert_eq!(allocate(&mut memnode, 1, first[0]), Outcome::Done(vec![]));
    assert_eq!(
        allocate(&mut memnode, 2, second[0]),
        Outcome::Failed(vec![0])
    );
    run(&mut memnode, 3, &writes(&[Write::Free(first[0].slot)]));
    let third = reserve(&mut memnode, 1);
    assert_eq!(third[0].slot, first[0].slot);
    assert!(third[0].generation > first[0].generation);
    assert_eq!(
        allocate(&mut memnode, 4, first[0]),
        Outcome::Failed(vec![0])
    );
    // Hints beyond the bound go back, so that every slot stays within reach.
    let mut seen: Vec<_> = (0..5).flat_map(|_| reserve(&mut memnode, 2)).collect();
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() <= LIMITS.reservations_max, "{seen:?}");
    let outcome = allocate(&mut memnode, 5, first[1]);
    assert_eq!(outcome, Outcome::Done(vec![]));
    assert_eq!(memnode.used_slots().count(), 1);
}

#[test]
fn used_slots_are_listed_piece_by_piece() {
    let mut memnode = Memnode::new(LIMITS);
    for (number, slot) in [2, 3, 5, 9].into_iter().enumerate() {
        run(&mut memnode, 1 + number as u64, &whole(slot, "abcdef"));
    }
    run(&mut memnode, 9, &writes(&[Write::Free(Slot(3))]));
    let mut listed = Vec::new();
    let mut from = Some(Slot(0));
    let mut trips = 0;
    while let Some(slot) = from {
        let request = Request::List {
            from: slot,
            count: 4,
            prefix: 2,
        };
        let replies = ask(&mut memnode, request);
        let [Reply::Listed { slots, next }] = &replies[..] else {
            panic!("{replies:?}");
        };
        assert!(slots.iter().all(|(_, state)| *state.bytes == *b"ab"));
        listed.extend(slots.iter().map(|(slot, _)| slot.0));
        (from, trips) = (*next, trips + 1);
    }
    assert_eq!((listed, trips), (vec![2, 5, 9], 3));
    let beyond = Request::List {
        from: Slot(u64::MAX),
        count: u32::MAX,
        prefix: 9,
    };
    let none = Reply::Listed {
        slots: Vec::new(),
        next: None,
    };
    assert_eq!(ask(&mut memnode, beyond), [none]);
}

#[test]
fn every_hint_holds_after_a_restart() {
    for counts in [[1; 9], [3; 9], [4; 9], [9; 9], [2, 3, 1, 4, 2, 2, 3, 1, 1]] {
        let mut memnode = Memnode::new(LIMITS);
        let hints = counts.map(|count| reserve(&mut memnode, count));
        let farthest = *hints.iter().flatten().max().expect("there is room");
        let mut memnode = memnode.restarted();
        assert_eq!(allocate(&mut memnode, 1, farthest), Outcome::Done(vec![]));
    }
}

#[test]
fn the_lowest_open_number_is_always_heard() {
    let mut memnode = Memnode::new(LIMITS);
    let far = LIMITS.outcomes_max;
    for number in 2..far + 10 {
        let replies = ask(&mut memnode, execute(number, &whole(0, "x")));
        assert_eq!(replies.is_empty(), number >= far, "{number}");
    }
    assert_eq!(
        run(&mut memnode, 1, &whole(0, "late")),
        Outcome::Done(vec![])
    );
}
