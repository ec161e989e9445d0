//! Planted faults that the checkers must see.

use crate::model::{Generator, History, Operation, State, Text, Violation};
use crate::transfers::{ACCOUNTS, Books, Transfer};
use crate::whole::{self, Ledgers, Step};

/// A history of `count` commands, all promised, and what they make.
fn history(seed: u64, count: usize) -> (History, State) {
    let mut generator = Generator::new(seed, 0);
    let mut state = State::default();
    let mut history = History::default();
    for _ in 0..count {
        let operation = generator.next();
        state.apply(&operation);
        history.sent.push(operation);
    }
    history.promised = count;
    (history, state)
}

/// What the commands make without the one at `index`.
fn without(history: &History, index: usize) -> State {
    let mut state = history.before.clone();
    for (at, operation) in history.sent.iter().enumerate() {
        if at != index {
            state.apply(operation);
        }
    }
    state
}

#[test]
fn the_whole_and_what_was_not_promised_pass() {
    let (mut history, state) = history(1, 500);
    assert_eq!(history.check(&state), Ok(500));
    history.promised = 300;
    let mut shorter = State::default();
    for operation in &history.sent[..400] {
        shorter.apply(operation);
    }
    assert!(history.check(&shorter).expect("a prefix") >= 400);
}

/// A command in the middle that is not there leaves no prefix, whichever it is, unless it changed
/// nothing or was overwritten.
#[test]
fn an_acknowledged_write_that_was_skipped_is_seen() {
    let (history, state) = history(2, 400);
    let mut seen = 0;
    for index in 0..400 {
        let found = without(&history, index);
        if found != state {
            assert!(history.check(&found).is_err(), "command {index}");
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn a_lost_tail_is_seen() {
    let (history, _) = history(3, 200);
    let mut found = State::default();
    for operation in &history.sent[..150] {
        found.apply(operation);
    }
    assert!(matches!(
        history.check(&found),
        Err(Violation::Lost { promised: 200, .. })
    ));
}

#[test]
fn exchanged_torn_and_returned_values_are_seen() {
    let set = |key: usize, value: &str| Operation::Set {
        key,
        value: value.into(),
    };
    let text = |bytes: &str| Text {
        bytes: bytes.into(),
        at_ms: None,
    };
    let history = History {
        sent: vec![
            set(0, "old"),
            set(0, "new"),
            set(1, "other"),
            Operation::Delete { key: 1 },
        ],
        ..History::default()
    };
    let found = |strings: &[(usize, &str)]| {
        let mut state = State::default();
        for (key, bytes) in strings {
            state.first.strings.insert(*key, text(bytes));
        }
        state
    };
    assert_eq!(history.check(&found(&[(0, "new")])), Ok(4));
    assert_eq!(history.check(&found(&[(0, "new"), (1, "other")])), Ok(3));
    // The older value with the later key; half a value; a key that nobody wrote.
    for wrong in [
        &[(0, "old"), (1, "other")][..],
        &[(0, "ne")],
        &[(0, "new"), (2, "x")],
        &[(1, "other")],
    ] {
        assert_eq!(history.check(&found(wrong)), Err(Violation::NoPrefix));
    }
}

#[test]
fn half_a_transfer_is_seen() {
    let transfers = |count: u64| -> Vec<Transfer> {
        let mut random = fastrand::Rng::with_seed(count);
        (0..count).map(|_| Transfer::random(&mut random)).collect()
    };
    let books = Books {
        sent: vec![transfers(50), transfers(70)],
        promised: vec![20, 70],
        ..Books::default()
    };
    let after = |first: usize, second: usize| {
        let mut balances = [0; ACCOUNTS];
        for transfer in books.sent[0][..first]
            .iter()
            .chain(&books.sent[1][..second])
        {
            transfer.apply(&mut balances);
        }
        balances
    };
    assert_eq!(books.check(&after(30, 70), &[30, 70]), Ok(()));
    // Lost, though promised; more than was sent; money without its receipt; half of a transfer.
    assert!(books.check(&after(19, 70), &[19, 70]).is_err());
    assert!(books.check(&after(50, 70), &[51, 70]).is_err());
    assert!(books.check(&after(31, 70), &[30, 70]).is_err());
    let mut half = after(30, 70);
    half[3] -= 1;
    assert!(books.check(&half, &[30, 70]).is_err());
}

#[test]
fn what_is_not_whole_is_seen() {
    let mut random = fastrand::Rng::with_seed(5);
    let steps: Vec<Step> = (1..200)
        .map(|stamp| Step::random(&mut random, stamp, 30))
        .collect();
    assert!(steps.contains(&Step::FlushAll) && steps.contains(&Step::Swap));
    let before = Ledgers::default();
    let after = |steps: &[Step]| {
        let mut ledgers = before;
        for step in steps {
            step.apply(&mut ledgers);
        }
        ledgers
    };
    for (index, step) in steps.iter().enumerate() {
        let sent = &steps[..=index];
        assert_eq!(
            whole::check(&before, sent, sent.len(), &after(sent)),
            Ok(())
        );
        // Without the last, which was promised; with a part of it; without one in the middle.
        let shorter = after(&steps[..index]);
        if shorter != after(sent) {
            assert!(whole::check(&before, sent, sent.len(), &shorter).is_err());
        }
        assert_eq!(whole::check(&before, sent, index, &shorter), Ok(()));
        if let Step::Transfers { stamp, count } = *step {
            let count = count / 2;
            let mut half = shorter;
            Step::Transfers { stamp, count }.apply(&mut half);
            assert!(whole::check(&before, sent, 0, &half).is_err(), "{index}");
        }
        let next = steps.get(index + 1);
        if let Some(next @ Step::Transfers { .. }) = next {
            let mut skipped = shorter;
            next.apply(&mut skipped);
            let sent = &steps[..index + 2];
            let kept = after(sent) != skipped;
            assert!(!kept || whole::check(&before, sent, 0, &skipped).is_err());
        }
    }
}
