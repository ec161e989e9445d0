//! The meta commands `mg`, `ms`, `md`, `ma` and `me`.
//!
//! Besides the value they reply with facts, in the order in which their letters were sent. `h` and
//! `l` come from access marks: under an LRU policy whether and about when the item was read, under
//! an LFU policy whether. Without a policy reads write nothing (see the engines): then `h` is 0 and
//! `l` is the time since the item was written.

mod change;
mod get;
mod set;

use pando_protocol::memcached::meta::Meta;
use pando_protocol::memcached::{Line, Reply};

use crate::memory::LastAccess;

pub(super) use change::{arithmetic, delete};
pub(super) use get::{debug, get};
pub(super) use set::set;

/// The known facts about an item; the letter of an unknown one is left out.
#[derive(Clone, Copy, Debug, Default)]
struct Facts {
    bytes: Option<usize>,
    flags: Option<u32>,
    cas: Option<u64>,
    /// −1: it does not expire.
    seconds_left: Option<i64>,
    access: Option<LastAccess>,
}

/// The first line of a reply: `code`, the facts that the flags request, `state`.
#[inline]
fn answer(reply: &mut Reply<'_>, code: &str, meta: &Meta<'_>, facts: &Facts, state: &str) {
    reply.raw(code.as_bytes());
    for flag in meta.flags() {
        match flag[0] {
            b'k' => reply.meta_key(meta.key, meta.base64),
            b'O' => {
                reply.raw(b" ");
                reply.raw(flag);
            }
            b's' => fact(reply, b" s", facts.bytes.map(|bytes| bytes as u64)),
            b'f' => fact(reply, b" f", facts.flags.map(u64::from)),
            b'c' => fact(reply, b" c", facts.cas),
            b'h' => fact(reply, b" h", facts.access.map(|it| u64::from(it.is_read))),
            b'l' => fact(reply, b" l", facts.access.map(|it| it.idle_seconds)),
            b't' => {
                if let Some(seconds) = facts.seconds_left {
                    reply.raw(b" t");
                    reply.signed(seconds);
                }
            }
            _ => {}
        }
    }
    reply.raw(state.as_bytes());
    reply.end();
}

fn fact(reply: &mut Reply<'_>, letter: &[u8], value: Option<u64>) {
    if let Some(value) = value {
        reply.raw(letter);
        reply.number(value);
    }
}

/// `mn`: a line after everything requested before.
pub(super) fn noop(_: Line<'_>, reply: &mut Reply<'_>) {
    reply.line("MN");
}
