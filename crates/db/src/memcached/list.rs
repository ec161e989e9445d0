//! Lists some items of the cache, for people (`stats cachedump`).
//!
//! As in memcached, it shows the first items it finds, in no promised order, and no more than fit
//! its bounds. Keys that no memcached line can name, and values that are not strings, are not
//! items.

use std::ops::ControlFlow;

use pando_protocol::memcached::KEY_BYTES_MAX;

use super::{DATABASE, item};
use crate::limits::MEMCACHED_LIST_STEPS_MAX;
use crate::turn::Turn;

/// An item as a list shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedItem<'i> {
    /// Its key.
    pub key: &'i [u8],
    /// Bytes of its data.
    pub bytes: usize,
    /// When it expires, in seconds since 1970; 0 never.
    pub expires_s: u64,
}

impl Turn<'_> {
    /// Shows items until `visit` breaks, of at most 100,000 keys.
    pub fn list_memcached(&mut self, mut visit: impl FnMut(ListedItem<'_>) -> ControlFlow<()>) {
        let mut keyspace = self.keyspace(DATABASE);
        let mut steps = 0;
        keyspace.keys().each(|key, value| {
            steps += 1;
            let string = value.and_then(|value| Some((item::string_of(value).ok()?, value)));
            if let Some((string, value)) = string.filter(|_| is_nameable(key)) {
                let deadline = value.attributes.deadline;
                visit(ListedItem {
                    key,
                    bytes: string.len(),
                    expires_s: deadline.map_or(0, |at| at.0 / 1000),
                })?;
            }
            if steps < MEMCACHED_LIST_STEPS_MAX {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
    }
}

/// Whether a memcached line can name the key.
fn is_nameable(key: &[u8]) -> bool {
    (1..=KEY_BYTES_MAX).contains(&key.len()) && key.iter().all(|byte| *byte > b' ' && *byte != 0x7f)
}
