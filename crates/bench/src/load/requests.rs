//! Steps of a workload as requests, and whether a reply can be right.

use pando_protocol::resp::Value;

use super::client::Client;
use super::{Dialect, Options, Ranges, memcached};
use crate::workload::{Step, Workload, column_name};

/// How far apart the items of one read of several keys are: prime, so that they are distinct.
const STRIDE: u64 = 7919;

/// The sorted set in which a server without ranges over keys has them.
const INDEX: &[u8] = b"index";

/// A range over keys on a server that has none: the keys from [`INDEX`], then the rows, in one
/// request. The reply has the shape of KRANGE's.
pub(super) const RANGE_SCRIPT: &[u8] = b"\
local keys = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], '+', 'LIMIT', 0, ARGV[2])
local rows = {}
for i, key in ipairs(keys) do
    rows[2 * i - 1] = key
    if ARGV[3] then
        rows[2 * i] = redis.call('HGET', key, ARGV[3])
    else
        rows[2 * i] = redis.call('HGETALL', key)
    end
end
return {false, rows}";

fn item_of(step: Step) -> u64 {
    let (Step::Read { item }
    | Step::Update { item, .. }
    | Step::Insert { item }
    | Step::Scan { item, .. }
    | Step::ReadModifyWrite { item, .. }) = step;
    item
}

/// Turns steps into requests, reusing its buffers.
#[derive(Debug)]
pub(super) struct Requests {
    workload: Workload,
    /// Items before the first step.
    items: u64,
    /// Keys of one read.
    keys_of_read: u64,
    ranges: Ranges,
    /// The name under which the server knows [`RANGE_SCRIPT`].
    script: Vec<u8>,
    key: Vec<u8>,
    /// Names and values of a whole row, in turns.
    row: Vec<Vec<u8>>,
    name: Vec<u8>,
}

impl Requests {
    pub(super) fn new(options: &Options) -> Self {
        let workload = options.workload();
        let mut row = Vec::new();
        for column in 0..workload.columns.unwrap_or(0) {
            let mut name = Vec::new();
            column_name(column, &mut name);
            row.push(name);
            row.push(vec![b'x'; workload.column_bytes]);
        }
        Self {
            workload,
            items: options.keys,
            keys_of_read: options.multi_get,
            ranges: options.ranges,
            script: Vec::new(),
            key: Vec::new(),
            row,
            name: Vec::new(),
        }
    }

    /// Columns of an item; a plain value is one.
    pub(super) fn columns(&self) -> usize {
        self.workload.columns.unwrap_or(1)
    }

    /// Whether items have columns.
    pub(super) fn has_rows(&self) -> bool {
        self.workload.columns.is_some()
    }

    /// The key of an item.
    pub(super) fn key_of(&self, item: u64) -> Vec<u8> {
        let mut key = Vec::new();
        self.workload.naming.write(item, &mut key);
        key
    }

    /// Ranges are asked for by the script of this name.
    pub(super) fn set_script(&mut self, name: &[u8]) {
        self.script = name.to_vec();
    }

    /// Appends one request for several items' values, `item` the first.
    fn push_reads(&self, client: &mut Client, item: u64) {
        let keys: Vec<Vec<u8>> = (0..self.keys_of_read)
            .map(|index| {
                let mut key = Vec::new();
                let item = (item + index * STRIDE) % self.items;
                self.workload.naming.write(item, &mut key);
                key
            })
            .collect();
        let keys = keys.iter().map(Vec::as_slice);
        if client.dialect() == Dialect::Memcached {
            memcached::push_get_many(client.output(), keys);
            client.end_request();
        } else {
            let arguments: Vec<&[u8]> = [b"MGET".as_slice()].into_iter().chain(keys).collect();
            client.push(&arguments);
        }
    }

    /// Appends the requests of `step` to the client's output, `value` being what it writes; returns
    /// their number.
    pub(super) fn push(&mut self, client: &mut Client, step: Step, value: &[u8]) -> usize {
        if let Step::Read { item } = step
            && self.keys_of_read > 1
        {
            self.push_reads(client, item);
            return 1;
        }
        let Self {
            workload,
            key,
            row,
            name,
            ..
        } = self;
        let sorted_set = self.ranges == Ranges::SortedSet;
        workload.naming.write(item_of(step), key);
        let rows = workload.columns.is_some();
        if client.dialect() == Dialect::Memcached {
            match step {
                Step::Read { .. } => memcached::push_get(client.output(), key),
                _ => memcached::push_set(client.output(), key, value),
            }
            client.end_request();
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
                if sorted_set {
                    client.push(&[b"ZADD", INDEX, b"0", key]);
                    return 2;
                }
            }
            Step::Update { .. } | Step::Insert { .. } => client.push(&[b"SET", key, value]),
            Step::Scan { keys, .. } => {
                key.insert(0, b'[');
                let limit = keys.to_string();
                let limit = limit.as_bytes();
                let mut arguments: Vec<&[u8]> = if sorted_set {
                    vec![b"EVALSHA", &self.script, b"1", INDEX, key, limit]
                } else {
                    vec![b"KRANGE", key, b"+", b"LIMIT", limit]
                };
                if workload.scan_one_column {
                    if !sorted_set {
                        arguments.extend([b"FIELDS".as_slice(), b"1"]);
                    }
                    arguments.push(b"field0");
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
            (Step::Read { .. }, Value::Array(items)) if self.keys_of_read > 1 => {
                let found = items.iter().filter(|item| !item.is_null()).count();
                let most = self.keys_of_read as usize;
                found == most || (!known && found < most)
            }
            (Step::Read { .. }, Value::Bulk(_)) => !rows,
            (Step::Read { .. }, Value::Array(items)) => {
                rows && (items.len() == self.row.len() || (!known && items.len() < self.row.len()))
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
