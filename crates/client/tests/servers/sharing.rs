//! What several servers hold together.

use std::sync::Arc;

use pando_client::{
    Client, Error, Node, Options, ReadFrom, Request, Ring, RingError, Scheme, redis,
};

use crate::harness::{Pando, at, keys_of_all, options, ring};

#[test]
fn each_server_has_the_keys_of_its_node() {
    let servers: Vec<Pando> = (0..6).map(|_| Pando::start()).collect();
    let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
    let ring = ring(&addresses);
    let mut client = Client::new(Arc::clone(&ring), options());
    let pairs: Vec<_> = (0..3_000)
        .map(|n| (format!("user:{n}"), format!("value {n}")))
        .collect();
    for set in client.set_many(&pairs) {
        set.unwrap();
    }
    let mut expected = [0_u64; 6];
    for (key, _) in &pairs {
        expected[ring.index_of(key.as_bytes())] += 1;
    }
    let sizes: Vec<u64> = client
        .on_each_node(&redis::cmd("DBSIZE"))
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert_eq!(sizes, expected);
    // By another client, in another order.
    let mut other = Client::new(ring, options());
    let keys: Vec<_> = pairs.iter().rev().map(|(key, _)| key).collect();
    for ((_, value), got) in pairs.iter().rev().zip(other.get_many(&keys)) {
        assert_eq!(got.unwrap().as_deref(), Some(value.as_bytes()));
    }
    assert_eq!(other.get("nobody").unwrap(), None);
    assert!(other.delete("user:7").unwrap());
    let gone = client.delete_many(&["user:7", "user:8"]);
    let gone: Vec<bool> = gone.into_iter().map(Result::unwrap).collect();
    assert_eq!(gone, [false, true]);
}

#[test]
fn commands_on_one_tag_share_a_node() {
    let servers: Vec<Pando> = (0..3).map(|_| Pando::start()).collect();
    let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
    let mut client = Client::new(ring(&addresses), options());
    let mut set = redis::cmd("MSET");
    for n in 0..50 {
        set.arg(format!("{{cart}}:{n}")).arg(n);
    }
    let requests = [
        Request::write(set),
        Request::write(redis::cmd("INCRBY").arg("{cart}:1").arg(41).take()),
        Request::read(redis::cmd("MGET").arg("{cart}:1").arg("{cart}:49").take()),
    ];
    let [_, _, got] = client
        .query_many::<redis::Value>(&requests)
        .try_into()
        .expect("three replies");
    let got: (i64, i64) = redis::from_redis_value(got.unwrap()).unwrap();
    assert_eq!(got, (42, 49));
}

/// More than the sockets between them hold, both ways at once.
#[test]
fn a_large_batch_does_not_block_itself() {
    let server = Pando::start();
    let mut client = Client::new(ring(&[server.address]), options());
    let value = vec![b'x'; 4096];
    let pairs: Vec<_> = (0..4_000).map(|n| (format!("key{n}"), &value)).collect();
    assert!(client.set_many(&pairs).into_iter().all(|set| set.is_ok()));
    client.set("large", vec![b'y'; 8 << 20]).unwrap();
    let keys: Vec<_> = pairs.iter().map(|(key, _)| key).collect();
    for got in client.get_many(&keys) {
        assert_eq!(got.unwrap().as_ref(), Some(&value));
    }
    assert_eq!(client.get("large").unwrap().unwrap().len(), 8 << 20);
}

#[test]
fn a_wrong_type_is_a_failure_of_its_key() {
    let server = Pando::start();
    let mut client = Client::new(ring(&[server.address]), options());
    let hash = Request::write(redis::cmd("HSET").arg("hash").arg("f").arg("v").take());
    client.query::<()>(&hash).unwrap();
    client.set("string", "s").unwrap();
    let got = client.get_many(&["string", "hash", "string"]);
    assert_eq!(got[0].as_ref().unwrap(), got[2].as_ref().unwrap());
    let error = got[1].as_ref().unwrap_err();
    assert!(matches!(error, Error::Refusal { .. }), "{error}");
    assert!(
        !error.is_of_node() && error.to_string().contains("WRONGTYPE"),
        "{error}"
    );
    let length = Request::read(redis::cmd("GET").arg("string").take());
    let error = client.query::<i64>(&length).unwrap_err();
    assert!(
        matches!(error, Error::Type { .. }) && !error.is_of_node(),
        "{error}"
    );
}

#[test]
fn replicas_serve_reads_and_primaries_writes() {
    let [primary, first, second] = [Pando::start(), Pando::start(), Pando::start()];
    for (server, value) in [
        (&primary, "primary"),
        (&first, "first"),
        (&second, "second"),
    ] {
        let mut direct = Client::new(ring(&[server.address]), options());
        direct.set("who", value).unwrap();
    }
    let node = Node::new("node", at(primary.address))
        .with_replica(at(first.address))
        .with_replica(at(second.address));
    let ring = Arc::new(Ring::new(Scheme::Rendezvous, vec![node]).unwrap());
    let who = |client: &mut Client| {
        let value = client.get("who").unwrap().unwrap();
        String::from_utf8(value).unwrap()
    };
    let mut strict = Client::new(Arc::clone(&ring), options());
    assert_eq!(who(&mut strict), "primary");
    let mut client = Client::new(
        ring,
        Options {
            read_from: ReadFrom::Replicas,
            ..options()
        },
    );
    let mut seen = [who(&mut client), who(&mut client)];
    seen.sort_unstable();
    assert_eq!(seen, ["first", "second"]);
    client.set("who", "new").unwrap();
    assert_eq!(who(&mut strict), "new");
    assert_ne!(who(&mut client), "new");
    // One replica less, then none.
    drop(first);
    for _ in 0..4 {
        assert_eq!(who(&mut client), "second");
    }
    drop(second);
    for _ in 0..4 {
        assert_eq!(who(&mut client), "new");
    }
}

#[test]
fn a_node_moves_and_keeps_its_keys() {
    let servers: Vec<Pando> = (0..3).map(|_| Pando::start()).collect();
    let mut addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
    let before = ring(&addresses);
    let mut client = Client::new(Arc::clone(&before), options());
    let keys = keys_of_all(&before);
    for key in &keys {
        client.set(key, "old").unwrap();
    }
    let other = Pando::start();
    addresses[1] = other.address;
    let after = ring(&addresses);
    client.readdress(Arc::clone(&after)).unwrap();
    client.set(&keys[1], "new").unwrap();
    let mut fresh = Client::new(after, options());
    let got: Vec<_> = fresh
        .get_many(&keys)
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert_eq!(got, ["old", "new", "old"].map(|value| Some(value.into())));
    // A ring of other nodes is another ring.
    let error = client.readdress(ring(&addresses[..2])).unwrap_err();
    assert!(matches!(error, RingError::Moves), "{error}");
}
