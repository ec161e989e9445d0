//! Servers to talk to: Pando's own, and one that does as it is told.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use pando_client::{Address, Node, Options, Ring, Scheme};
use pando_db::Durability;
use pando_server::config::Config;
use pando_server::{Server, ServiceManager};

/// A server of Pando's, in this process.
pub(crate) struct Pando {
    _server: Server,
    pub(crate) address: SocketAddr,
}

impl Pando {
    pub(crate) fn start() -> Self {
        Self::start_at(0)
    }

    pub(crate) fn start_at(port: u16) -> Self {
        Self::start_with(Config {
            port: Some(port),
            ..Config::default()
        })
    }

    pub(crate) fn start_with(config: Config) -> Self {
        let config = Config {
            port: config.port.or(Some(0)),
            threads: 1,
            durability: Durability::None,
            ..config
        };
        let manager = Arc::new(ServiceManager::at(None));
        let server = Server::start(config, || 0, None, &manager).expect("the server starts");
        Self {
            address: server.shared().listening().tcp[0],
            _server: server,
        }
    }
}

/// What a scripted server does with a request.
pub(crate) enum Act {
    /// Sends this.
    Reply(&'static [u8]),
    /// Sends this and closes the connection.
    Cut(&'static [u8]),
    /// Sends nothing, ever.
    Stall,
}

type Script = Box<dyn Fn(&[Vec<u8>]) -> Act + Send + Sync>;

/// A server that does as it is told. It answers `CLIENT` by itself.
pub(crate) struct Scripted {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

struct State {
    script: Script,
    requests: AtomicUsize,
    stopping: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Scripted {
    pub(crate) fn start(script: impl Fn(&[Vec<u8>]) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State {
            script: Box::new(script),
            requests: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            streams: Mutex::default(),
        });
        let accepting = Arc::clone(&state);
        let accept = move || {
            let mut threads = Vec::new();
            for stream in listener.incoming().map_while(Result::ok) {
                if accepting.stopping.load(Ordering::SeqCst) {
                    break;
                }
                let kept = stream.try_clone().expect("a stream");
                accepting.streams.lock().expect("streams").push(kept);
                let state = Arc::clone(&accepting);
                threads.push(std::thread::spawn(move || serve(&state, &stream)));
            }
            for thread in threads {
                thread.join().expect("a connection's thread");
            }
        };
        let thread = Some(std::thread::spawn(accept));
        Self {
            address,
            state,
            thread,
        }
    }

    /// How many requests have arrived.
    pub(crate) fn requests(&self) -> usize {
        self.state.requests.load(Ordering::SeqCst)
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.state.stopping.store(true, Ordering::SeqCst);
        // Wakes the listener.
        drop(TcpStream::connect(self.address));
        for stream in self.state.streams.lock().expect("streams").drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        self.thread.take().map(JoinHandle::join);
    }
}

/// Serves one connection until either side has had enough.
fn serve(state: &State, stream: &TcpStream) {
    let mut input = BufReader::new(stream);
    let mut output = stream;
    while let Some(request) = read_request(&mut input) {
        let act = if request[0] == b"CLIENT" {
            Act::Reply(b"+OK\r\n")
        } else {
            state.requests.fetch_add(1, Ordering::SeqCst);
            (state.script)(&request)
        };
        let (reply, cut) = match act {
            Act::Reply(reply) => (reply, false),
            Act::Cut(reply) => (reply, true),
            Act::Stall => (&b""[..], false),
        };
        if output.write_all(reply).is_err() || cut {
            break;
        }
    }
    let _ = stream.shutdown(std::net::Shutdown::Both);
}

fn read_request(input: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
    let number = |input: &mut dyn BufRead| {
        let mut line = String::new();
        input.read_line(&mut line).ok()?;
        line.get(1..)?.trim().parse::<usize>().ok()
    };
    let count = number(input)?;
    let mut words = Vec::new();
    for _ in 0..count {
        let mut word = vec![0; number(input)? + 2];
        input.read_exact(&mut word).ok()?;
        word.truncate(word.len() - 2);
        words.push(word);
    }
    Some(words)
}

pub(crate) fn at(address: SocketAddr) -> Address {
    Address::Tcp(address.ip().to_string(), address.port())
}

/// A ring of nodes `node0`, `node1`, … at these addresses.
pub(crate) fn ring(addresses: &[SocketAddr]) -> Arc<Ring> {
    let nodes = addresses
        .iter()
        .enumerate()
        .map(|(index, &address)| Node::new(&format!("node{index}"), at(address)))
        .collect();
    Arc::new(Ring::new(Scheme::Rendezvous, nodes).expect("a ring"))
}

/// Impatient, so that tests of servers that stall are quick.
pub(crate) fn options() -> Options {
    Options {
        connect_timeout: Duration::from_secs(5),
        response_timeout: Duration::from_secs(5),
        ..Options::default()
    }
}

/// A key of each node.
pub(crate) fn keys_of_all(ring: &Ring) -> Vec<String> {
    let key = |node: usize| {
        (0..100_000)
            .map(|n| format!("key{n}"))
            .find(|key| ring.index_of(key.as_bytes()) == node)
            .expect("each node has keys")
    };
    (0..ring.nodes().len()).map(key).collect()
}
