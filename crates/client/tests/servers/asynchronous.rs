//! The asynchronous client: the same promises.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pando_client::{AsyncClient, Error, Options, RingError, redis};

use crate::harness::{Act, Pando, Scripted, keys_of_all, options, ring};

#[tokio::test]
async fn tasks_share_a_client() {
    let servers: Vec<Pando> = (0..3).map(|_| Pando::start()).collect();
    let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
    let client = AsyncClient::new(ring(&addresses), options());
    let write = |task: usize| {
        let client = client.clone();
        async move {
            let pairs: Vec<_> = (0..500)
                .map(|n| (format!("task{task}:{n}"), format!("{n}")))
                .collect();
            let keys: Vec<_> = pairs.iter().map(|(key, _)| key).collect();
            let set = client.set_many(&pairs).await;
            assert!(
                set.iter().all(Result::is_ok),
                "{:?}",
                set.iter().find(|set| set.is_err())
            );
            for ((_, value), got) in pairs.iter().zip(client.get_many(&keys).await) {
                assert_eq!(got.unwrap().as_deref(), Some(value.as_bytes()));
            }
        }
    };
    tokio::join!(write(0), write(1), write(2));
    let sizes = client.on_each_node::<usize>(&redis::cmd("DBSIZE")).await;
    let sizes: Vec<usize> = sizes.into_iter().map(Result::unwrap).collect();
    assert_eq!(sizes.iter().sum::<usize>(), 1_500);
    // One connection to each, however many asked for it at once.
    for clients in client
        .on_each_node::<String>(redis::cmd("CLIENT").arg("LIST"))
        .await
    {
        assert_eq!(clients.unwrap().lines().count(), 1);
    }
    let gone = client.delete_many(&["task0:0", "nobody"]).await;
    let gone: Vec<bool> = gone.into_iter().map(Result::unwrap).collect();
    assert_eq!(gone, [true, false]);
    let error = client.readdress(ring(&addresses[..2])).unwrap_err();
    assert!(matches!(error, RingError::Moves), "{error}");
}

#[tokio::test]
async fn a_node_that_is_away_fails_its_own_keys() {
    let mut servers: Vec<Pando> = (0..2).map(|_| Pando::start()).collect();
    let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
    let ring = ring(&addresses);
    let keys = keys_of_all(&ring);
    let client = AsyncClient::new(Arc::clone(&ring), options());
    for key in &keys {
        client.set(key, "here").await.unwrap();
    }
    let port = servers.remove(1).address.port();
    let error = client.set(&keys[1], "there").await.unwrap_err();
    assert!(error.is_of_node() && error.may_have_executed(), "{error}");
    loop {
        let got = client.get_many(&keys).await;
        assert_eq!(got[0].as_ref().unwrap().as_deref(), Some(&b"here"[..]));
        let error = got[1].as_ref().unwrap_err();
        assert!(error.is_of_node() && !error.may_have_executed(), "{error}");
        if matches!(error, Error::Resting { .. }) {
            break;
        }
    }
    let _server = Pando::start_at(port);
    while let Err(error) = client.set(&keys[1], "back").await {
        assert!(matches!(error, Error::Resting { .. }), "{error}");
    }
    assert_eq!(
        client.get(&keys[1]).await.unwrap().as_deref(),
        Some(&b"back"[..])
    );
}

#[tokio::test]
async fn a_read_survives_the_restart_of_its_server() {
    let server = Pando::start();
    let port = server.address.port();
    let client = AsyncClient::new(ring(&[server.address]), options());
    client.set("key", "value").await.unwrap();
    drop(server);
    let _server = Pando::start_at(port);
    assert_eq!(client.get("key").await.unwrap(), None);
}

#[tokio::test]
async fn a_write_is_never_sent_twice() {
    for cut in [&b""[..], b"+O", b"HTTP/1.1 400\r\n"] {
        for served in 0..2 {
            let calls = AtomicUsize::new(0);
            let server = Scripted::start(move |_| {
                if calls.fetch_add(1, Ordering::SeqCst) < served {
                    Act::Reply(b"+OK\r\n")
                } else {
                    Act::Cut(cut)
                }
            });
            let client = AsyncClient::new(ring(&[server.address]), options());
            for _ in 0..served {
                client.set("key", "value").await.unwrap();
            }
            let error = client.set("key", "value").await.unwrap_err();
            assert!(error.is_of_node() && error.may_have_executed(), "{error}");
            assert_eq!(server.requests(), served + 1);
        }
    }
}

#[tokio::test]
async fn a_read_is_sent_again_where_a_link_broke() {
    let calls = AtomicUsize::new(0);
    let server = Scripted::start(move |_| match calls.fetch_add(1, Ordering::SeqCst) {
        1 => Act::Cut(b"$5\r\nval"),
        _ => Act::Reply(b"$5\r\nvalue\r\n"),
    });
    let client = AsyncClient::new(ring(&[server.address]), options());
    for _ in 0..3 {
        let got = client.get("key").await.unwrap();
        assert_eq!(got.as_deref(), Some(&b"value"[..]));
    }
    assert_eq!(server.requests(), 4);
}

#[tokio::test]
async fn a_server_that_stalls_is_left_alone_for_a_while() {
    let server = Scripted::start(|_| Act::Stall);
    let options = Options {
        response_timeout: Duration::from_millis(300),
        ..options()
    };
    let client = AsyncClient::new(ring(&[server.address]), options);
    assert!(client.get("key").await.unwrap_err().is_of_node());
    loop {
        let before = server.requests();
        if let Error::Resting { .. } = client.get("key").await.unwrap_err() {
            assert_eq!(server.requests(), before);
            break;
        }
    }
}
