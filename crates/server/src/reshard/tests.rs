//! Movers that are killed at every kind of step, and movers that forget something: the first must
//! lose nothing, the others must be caught.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use pando_db::Durability;
use pando_protocol::Value;
use pando_ring::Ring;

use super::mover::{Fault, Plan};
use super::node::bulk;
use super::{Reshard, ReshardError};
use crate::peer::Peer;
use crate::{Config, Server, ServiceManager};

const PATIENCE: Duration = Duration::from_mins(1);

/// Two servers in this process, and rings of the first and of both.
struct Pair {
    _servers: [Server; 2],
    folder: PathBuf,
    rings: [Arc<Ring>; 2],
    addresses: [String; 2],
}

impl Pair {
    fn start() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("pando-reshard-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let start = || {
            let config = Config {
                port: Some(0),
                threads: 1,
                databases: 1,
                durability: Durability::None,
                ..Config::default()
            };
            let manager = Arc::new(ServiceManager::at(None));
            Server::start(config, || 0, None, &manager).expect("the server starts")
        };
        let servers = [start(), start()];
        let address = |server: &Server| server.shared().listening().tcp[0].to_string();
        let addresses = [address(&servers[0]), address(&servers[1])];
        let node = |name: &str, address: &str| {
            format!("[[node]]\nname = '{name}'\naddress = '{address}'\n")
        };
        let one = node("oak", &addresses[0]);
        let both = format!("{one}{}", node("ash", &addresses[1]));
        std::fs::write(folder.join("one"), &one).unwrap();
        std::fs::write(folder.join("both"), &both).unwrap();
        let ring = |text: &str| Arc::new(Ring::from_toml(text).unwrap());
        Self {
            _servers: servers,
            rings: [ring(&one), ring(&both)],
            folder,
            addresses,
        }
    }

    fn peer(&self, server: usize) -> Peer {
        Peer::connect(&self.addresses[server], PATIENCE, PATIENCE).unwrap()
    }

    fn plan(&self, fault: Fault) -> Plan {
        let reshard = Reshard {
            old: self.folder.join("one"),
            new: self.folder.join("both"),
            dry_run: false,
            rate: None,
        };
        let mut plan = Plan::new(&reshard, b"").unwrap();
        plan.fault = fault;
        plan
    }

    fn run(&self, fault: Fault) -> Result<(), ReshardError> {
        self.plan(fault).run()
    }

    /// A client of the old ring that raises numbers until it is told to stop. It sees to it that
    /// each number replaces the one before.
    fn writer(&self, stop: &Arc<AtomicBool>) -> JoinHandle<(Written, Option<String>)> {
        let mut peers = [self.peer(0), self.peer(1)];
        let stop = Arc::clone(stop);
        std::thread::spawn(move || {
            let (mut written, mut lost) = (Written::new(), None);
            let mut number = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                number += 1;
                let key = format!("key{}", number * 7919 % 500).into_bytes();
                let words: [&[u8]; 3] = [b"GETSET", &key, &number.to_string().into_bytes()];
                let mut at = 0;
                let before = loop {
                    match ask(&mut peers[at], &words) {
                        Ok(before) => break before,
                        Err(error) if error.starts_with("MOVED") => at = 1 - at,
                        Err(_) => {}
                    }
                    std::thread::yield_now();
                };
                let before = bulk(before);
                let expected = written.insert(key, number);
                let expected = expected.map(|number| number.to_string().into_bytes());
                if before != expected {
                    lost.get_or_insert(format!("{before:?} was there, not {expected:?}"));
                }
            }
            (written, lost)
        })
    }

    /// What is wrong behind a resharding: an acknowledged write that is not there, or a key that
    /// should not be.
    fn wrong(&self, written: &Written) -> Option<String> {
        for server in 0..2 {
            let mut peer = self.peer(server);
            let Ok(Value::Array(names)) = ask(&mut peer, &[b"KEYS", b"*"]) else {
                return Some("no names".to_owned());
            };
            for name in names {
                let Value::Bulk(key) = name else { continue };
                let text = String::from_utf8_lossy(&key).into_owned();
                if self.rings[1].index_of(&key) != server {
                    return Some(format!("{text} is left at {server}"));
                }
                if !written.contains_key(&key) {
                    return Some(format!("{text} is there again"));
                }
            }
        }
        let mut peers = [self.peer(0), self.peer(1)];
        written.iter().find_map(|(key, number)| {
            let found = ask(&mut peers[self.rings[1].index_of(key)], &[b"GET", key]);
            let expected = Value::Bulk(number.to_string().into_bytes());
            (found.as_ref() != Ok(&expected)).then(|| format!("{number} written, {found:?}"))
        })
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The last number of each key that was acknowledged.
type Written = HashMap<Vec<u8>, u64>;

fn ask(peer: &mut Peer, words: &[&[u8]]) -> Result<Value, String> {
    peer.send(words).unwrap();
    match peer.receive().unwrap() {
        Value::Error(text) => Err(String::from_utf8_lossy(&text).into_owned()),
        value => Ok(value),
    }
}

/// Moves keys while a client writes, with a fault, or with one kill before; what is wrong then.
fn moved_with(fault: Fault) -> Option<String> {
    let pair = Pair::start();
    let stop = Arc::new(AtomicBool::new(false));
    let writing = pair.writer(&stop);
    let mut ended = pair.run(fault);
    if let Fault::Killed(_) = fault {
        assert!(matches!(ended, Err(ReshardError::TakenOver)), "{ended:?}");
        ended = pair.run(Fault::None);
    }
    stop.store(true, Ordering::Relaxed);
    let (written, lost) = writing.join().unwrap();
    if let Err(error) = ended {
        return Some(error.to_string());
    }
    lost.or_else(|| pair.wrong(&written))
}

#[test]
fn a_mover_killed_at_any_kind_of_step_loses_nothing() {
    assert_eq!(moved_with(Fault::None), None);
    // The first two begin; then come the clearing, the copy, the following; then four for each
    // hand-over and the last fence at both servers.
    for steps in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 200, 514] {
        assert_eq!(moved_with(Fault::Killed(steps)), None, "{steps} steps");
    }
}

/// Whether a mover with a fault is caught before long: on a busy machine its client may write
/// nothing at the moments that matter.
fn is_caught(fault: Fault) -> bool {
    (0..10).any(|_| moved_with(fault).is_some())
}

#[test]
fn canary_a_mover_without_fences_is_caught() {
    assert!(is_caught(Fault::FenceForgotten), "writes behind the copy");
}

#[test]
fn canary_a_mover_that_forgets_the_last_changes_is_caught() {
    assert!(is_caught(Fault::LastForgotten), "writes before the fence");
}

#[test]
fn canary_a_mover_that_sweeps_early_is_refused() {
    let wrong = moved_with(Fault::SweptEarly).expect("it is refused");
    assert!(wrong.contains("served here"), "{wrong}");
}

#[test]
fn canary_a_mover_that_leaves_old_copies_is_caught() {
    for fault in [Fault::None, Fault::ClearForgotten] {
        let pair = Pair::start();
        let mut peer = pair.peer(0);
        let mut written = Written::new();
        for number in 0..500_u64 {
            let key = format!("key{number}").into_bytes();
            ask(&mut peer, &[b"SET", &key, number.to_string().as_bytes()]).unwrap();
            written.insert(key, number);
        }
        let killed = pair.run(Fault::Killed(6));
        assert!(matches!(killed, Err(ReshardError::TakenOver)), "{killed:?}");
        for number in 0..250 {
            let key = format!("key{number}").into_bytes();
            // It may be fenced, or have moved.
            if ask(&mut peer, &[b"DEL", &key]).is_ok() {
                written.remove(&key);
            }
        }
        pair.run(fault).unwrap();
        assert_eq!(pair.wrong(&written).is_some(), fault != Fault::None);
    }
}
