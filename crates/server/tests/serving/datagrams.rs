//! memcached over UDP: replies and their frames, what is not answered, and how much is.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::panic::catch_unwind;

use crate::harness::{PATIENCE, TestServer, run_to_end};

const UDP: &[&str] = &["--memcached-port", "0", "--memcached-udp-port", "0"];

fn start(flags: &[&str]) -> TestServer {
    TestServer::start(&[UDP, flags].concat())
}

/// A client of one worker's port.
pub(crate) struct Datagrams {
    socket: UdpSocket,
    id: u16,
}

impl Datagrams {
    pub(crate) fn connect(server: SocketAddr) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.connect(server).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { socket, id: 0xfe00 }
    }

    /// Sends a datagram as it is.
    pub(crate) fn send(&self, datagram: &[u8]) {
        self.socket.send(datagram).unwrap();
    }

    /// Sends commands under a header of their own; its id.
    pub(crate) fn request(&mut self, commands: &[u8]) -> u16 {
        self.id = self.id.wrapping_add(1);
        let header = [self.id.to_be_bytes(), [0, 0], [0, 1], [0, 0]].concat();
        self.send(&[&header, commands].concat());
        self.id
    }

    /// The next reply, which is this request's.
    #[track_caller]
    pub(crate) fn reply(&self, id: u16) -> String {
        let (mut whole, mut buffer, mut sequence) = (Vec::new(), [0; 2000], 0_u16);
        loop {
            let bytes = match self.socket.recv(&mut buffer) {
                // The test was stopped for a while, or frozen.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                received => received.expect("a reply"),
            };
            assert!(bytes > 8 && bytes <= 1400, "{bytes} bytes");
            let field = |at: usize| u16::from_be_bytes([buffer[at], buffer[at + 1]]);
            assert_eq!((field(0), field(2), field(6)), (id, sequence, 0));
            whole.extend_from_slice(&buffer[8..bytes]);
            sequence += 1;
            if sequence == field(4) {
                break;
            }
            assert_eq!(bytes, 1400, "only the last one is shorter");
        }
        String::from_utf8_lossy(&whole).replace("\r\n", "|")
    }

    /// Asks and expects, line ends as `|`.
    #[track_caller]
    pub(crate) fn ask(&mut self, commands: &str, reply: &str) {
        let id = self.request(commands.replace('|', "\r\n").as_bytes());
        assert_eq!(self.reply(id), reply, "{commands}");
    }

    /// Whether a datagram has come that was not read.
    pub(crate) fn has_input(&self) -> bool {
        self.socket.set_nonblocking(true).unwrap();
        let peeked = self.socket.peek(&mut [0]);
        self.socket.set_nonblocking(false).unwrap();
        peeked.is_ok()
    }

    /// Nothing that was sent before is answered: the next reply is that of this request.
    #[track_caller]
    pub(crate) fn expect_silence(&mut self) {
        self.ask("mn|", "MN|");
    }
}

#[test]
fn every_worker_answers_on_a_port_of_its_own() {
    let server = start(&["--threads", "3"]);
    let ports: Vec<u16> = server.memcached_udp.iter().map(SocketAddr::port).collect();
    assert_eq!(ports.len(), 3, "{}", server.banner);
    let mut wire = server.connect_memcached();
    wire.send("set k 7 0 1\r\nv\r\n");
    wire.expect("STORED\r\n");
    for address in &server.memcached_udp {
        let mut client = Datagrams::connect(*address);
        client.ask("get k|", "VALUE k 7 1|v|END|");
        client.ask("set k 7 0 1|v|", "STORED|");
        client.ask(
            "get k none k|mg k v|mn|",
            "VALUE k 7 1|v|VALUE k 7 1|v|END|VA 1|v|MN|",
        );
        client.ask(
            "version|",
            &format!("VERSION 1.6.44-pando-{}|", env!("CARGO_PKG_VERSION")),
        );
    }
    wire.send("stats settings\r\n");
    let port = format!("STAT udpport {}", ports[0]);
    while wire.line() != port {}
}

#[test]
fn ports_follow_each_other() {
    // Somebody else may have one of the ports, or be quicker to take it: then others are tried.
    let started = (0..50).find_map(|_| {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = socket.local_addr().unwrap().port().min(65_000);
        drop(socket);
        let start = || TestServer::start(&["--memcached-udp-port", &port.to_string()]);
        Some((catch_unwind(start).ok()?, port))
    });
    let (server, port) = started.expect("two free ports");
    let ports: Vec<u16> = server.memcached_udp.iter().map(SocketAddr::port).collect();
    assert_eq!(ports, [port, port + 1]);
}

#[test]
fn a_long_reply_is_several_datagrams() {
    let server = start(&[]);
    let mut client = Datagrams::connect(server.memcached_udp[0]);
    let (value, small) = ("v".repeat(20_000), "x");
    client.ask(&format!("set k 0 0 20000|{value}|"), "STORED|");
    client.ask(&format!("set a 0 0 1|{small}|"), "STORED|");
    let reply = format!("VALUE k 0 20000|{value}|END|");
    for _ in 0..20 {
        client.ask("get k|", &reply);
        client.ask("get a|", "VALUE a 0 1|x|END|");
    }
}

#[test]
fn what_is_no_request_is_not_answered() {
    let server = start(&["--threads", "1"]);
    let mut client = Datagrams::connect(server.memcached_udp[0]);
    client.ask("set k 0 0 1|v|", "STORED|");
    // Too short, not the first of one, without commands.
    for datagram in [
        &b""[..],
        b"\0",
        b"\0\x01\0\0\0\x01\0",
        b"\0\x01\0\0\0\x01\0\0",
        b"\0\x01\0\x01\0\x01\0\0get k\r\n",
        b"\0\x01\0\0\0\x02\0\0get k\r\n",
        b"\0\x01\0\x01\0\x02\0\0get k\r\n",
        b"\0\x01\0\0\0\0\0\0get k\r\n",
        b"\0\x01\0\0\xff\xff\0\0get k\r\n",
        b"get k\r\n",
    ] {
        client.send(datagram);
        client.expect_silence();
    }
    // Half a line, half an item, what others answer, noise, a line without an end.
    let long = "x".repeat(60_000);
    for commands in [
        "get k",
        "set k 0 0 100\r\nabc\r\n",
        "ERROR\r\n",
        "VALUE k 0 1\r\nget k\r\nEND\r\n",
        "STORED\r\n",
        "MN\r\n",
        "HD\r\n",
        "\r\n",
        "\0\0\0\r\n",
        "set k 0 0 1 noreply\r\nv\r\n",
        "mg none v q\r\n",
        &long,
    ] {
        client.request(commands.as_bytes());
        client.expect_silence();
    }
    client.ask(
        "set k 0 0 99999999|",
        "SERVER_ERROR object too large for cache|",
    );
    client.ask("set k 0 0 1|v|", "STORED|");
    // What stands before is answered, nothing of the rest is kept for the next datagram.
    client.ask("get k|get ", "VALUE k 0 1|v|END|");
    client.ask("mn|what|get k|", "MN|");
    client.request(b"quit\r\nget k\r\n");
    client.expect_silence();
}

/// A loopback peer gets what fits, else an error.
#[test]
fn a_reply_is_bounded() {
    let server = start(&["--threads", "1"]);
    let mut wire = server.connect_memcached();
    for (key, bytes) in [("big", 300_000), ("some", 40_000)] {
        wire.send(format!(
            "set {key} 0 0 {bytes}\r\n{}\r\n",
            "v".repeat(bytes)
        ));
        wire.expect("STORED\r\n");
    }
    let mut client = Datagrams::connect(server.memcached_udp[0]);
    let error = "SERVER_ERROR reply too large|";
    client.ask("get big|", error);
    client.ask("mg big v|", error);
    client.ask(
        "get some some some some some some some|set k 0 0 1|v|",
        &format!("{error}STORED|"),
    );
    let many = "get some".to_owned() + &" some".repeat(2000) + "|";
    client.ask(&many, error);
    client.ask("get k|", "VALUE k 0 1|v|END|");
    let before = server.resident_bytes();
    let many = "get big".to_owned() + &" big".repeat(12_000) + "|";
    client.ask(&many, error);
    assert!(server.resident_bytes() < before + 100_000_000);
}

#[test]
fn other_hosts_are_not_served_unless_somebody_says_how_much() {
    for (flags, expected) in [
        (
            ["--bind", "0.0.0.0", "--memcached-udp-port", "0"],
            "memcached-udp-reply-ratio",
        ),
        (
            ["--bind", "127.0.0.1", "--memcached-udp-port", "65535"],
            "memcached-udp-port",
        ),
    ] {
        let flags = [
            &["--port", "0", "--durability", "none", "--threads", "2"],
            &flags[..],
        ];
        let (status, said) = run_to_end(&flags.concat());
        assert!(!status.success() && said.contains(expected), "{said}");
    }
    // Off unless it is asked for; the loopback address alone of several.
    let server = TestServer::start(&["--memcached-port", "0"]);
    assert_eq!(server.memcached_udp, []);
    let flags = [
        "--bind",
        "0.0.0.0",
        "--threads",
        "1",
        "--memcached-udp-port",
        "0",
    ];
    let ratio = ["--memcached-udp-reply-ratio", "3"];
    let server = TestServer::start(&[&flags[..], &ratio].concat());
    let [address] = server.memcached_udp[..] else {
        panic!("{}", server.banner);
    };
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, address.port()));
    Datagrams::connect(here).expect_silence();
}

#[test]
fn a_password_is_asked_for_in_each_datagram() {
    let server = start(&["--requirepass", "secret", "--threads", "1"]);
    let mut client = Datagrams::connect(server.memcached_udp[0]);
    client.ask("get k|", "CLIENT_ERROR unauthenticated|");
    client.ask("set auth 0 0 14|default secret|get k|", "STORED|END|");
    client.ask("get k|", "CLIENT_ERROR unauthenticated|");
}

#[test]
fn nobody_waits_for_a_datagram() {
    let server = start(&["--threads", "1"]);
    let mut client = Datagrams::connect(server.memcached_udp[0]);
    let mut resp = server.connect();
    resp.ask(&["CLIENT", "PAUSE", "100000", "WRITE"], "+OK\r\n");
    client.ask("set k 0 0 1|v|get k|", "SERVER_ERROR the server pauses|");
    client.ask("get k|", "END|");
    resp.ask(&["CLIENT", "UNPAUSE"], "+OK\r\n");
    client.ask("set k 0 0 1|v|", "STORED|");
    // The server ends though it listens here.
    server.signal("TERM");
    assert!(server.wait().success());
}

/// Many clients at once, more datagrams than a turn reads: each gets its own replies.
#[test]
fn many_clients_get_their_own_replies() {
    let server = start(&[]);
    let addresses = server.memcached_udp.clone();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let addresses = &addresses;
            scope.spawn(move || {
                let mut client = Datagrams::connect(addresses[number % addresses.len()]);
                let value = "v".repeat(100 * number);
                for round in 0..50 {
                    let key = format!("k{number}:{round}");
                    let set = format!("set {key} 0 0 {}|{value}|", value.len());
                    client.ask(&set, "STORED|");
                    let ids: Vec<_> = (0..20)
                        .map(|_| client.request(format!("get {key}\r\n").as_bytes()))
                        .collect();
                    for id in ids {
                        let reply = format!("VALUE {key} 0 {}|{value}|END|", value.len());
                        assert_eq!(client.reply(id), reply);
                    }
                }
            });
        }
    });
}
