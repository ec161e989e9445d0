//! Whether a history of one register is linearizable: whether each operation can have taken effect
//! at one moment between its call and its return.
//!
//! The search goes through the orders that the calls and returns allow, session by session, and
//! remembers the situations that it has been in: a situation is how many operations of each session
//! have taken effect, and what the register holds. Sessions are few, so there are few of them.
//!
//! The engine's conformance suite has a checker too, whose events name the value before and the one
//! after. Commands tell less: SET does not say what it replaced, DEL not what it removed.

use std::collections::HashSet;

/// What was asked of a register, and the answer. `None` is absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Read { found: Option<i64> },
    Write { value: i64 },
    WriteIfAbsent { value: i64, written: bool },
    Swap { value: i64, found: Option<i64> },
    Add { amount: i64, sum: i64 },
    Remove { removed: bool },
    Take { found: Option<i64> },
}

/// An operation, and the moments of its call and its return.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) called: u64,
    pub(crate) returned: u64,
    pub(crate) operation: Operation,
}

impl Operation {
    /// Whether the answer fits what the register holds, and what it holds afterwards.
    fn apply(self, held: Option<i64>) -> (bool, Option<i64>) {
        match self {
            Self::Read { found } => (found == held, held),
            Self::Write { value } => (true, Some(value)),
            Self::WriteIfAbsent { value, written } => {
                (written == held.is_none(), held.or(Some(value)))
            }
            Self::Swap { value, found } => (found == held, Some(value)),
            Self::Add { amount, sum } => (held.unwrap_or(0) + amount == sum, Some(sum)),
            Self::Remove { removed } => (removed == held.is_some(), None),
            Self::Take { found } => (found == held, None),
        }
    }
}

/// Whether the histories of sessions, each in its order, are those of one register that holds
/// nothing at first.
pub(crate) fn is_linearizable(sessions: &[Vec<Event>]) -> bool {
    let start = (vec![0_usize; sessions.len()], None);
    let mut seen = HashSet::from([start.clone()]);
    let mut open = vec![start];
    while let Some((done, held)) = open.pop() {
        let next = |session: usize| sessions[session].get(done[session]);
        let Some(first_return) = (0..sessions.len())
            .filter_map(next)
            .map(|e| e.returned)
            .min()
        else {
            return true;
        };
        for session in 0..sessions.len() {
            // Whatever was called after an operation had returned comes after it.
            let Some(event) = next(session).filter(|event| event.called < first_return) else {
                continue;
            };
            let (fits, holds) = event.operation.apply(held);
            if fits {
                let mut situation = (done.clone(), holds);
                situation.0[session] += 1;
                if seen.insert(situation.clone()) {
                    open.push(situation);
                }
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::Operation::{Add, Read, Remove, Swap, Take, Write, WriteIfAbsent};
    use super::*;

    fn event(called: u64, returned: u64, operation: Operation) -> Event {
        Event {
            called,
            returned,
            operation,
        }
    }

    #[test]
    fn overlapping_operations_take_either_order() {
        let write = vec![event(1, 10, Write { value: 5 })];
        for found in [None, Some(5)] {
            assert!(is_linearizable(&[
                write.clone(),
                vec![event(2, 9, Read { found })]
            ]));
        }
        let sums = |first, second| {
            [
                vec![event(
                    1,
                    4,
                    Add {
                        amount: 1,
                        sum: first,
                    },
                )],
                vec![event(
                    2,
                    3,
                    Add {
                        amount: 1,
                        sum: second,
                    },
                )],
            ]
        };
        assert!(is_linearizable(&sums(1, 2)) && is_linearizable(&sums(2, 1)));
    }

    #[test]
    fn every_operation_has_its_answer() {
        assert!(is_linearizable(&[vec![
            event(1, 2, Read { found: None }),
            event(3, 4, Remove { removed: false }),
            event(
                5,
                6,
                WriteIfAbsent {
                    value: 1,
                    written: true
                }
            ),
            event(
                7,
                8,
                WriteIfAbsent {
                    value: 2,
                    written: false
                }
            ),
            event(
                9,
                10,
                Swap {
                    value: 3,
                    found: Some(1)
                }
            ),
            event(
                11,
                12,
                Add {
                    amount: -5,
                    sum: -2
                }
            ),
            event(13, 14, Take { found: Some(-2) }),
            event(15, 16, Add { amount: 7, sum: 7 }),
            event(17, 18, Remove { removed: true }),
            event(19, 20, Read { found: None }),
        ]]));
    }

    #[test]
    fn canary_a_stale_read_is_found() {
        let writes = vec![
            event(1, 2, Write { value: 1 }),
            event(3, 4, Write { value: 2 }),
        ];
        assert!(!is_linearizable(&[
            writes,
            vec![event(5, 6, Read { found: Some(1) })]
        ]));
    }

    #[test]
    fn canary_a_lost_update_is_found() {
        let add = |called, returned| event(called, returned, Add { amount: 1, sum: 1 });
        assert!(!is_linearizable(&[vec![add(1, 4)], vec![add(2, 3)]]));
    }

    #[test]
    fn canary_a_value_that_goes_back_is_found() {
        let reads = [Some(1), None, Some(1)];
        let moments = (0..).step_by(2);
        let reads = reads.into_iter().zip(moments);
        let reads = reads
            .map(|(found, at)| event(at + 2, at + 3, Read { found }))
            .collect();
        assert!(!is_linearizable(&[
            vec![event(1, 20, Write { value: 1 })],
            reads
        ]));
    }

    #[test]
    fn canary_two_winners_are_found() {
        let win = |value| {
            vec![event(
                1,
                4,
                WriteIfAbsent {
                    value,
                    written: true,
                },
            )]
        };
        assert!(!is_linearizable(&[win(1), win(2)]));
    }
}
