//! Writers and readers under load, and what they were promised when the server has gone.

use std::time::Instant;

use pando_protocol::resp::Value;

use crate::model::{Contents, Generator, HASHES, Operation, STRINGS, State, Text};
use crate::server::{Connection, Promise};

/// The two databases of a writer; accounts are in database 0.
pub(crate) const fn databases(writer: usize) -> [usize; 2] {
    [2 * writer + 1, 2 * writer + 2]
}

/// Bytes after which a writer of `interval` lets the disk catch up: faster than the disk, it would
/// make a backlog, for which nobody promises a time.
const PACE_BYTES: usize = 256 * 1024;

/// What a writer has done until its connection broke.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) generator: Generator,
    pub(crate) sent: Vec<Operation>,
    /// When each was acknowledged, as far as it was.
    pub(crate) acknowledged: Vec<Instant>,
}

/// Writes until the connection breaks.
pub(crate) fn write(
    mut connection: Connection,
    writer: usize,
    mut generator: Generator,
    promise: Promise,
    pipeline_max: usize,
) -> Written {
    let (mut sent, mut acknowledged) = (Vec::new(), Vec::new());
    let mut random = fastrand::Rng::with_seed(writer as u64);
    let [database, _] = databases(writer);
    let mut begin = || {
        connection.choose(promise)?;
        let mut bytes = Vec::new();
        Connection::encode(&mut bytes, &["SELECT", &database.to_string()]);
        connection.send(&bytes)?;
        connection.reply()
    };
    let mut alive = begin().is_ok();
    let mut ahead_bytes = 0;
    while alive {
        let batch = random.usize(1..=pipeline_max);
        let mut bytes = Vec::new();
        for _ in 0..batch {
            let operation = generator.next();
            encode(&mut bytes, writer, &operation);
            sent.push(operation);
        }
        alive = connection.send(&bytes).is_ok();
        for _ in 0..batch {
            alive = alive && connection.reply().is_ok();
            if alive {
                acknowledged.push(Instant::now());
            }
        }
        ahead_bytes += bytes.len();
        if promise == Promise::Interval && ahead_bytes >= PACE_BYTES {
            ahead_bytes = 0;
            let mut bytes = Vec::new();
            Connection::encode(&mut bytes, &["WAITAOF", "1", "0", "0"]);
            alive = alive && connection.send(&bytes).is_ok() && connection.reply().is_ok();
        }
    }
    Written {
        generator,
        sent,
        acknowledged,
    }
}

fn string(key: usize) -> Vec<u8> {
    format!("string:{key}").into_bytes()
}

fn hash(hash: usize) -> Vec<u8> {
    format!("hash:{hash}").into_bytes()
}

fn field(field: usize) -> Vec<u8> {
    format!("field:{field}").into_bytes()
}

fn encode(bytes: &mut Vec<u8>, writer: usize, operation: &Operation) {
    let word = |text: &str| text.as_bytes().to_vec();
    let number = |number: u64| number.to_string().into_bytes();
    let arguments = match operation {
        Operation::Set { key, value } => vec![word("SET"), string(*key), value.clone()],
        Operation::SetAt { key, value, at_ms } => vec![
            word("SET"),
            string(*key),
            value.clone(),
            word("PXAT"),
            number(*at_ms),
        ],
        Operation::Append { key, bytes } => vec![word("APPEND"), string(*key), bytes.clone()],
        Operation::SetRange { key, offset, bytes } => vec![
            word("SETRANGE"),
            string(*key),
            number(*offset as u64),
            bytes.clone(),
        ],
        Operation::Delete { key } => vec![word("DEL"), string(*key)],
        Operation::ExpireAt { key, at_ms } => {
            vec![word("PEXPIREAT"), string(*key), number(*at_ms)]
        }
        Operation::Persist { key } => vec![word("PERSIST"), string(*key)],
        Operation::HashSet {
            hash: key,
            field: name,
            value,
        } => vec![word("HSET"), hash(*key), field(*name), value.clone()],
        Operation::HashDelete {
            hash: key,
            field: name,
        } => vec![word("HDEL"), hash(*key), field(*name)],
        Operation::HashRemove { hash: key } => vec![word("DEL"), hash(*key)],
        Operation::Swap => {
            let [first, second] = databases(writer);
            vec![word("SWAPDB"), number(first as u64), number(second as u64)]
        }
        Operation::Flush => vec![word("FLUSHDB")],
    };
    Connection::encode(bytes, &arguments);
}

/// What stands in a writer's databases, other keys than the model's included as a failure.
pub(crate) fn read(connection: &mut Connection, writer: usize) -> State {
    let [first, second] = databases(writer).map(|database| read_database(connection, database));
    State { first, second }
}

fn read_database(connection: &mut Connection, database: usize) -> Contents {
    connection.ask(&["SELECT", &database.to_string()]);
    let mut contents = Contents::default();
    for key in 0..STRINGS {
        let found = connection.ask(&[b"GET".to_vec(), string(key)]);
        let at_ms = connection.ask(&[b"PEXPIRETIME".to_vec(), string(key)]);
        if let Value::Bulk(bytes) = found {
            let at_ms = match at_ms {
                Value::Integer(at_ms) => u64::try_from(at_ms).ok(),
                other => panic!("{other:?}"),
            };
            contents.strings.insert(key, Text { bytes, at_ms });
        }
    }
    for key in 0..HASHES {
        let found = connection.ask(&[b"HGETALL".to_vec(), hash(key)]);
        let elements = found.as_elements().expect("an array");
        let fields = elements.chunks(2).map(|pair| {
            let name = pair[0].as_bytes().expect("a name");
            let name = std::str::from_utf8(name).expect("text");
            let number = name.strip_prefix("field:").expect("a field of the model");
            let value = pair[1].as_bytes().expect("a value").to_vec();
            (number.parse().expect("a number"), value)
        });
        let fields: std::collections::BTreeMap<_, _> = fields.collect();
        if !fields.is_empty() {
            contents.hashes.insert(key, fields);
        }
    }
    let size = connection.ask(&["DBSIZE"]);
    let expected = contents.strings.len() + contents.hashes.len();
    assert_eq!(size, Value::Integer(expected as i64), "keys of nobody");
    contents
}

/// What a reader was shown of a writer's string.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sight {
    /// The value of the writer's command of this number.
    Value { writer: usize, count: u64 },
    /// Nothing, after the value of the command of this number.
    Gone {
        writer: usize,
        key: usize,
        count: u64,
    },
}

/// Reads until the connection breaks.
pub(crate) fn watch(
    mut connection: Connection,
    writers: usize,
    seed: u64,
    promise: Promise,
) -> Vec<Sight> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut sights = Vec::new();
    let mut last = vec![[None; STRINGS]; writers];
    if connection.choose(promise).is_err() {
        return sights;
    }
    loop {
        let asked: Vec<(usize, usize)> = (0..random.usize(1..=16))
            .map(|_| (random.usize(..writers), random.usize(..STRINGS)))
            .collect();
        let mut bytes = Vec::new();
        for &(writer, key) in &asked {
            let database = databases(writer)[0].to_string().into_bytes();
            Connection::encode(&mut bytes, &[b"SELECT".to_vec(), database]);
            Connection::encode(&mut bytes, &[b"GET".to_vec(), string(key)]);
        }
        if connection.send(&bytes).is_err() {
            return sights;
        }
        for (writer, key) in asked {
            let (Ok(_), Ok(found)) = (connection.reply(), connection.reply()) else {
                return sights;
            };
            let last = &mut last[writer][key];
            match (found, *last) {
                (Value::Bulk(bytes), _) => {
                    *last = count_of(writer, &bytes);
                    if let Some(count) = *last {
                        sights.push(Sight::Value { writer, count });
                    }
                }
                (_, Some(count)) => {
                    *last = None;
                    sights.push(Sight::Gone { writer, key, count });
                }
                _ => {}
            }
        }
    }
}

/// The number of the command that wrote a value, if it still begins as it was written.
fn count_of(writer: usize, bytes: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
    let rest = text.strip_prefix(&format!("{writer}:"))?;
    rest.split_once(':')?.0.parse().ok()
}

/// How many of the commands `sent` in this round, the first of which has the number `first`, must
/// be there for what was seen.
pub(crate) fn floor_of(sight: Sight, first: u64, sent: &[Operation]) -> usize {
    let index = |count: u64| count.checked_sub(first).map(|index| index as usize);
    match sight {
        Sight::Value { count, .. } => index(count).map_or(0, |index| index + 1),
        Sight::Gone { key, count, .. } => {
            let from = index(count).map_or(0, |index| index + 1);
            let removes = |operation: &Operation| {
                matches!(operation, Operation::Swap | Operation::Flush)
                    || *operation == Operation::Delete { key }
            };
            let rest = sent.get(from..).unwrap_or_default();
            let removal = rest.iter().position(removes);
            removal.map_or(sent.len(), |at| from + at + 1)
        }
    }
}
