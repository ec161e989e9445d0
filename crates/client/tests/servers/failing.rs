//! Servers that fail, and what is known of the requests that they had.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pando_client::{Client, Error, Node, Options, ReadFrom, Request, Ring, Scheme, redis};
use pando_server::config::Config;

use crate::harness::{Act, Pando, Scripted, at, keys_of_all, options, ring};

#[test]
fn a_node_that_is_away_fails_its_own_keys() {
    let mut servers: Vec<Pando> = (0..3).map(|_| Pando::start()).collect();
    let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
    let ring = ring(&addresses);
    let keys = keys_of_all(&ring);
    let mut client = Client::new(Arc::clone(&ring), options());
    for key in &keys {
        client.set(key, "here").unwrap();
    }
    let port = servers.remove(1).address.port();
    // The connection broke under the first write: nobody knows. Then nothing is sent.
    let error = client.set(&keys[1], "there").unwrap_err();
    assert!(error.is_of_node() && error.may_have_executed(), "{error}");
    assert_eq!(error.node(), Some("node1"));
    for _ in 0..2 {
        let got = client.get_many(&keys);
        assert_eq!(got[0].as_ref().unwrap().as_deref(), Some(&b"here"[..]));
        assert_eq!(got[2].as_ref().unwrap().as_deref(), Some(&b"here"[..]));
        let error = got[1].as_ref().unwrap_err();
        assert!(error.is_of_node() && !error.may_have_executed(), "{error}");
    }
    // It is tried again ever more seldom.
    loop {
        let error = client.set(&keys[1], "there").unwrap_err();
        assert!(error.is_of_node() && !error.may_have_executed(), "{error}");
        if matches!(error, Error::Resting { .. }) {
            break;
        }
    }
    // It is back, and the back-off ends.
    let _server = Pando::start_at(port);
    while let Err(error) = client.set(&keys[1], "back") {
        assert!(matches!(error, Error::Resting { .. }), "{error}");
    }
    assert_eq!(client.get(&keys[1]).unwrap().as_deref(), Some(&b"back"[..]));
}

#[test]
fn a_read_survives_the_restart_of_its_server() {
    let server = Pando::start();
    let port = server.address.port();
    let mut client = Client::new(ring(&[server.address]), options());
    client.set("key", "value").unwrap();
    drop(server);
    let _server = Pando::start_at(port);
    assert_eq!(client.get("key").unwrap(), None);
}

/// A client of one scripted server.
fn scripted(script: impl Fn(&[Vec<u8>]) -> Act + Send + Sync + 'static) -> (Scripted, Client) {
    let server = Scripted::start(script);
    let client = Client::new(ring(&[server.address]), options());
    (server, client)
}

#[test]
fn a_write_is_never_sent_twice() {
    for cut in [&b""[..], b"+", b"+OK\r", b"$5\r\nval", b"*2\r\n+OK\r\n"] {
        // Over a connection that is new, and over one that has served before.
        for served in 0..2 {
            let calls = AtomicUsize::new(0);
            let (server, mut client) = scripted(move |_| {
                if calls.fetch_add(1, Ordering::SeqCst) < served {
                    Act::Reply(b"+OK\r\n")
                } else {
                    Act::Cut(cut)
                }
            });
            for _ in 0..served {
                client.set("key", "value").unwrap();
            }
            let error = client.set("key", "value").unwrap_err();
            assert!(error.is_of_node() && error.may_have_executed(), "{error}");
            assert_eq!(server.requests(), served + 1);
        }
    }
}

#[test]
fn requests_behind_a_cut_are_unknown_and_those_before_it_done() {
    let (_server, mut client) = scripted(|request| match &request[1][..] {
        b"key2" => Act::Cut(b"+O"),
        _ => Act::Reply(b"+OK\r\n"),
    });
    let pairs: Vec<_> = (0..5).map(|n| (format!("key{n}"), "value")).collect();
    let set = client.set_many(&pairs);
    assert!(set[..2].iter().all(Result::is_ok));
    for set in &set[2..] {
        assert!(set.as_ref().is_err_and(Error::may_have_executed), "{set:?}");
    }
}

#[test]
fn a_read_is_sent_again_where_a_connection_broke() {
    let calls = AtomicUsize::new(0);
    let (server, mut client) = scripted(move |_| {
        let call = calls.fetch_add(1, Ordering::SeqCst);
        // Once over a connection that has served before.
        if call == 1 {
            Act::Cut(b"$5\r\nval")
        } else {
            Act::Reply(b"$5\r\nvalue\r\n")
        }
    });
    for _ in 0..3 {
        assert_eq!(client.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    }
    assert_eq!(server.requests(), 4);
}

#[test]
fn a_server_that_cuts_every_connection_is_given_up() {
    let (server, mut client) = scripted(|_| Act::Cut(b""));
    assert!(client.get("key").unwrap_err().is_of_node());
    assert_eq!(server.requests(), 1);
}

#[test]
fn a_server_that_does_not_serve_is_told_from_a_key_that_fails() {
    for (reply, of_node) in [
        (&b"-LOADING Pando is loading\r\n"[..], true),
        (
            b"-READONLY You can't write against a read only replica.\r\n",
            true,
        ),
        (b"-MASTERDOWN Link with MASTER is down\r\n", true),
        (b"-MISCONF the disk is full\r\n", true),
        (
            b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
            true,
        ),
        (b"-NOAUTH Authentication required.\r\n", true),
        (b"-WRONGTYPE Operation against a key\r\n", false),
        (b"-ERR unknown command\r\n", false),
    ] {
        let (_server, mut client) = scripted(move |_| Act::Reply(reply));
        let error = client.set("key", "value").unwrap_err();
        assert_eq!(error.is_of_node(), of_node, "{error}");
        assert!(!error.may_have_executed(), "{error}");
        let text = std::str::from_utf8(reply).unwrap();
        let (_, said) = text.trim_end().split_once(' ').unwrap();
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[test]
fn a_server_that_is_no_redis_is_told() {
    let (_server, mut client) = scripted(|_| Act::Cut(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
    let error = client.get("key").unwrap_err();
    assert!(error.is_of_node(), "{error}");
}

#[test]
fn a_server_that_stalls_is_left_alone_for_a_while() {
    let server = Scripted::start(|_| Act::Stall);
    let sound = Pando::start();
    let ring = ring(&[server.address, sound.address]);
    let keys = keys_of_all(&ring);
    let options = Options {
        response_timeout: Duration::from_millis(300),
        ..options()
    };
    let mut client = Client::new(ring, options);
    let got = client.get_many(&keys);
    assert!(got[0].as_ref().is_err_and(Error::is_of_node), "{got:?}");
    assert!(got[1].is_ok(), "{got:?}");
    loop {
        let before = server.requests();
        if let Error::Resting { .. } = client.get(&keys[0]).unwrap_err() {
            assert_eq!(server.requests(), before);
            break;
        }
    }
}

#[test]
fn a_replica_that_does_not_serve_is_passed_over() {
    let replica = Scripted::start(|_| Act::Reply(b"-MASTERDOWN Link with MASTER is down\r\n"));
    let primary = Pando::start();
    let node = Node::new("node", at(primary.address)).with_replica(at(replica.address));
    let ring = Arc::new(Ring::new(Scheme::Rendezvous, vec![node]).unwrap());
    let options = Options {
        read_from: ReadFrom::Replicas,
        ..options()
    };
    let mut client = Client::new(ring, options);
    client.set("key", "value").unwrap();
    assert_eq!(client.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(replica.requests(), 1);
}

/// A server that reads the next request after it has sent its reply, as a single thread does.
#[test]
fn a_batch_waits_for_no_server_that_waits_for_it() {
    let reply = [&b"$100000\r\n"[..], &vec![b'x'; 100_000], b"\r\n"].concat();
    let reply: &'static [u8] = reply.leak();
    let server = Scripted::start(move |_| Act::Reply(reply));
    let options = Options {
        response_timeout: Duration::from_secs(2),
        ..options()
    };
    let mut client = Client::new(ring(&[server.address]), options);
    let keys: Vec<_> = (0..400)
        .map(|n| format!("{n}{}", "k".repeat(40_000)))
        .collect();
    for got in client.get_many(&keys) {
        assert_eq!(got.unwrap().unwrap().len(), 100_000);
    }
}

/// Reads that move on to a server whose own queue is sent in parts: none is lost.
#[test]
fn a_replica_that_is_away_loses_no_request() {
    let mut servers = [Pando::start(), Pando::start()];
    servers.sort_unstable_by_key(|server| server.address);
    let [replica, primary] = servers;
    let node = Node::new("node", at(primary.address)).with_replica(at(replica.address));
    drop(replica);
    let ring = Arc::new(Ring::new(Scheme::Rendezvous, vec![node]).unwrap());
    let options = Options {
        read_from: ReadFrom::Replicas,
        ..options()
    };
    let mut client = Client::new(ring, options);
    let value = "x".repeat(4096);
    let requests: Vec<Request> = (0..100)
        .flat_map(|n| {
            let set = redis::cmd("SET").arg(n).arg(&value).take();
            [
                Request::write(set),
                Request::read(redis::cmd("GET").arg(n).take()),
            ]
        })
        .collect();
    for reply in client.query_many::<redis::Value>(&requests) {
        reply.unwrap();
    }
}

#[test]
fn passwords_are_sent_and_their_refusal_is_of_the_node() {
    let server = Pando::start_with(Config {
        password: b"secret".to_vec(),
        ..Config::default()
    });
    let with = |password: Option<&str>| {
        let options = Options {
            password: password.map(Into::into),
            ..options()
        };
        Client::new(ring(&[server.address]), options).set("key", "value")
    };
    with(Some("secret")).unwrap();
    for wrong in [Some("guess"), None] {
        let error = with(wrong).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error:?}");
        assert!(!error.may_have_executed() && !format!("{error:?}").contains("guess"));
    }
}
