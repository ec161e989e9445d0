//! Loading the entries of a checkpoint into an engine.
//!
//! Entries of a sorted chunk are gathered, one block of the file at a time, and handed over as a
//! run, from which an ordered engine builds whole nodes. Those of a walk, which may show a key
//! twice, are inserted one by one, and so is what differs from another version: there an entry
//! without a value is a key that was removed.

use pando_durability::checkpoint::Entry;
use pando_engine::{Key, NewValue, Restored, TreeId, ValueVersion};

use super::replay::Restorer;
use crate::durable::bytes::{Input, Malformed};
use crate::durable::value;

/// One thread's side of loading a checkpoint.
pub(super) struct Loader<'a> {
    restorer: Restorer<'a>,
    /// Keys and values of a block, each key before its value.
    bytes: Vec<u8>,
    /// Where in `bytes` keys and values end.
    ends: Vec<(usize, usize)>,
}

impl<'a> Loader<'a> {
    pub(super) fn new(restorer: Restorer<'a>) -> Self {
        Self {
            restorer,
            bytes: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Takes the next entry of a chunk; it is in the engine when the last one of its block was
    /// taken.
    pub(super) fn take(
        &mut self,
        tree: TreeId,
        sorted: bool,
        entry: Entry<'_>,
    ) -> Result<(), &'static str> {
        if entry.key.len() > pando_engine::limits::KEY_BYTES_MAX {
            return Err("a key is too long");
        }
        if !sorted {
            let key = Key::new(tree, entry.key);
            if let Ok(version) = entry.value.try_into() {
                let version = ValueVersion::from_bits(u64::from_le_bytes(version));
                self.restorer.put(key, version, None);
                return Ok(());
            }
            let (version, value) = parse(entry.value)?;
            self.restorer.put(key, version, Some(value));
            return Ok(());
        }
        if entry.ends_block && self.ends.is_empty() {
            // Alone in its block, perhaps because it is large: not copied.
            let (version, value) = parse(entry.value)?;
            let (key, value) = (entry.key, value);
            let mut run = vec![Restored {
                key,
                version,
                value,
            }];
            self.restorer.load(tree, &mut run);
            return Ok(());
        }
        self.bytes.extend_from_slice(entry.key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(entry.value);
        self.ends.push((key_end, self.bytes.len()));
        if entry.ends_block {
            self.hand_over(tree)?;
        }
        Ok(())
    }

    fn hand_over(&mut self, tree: TreeId) -> Result<(), &'static str> {
        let mut run: Vec<Restored<'_>> = Vec::with_capacity(self.ends.len());
        let mut start = 0;
        for &(key_end, end) in &self.ends {
            let key = &self.bytes[start..key_end];
            if run.last().is_some_and(|last| last.key >= key) {
                return Err("keys are out of order");
            }
            let (version, value) = parse(&self.bytes[key_end..end])?;
            run.push(Restored {
                key,
                version,
                value,
            });
            start = end;
        }
        self.restorer.load(tree, &mut run);
        self.bytes.clear();
        self.ends.clear();
        Ok(())
    }

    /// Reclaims the memory of replaced values.
    pub(super) fn tidy(&mut self) {
        self.restorer.tidy();
    }
}

fn parse(bytes: &[u8]) -> Result<(ValueVersion, NewValue<'_>), &'static str> {
    let mut input = Input(bytes);
    let mut parse = || {
        let version = ValueVersion::from_bits(input.fixed()?);
        let value = value::take_value(&mut input)?.build()?;
        Ok((version, value))
    };
    let parsed = parse().map_err(|error: Malformed| error.what)?;
    if !input.is_empty() {
        return Err("an entry has more than a value");
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pando_engine::{EpochClock, LogEpoch, TypeTag};

    use super::*;
    use crate::Options;
    use crate::expiry::ExpiryIndex;
    use crate::store::Store;

    /// Nothing on disk breaks a tree, whatever its checksums say.
    #[test]
    fn runs_that_do_not_ascend_are_refused() {
        let clock = Arc::new(EpochClock::starting_at(LogEpoch(9)));
        let store = Store::open(&Options::default(), clock).expect("it is in memory");
        let expiry = ExpiryIndex::new();
        let tree = TreeId(3);
        store.restore_tree(tree);
        let load = |keys: [&[u8]; 3]| {
            let restorer = Restorer::new(&store, &expiry).expect("a session is free");
            let mut loader = Loader::new(restorer);
            let mut value = 1_u64.to_le_bytes().to_vec();
            // A string of one byte.
            value.extend([TypeTag::String as u8, 1, b'v']);
            keys.iter().enumerate().try_for_each(|(index, key)| {
                let (value, ends_block) = (&value[..], index == 2);
                let entry = Entry {
                    key,
                    value,
                    ends_block,
                };
                loader.take(tree, true, entry)
            })
        };
        for keys in [[&b"a"[..], b"c", b"b"], [b"a", b"b", b"b"]] {
            assert_eq!(load(keys), Err("keys are out of order"));
        }
        assert_eq!(load([b"a", b"b", b"c"]), Ok(()));
        assert_eq!(store.len(tree), 3);
    }
}
