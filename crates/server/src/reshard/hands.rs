//! Carrying: values from server to server, over connections to all of them.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use pando_protocol::Value;
use pando_ring::Placement;

use super::ReshardError;
use super::mover::Plan;
use super::node::{Server, bulk};

/// Keys whose values are asked for in one request.
const KEYS_AT_ONCE: usize = 256;

/// Bytes of values that are sent to a server in one request; a larger value goes by itself.
const SENT_BYTES: usize = 1024 * 1024;

/// Keys that are removed in one request.
const REMOVED_AT_ONCE: usize = 1000;

/// Changed keys that are asked for at a time.
const CHANGED_AT_ONCE: usize = 10_000;

/// A key and its value, as RESHARD FETCH gives it; nothing: it is not there.
type Parcel = (Vec<u8>, Vec<u8>);

/// Connections to all nodes, in the order of the plan.
pub(super) struct Hands<'p> {
    pub(super) plan: &'p Plan,
    pub(super) servers: Vec<Server>,
}

impl Hands<'_> {
    /// Copies present values of keys to where they go, no faster than is wished.
    pub(super) fn copy(
        &mut self,
        placements: &[Placement],
        from: usize,
        database: usize,
        keys: &[Vec<u8>],
    ) -> Result<(), ReshardError> {
        let plan = self.plan;
        let Some(keys_at_once) = plan.progress.keys_at_once() else {
            return self.bring(placements, from, database, keys);
        };
        let moves = |key: &&Vec<u8>| plan.target(placements, from, key).is_some();
        let moving: Vec<Vec<u8>> = keys.iter().filter(moves).cloned().collect();
        for portion in moving.chunks(keys_at_once) {
            plan.progress.pace(portion.len() as u64);
            self.bring(placements, from, database, portion)?;
        }
        Ok(())
    }

    /// Copies present values of keys to where they go. A key that is not there any more goes there,
    /// too.
    pub(super) fn bring(
        &mut self,
        placements: &[Placement],
        from: usize,
        database: usize,
        keys: &[Vec<u8>],
    ) -> Result<(), ReshardError> {
        let plan = self.plan;
        let target = |key: &Vec<u8>| Some((plan.target(placements, from, key)?, key.clone()));
        let mut moving: Vec<(usize, Vec<u8>)> = keys.iter().filter_map(target).collect();
        while !moving.is_empty() {
            let asked = &moving[..moving.len().min(KEYS_AT_ONCE)];
            let source = &mut self.servers[from];
            source.select(database)?;
            let mut words: Vec<&[u8]> = vec![b"RESHARD", b"FETCH", &plan.token];
            words.extend(asked.iter().map(|(_, key)| &key[..]));
            let Value::Array(values) = source.ask(&words)? else {
                return Err(source.unexpected("RESHARD FETCH"));
            };
            if values.is_empty() || values.len() > asked.len() {
                return Err(source.unexpected("RESHARD FETCH"));
            }
            let mut parcels: BTreeMap<usize, Vec<Parcel>> = BTreeMap::new();
            for ((to, key), value) in moving.drain(..values.len()).zip(values) {
                let value = bulk(value).unwrap_or_default();
                let bytes = (key.len() + value.len()) as u64;
                plan.progress.keys.fetch_add(1, Ordering::Relaxed);
                plan.progress.bytes.fetch_add(bytes, Ordering::Relaxed);
                parcels.entry(to).or_default().push((key, value));
            }
            for (to, parcel) in parcels {
                self.put(to, database, &parcel)?;
            }
        }
        Ok(())
    }

    /// Gives a server values of keys; an empty one removes the key.
    pub(super) fn put(
        &mut self,
        to: usize,
        database: usize,
        parcel: &[Parcel],
    ) -> Result<(), ReshardError> {
        let server = &mut self.servers[to];
        server.select(database)?;
        let mut rest = parcel;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |(_, value): &&Parcel| {
                bytes += value.len();
                bytes <= SENT_BYTES
            };
            let count = rest.iter().take_while(fits).count().max(1);
            let (now, later) = rest.split_at(count);
            let mut words: Vec<&[u8]> = vec![b"RESHARD", b"PUT", &self.plan.token];
            words.extend(now.iter().flat_map(|(key, value)| [&key[..], value]));
            server.ask(&words)?;
            rest = later;
        }
        Ok(())
    }

    /// Takes keys that have changed at a server, of these ranges or of all, and brings them.
    pub(super) fn bring_changed(
        &mut self,
        placements: &[Placement],
        from: usize,
        ranges: Option<&[usize]>,
    ) -> Result<usize, ReshardError> {
        let words: Vec<String> = match ranges {
            None => vec!["*".to_owned()],
            Some(ranges) => ranges.iter().map(usize::to_string).collect(),
        };
        let count = CHANGED_AT_ONCE.to_string();
        let (token, server) = (&self.plan.token, &mut self.servers[from]);
        for range in &words {
            let (range, count) = (range.as_bytes(), count.as_bytes());
            server.send(&[b"RESHARD", b"CHANGED", token, range, count])?;
        }
        let mut changed: BTreeMap<usize, Vec<Vec<u8>>> = BTreeMap::new();
        let mut total = 0;
        let mut failed = None;
        for _ in &words {
            let pairs = match server.receive() {
                Ok(Value::Array(pairs)) => pairs,
                Ok(_) => return Err(server.unexpected("RESHARD CHANGED")),
                Err(error) => {
                    failed.get_or_insert(error);
                    continue;
                }
            };
            for pair in pairs.chunks_exact(2) {
                let [Value::Integer(database), Value::Bulk(key)] = pair else {
                    return Err(server.unexpected("RESHARD CHANGED"));
                };
                total += 1;
                changed
                    .entry(*database as usize)
                    .or_default()
                    .push(key.clone());
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        for (database, keys) in changed {
            self.bring(placements, from, database, &keys)?;
        }
        Ok(total)
    }

    /// Removes keys.
    pub(super) fn remove(
        &mut self,
        from: usize,
        database: usize,
        keys: &[Vec<u8>],
    ) -> Result<(), ReshardError> {
        let server = &mut self.servers[from];
        server.select(database)?;
        for portion in keys.chunks(REMOVED_AT_ONCE) {
            let mut words: Vec<&[u8]> = vec![b"RESHARD", b"DROP", &self.plan.token];
            words.extend(portion.iter().map(|key| &key[..]));
            server.ask(&words)?;
        }
        Ok(())
    }
}
