//! Which histories the data of a database have, one after the other, and up to where each counts.
//!
//! Every opening of a database begins a history ([`Lineage::reopened`]): what the one before wrote
//! last may be lost, and a copy of its files may be opened elsewhere. So may data that have come
//! from another database ([`Lineage::begun`]), which have nothing to do with what was here before.
//! A position is a history and an epoch. [`Lineage::place`] says whether it is one of these data.
//!
//! As text, it is a line for each: `PANDO-HISTORIES 1`; the incarnation of the log that was open
//! then; the epoch at which the first history began; the former histories, oldest first, each with
//! its last epoch; the present one; the CRC32C of all lines before.
//!
//! Invariants:
//! - **HL1 fork-is-known** A position in a former history is one of these data only up to the epoch
//!   in which that history ended here. Whoever has a later one has it from another copy of the
//!   data, or from before they were restored.

use std::fmt::Write;

use pando_engine::LogEpoch;

use crate::limits;

const HEAD: &str = "PANDO-HISTORIES 1";

/// See the module's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lineage {
    /// What was written up to this epoch may have been of other data.
    begins: LogEpoch,
    /// Former histories, oldest first, and the last epoch of each.
    past: Vec<(u128, LogEpoch)>,
    present: u128,
    /// Histories of other data that were here since the database was opened, oldest first. They are
    /// not on disk: no position in one counts.
    replaced: Vec<u128>,
}

/// What a position is to these data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// They have been there.
    Here,
    /// They belong to that history, and end before it.
    Before,
    /// It belongs to another history.
    Elsewhere,
}

impl Lineage {
    /// A first history, behind the epoch `begins`.
    pub(crate) fn begun(begins: LogEpoch) -> Self {
        Self {
            begins,
            past: Vec::new(),
            present: fastrand::u128(1..),
            replaced: Vec::new(),
        }
    }

    /// A first history, behind the epoch `begins`, of data that take the place of these.
    pub(crate) fn replaced(&self, begins: LogEpoch) -> Self {
        let mut next = Self::begun(begins);
        next.replaced.clone_from(&self.replaced);
        next.replaced.push(self.present);
        let many = next.replaced.len().saturating_sub(limits::HISTORIES_MAX);
        next.replaced.drain(..many);
        next
    }

    /// The next history, of data of which everything up to `cutoff` was found.
    pub(crate) fn reopened(mut self, cutoff: LogEpoch) -> Self {
        self.past.push((self.present, cutoff));
        // A history that ended later than it can have, because less was found than before.
        for (_, until) in &mut self.past {
            *until = cutoff.min(*until);
        }
        let many = self.past.len().saturating_sub(limits::HISTORIES_MAX);
        self.past.drain(..many);
        self.present = fastrand::u128(1..);
        self
    }

    /// The histories of data that were here since the database was opened, and are no longer, the
    /// newest of them, and the history of another database that these data came from; 0: from none.
    pub(crate) fn ancestors(&self, came_from: u128) -> Vec<u128> {
        let mut all = self.replaced.clone();
        if came_from != 0 {
            all.push(came_from);
        }
        let many = all.len().saturating_sub(limits::HISTORIES_MAX);
        all.drain(..many);
        all
    }

    /// Whether it is a history of these data, whatever counts of it.
    pub(crate) fn knows(&self, history: u128) -> bool {
        history == self.present || self.past.iter().any(|(former, _)| *former == history)
    }

    /// The history of what is written now.
    pub(crate) fn present(&self) -> u128 {
        self.present
    }

    /// Behind which epoch the log says anything about these data.
    pub(crate) fn begins(&self) -> LogEpoch {
        self.begins
    }

    /// What a position is; `newest` is the newest epoch that anybody can have of these data.
    pub(crate) fn place(&self, (history, epoch): (u128, LogEpoch), newest: LogEpoch) -> Place {
        let until = if history == self.present {
            newest
        } else {
            let former = self.past.iter().find(|(former, _)| *former == history);
            match former {
                Some((_, until)) => *until,
                None => return Place::Elsewhere,
            }
        };
        #[cfg(test)]
        let until = if super::testing::is(super::testing::Fault::ForkForgotten) {
            newest
        } else {
            until
        };
        if epoch > until {
            Place::Before
        } else {
            Place::Here
        }
    }

    /// The history in which an epoch was written.
    pub(crate) fn owner(&self, epoch: LogEpoch) -> u128 {
        let former = self.past.iter().find(|(_, until)| epoch <= *until);
        former.map_or(self.present, |(history, _)| *history)
    }

    /// Its text.
    pub(crate) fn encode(&self, incarnation: u64) -> Vec<u8> {
        let mut text = format!("{HEAD}\n{incarnation}\n{}\n", self.begins.0);
        for (history, until) in &self.past {
            writeln!(text, "{history:032x} {}", until.0).expect("a string grows");
        }
        writeln!(text, "{:032x}", self.present).expect("a string grows");
        let checksum = crc32c::crc32c(text.as_bytes());
        writeln!(text, "{checksum:08x}").expect("a string grows");
        text.into_bytes()
    }

    /// Reads a text, and its incarnation; `None`: it is damaged, or of another version.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, u64)> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (lines, checksum) = text.strip_suffix('\n')?.rsplit_once('\n')?;
        let checksum = u32::from_str_radix(checksum, 16).ok()?;
        if crc32c::crc32c(&bytes[..=lines.len()]) != checksum {
            return None;
        }
        let mut lines = lines.lines();
        if lines.next()? != HEAD {
            return None;
        }
        let incarnation = lines.next()?.parse().ok()?;
        let begins = LogEpoch(lines.next()?.parse().ok()?);
        let present = u128::from_str_radix(lines.next_back()?, 16).ok()?;
        let former = lines.map(|line| {
            let (history, until) = line.split_once(' ')?;
            let history = u128::from_str_radix(history, 16).ok()?;
            Some((history, LogEpoch(until.parse().ok()?)))
        });
        let lineage = Self {
            begins,
            past: former.collect::<Option<_>>()?,
            present,
            replaced: Vec::new(),
        };
        Some((lineage, incarnation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lineage() -> Lineage {
        Lineage {
            begins: LogEpoch(4),
            past: vec![(1, LogEpoch(10)), (2, LogEpoch(10)), (3, LogEpoch(30))],
            present: 4,
            replaced: Vec::new(),
        }
    }

    #[test]
    fn a_position_counts_up_to_the_end_of_its_history() {
        let newest = LogEpoch(50);
        let place = |history, epoch| lineage().place((history, LogEpoch(epoch)), newest);
        for (history, until) in [(1, 10), (2, 10), (3, 30), (4, 50)] {
            assert_eq!(place(history, until), Place::Here, "{history}");
            assert_eq!(place(history, until + 1), Place::Before, "HL1: {history}");
        }
        assert_eq!(place(9, 10), Place::Elsewhere);
        let owners = [5, 10, 11, 30, 31].map(|epoch| lineage().owner(LogEpoch(epoch)));
        assert_eq!(owners, [1, 1, 3, 3, 4]);
    }

    /// A directory that was restored from a copy has less than before.
    #[test]
    fn what_was_not_found_belongs_to_no_history() {
        let reopened = lineage().reopened(LogEpoch(20));
        assert_ne!(reopened.present(), 4);
        let place = |history, epoch| reopened.place((history, LogEpoch(epoch)), LogEpoch(20));
        assert_eq!(place(3, 20), Place::Here);
        assert_eq!(place(3, 21), Place::Before);
        assert_eq!(place(4, 21), Place::Before);
    }

    #[test]
    fn the_oldest_histories_are_forgotten() {
        let mut lineage = lineage();
        for opening in 0..limits::HISTORIES_MAX as u64 {
            lineage = lineage.reopened(LogEpoch(40 + opening));
        }
        assert_eq!(lineage.past.len(), limits::HISTORIES_MAX);
        let place = |history| lineage.place((history, LogEpoch(10)), LogEpoch::NONE);
        assert_eq!([3, 4].map(place), [Place::Elsewhere, Place::Here]);
        let text = lineage.encode(u64::MAX);
        assert!(text.len() as u64 <= limits::HISTORIES_BYTES_MAX);
    }

    #[test]
    fn no_position_of_replaced_data_counts() {
        let mut last = lineage();
        for begins in 50..50 + limits::HISTORIES_MAX as u64 {
            let next = last.replaced(LogEpoch(begins));
            let at = (last.present(), LogEpoch(begins));
            assert_eq!(next.place(at, LogEpoch(200)), Place::Elsewhere);
            assert_eq!(next.ancestors(0).last(), Some(&last.present()));
            last = next;
        }
        assert_eq!(last.ancestors(0).len(), limits::HISTORIES_MAX);
        assert_eq!(last.ancestors(0)[0], 4);
        let ancestors = last.ancestors(7);
        assert_eq!(ancestors.len(), limits::HISTORIES_MAX);
        assert_eq!(ancestors.last(), Some(&7));
        assert!(last.knows(last.present()) && !last.knows(7));
        assert!(lineage().knows(2) && lineage().knows(4) && !lineage().knows(5));
        let (read, _) = Lineage::parse(&last.encode(1)).expect("it is whole");
        assert_eq!(read.ancestors(0), []);
    }

    #[test]
    fn it_is_read_as_it_was_written_or_not_at_all() {
        let text = lineage().encode(7);
        let golden = "PANDO-HISTORIES 1\n7\n4\n00000000000000000000000000000001 10\n";
        assert!(text.starts_with(golden.as_bytes()));
        assert_eq!(Lineage::parse(&text), Some((lineage(), 7)));
        for end in 0..text.len() {
            assert_eq!(Lineage::parse(&text[..end]), None, "{end}");
        }
        for bit in 0..8 * text.len() {
            let mut flipped = text.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let read = Lineage::parse(&flipped);
            // A checksum may be written in capitals.
            assert!(read.is_none() || read == Some((lineage(), 7)), "{bit}");
        }
    }
}
