//! Clients of a ring by which keys have moved, or are about to.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use pando_client::{Client, Error, Ring, redis};

use crate::harness::{Act, Pando, Scripted, options};

/// The text of a ring.
fn text(addresses: &[SocketAddr]) -> String {
    let node = |(index, address): (usize, &SocketAddr)| {
        format!("[[node]]\nname = 'node{index}'\naddress = '{address}'\n")
    };
    addresses.iter().enumerate().map(node).collect()
}

/// Two servers, of which the second has taken its keys from the first, with both rings.
fn moved() -> (Vec<Pando>, Arc<Ring>, Arc<Ring>) {
    let servers: Vec<Pando> = (0..2).map(|_| Pando::start()).collect();
    let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
    let (old, new) = (text(&addresses[..1]), text(&addresses));
    for (index, server) in servers.iter().enumerate() {
        let client = redis::Client::open(format!("redis://{}/", server.address)).unwrap();
        let mut connection = client.get_connection().unwrap();
        let mut begin = redis::cmd("RESHARD");
        begin.arg(&["BEGIN", "me", &format!("node{index}"), &old, &new]);
        begin.exec(&mut connection).unwrap();
        let mut all = redis::cmd("RESHARD");
        all.arg(&["SET", "me", "NEW"]);
        (0..pando_ring::limits::RANGES).for_each(|range| {
            all.arg(range);
        });
        all.exec(&mut connection).unwrap();
    }
    let ring = |text: &str| Arc::new(Ring::from_toml(text).unwrap());
    (servers, ring(&old), ring(&new))
}

#[test]
fn a_client_of_the_old_ring_follows_what_servers_say() {
    let (servers, old, new) = moved();
    let mut client = Client::new(old, options());
    let pairs: Vec<_> = (0..300)
        .map(|n| (format!("key{n}"), format!("{n}")))
        .collect();
    let keys: Vec<_> = pairs.iter().map(|(key, _)| key).collect();
    for set in client.set_many(&pairs) {
        set.unwrap();
    }
    for ((_, value), got) in pairs.iter().zip(client.get_many(&keys)) {
        assert_eq!(got.unwrap().as_deref(), Some(value.as_bytes()));
    }
    client.replace_ring(new);
    let sizes = client.on_each_node::<usize>(&redis::cmd("DBSIZE"));
    let sizes: Vec<usize> = sizes.into_iter().map(Result::unwrap).collect();
    assert!(sizes.iter().all(|size| *size > 100), "{sizes:?}");
    assert_eq!(sizes.iter().sum::<usize>(), 300);
    for ((_, value), got) in pairs.iter().zip(client.get_many(&keys)) {
        assert_eq!(got.unwrap().as_deref(), Some(value.as_bytes()));
    }
    drop(servers);
}

#[cfg(feature = "async")]
#[tokio::test]
async fn an_asynchronous_one_does_too() {
    let (servers, old, _) = moved();
    let client = pando_client::AsyncClient::new(old, options());
    for number in 0..100 {
        let key = format!("key{number}");
        client.set(&key, "here").await.unwrap();
        assert_eq!(
            client.get(&key).await.unwrap().as_deref(),
            Some(&b"here"[..])
        );
    }
    drop(servers);
}

#[test]
fn servers_that_name_each_other_for_ever_are_given_up() {
    let named: Arc<OnceLock<&'static [u8]>> = Arc::default();
    let script = Arc::clone(&named);
    let server = Scripted::start(move |_| Act::Reply(script.get().unwrap()));
    let reply = format!("-MOVED 7 {}\r\n", server.address);
    named.set(reply.leak().as_bytes()).unwrap();
    let ring = Ring::from_toml(&text(&[server.address])).unwrap();
    let mut client = Client::new(Arc::new(ring), options());
    let error = client.set("key", "value").unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert!(!error.may_have_executed());
    assert_eq!(server.requests(), pando_client::limits::REDIRECTS_MAX + 1);
}
