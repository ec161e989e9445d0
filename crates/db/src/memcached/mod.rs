//! memcached's commands on the keyspace of database 0.
//!
//! They read and write the same data as RESP's commands, through the same `Keyspace::read` and
//! `update`: an item is a string, its flags an attribute of the value, its expiry the deadline. Its
//! cas token is made of the value's version, unless a client chose it (see [`token`]). So a key
//! written over one protocol can be read over the other. The differences from memcached follow from
//! that:
//!
//! - Every change draws a version, even of an expiry: `touch` and `gat` change the cas token,
//!   unless they set the expiry that the item has, or a client chose the token.
//! - Deadlines are exact to the millisecond, not to the second.
//! - A hash is not an item: reading it is a `SERVER_ERROR` that says so, among several keys a miss.
//!   Storing replaces it, `delete` removes it.
//! - `flush_all` with a delay empties database 0 when the time comes, including what is stored
//!   before that. The time is not kept on disk.
//!
//! `docs/MEMCACHED.md` has the whole list.
//!
//! Deliberately absent: MULTI and gates, which these commands do not use, except for `flush_all`,
//! which is atomic.

mod change;
mod get;
mod item;
mod list;
mod meta;
mod store;
mod token;

use crate::clock::Microseconds;
use pando_protocol::memcached::meta::{self as meta_protocol, Meta};
use pando_protocol::memcached::{KEY_BYTES_MAX, Line, Reply, Verb, arguments, error};

pub use list::ListedItem;

use crate::client::Client;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Progress, Wait};
use crate::remapping;
use crate::statistics::Figure;
use crate::turn::{MemoryGrant, Turn};

/// What the commands need from the server that embeds the database, and report to it.
pub trait MemcachedHost {
    /// Whether this user has this password (a `set` of a client that is not authenticated).
    fn authenticate(&mut self, user: &[u8], password: &[u8]) -> bool;

    /// Replies to `stats` with these words after it: lines and their `END`, `RESET`, or an error.
    fn stats(&mut self, turn: &mut Turn<'_>, words: Line<'_>, reply: &mut Reply<'_>);

    /// Sets the memory limit, in bytes.
    fn set_max_memory(&mut self, turn: &mut Turn<'_>, bytes: usize);

    /// The version that `version` replies with.
    fn version(&self) -> &str;

    /// A command is about to run.
    fn starting(&mut self, verb: Verb, line: Line<'_>);

    /// The command has run and written `reply_bytes`; `refused` if the reply is an error.
    fn finished(&mut self, verb: Verb, line: Line<'_>, reply_bytes: usize, refused: bool);
}

/// Why a command replies with an error.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// A protocol error line.
    Line(&'static str),
    /// A refusal of the keyspace.
    Keyspace(CommandError),
}

impl From<&'static str> for Refusal {
    fn from(text: &'static str) -> Self {
        Self::Line(text)
    }
}

impl From<CommandError> for Refusal {
    fn from(error: CommandError) -> Self {
        Self::Keyspace(error)
    }
}

/// What a command returns.
type Handled = Result<(), Refusal>;

/// The smallest memory limit that `cache_memlimit` sets, in MiB.
const MEMORY_MIB_MIN: u32 = 8;

/// The database that memcached clients see.
const DATABASE: usize = 0;

/// Whether it reads several keys, which are to be of one moment.
fn reads_several(verb: Verb, line: Line<'_>) -> bool {
    matches!(verb, Verb::Get | Verb::Gets) && line.len() > 2
}

impl Turn<'_> {
    /// Executes one memcached request. A reply that does not fit into the rest of `reply` is an
    /// error instead, which may not fit either; the reply to several keys may come in parts.
    pub fn execute_memcached(
        &mut self,
        client: &mut Client,
        verb: Verb,
        line: Line<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl MemcachedHost,
    ) -> Progress {
        self.serve(client, |turn, client| {
            turn.answer_memcached(client, verb, line, reply, host)
        })
    }

    fn answer_memcached(
        &mut self,
        client: &mut Client,
        verb: Verb,
        line: Line<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl MemcachedHost,
    ) -> Progress {
        let was_authenticated = client.authenticated;
        let admitted = if was_authenticated {
            let admitted = self.admit_memcached(client, verb, line);
            match admitted {
                Ok(None) => self.find_memcached_keys(client, verb, line),
                admitted => admitted,
            }
        } else {
            Ok(None)
        };
        if let Ok(Some(until)) = admitted {
            return Progress::put_off(until);
        }
        host.starting(verb, line);
        let start = reply.position();
        let mut result = match admitted {
            Err(error) => Err(error.into()),
            Ok(_) if was_authenticated => {
                let how = self.how_to_read(reads_several(verb, line));
                let ran = self.until_it_counts(client, how, |turn, client| {
                    reply.rewind(start);
                    turn.run_memcached(verb, line, &mut client.answered_keys, reply, host)
                });
                let Some(result) = ran else {
                    reply.rewind(start);
                    return Progress::Waits(Wait::Away);
                };
                result
            }
            Ok(_) => self.authenticate_memcached(client, verb, line, reply, host),
        };
        if let Err(Refusal::Keyspace(CommandError::PoolFull)) = result
            && let Some(until) = self.retry_with_room(client, line.bytes())
        {
            reply.rewind(start);
            return Progress::put_off(until);
        }
        client.lacks_room = None;
        if reply.is_over() {
            result = Err(error::REPLY_TOO_LARGE.into());
        }
        let refused = result.is_err();
        // A key of that name may be last.
        let is_key = verb == Verb::Delete && line.len() == 2;
        let mut silent = was_authenticated && takes_noreply(verb) && line.is_noreply() && !is_key;
        if let Err(refusal) = result {
            client.answered_keys = 0;
            reply.rewind(start);
            // Words are counted before `noreply` is checked.
            silent &= !matches!(refusal, Refusal::Line(error::ERROR));
            self.count_refusal(&refusal);
            match refusal {
                Refusal::Line(text) => reply.line(text),
                // As in memcached, a key that is too long makes the line invalid.
                Refusal::Keyspace(CommandError::KeyTooLong { .. }) => reply.line(error::BAD_FORMAT),
                Refusal::Keyspace(error) => {
                    let text = error.to_string();
                    let text = text.strip_prefix("ERR ").unwrap_or(&text);
                    reply.line(&format!("SERVER_ERROR {text}"));
                }
            }
        }
        if silent {
            reply.rewind(start);
        }
        host.finished(verb, line, reply.position() - start, refused);
        if verb == Verb::Quit && was_authenticated {
            Progress::Close
        } else if client.answered_keys > 0 {
            Progress::Waits(Wait::Reader)
        } else {
            Progress::Done
        }
    }

    fn count_refusal(&self, refusal: &Refusal) {
        match refusal {
            Refusal::Line(
                error::OUT_OF_MEMORY | error::NO_MEMORY_FOR_NUMBER | error::NO_MEMORY_FOR_NEW,
            ) => self.note_refusal(&CommandError::OutOfMemory),
            Refusal::Line(_) => {}
            Refusal::Keyspace(error) => self.note_refusal(error),
        }
    }

    /// Whether the request may run, by the checks of `Turn::dispatch` for RESP; until when it is
    /// postponed, if it is. A request that needs unavailable memory is refused where that turns
    /// out.
    #[inline]
    fn admit_memcached(
        &mut self,
        client: &mut Client,
        verb: Verb,
        line: Line<'_>,
    ) -> Result<Option<Microseconds>, CommandError> {
        let writes = line.writes(verb);
        if let Some(until) = self.database().paused_until(writes) {
            return Ok(Some(until));
        }
        if self.database().role.refuses(writes) {
            return Err(self.database().role.error());
        }
        if !writes {
            return Ok(None);
        }
        let only_removes = matches!(verb, Verb::Delete | Verb::MetaDelete | Verb::FlushAll);
        if let Some(until) = self.wait_for_log(only_removes)? {
            return Ok(Some(until));
        }
        match self.hold_back_unless(client, only_removes) {
            Ok(None) => {}
            // If an item is not stored, what it was to replace is removed then.
            Err(CommandError::RetiredMemory) if verb.stores() => {}
            held_back => return held_back,
        }
        if self.database().snapshots.is_full() {
            self.check_memcached_images(verb, line)?;
        }
        if !only_removes && let MemoryGrant::Later(until) = self.ask_for_memory(client) {
            return Ok(Some(until));
        }
        Ok(None)
    }

    /// Refuses a write that would need an image for a snapshot without memory for one; every word
    /// that may be a key counts as one.
    #[cold]
    fn check_memcached_images(&mut self, verb: Verb, line: Line<'_>) -> Result<(), CommandError> {
        for key in verb
            .first_key()
            .map(|at| line.words_from(at))
            .into_iter()
            .flatten()
        {
            self.check_image_of(DATABASE, key)?;
        }
        Ok(())
    }

    /// Until when a request must wait for its keys, if it must; an error if they are elsewhere.
    /// What of a long reply was sent before stays so.
    #[inline]
    fn find_memcached_keys(
        &mut self,
        client: &Client,
        verb: Verb,
        line: Line<'_>,
    ) -> Result<Option<Microseconds>, CommandError> {
        if self.session_mut().placing.placed.is_none() || client.answered_keys > 0 {
            return Ok(None);
        }
        let Some(first) = verb.first_key() else {
            return Ok(None);
        };
        let mut room = [0; KEY_BYTES_MAX];
        let key = match verb {
            Verb::Get | Verb::Gets | Verb::Gat | Verb::Gats => {
                return self.find(line.words_from(first));
            }
            Verb::MetaGet | Verb::MetaSet | Verb::MetaDelete | Verb::MetaArithmetic => {
                Meta::parse(verb, line, &mut room).ok().map(|meta| meta.key)
            }
            Verb::MetaDebug => meta_protocol::debug(line, &mut room).ok(),
            _ => line.word(first),
        };
        // Without a key the request is refused where it is parsed.
        self.find(key.into_iter())
    }

    fn run_memcached(
        &mut self,
        verb: Verb,
        line: Line<'_>,
        answered: &mut usize,
        reply: &mut Reply<'_>,
        host: &mut impl MemcachedHost,
    ) -> Handled {
        match verb {
            Verb::FlushAll => return self.flush_memcached(line, reply),
            Verb::Stats => {
                host.stats(self, line, reply);
                return Ok(());
            }
            Verb::CacheMemlimit => {
                let mebibytes = arguments::cache_memlimit(line)?;
                if mebibytes < MEMORY_MIB_MIN {
                    reply.line("MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m");
                } else {
                    host.set_max_memory(self, mebibytes as usize * 1024 * 1024);
                    reply.line("OK");
                }
                return Ok(());
            }
            _ => {}
        }
        let keyspace = &mut self.keyspace(DATABASE);
        let met = keyspace.expired_met();
        let handled = run_on(keyspace, verb, line, answered, reply, host);
        let met = keyspace.expired_met() - met;
        if met > 0 {
            // `mg` may look at its one key twice.
            let keys = match verb {
                Verb::Get | Verb::Gets | Verb::Gat | Verb::Gats => met as usize,
                _ => 1,
            };
            let counters = keyspace.memcached_counters();
            counters.count_many(Figure::GetExpired, keys);
        }
        handled
    }

    /// `flush_all [delay]`: under all gates, so that nobody sees half of it.
    fn flush_memcached(&mut self, line: Line<'_>, reply: &mut Reply<'_>) -> Handled {
        let delay_s = arguments::flush_all(line)?.unwrap_or(0);
        let now = self.database().options().clock.now().milliseconds();
        match item::Expiry::of(delay_s, now) {
            item::Expiry::At(at) => self.database().flush_at(at.0),
            // As in memcached, nothing is that old.
            item::Expiry::Past if item::is_before(delay_s, self.database().opened()) => {
                self.database().flush_at(0);
            }
            item::Expiry::Never | item::Expiry::Past => {
                self.database().flush_at(0);
                self.flush(DATABASE)?;
            }
        }
        let keyspace = self.keyspace(DATABASE);
        keyspace.memcached_counters().count(Figure::CmdFlush);
        reply.line("OK");
        Ok(())
    }

    /// Empties a database.
    pub(crate) fn flush(&mut self, index: usize) -> Result<(), CommandError> {
        self.hold_all();
        let mut keyspace = self.keyspace(index);
        let database = keyspace.database;
        remapping::replace(database, keyspace.session, index);
        keyspace.observe_all();
        Ok(())
    }

    /// memcached's authentication: a `set` of any key with a user and a password. Before that
    /// nothing else is accepted, including `quit` and `noreply`.
    fn authenticate_memcached(
        &mut self,
        client: &mut Client,
        verb: Verb,
        line: Line<'_>,
        reply: &mut Reply<'_>,
        host: &mut impl MemcachedHost,
    ) -> Handled {
        if !arguments::authenticates(verb, line) {
            return Err(error::UNAUTHENTICATED.into());
        }
        // Longer than any accepted one, if there is none.
        let data = line.data().unwrap_or(Err(error::BAD_AUTHENTICATION));
        let data = data.map_err(|text| match text {
            error::BAD_DATA => error::BAD_TERMINATION,
            other => other,
        })?;
        let split = data.iter().position(|byte| *byte == b' ');
        let (user, password) = match split.map(|at| (&data[..at], &data[at + 1..])) {
            Some((user, password)) if !user.is_empty() && !password.is_empty() => (user, password),
            _ => return Err(error::BAD_AUTHENTICATION.into()),
        };
        let known = host.authenticate(user, password);
        let keyspace = self.keyspace(DATABASE);
        let counters = keyspace.memcached_counters();
        counters.count(Figure::AuthCmds);
        if !known {
            counters.count(Figure::AuthErrors);
            return Err(error::AUTHENTICATION_FAILED.into());
        }
        client.authenticated = true;
        reply.line("STORED");
        Ok(())
    }
}

/// Executes a command on items.
fn run_on(
    keyspace: &mut Keyspace<'_>,
    verb: Verb,
    line: Line<'_>,
    answered: &mut usize,
    reply: &mut Reply<'_>,
    host: &mut impl MemcachedHost,
) -> Handled {
    match verb {
        Verb::Get | Verb::Gets => get::get(keyspace, verb, line, answered, reply),
        Verb::Gat | Verb::Gats => get::get_and_touch(keyspace, verb, line, answered, reply),
        Verb::Set | Verb::Add | Verb::Replace | Verb::Append | Verb::Prepend | Verb::Cas => {
            store::store(keyspace, verb, line, reply)
        }
        Verb::Incr | Verb::Decr => change::arithmetic(keyspace, verb, line, reply),
        Verb::Delete => change::delete(keyspace, line, reply),
        Verb::Touch => change::touch(keyspace, line, reply),
        Verb::MetaGet | Verb::MetaSet | Verb::MetaDelete | Verb::MetaArithmetic => {
            keyspace.memcached_counters().count(Figure::CmdMeta);
            match verb {
                Verb::MetaGet => meta::get(keyspace, line, reply),
                Verb::MetaSet => meta::set(keyspace, line, reply),
                Verb::MetaDelete => meta::delete(keyspace, line, reply),
                _ => meta::arithmetic(keyspace, line, reply),
            }
        }
        Verb::MetaDebug => {
            keyspace.memcached_counters().count(Figure::CmdMeta);
            meta::debug(keyspace, line, reply)
        }
        Verb::MetaNoop => {
            meta::noop(line, reply);
            Ok(())
        }
        Verb::Verbosity => {
            arguments::verbosity(line)?;
            reply.line("OK");
            Ok(())
        }
        Verb::Version => {
            reply.raw(b"VERSION ");
            reply.line(host.version());
            Ok(())
        }
        Verb::Quit => Ok(()),
        Verb::Shutdown => Err("ERROR: shutdown not enabled".into()),
        _ => Err(error::ERROR.into()),
    }
}

/// Commands whose last word may be `noreply`.
fn takes_noreply(verb: Verb) -> bool {
    matches!(
        verb,
        Verb::Set
            | Verb::Add
            | Verb::Replace
            | Verb::Append
            | Verb::Prepend
            | Verb::Cas
            | Verb::Incr
            | Verb::Decr
            | Verb::Delete
            | Verb::Touch
            | Verb::FlushAll
            | Verb::Verbosity
            | Verb::CacheMemlimit
    )
}

#[cfg(test)]
mod tests;
