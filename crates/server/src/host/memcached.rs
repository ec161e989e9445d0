//! The server's side of memcached's commands, and the records they leave: the same counters,
//! latencies and slow log as RESP's commands, under their own names (`memcached|get`). Monitors do
//! not see them.

use pando_db::{MemcachedHost, Turn};
use pando_protocol::memcached::{Line, Reply, Verb};

use super::WorkerHost;
use crate::admin::{self, USER};
use crate::latency::event_of;
use crate::slowlog;

/// The reply of `version`: the version whose commands these are, and the server's name.
pub(crate) const VERSION: &str = concat!("1.6.44-pando-", env!("CARGO_PKG_VERSION"));

/// Whether a command's time depends on its bytes only.
fn is_fast(verb: Verb) -> bool {
    !matches!(verb, Verb::FlushAll | Verb::Stats | Verb::CacheMemlimit)
}

impl MemcachedHost for WorkerHost<'_> {
    fn authenticate(&mut self, user: &[u8], password: &[u8]) -> bool {
        // The password is compared whatever the user, so that time does not tell which users exist.
        let accepted = self.shared.settings.is_password(password);
        accepted && user == USER.as_bytes()
    }

    fn stats(&mut self, turn: &mut Turn<'_>, words: Line<'_>, reply: &mut Reply<'_>) {
        turn.observe_all();
        admin::memcached::stats(self.shared, turn, words, reply);
    }

    fn set_max_memory(&mut self, _: &mut Turn<'_>, bytes: usize) {
        admin::memcached::set_max_memory(self.shared, bytes);
    }

    fn version(&self) -> &str {
        VERSION
    }

    #[inline]
    fn starting(&mut self, verb: Verb, line: Line<'_>) {
        let command = self.shared.commands.of_memcached(verb);
        self.record.set_last_command(command);
        let settings = &self.shared.settings;
        self.timing = self
            .recorder
            .begin_of(is_fast(verb), line.bytes(), settings);
    }

    #[inline]
    fn finished(&mut self, verb: Verb, line: Line<'_>, reply_bytes: usize, refused: bool) {
        let command = self.shared.commands.of_memcached(verb);
        let moved = line.bytes() + reply_bytes;
        let settings = &self.shared.settings;
        let elapsed = self
            .recorder
            .end(command, self.timing, moved, self.arrived_ns, settings);
        if let Some(elapsed_ns) = elapsed {
            self.note_slow_of(event_of(is_fast(verb)), elapsed_ns, || {
                Some(slowlog::shorten_words(line.words_from(0)))
            });
        }
        if refused {
            let counters = &self.recorder.statistics().commands[usize::from(command)];
            counters.failed.add(1);
        }
    }
}
