//! Whether the history of one key is linearizable: whether each operation can have taken effect at
//! one moment between its call and its reply.
//!
//! As Wing and Gong do it, orders are built from their beginning: any operation may be next that
//! was called before the first reply among those that are left. Of each client only its first one
//! that is left is tried, since a connection's requests are executed in order. Situations that the
//! search has been in (what is done of each client, and what the key holds) are remembered; an
//! operation whose answer says that it changed nothing is taken as soon as it fits, since it can
//! only become too late for it.

use std::collections::HashSet;
use std::fmt;

/// What was asked of a key, and what was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Get {
        found: Option<String>,
    },
    Set {
        value: String,
    },
    SetIfAbsent {
        value: String,
        was_set: bool,
    },
    /// The sum is `None` if the value was no integer.
    Increment {
        sum: Option<i64>,
    },
    Append {
        suffix: String,
        bytes: i64,
    },
    Remove {
        was_there: bool,
    },
}

/// An operation, and the readings of one shared counter before its call and after its reply.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) called: u64,
    pub(crate) replied: u64,
    pub(crate) operation: Operation,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            called,
            replied,
            operation,
        } = self;
        write!(f, "[{called}..{replied}] {operation:?}")
    }
}

/// What a key holds.
type RegisterValue = Option<String>;

/// A number that INCR takes: as it would be printed.
fn parse(text: &str) -> Option<i64> {
    text.parse::<i64>()
        .ok()
        .filter(|number| number.to_string() == text)
}

impl Operation {
    /// What the key holds afterwards, or `None` if the answer does not fit what it holds.
    fn apply(&self, held: &RegisterValue) -> Option<RegisterValue> {
        let holds = match self {
            Self::Get { found } => (found == held).then(|| held.clone())?,
            Self::Set { value } => Some(value.clone()),
            Self::SetIfAbsent { value, was_set } => match (held, was_set) {
                (None, true) => Some(value.clone()),
                (Some(_), false) => held.clone(),
                _ => return None,
            },
            Self::Increment { sum } => {
                let number = held.as_deref().map_or(Some(0), parse);
                let expected = number.and_then(|number| number.checked_add(1));
                (expected == *sum).then_some(())?;
                sum.map(|sum| sum.to_string()).or_else(|| held.clone())
            }
            Self::Append { suffix, bytes } => {
                let whole = held.clone().unwrap_or_default() + suffix;
                (whole.len() as i64 == *bytes).then_some(Some(whole))?
            }
            Self::Remove { was_there } => (*was_there == held.is_some()).then_some(None)?,
        };
        Some(holds)
    }

    /// Whether the answer says that nothing was changed.
    fn only_looked(&self) -> bool {
        match self {
            Self::Get { .. } | Self::Increment { sum: None } => true,
            Self::SetIfAbsent { was_set, .. } => !was_set,
            Self::Remove { was_there } => !was_there,
            Self::Set { .. } | Self::Append { .. } | Self::Increment { .. } => false,
        }
    }
}

/// Checks the history of a key that is absent at first: the events of each client, in order.
///
/// # Errors
/// The events that no order explains, after the longest beginning that one does.
pub(crate) fn check(clients: &[Vec<Event>]) -> Result<(), String> {
    let start = (vec![0; clients.len()], None);
    let (mut seen, mut open) = (HashSet::new(), vec![start]);
    let mut furthest: Vec<usize> = vec![0; clients.len()];
    while let Some((mut done, held)) = open.pop() {
        while let Some(client) = candidates(clients, &done).find(|client| {
            let operation = &clients[*client][done[*client]].operation;
            operation.only_looked() && operation.apply(&held).is_some()
        }) {
            done[client] += 1;
        }
        if done.iter().sum::<usize>() > furthest.iter().sum() {
            furthest.clone_from(&done);
        }
        let mut is_over = true;
        for client in candidates(clients, &done) {
            is_over = false;
            if let Some(holds) = clients[client][done[client]].operation.apply(&held) {
                let mut next = done.clone();
                next[client] += 1;
                if seen.insert((next.clone(), holds.clone())) {
                    open.push((next, holds));
                }
            }
        }
        if is_over {
            return Ok(());
        }
    }
    let left: Vec<_> = candidates(clients, &furthest)
        .map(|client| &clients[client][furthest[client]])
        .collect();
    Err(format!("no order explains {left:?}"))
}

/// The clients whose next operation was called before any that is left had its reply.
fn candidates<'h>(
    clients: &'h [Vec<Event>],
    done: &[usize],
) -> impl Iterator<Item = usize> + use<'h> {
    let next: Vec<_> = clients
        .iter()
        .zip(done)
        .map(|(events, done)| events.get(*done))
        .collect();
    let first_reply = next.iter().flatten().map(|event| event.replied).min();
    (0..clients.len()).filter(move |client| {
        next[*client].is_some_and(|event| first_reply.is_some_and(|first| event.called < first))
    })
}

#[cfg(test)]
mod tests {
    use super::Operation::{Append, Get, Increment, Remove, Set, SetIfAbsent};
    use super::*;

    fn at(called: u64, replied: u64, operation: Operation) -> Event {
        Event {
            called,
            replied,
            operation,
        }
    }

    fn set(called: u64, replied: u64, value: &str) -> Event {
        at(
            called,
            replied,
            Set {
                value: value.into(),
            },
        )
    }

    fn get(called: u64, replied: u64, found: &str) -> Event {
        let found = Some(found.to_owned()).filter(|found| !found.is_empty());
        at(called, replied, Get { found })
    }

    #[test]
    fn each_operation_has_its_answer() {
        let append = |bytes| Append {
            suffix: "x".into(),
            bytes,
        };
        let set_if_absent = |was_set| SetIfAbsent {
            value: "5".into(),
            was_set,
        };
        let operations = [
            Get { found: None },
            Remove { was_there: false },
            set_if_absent(true),
            set_if_absent(false),
            Increment { sum: Some(6) },
            append(2),
            Increment { sum: None },
            Get {
                found: Some("6x".into()),
            },
            Remove { was_there: true },
            append(1),
            Remove { was_there: true },
            Increment { sum: Some(1) },
        ];
        let events: Vec<_> = (0_u64..)
            .zip(operations)
            .map(|(moment, operation)| at(2 * moment, 2 * moment + 1, operation))
            .collect();
        assert_eq!(check(std::slice::from_ref(&events)), Ok(()));
        for (place, wrong) in [
            (
                0,
                Get {
                    found: Some(String::new()),
                },
            ),
            (1, Remove { was_there: true }),
            (2, set_if_absent(false)),
            (3, set_if_absent(true)),
            (4, Increment { sum: Some(5) }),
            (4, Increment { sum: None }),
            (5, append(1)),
            (6, Increment { sum: Some(7) }),
            (
                7,
                Get {
                    found: Some("6".into()),
                },
            ),
            (8, Remove { was_there: false }),
            (9, append(3)),
            (11, Increment { sum: Some(2) }),
        ] {
            let mut changed = events.clone();
            changed[place].operation = wrong;
            assert!(check(&[changed]).is_err(), "at {place}");
        }
    }

    #[test]
    fn what_overlaps_may_be_in_either_order() {
        for found in ["1", "2"] {
            let writers = [vec![set(0, 4, "1")], vec![set(1, 5, "2")]];
            let [first, second] = writers;
            assert_eq!(check(&[first, second, vec![get(6, 7, found)]]), Ok(()));
        }
        // A read need not be taken where it first fits.
        let one = vec![set(0, 1, "1"), set(2, 9, "2"), set(10, 19, "1")];
        assert_eq!(
            check(&[one, vec![get(3, 15, "1"), get(16, 18, "1")]]),
            Ok(())
        );
    }

    /// A write that changes nothing here may be needed later.
    #[test]
    fn a_write_of_what_is_held_is_not_taken_early() {
        let clients = [
            vec![set(0, 1, "1"), set(2, 9, "1")],
            vec![set(3, 8, "2"), get(10, 11, "1")],
        ];
        assert_eq!(check(&clients), Ok(()));
    }

    #[test]
    fn canary_a_stale_read_is_refused() {
        let writer = vec![set(0, 1, "1"), set(2, 3, "2")];
        assert!(check(&[writer.clone(), vec![get(4, 5, "1")]]).is_err());
        assert!(check(&[writer.clone(), vec![get(4, 5, "")]]).is_err());
        assert_eq!(check(&[writer, vec![get(4, 5, "2")]]), Ok(()));
    }

    #[test]
    fn canary_a_read_that_goes_back_is_refused() {
        let clients = [
            vec![set(0, 1, "1"), set(2, 9, "2")],
            vec![get(3, 4, "2")],
            vec![get(5, 6, "1")],
        ];
        assert!(check(&clients).is_err());
    }

    #[test]
    fn canary_a_lost_update_is_refused() {
        let add = |called, replied, sum| at(called, replied, Increment { sum: Some(sum) });
        assert!(check(&[vec![add(0, 5, 1)], vec![add(1, 6, 1)]]).is_err());
        assert_eq!(check(&[vec![add(0, 5, 2)], vec![add(1, 6, 1)]]), Ok(()));
    }

    #[test]
    fn canary_requests_of_a_connection_that_change_places_are_refused() {
        let events = vec![set(0, 5, "1"), set(0, 6, "2")];
        assert!(check(&[events, vec![get(7, 8, "1")]]).is_err());
    }
}
