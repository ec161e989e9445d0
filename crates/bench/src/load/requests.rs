//! Steps of a workload as requests, and whether a reply can be right.

use pando_protocol::resp::Value;

use super::client::Client;
use super::{Dialect, memcached};
use crate::workload::{Step, Workload, column_name};

/// Turns steps into requests, reusing its buffers.
#[derive(Debug)]
pub(super) struct Requests {
    workload: Workload,
    key: Vec<u8>,
    /// Names and values of a whole row, in turns.
    row: Vec<Vec<u8>>,
    name: Vec<u8>,
}

impl Requests {
    pub(super) fn new(workload: Workload) -> Self {
        let mut row = Vec::new();
        for column in 0..workload.columns.unwrap_or(0) {
            let mut name = Vec::new();
            column_name(column, &mut name);
            row.push(name);
            row.push(vec![b'x'; workload.column_bytes]);
        }
        Self {
            workload,
            key: Vec::new(),
            row,
            name: Vec::new(),
        }
    }

    /// Appends the requests of `step` to the client's output, `value` being what it writes; returns
    /// their number.
    pub(super) fn push(&mut self, client: &mut Client, step: Step, value: &[u8]) -> usize {
        let Self {
            workload,
            key,
            row,
            name,
        } = self;
        let (Step::Read { item }
        | Step::Update { item, .. }
        | Step::Insert { item }
        | Step::Scan { item, .. }
        | Step::ReadModifyWrite { item, .. }) = step;
        workload.naming.write(item, key);
        let rows = workload.columns.is_some();
        if client.dialect() == Dialect::Memcached {
            match step {
                Step::Read { .. } => memcached::push_get(client.output(), key),
                _ => memcached::push_set(client.output(), key, value),
            }
            return 1;
        }
        match step {
            Step::Read { .. } if rows => client.push(&[b"HGETALL", key]),
            Step::Read { .. } => client.push(&[b"GET", key]),
            Step::Update { column, .. } if rows => {
                column_name(column, name);
                client.push(&[b"HSET", key, name, value]);
            }
            Step::Insert { .. } if rows => {
                let mut arguments: Vec<&[u8]> = vec![b"HSET", key];
                arguments.extend(row.iter().map(Vec::as_slice));
                client.push(&arguments);
            }
            Step::Update { .. } | Step::Insert { .. } => client.push(&[b"SET", key, value]),
            Step::Scan { keys, .. } => {
                key.insert(0, b'[');
                let limit = keys.to_string();
                let mut arguments: Vec<&[u8]> =
                    vec![b"KRANGE", key, b"+", b"LIMIT", limit.as_bytes()];
                if workload.scan_one_column {
                    arguments.extend([b"FIELDS".as_slice(), b"1", b"field0"]);
                }
                client.push(&arguments);
            }
            Step::ReadModifyWrite { column, .. } => {
                column_name(column, name);
                client.push(&[b"HGETALL", key]);
                client.push(&[b"HSET", key, name, value]);
                return 2;
            }
        }
        1
    }

    /// Whether `reply` has the shape of an answer to the last request of `step`. `known` says that
    /// the item is there for certain.
    pub(super) fn fits(&self, step: Step, reply: &Value, known: bool) -> bool {
        let rows = self.workload.columns.is_some();
        match (step, reply) {
            (Step::Read { .. }, Value::Bulk(_)) => !rows,
            (Step::Read { .. }, Value::Array(items)) => {
                rows && (items.len() == self.row.len() || (!known && items.is_empty()))
            }
            (Step::Read { .. }, reply) => !rows && !known && reply.is_null(),
            (Step::Scan { keys, .. }, Value::Array(parts)) => match parts.as_slice() {
                [_, Value::Array(items)] => items.len() <= 2 * keys && (!known || items.len() >= 2),
                _ => false,
            },
            (Step::Insert { .. } | Step::Update { .. }, Value::Simple(text)) => {
                !rows && text == b"OK"
            }
            (
                Step::Insert { .. } | Step::Update { .. } | Step::ReadModifyWrite { .. },
                Value::Integer(_),
            ) => rows,
            _ => false,
        }
    }
}
