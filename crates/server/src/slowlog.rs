//! The log of slow commands (SLOWLOG): a bounded queue, newest first.
//!
//! Workers enter only slow commands, so one mutex is enough. Arguments are shortened as in Redis:
//! at most `SLOWLOG_ARGUMENTS_MAX`, the last of which then gives the number omitted, and at most
//! `SLOWLOG_ARGUMENT_BYTES_MAX` bytes of each.

use std::collections::VecDeque;
use std::sync::Mutex;

use pando_protocol::Request;

use crate::limits;
use crate::monitor::{REDACTED, redacted};
use crate::shared::lock;

/// One slow command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlowCommand {
    pub(crate) id: u64,
    /// Seconds since the Unix epoch.
    pub(crate) at_s: u64,
    pub(crate) duration_us: u64,
    pub(crate) arguments: Vec<Box<[u8]>>,
    pub(crate) address: String,
    pub(crate) client_name: Box<[u8]>,
}

#[derive(Debug)]
struct Entries {
    newest_first: VecDeque<SlowCommand>,
    next_id: u64,
    bound: usize,
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Slowlog {
    entries: Mutex<Entries>,
}

impl Slowlog {
    pub(crate) fn new(entries_max: usize) -> Self {
        let entries = Entries {
            newest_first: VecDeque::new(),
            next_id: 0,
            bound: entries_max,
        };
        Self {
            entries: Mutex::new(entries),
        }
    }

    /// Enters a command and gives it its number; the oldest entry is dropped beyond the limit.
    pub(crate) fn enter(&self, mut command: SlowCommand) {
        let mut entries = lock(&self.entries);
        command.id = entries.next_id;
        entries.next_id += 1;
        entries.newest_first.push_front(command);
        let bound = entries.bound;
        entries.newest_first.truncate(bound);
    }

    pub(crate) fn set_entries_max(&self, entries_max: usize) {
        // Redis, too, shortens the log when the next command is entered.
        lock(&self.entries).bound = entries_max;
    }

    /// The newest `count`.
    pub(crate) fn newest(&self, count: usize) -> Vec<SlowCommand> {
        lock(&self.entries)
            .newest_first
            .iter()
            .take(count)
            .cloned()
            .collect()
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.entries).newest_first.len()
    }

    /// Forgets all entries; numbering continues.
    pub(crate) fn reset(&self) {
        lock(&self.entries).newest_first.clear();
    }
}

/// The arguments as the log keeps them, without secrets.
pub(crate) fn shorten(request: Request<'_>) -> Vec<Box<[u8]>> {
    let shown = |(index, argument)| {
        if redacted(request, index) {
            REDACTED.into()
        } else {
            shorten_argument(argument)
        }
    };
    shorten_all(request.args_from(0), shown)
}

/// The words of a memcached command, which are no secrets: those are in the data.
pub(crate) fn shorten_words<'r>(words: impl ExactSizeIterator<Item = &'r [u8]>) -> Vec<Box<[u8]>> {
    shorten_all(words, |(_, word)| shorten_argument(word))
}

fn shorten_all<'r>(
    arguments: impl ExactSizeIterator<Item = &'r [u8]>,
    shown: impl FnMut((usize, &'r [u8])) -> Box<[u8]>,
) -> Vec<Box<[u8]>> {
    let count = arguments.len();
    let kept = if count > limits::SLOWLOG_ARGUMENTS_MAX {
        limits::SLOWLOG_ARGUMENTS_MAX - 1
    } else {
        count
    };
    let mut arguments: Vec<Box<[u8]>> = arguments.take(kept).enumerate().map(shown).collect();
    if kept < count {
        arguments.push(
            format!("... ({} more arguments)", count - kept)
                .into_bytes()
                .into(),
        );
    }
    arguments
}

fn shorten_argument(argument: &[u8]) -> Box<[u8]> {
    let Some(more) = argument
        .len()
        .checked_sub(limits::SLOWLOG_ARGUMENT_BYTES_MAX + 1)
    else {
        return argument.into();
    };
    let mut text = argument[..limits::SLOWLOG_ARGUMENT_BYTES_MAX].to_vec();
    text.extend_from_slice(format!("... ({} more bytes)", more + 1).as_bytes());
    text.into()
}

#[cfg(test)]
mod tests {
    use pando_protocol::RequestBuffer;

    use super::*;

    fn command() -> SlowCommand {
        SlowCommand {
            id: 0,
            at_s: 1,
            duration_us: 2,
            arguments: Vec::new(),
            address: String::new(),
            client_name: Box::default(),
        }
    }

    #[test]
    fn the_oldest_go_first_and_numbers_go_on() {
        let log = Slowlog::new(2);
        for _ in 0..3 {
            log.enter(command());
        }
        let ids = |log: &Slowlog| {
            log.newest(10)
                .iter()
                .map(|entry| entry.id)
                .collect::<Vec<_>>()
        };
        assert_eq!(ids(&log), [2, 1]);
        assert_eq!(log.newest(1).len(), 1);
        log.reset();
        log.enter(command());
        assert_eq!(ids(&log), [3]);
        log.set_entries_max(0);
        log.enter(command());
        assert_eq!(log.len(), 0);
    }

    #[test]
    fn long_commands_are_shortened() {
        let mut arguments = vec![vec![b'x'; 200]];
        arguments.extend((0..39).map(|_| b"a".to_vec()));
        let request = RequestBuffer::from_args(&arguments);
        let short = shorten(request.as_request());
        assert_eq!(short.len(), 32);
        assert_eq!(*short[31], *b"... (9 more arguments)");
        let text = [&[b'x'; 128][..], b"... (72 more bytes)"].concat();
        assert_eq!(*short[0], *text);
        let exact = RequestBuffer::from_args([[b'x'; 128]; 32]);
        assert_eq!(shorten(exact.as_request()).concat(), [b'x'; 128 * 32]);
    }
}
