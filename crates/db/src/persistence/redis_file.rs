//! Loading a dump file of Redis ([`crate::dump::file`]) into the database.
//!
//! Keys are written in batches, a turn each, like those of our own dump. Types that we do not
//! support are skipped and counted by name, as are expired keys.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;

use pando_durability::log::LogState;
use pando_engine::{Attributes, Deadline, Decision, NewValue};

use super::stream::StreamError;
use crate::commands::again;
use crate::dump::Bounds;
use crate::dump::file::{DumpFile, Entry, Found};
use crate::limits;
use crate::session::Session;

/// Bytes of values after which a batch is written.
const BATCH_BYTES: usize = 256 * 1024;

/// What was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Keys.
    pub keys: u64,
    /// Keys that were left out because they had expired.
    pub expired: u64,
    /// What was left out because its type is not supported, by the type's name.
    pub passed: BTreeMap<&'static str, u64>,
}

impl fmt::Display for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys loaded", self.keys)?;
        if self.expired > 0 {
            write!(f, ", {} expired keys left out", self.expired)?;
        }
        for (index, (name, count)) in self.passed.iter().enumerate() {
            let before = if index == 0 { "; not loaded: " } else { ", " };
            write!(f, "{before}{count} × {name}")?;
        }
        Ok(())
    }
}

/// Entries that are written in one turn.
#[derive(Default)]
struct Batch {
    entries: Vec<Entry>,
    bytes: usize,
}

impl Session {
    /// Like [`Self::load`], for a dump file of Redis after its `magic` was read.
    pub(super) fn load_redis_file(
        &mut self,
        magic: &[u8],
        input: &mut dyn Read,
    ) -> Result<Loaded, StreamError> {
        let bounds = Bounds {
            value_bytes_max: self.database().options().value_bytes_max,
            field_bytes_max: pando_engine::limits::FIELD_BYTES_MAX,
            total_bytes_max: usize::MAX,
        };
        let mut file = DumpFile::open(magic, input, bounds)?;
        let (mut loaded, mut batch) = (Loaded::default(), Batch::default());
        loop {
            match file.next()? {
                Found::Entry(entry) => {
                    batch.bytes += entry.key.len() + entry.bytes;
                    batch.entries.push(entry);
                }
                Found::Passed(name) => *loaded.passed.entry(name).or_default() += 1,
                Found::End => break,
            }
            if batch.bytes >= BATCH_BYTES || batch.entries.len() >= limits::SLICE_ENTRIES_MAX {
                self.write_batch(std::mem::take(&mut batch), &mut loaded)?;
            }
        }
        self.write_batch(batch, &mut loaded)?;
        Ok(loaded)
    }

    fn write_batch(&mut self, batch: Batch, loaded: &mut Loaded) -> Result<(), StreamError> {
        if let Some(LogState::Full { reason } | LogState::Failed { reason }) =
            self.database().log_state()
        {
            return Err(StreamError::Log(reason));
        }
        let mut turn = self.turn();
        let databases = turn.database().databases();
        for entry in batch.entries {
            let index = usize::try_from(entry.database).ok();
            let Some(index) = index.filter(|index| *index < databases) else {
                let database = entry.database;
                return Err(StreamError::Database {
                    database,
                    databases,
                });
            };
            let mut keyspace = turn.keyspace(index);
            let (now, thresholds) = (keyspace.now(), keyspace.thresholds());
            if entry
                .deadline_ms
                .is_some_and(|deadline| deadline <= now.0 as i64)
            {
                loaded.expired += 1;
                continue;
            }
            let attributes = Attributes {
                deadline: entry.deadline_ms.map(|deadline| Deadline(deadline as u64)),
                encoding: entry.value.encoding(&thresholds),
                ..Attributes::default()
            };
            let value = NewValue::new(entry.value.body).with(attributes);
            keyspace.update(&entry.key, |_| Decision::Write(again(&value)))?;
            loaded.keys += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::Options;
    use crate::commands::testing::Shell;

    use super::*;

    /// What SAVE of `redis-server` 7.0.15 writes: strings as text, as an integer and compressed, a
    /// deadline, hashes as a listpack and as a table, a list, a set, a sorted set, a stream, a
    /// second database.
    const OF_REDIS: &str = "\
    524544495330303130fa0972656469732d76657206372e302e3135fa0a72656469732d62697473c0\
    40fa056374696d65c259a3036bfa08757365642d6d656dc2780e1100fa08616f662d62617365c000\
    fe00fb0a011301780110000001a20636167600000000000000001d1d0000000a0001010001010181\
    660200010201000100018176020401ff0181000001a2063616760081000001a20636167600000001\
    0011017a0f0f000000020081610283312e3504fffc00d8c32cbb030000000174017812016c010210\
    100000000300816102816202816302ff1001681414000000040081610201018162028374776f04ff\
    0001730568656c6c6f0403626967010166c3094046016262e0390001626200016ec1393002037365\
    74020161016200036c7a66c30940c8016161e0bb00016161fe03fb010000056f74686572c001ff5c\
    ffba6ed79e9828";

    fn of_redis() -> Vec<u8> {
        let digit = |byte: u8| char::from(byte).to_digit(16).expect("a digit") as u8;
        let pairs = OF_REDIS.as_bytes().chunks(2);
        pairs
            .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
            .collect()
    }

    #[test]
    fn a_file_of_redis_is_loaded() {
        let mut shell = Shell::with_options(Options::default());
        let loaded = shell
            .session
            .load(&mut &of_redis()[..])
            .expect("it is whole");
        let expected = Loaded {
            keys: 11,
            expired: 0,
            passed: BTreeMap::new(),
        };
        assert_eq!(loaded, expected);
        assert_eq!(loaded.to_string(), "11 keys loaded");
        shell.check(&[
            ("DBSIZE", ":10"),
            ("XRANGE x - +", "*1 *2 $15 1795400537718-0 *2 $1 f $1 v"),
            ("STRLEN lzf", ":200"),
            ("GETRANGE lzf 198 -1", "$2 aa"),
            ("GET s", "$5 hello"),
            ("GET n", "$5 12345"),
            ("PEXPIRETIME t", ":4102444800000"),
            ("PEXPIRETIME s", ":-1"),
            ("HGETALL h", "*4 $1 a $1 1 $1 b $3 two"),
            ("HSTRLEN big f", ":70"),
            ("OBJECT ENCODING h", "$8 listpack"),
            ("OBJECT ENCODING big", "$9 hashtable"),
            ("TYPE set", "+set"),
            ("LRANGE l 0 -1", "*3 $1 a $1 b $1 c"),
            ("ZRANGE z 0 -1 WITHSCORES", "*2 $1 a $3 1.5"),
            ("OBJECT ENCODING set", "$8 listpack"),
            ("SELECT 3", "+OK"),
            ("GET other", "$1 1"),
        ]);
    }

    #[test]
    fn what_is_over_is_left_out_and_damage_is_told() {
        let file = |records: &[u8]| [b"REDIS0004", records, b"\xff"].concat();
        let mut shell = Shell::with_options(Options {
            databases: 1,
            ..Options::default()
        });
        let mut load = |file: &[u8]| shell.session.load(&mut &file[..]);
        let past = file(b"\xfd\x01\0\0\0\x00\x01a\x01b\x00\x01k\x01v");
        let loaded = load(&past).expect("it is whole");
        assert_eq!((loaded.keys, loaded.expired), (1, 1));
        assert_eq!(loaded.to_string(), "1 keys loaded, 1 expired keys left out");
        let mut damaged = of_redis();
        let end = damaged.len() - 1;
        damaged[end] ^= 1;
        for (file, text) in [
            (damaged, "the checksum is not that of the file"),
            (of_redis()[..100].to_vec(), "the file ends here"),
            (file(b"\xfe\x01\x00\x01a\x01b"), "a key of database 1"),
            (b"REDIS0099".to_vec(), "has version \"0099\""),
            (b"RED".to_vec(), "not a dump of Pando"),
            (Vec::new(), "not a dump of Pando"),
        ] {
            let refused = load(&file).expect_err("it is not sound").to_string();
            assert!(refused.contains(text), "{refused}");
        }
    }
}
