//! Commands on several keys, or on a whole database, are seen whole by commands on any worker.

use pando_db::EngineKind;
use pando_protocol::resp::Value;

use crate::server::{Connection, Server, integer, text, texts, with_every_engine};

const READERS: usize = 2;
const KEYS: usize = 8;

/// Keys of a command that takes its time; its first and its last one are looked at meanwhile.
const MANY_KEYS: usize = 200;
const ENDS: &str = "MGET k0 k199";
const _: () = assert!(MANY_KEYS == 200, "ENDS names the last one");

fn keys() -> String {
    let keys: Vec<_> = (0..KEYS).map(|key| format!("k{key}")).collect();
    keys.join(" ")
}

/// The arguments of an MSET that gives so many keys one value.
fn pairs(keys: usize, value: &str) -> String {
    let pairs: Vec<_> = (0..keys).map(|key| format!("k{key} {value}")).collect();
    pairs.join(" ")
}

/// Whether all values are one, or all are absent.
fn are_one(values: &[Option<String>]) -> bool {
    values.windows(2).all(|pair| pair[0] == pair[1])
}

/// Whether exactly one key is there.
fn is_one(values: &[Option<String>]) -> bool {
    values.iter().flatten().count() == 1
}

/// Whether a text is one letter, again and again.
fn is_uniform(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.windows(2).all(|pair| pair[0] == pair[1])
}

/// Runs rounds of `write` beside readers that send `request` and check what they are answered.
fn check(
    server: &Server,
    count: usize,
    mut write: impl FnMut(&mut Connection, usize) + Send,
    request: &str,
    check: impl Fn(Value) -> Result<(), String> + Sync,
) {
    let mut writer = server.connect();
    let readers = (0..READERS).map(|_| {
        let mut reader = server.connect();
        let check = &check;
        let read = move || {
            if let Err(seen) = check(reader.call(request)) {
                panic!("{request}: {seen}");
            }
        };
        Box::new(read) as Box<dyn FnMut() + Send + '_>
    });
    let readers = readers.collect();
    let write = || (0..crate::rounds(count)).for_each(|round| write(&mut writer, round));
    crate::beside(write, readers);
}

fn expect(holds: fn(&[Option<String>]) -> bool) -> impl Fn(Value) -> Result<(), String> {
    move |reply| {
        let values = texts(reply);
        if holds(&values) {
            Ok(())
        } else {
            Err(format!("{values:?}"))
        }
    }
}

#[test]
fn mset_is_seen_whole() {
    with_every_engine(|server| {
        let write = |writer: &mut Connection, round: usize| {
            writer.ok(format!("MSET {}", pairs(MANY_KEYS, &round.to_string())));
        };
        check(server, 500, write, ENDS, expect(are_one));
    });
}

#[test]
fn msetnx_is_seen_whole() {
    with_every_engine(|server| {
        let write = |writer: &mut Connection, round: usize| {
            let pairs = pairs(MANY_KEYS, &round.to_string());
            assert_eq!(integer(&writer.call(format!("MSETNX {pairs}"))), 1);
            // DEL takes keys one after the other; a transaction takes them together.
            let remove: Vec<_> = (0..MANY_KEYS).map(|key| format!("k{key}")).collect();
            let replies = writer.transaction(&[format!("DEL {}", remove.join(" "))]);
            assert_eq!(replies, Some(vec![Value::Integer(MANY_KEYS as i64)]));
        };
        check(server, 300, write, ENDS, expect(are_one));
    });
}

#[test]
fn a_renamed_key_has_one_name() {
    let seed = crate::seed();
    with_every_engine(|server| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut name = 0;
        server.connect().ok("SET k0 v");
        let write = |writer: &mut Connection, _| {
            let to = random.usize(..KEYS);
            writer.ok(format!("RENAME k{name} k{to}"));
            name = to;
        };
        check(
            server,
            1500,
            write,
            &format!("MGET {}", keys()),
            expect(is_one),
        );
    });
}

/// A value of many chunks, and a hash of many leaves.
#[test]
fn a_copy_is_whole() {
    let letters: Vec<_> = ('a'..='h')
        .map(|letter| letter.to_string().repeat(50_000))
        .collect();
    with_every_engine(|server| {
        let write = |writer: &mut Connection, round: usize| {
            writer.ok(format!("SET from {}", letters[round % letters.len()]));
            assert_eq!(integer(&writer.call("COPY from to REPLACE")), 1);
        };
        check(server, 100, write, "GET to", |reply| {
            match text(reply).filter(|text| !is_uniform(text)) {
                None => Ok(()),
                Some(text) => Err(format!("a mixture of {} bytes", text.len())),
            }
        });
        let write = |writer: &mut Connection, round: usize| {
            let fields: Vec<_> = (0..500).map(|field| format!("f{field} {round}")).collect();
            writer.call(format!("HSET source {}", fields.join(" ")));
            assert_eq!(integer(&writer.call("COPY source target REPLACE")), 1);
        };
        check(server, 100, write, "HVALS target", expect(are_one));
    });
}

/// Whether a reply is one complete range whose values are one.
fn whole_range(reply: Value) -> Result<(), String> {
    let Value::Array(parts) = reply else {
        return Err(format!("{reply:?}"));
    };
    let values: Vec<_> = texts(parts[1].clone())
        .into_iter()
        .skip(1)
        .step_by(2)
        .collect();
    let is_whole = parts[0] == Value::NullBulk && values.len() == KEYS && are_one(&values);
    is_whole.then_some(()).ok_or(format!("{parts:?}"))
}

/// Whether a reply says, or lists, exactly one.
fn is_one_key(reply: Value) -> Result<(), String> {
    let said = format!("{reply:?}");
    let count = match reply {
        Value::Integer(count) => count,
        Value::Array(parts) => {
            if let [_, Value::Array(listed)] = &parts[..] {
                listed.len() as i64 / 2
            } else {
                texts(Value::Array(parts)).iter().flatten().count() as i64
            }
        }
        _ => 0,
    };
    (count == 1).then_some(()).ok_or(said)
}

/// One of two keys takes the place of the other.
fn trade_places(writer: &mut Connection, _: usize) {
    for (from, to) in [("k0", "k1"), ("k1", "k0")] {
        let requests = [format!("SET {to} v"), format!("DEL {from}")];
        writer.transaction(&requests).expect("nothing is watched");
    }
}

/// By commands that name both keys, that walk, and that count.
#[test]
fn a_key_takes_the_place_of_another_at_once() {
    with_every_engine(|server| {
        server.connect().ok("SET k0 v");
        let requests = ["MGET k0 k1", "EXISTS k0 k1", "DBSIZE", "KRANGE - +"];
        let requests = &requests[..if server.is_ordered() { 4 } else { 3 }];
        for request in requests {
            check(server, 500, trade_places, request, is_one_key);
        }
    });
}

/// By commands whose keys are named by values, and by those that name a branch.
#[test]
fn a_key_takes_the_place_of_another_for_those_who_do_not_name_it() {
    with_every_engine(|server| {
        let mut connection = server.connect();
        connection.ok("SET k0 v");
        connection.call("RPUSH names 0 1");
        for request in ["SORT_RO names BY n GET k*", "SORT names BY n GET k*"] {
            check(server, 200, trade_places, request, is_one_key);
        }
        let mut reader = server.connect();
        let read = move || {
            reader.call("SORT names BY n GET k* STORE sorted");
            let seen = texts(reader.call("LRANGE sorted 0 -1"));
            // What is absent is stored as the empty string.
            let there = seen.iter().flatten().filter(|text| !text.is_empty());
            assert_eq!(there.count(), 1, "{seen:?}");
        };
        let mut writer = server.connect();
        let write = || (0..crate::rounds(200)).for_each(|round| trade_places(&mut writer, round));
        crate::beside(write, vec![Box::new(read)]);
        if server.engine() == EngineKind::Minuet {
            connection.call("DEL names sorted");
            for request in ["MGET k0 k1", "EXISTS k0 k1", "KRANGE - +"] {
                let request = format!("BRANCH READ MAIN {request}");
                check(server, 300, trade_places, &request, is_one_key);
            }
        }
    });
}

/// By a range that begins with more entries of passed deadlines than one slice looks at.
#[test]
fn a_key_takes_the_place_of_another_behind_a_slice() {
    const PASSED: usize = pando_db::limits::SLICE_ENTRIES_MAX + 100;
    with_every_engine(|server| {
        if !server.is_ordered() {
            return;
        }
        let mut connection = server.connect();
        connection.ok("DEBUG SET-ACTIVE-EXPIRE 0");
        for key in 0..PASSED {
            connection.ok(format!("SET a{key} v PX 1"));
        }
        // Those before it have passed when it has.
        while text(connection.call(format!("GET a{}", PASSED - 1))).is_some() {}
        connection.ok("SET k0 v");
        check(server, 200, trade_places, "KRANGE - +", is_one_key);
        let dead = integer(&connection.call("DBSIZE")) as usize;
        assert!(dead > PASSED, "{dead} entries were passed over");
    });
}

#[test]
fn keys_of_one_deadline_go_together() {
    with_every_engine(|server| {
        let write = |writer: &mut Connection, round: usize| {
            let requests =
                ["k0", "k1"].map(|key| format!("SET {key} {round} PX {}", round % 3 + 1));
            writer.transaction(&requests).expect("nothing is watched");
        };
        check(server, 1000, write, "MGET k0 k1", expect(are_one));
    });
}

/// Whoever looks at an expired key removes it, at any moment of another command.
#[test]
fn keys_of_one_deadline_go_together_beside_who_removes_one() {
    with_every_engine(|server| {
        let mut reader = server.connect();
        let read = move || {
            let values = texts(reader.call("MGET k0 k1"));
            assert!(are_one(&values), "{values:?}");
        };
        let mut remover = server.connect();
        // It would set a deadline where there is none.
        let remove = move || _ = remover.call("PEXPIRE k1 1000 NX");
        let mut writer = server.connect();
        let write = || {
            for round in 0..crate::rounds(500) {
                let pair = ["k0", "k1"].map(|key| format!("SET {key} {round} PX 1"));
                writer.transaction(&pair).expect("nothing is watched");
                while text(writer.call("GET k0")).is_some() {}
            }
        };
        crate::beside(write, vec![Box::new(read), Box::new(remove)]);
    });
}

#[test]
fn swapped_databases_do_not_mix() {
    with_every_engine(|server| {
        let mut connection = server.connect();
        connection.ok(format!("MSET {}", pairs(KEYS, "left")));
        connection.ok("SELECT 1");
        connection.ok(format!("MSET {} right 1", pairs(KEYS, "right")));
        let write = |writer: &mut Connection, _: usize| writer.ok("SWAPDB 0 1");
        check(
            server,
            800,
            write,
            &format!("MGET {}", keys()),
            expect(are_one),
        );
        // KRANGE and DBSIZE, too, see one state of the database.
        if server.is_ordered() {
            let write = |writer: &mut Connection, _: usize| writer.ok("SWAPDB 0 1");
            check(server, 800, write, "KRANGE [k0 (l", whole_range);
        }
        let mut reader = server.connect();
        let read = move || {
            let requests = ["DBSIZE".to_owned(), "GET k0".to_owned()];
            let replies = reader.transaction(&requests).expect("nothing is watched");
            let is_left = text(replies[1].clone()).as_deref() == Some("left");
            let keys = KEYS as i64 + i64::from(!is_left);
            assert_eq!(integer(&replies[0]), keys, "{replies:?}");
        };
        let mut writer = server.connect();
        let write = || (0..crate::rounds(800)).for_each(|_| writer.ok("SWAPDB 1 0"));
        crate::beside(write, vec![Box::new(read)]);
    });
}

#[test]
fn a_flushed_database_is_empty_at_once() {
    with_every_engine(|server| {
        for (flush, request) in [
            ("FLUSHDB", "MGET"),
            ("FLUSHALL ASYNC", "MGET"),
            ("FLUSHDB", "EXISTS"),
        ] {
            let write = |writer: &mut Connection, round: usize| {
                writer.ok(format!("MSET {}", pairs(KEYS, &round.to_string())));
                writer.ok(flush);
            };
            check(
                server,
                400,
                write,
                &format!("{request} {}", keys()),
                |reply| match reply {
                    Value::Integer(count) if count == 0 || count == KEYS as i64 => Ok(()),
                    Value::Integer(count) => Err(format!("{count} keys")),
                    reply => expect(are_one)(reply),
                },
            );
        }
    });
}

#[test]
fn canary_half_is_noticed() {
    let server = Server::start(EngineKind::default());
    let (mut writer, mut reader) = (server.connect(), server.connect());
    writer.ok("MSET a 1 b 1");
    assert_eq!(expect(are_one)(reader.call("MGET a b")), Ok(()));
    writer.ok("SET a 2");
    assert!(expect(are_one)(reader.call("MGET a b")).is_err());
    writer.call("DEL a");
    assert!(expect(are_one)(reader.call("MGET a b")).is_err());
    assert_eq!(expect(is_one)(reader.call("MGET a b")), Ok(()));
    writer.call("DEL b");
    assert!(expect(is_one)(reader.call("MGET a b")).is_err());
    assert!(is_uniform("aaa") && !is_uniform("aab"));
}
