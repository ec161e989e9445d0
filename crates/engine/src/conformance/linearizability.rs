//! Whether a history of one key could have happened one operation at a time.
//!
//! A history is what each thread did to the key, with readings of one shared counter before and
//! after each operation. It is linearizable if some order of all operations explains every answer
//! and puts an operation that was over before another began first. The search goes through the
//! positions that the threads can be in together; a read that fits is taken at once, since it can
//! only be too late for it.

use std::collections::HashSet;
use std::fmt;

/// What a register holds; `None` is absence.
pub type RegisterValue = Option<u64>;

/// What an operation did and saw.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Saw the register's content.
    Read(RegisterValue),
    /// Saw the first and replaced it by the second.
    Swap(RegisterValue, RegisterValue),
}

/// One operation of a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The shared counter before the operation.
    pub call: u64,
    /// The shared counter after the operation.
    pub reply: u64,
    /// What happened in between.
    pub action: Action,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            call,
            reply,
            action,
        } = self;
        write!(f, "[{call}..{reply}] ")?;
        match action {
            Action::Read(held) => write!(f, "read {held:?}"),
            Action::Swap(old, new) => write!(f, "{old:?} -> {new:?}"),
        }
    }
}

/// Checks the history of an initially empty register: the events of each thread, in order.
///
/// # Errors
/// Where the longest explanation of the history ends.
pub fn check(threads: &[Vec<Event>]) -> Result<(), String> {
    let start = (vec![0; threads.len()], None);
    let mut seen = HashSet::new();
    let mut open = vec![start];
    let mut furthest = Vec::new();
    while let Some((mut at, held)) = open.pop() {
        pass_reads(threads, &mut at, held);
        let candidates = candidates(threads, &at);
        if candidates.is_empty() {
            return Ok(());
        }
        if at.iter().sum::<usize>() >= furthest.iter().sum() {
            furthest.clone_from(&at);
        }
        for thread in candidates {
            if let Action::Swap(old, new) = threads[thread][at[thread]].action
                && old == held
            {
                let mut next = at.clone();
                next[thread] += 1;
                if seen.insert((next.clone(), new)) {
                    open.push((next, new));
                }
            }
        }
    }
    let next: Vec<_> = threads
        .iter()
        .zip(&furthest)
        .filter_map(|(events, at)| events.get(*at))
        .collect();
    Err(format!("no order explains {next:?}"))
}

/// The threads whose next event may be the next overall: no other event was over before it began.
fn candidates(threads: &[Vec<Event>], at: &[usize]) -> Vec<usize> {
    let next = |thread: usize| threads[thread].get(at[thread]);
    let first_reply = (0..threads.len())
        .filter_map(next)
        .map(|event| event.reply)
        .min();
    let begun = |thread: &usize| next(*thread).is_some_and(|event| Some(event.call) < first_reply);
    (0..threads.len()).filter(begun).collect()
}

/// Takes all reads that fit and may be next.
fn pass_reads(threads: &[Vec<Event>], at: &mut [usize], held: RegisterValue) {
    let fits = |thread: usize, at: &[usize]| match threads[thread][at[thread]].action {
        Action::Read(seen) => seen == held,
        Action::Swap(old, new) => old == held && new == held,
    };
    while let Some(thread) = candidates(threads, at)
        .into_iter()
        .find(|thread| fits(*thread, at))
    {
        at[thread] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(call: u64, reply: u64, action: Action) -> Event {
        Event {
            call,
            reply,
            action,
        }
    }

    fn read(call: u64, reply: u64, held: u64) -> Event {
        event(call, reply, Action::Read(Some(held)))
    }

    fn write(call: u64, reply: u64, old: u64, new: u64) -> Event {
        event(
            call,
            reply,
            Action::Swap((old > 0).then_some(old), Some(new)),
        )
    }

    #[test]
    fn sequential_histories_are_accepted() {
        let gone = event(6, 7, Action::Swap(Some(2), None));
        let absent = event(8, 9, Action::Read(None));
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(
            check(&[vec![write(0, 1, 0, 1), write(2, 3, 1, 2), gone, absent]]),
            Ok(())
        );
    }

    #[test]
    fn overlapping_operations_may_be_ordered_either_way() {
        for seen in [1, 2] {
            let reader = vec![read(3, 10, seen)];
            assert_eq!(
                check(&[vec![write(0, 1, 0, 1)], vec![write(4, 9, 1, 2)], reader]),
                Ok(())
            );
        }
        // The second writer came first.
        assert_eq!(
            check(&[vec![write(0, 9, 2, 1)], vec![write(1, 8, 0, 2)]]),
            Ok(())
        );
    }

    #[test]
    fn a_read_of_an_overwritten_value_is_rejected() {
        let writer = vec![write(0, 1, 0, 1), write(2, 3, 1, 2)];
        assert!(check(&[writer, vec![read(4, 5, 1)]]).is_err());
    }

    #[test]
    fn reads_that_go_back_are_rejected() {
        let writer = vec![write(0, 1, 0, 1), write(2, 9, 1, 2)];
        let readers = [vec![read(3, 4, 2)], vec![read(5, 6, 1)]];
        assert!(check(&[writer.clone(), readers[0].clone(), readers[1].clone()]).is_err());
        let together = [vec![read(3, 4, 2)], vec![read(3, 6, 1)]];
        assert_eq!(
            check(&[writer, together[0].clone(), together[1].clone()]),
            Ok(())
        );
    }

    #[test]
    fn a_lost_update_is_rejected() {
        let threads = [
            vec![write(0, 1, 0, 1)],
            vec![write(2, 5, 1, 2)],
            vec![write(3, 6, 1, 3)],
        ];
        assert!(check(&threads).is_err());
    }

    #[test]
    fn a_value_that_nobody_wrote_is_rejected() {
        assert!(check(&[vec![write(0, 1, 0, 1)], vec![read(0, 3, 7)]]).is_err());
    }

    #[test]
    fn an_answer_before_its_cause_is_rejected() {
        assert!(check(&[vec![write(4, 5, 0, 1)], vec![read(0, 1, 1)]]).is_err());
    }

    #[test]
    fn an_absence_seen_too_late_is_rejected() {
        let absent = event(2, 3, Action::Read(None));
        assert!(check(&[vec![write(0, 1, 0, 1)], vec![absent]]).is_err());
        let remove = event(1, 4, Action::Swap(Some(1), None));
        assert_eq!(
            check(&[vec![write(0, 0, 0, 1), remove], vec![absent]]),
            Ok(())
        );
    }
}
