//! What applications do, through the `redis` crate: pools, pipelines, transactions, scans, hashes,
//! both protocols, both kinds of sockets, reconnecting.

use std::collections::{BTreeMap, HashMap, HashSet};

use redis::{Commands, Connection, ConnectionLike, RedisResult};

use crate::harness::{Folder, TestServer, seed};

#[test]
fn strings_and_hashes_come_back_as_they_were_stored() {
    let server = TestServer::start(&[]);
    let mut connection = server.connection();
    let binary: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let () = connection.set("binary", &binary).unwrap();
    assert_eq!(connection.get::<_, Vec<u8>>("binary").unwrap(), binary);
    assert_eq!(
        connection.get::<_, Option<String>>("missing").unwrap(),
        None
    );
    assert_eq!(connection.incr::<_, _, i64>("count", 41).unwrap(), 41);
    let () = connection.set_ex("brief", "v", 1000).unwrap();
    assert!((1..=1000).contains(&connection.ttl::<_, i64>("brief").unwrap()));

    let mapping: BTreeMap<String, String> = (0..100)
        .map(|number| (format!("field:{number}"), format!("value:{number}")))
        .collect();
    let pairs: Vec<_> = mapping.iter().collect();
    let () = connection.hset_multiple("hash", &pairs).unwrap();
    assert_eq!(
        connection
            .hgetall::<_, BTreeMap<String, String>>("hash")
            .unwrap(),
        mapping
    );
    let two: (String, Option<String>) = connection.hmget("hash", &["field:7", "none"]).unwrap();
    assert_eq!(two, ("value:7".into(), None));
}

#[test]
fn a_pipeline_is_answered_in_order() {
    let server = TestServer::start(&[]);
    let mut connection = server.connection();
    let mut pipeline = redis::pipe();
    for number in 0..10_000 {
        pipeline
            .set(format!("key:{}", number % 100), number)
            .ignore();
        pipeline.get(format!("key:{}", number % 100));
    }
    let replies: Vec<usize> = pipeline.query(&mut connection).unwrap();
    assert!(replies.into_iter().eq(0..10_000));
}

#[test]
fn a_scan_meets_every_key() {
    let server = TestServer::start(&[]);
    let mut connection = server.connection();
    let mut pipeline = redis::pipe();
    for number in 0..5000 {
        pipeline.set(format!("key:{number}"), number).ignore();
        pipeline.set(format!("other:{number}"), number).ignore();
    }
    let () = pipeline.query(&mut connection).unwrap();
    let keys = connection.scan_match::<_, String>("key:*").unwrap();
    let keys: HashSet<String> = keys.map(|key| key.unwrap()).collect();
    let expected: HashSet<String> = (0..5000).map(|number| format!("key:{number}")).collect();
    assert_eq!(keys, expected);

    let fields: Vec<(String, usize)> = (0..2000)
        .map(|number| (format!("f{number}"), number))
        .collect();
    let () = connection.hset_multiple("hash", &fields).unwrap();
    let scanned = connection.hscan::<_, (String, usize)>("hash").unwrap();
    let scanned: HashMap<String, usize> = scanned.map(|pair| pair.unwrap()).collect();
    assert_eq!(scanned, fields.into_iter().collect());
}

#[test]
fn both_protocols_and_both_sockets_are_spoken() {
    let folder = Folder::new();
    let path = folder.path("socket");
    let path = path.to_str().unwrap();
    let server = TestServer::start(&[
        "--unix-socket",
        path,
        "--requirepass",
        "p w",
        "--databases",
        "4",
    ]);
    let address = server.address;
    for url in [
        format!("redis://:p%20w@{address}/3"),
        format!("redis://default:p%20w@{address}/3?protocol=resp3"),
        format!("redis+unix://{path}?pass=p%20w&db=3"),
        format!("redis+unix://{path}?pass=p%20w&db=3&protocol=resp3"),
    ] {
        let client = redis::Client::open(url.as_str()).unwrap();
        let mut connection = client.get_connection().unwrap();
        let () = connection
            .hset_multiple("hash", &[("a", 1.5), ("b", -2.0)])
            .unwrap();
        let all: BTreeMap<String, f64> = connection.hgetall("hash").unwrap();
        assert_eq!(
            all,
            BTreeMap::from([("a".into(), 1.5), ("b".into(), -2.0)]),
            "{url}"
        );
        let information: String = redis::cmd("CLIENT")
            .arg("INFO")
            .query(&mut connection)
            .unwrap();
        let protocol = if url.contains("resp3") {
            "resp=3"
        } else {
            "resp=2"
        };
        assert!(
            information.contains(protocol) && information.contains("db=3"),
            "{information}"
        );
    }
    let wrong = redis::Client::open(format!("redis://:wrong@{address}/")).unwrap();
    assert!(wrong.get_connection().is_err());
}

#[test]
fn a_client_reconnects_after_its_connection_was_killed() {
    let server = TestServer::start(&[]);
    let client = server.client();
    let mut connection = client.get_connection().unwrap();
    let id: i64 = redis::cmd("CLIENT")
        .arg("ID")
        .query(&mut connection)
        .unwrap();
    let mut admin = server.connection();
    let killed: i64 = redis::cmd("CLIENT")
        .arg("KILL")
        .arg("ID")
        .arg(id)
        .query(&mut admin)
        .unwrap();
    assert_eq!(killed, 1);
    let broken: RedisResult<()> = connection.set("k", "v");
    assert!(broken.is_err());
    let mut connection = client.get_connection().unwrap();
    let () = connection.set("k", "v").unwrap();
    assert_eq!(connection.get::<_, String>("k").unwrap(), "v");
}

#[test]
fn connections_of_a_pool_share_the_keyspace() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 300;
    let server = TestServer::start(&[]);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut connection = server.connection();
                for _ in 0..ROUNDS {
                    let _: i64 = connection.incr("count", 1).unwrap();
                }
            });
        }
    });
    let count: usize = server.connection().get("count").unwrap();
    assert_eq!(count, CLIENTS * ROUNDS);
}

#[test]
fn mget_sees_an_mset_whole_whichever_worker_runs_it() {
    let server = TestServer::start(&[]);
    let mut reader = server.connection();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut writer = server.connection();
                for number in 0..2000 {
                    let () = writer
                        .mset(&[("first", number), ("second", number)])
                        .unwrap();
                }
                let () = writer.incr("done", 1).unwrap();
            });
        }
        while reader.get::<_, Option<i64>>("done").unwrap() != Some(2) {
            let (first, second): (Option<i64>, Option<i64>) =
                reader.mget(&["first", "second"]).unwrap();
            assert_eq!(first, second);
        }
    });
}

/// Moves an amount from one account to another, again until nobody has interfered.
fn transfer(connection: &mut Connection, from: &str, to: &str, amount: i64) {
    let () = redis::transaction(connection, &[from, to], |connection, pipeline| {
        let (source, target): (i64, i64) = connection.mget(&[from, to])?;
        pipeline
            .set(from, source - amount)
            .ignore()
            .set(to, target + amount)
            .ignore()
            .query::<Option<()>>(connection)
    })
    .unwrap();
}

#[test]
fn transfers_keep_the_sum() {
    const ACCOUNTS: usize = 4;
    let seed = seed();
    let server = TestServer::start(&[]);
    let names: Vec<String> = (0..ACCOUNTS)
        .map(|number| format!("account:{number}"))
        .collect();
    let mut connection = server.connection();
    for name in &names {
        let () = connection.set(name, 100).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (server, names) = (&server, &names);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed ^ thread);
                let mut connection = server.connection();
                for _ in 0..200 {
                    let from = random.usize(..ACCOUNTS);
                    let to = (from + random.usize(1..ACCOUNTS)) % ACCOUNTS;
                    let amount = random.i64(0..10);
                    transfer(&mut connection, &names[from], &names[to], amount);
                    let balances: Vec<i64> = connection.mget(names.as_slice()).unwrap();
                    assert_eq!(balances.iter().sum::<i64>(), 100 * ACCOUNTS as i64);
                }
            });
        }
    });
    assert!(connection.check_connection());
}
