//! The same random commands for this server and for Debian's memcached: the answers must be the
//! same, byte for byte, but for what [`compare`] and the list in `docs/MEMCACHED.md` name.
//!
//! The generator keeps away from that. A failure names its seed; `PANDO_DIFFERENTIAL_COMMANDS`
//! sets how many commands there are. Where memcached is not installed the test says so and passes.

mod compare;
mod generator;
#[path = "../peers/server.rs"]
mod server;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::process::Command;

use fastrand::Rng;

use self::compare::agree;
use self::generator::{Generator, Request, Token};
use self::server::{PATIENCE, Server};

impl Server {
    fn memcached() -> Option<Self> {
        Self::start(|port| {
            let mut command = Command::new("memcached");
            command.args([
                "-u",
                "nobody",
                "-l",
                "127.0.0.1",
                "-U",
                port,
                "-t",
                "1",
                "-p",
                port,
            ]);
            command
        })
    }

    fn pando(engine: &str) -> Self {
        let server = Self::start(|port| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
            command.args(["--port", "0", "--bind", "127.0.0.1", "--threads", "2"]);
            command.args(["--engine", engine, "--memcached-port", port]);
            command.args(["--durability", "none", "--memcached-udp-port", port]);
            command
        });
        server.expect("the binary under test starts")
    }

    fn connect(&self) -> Connection {
        Connection(self.stream())
    }
}

struct Connection(TcpStream);

impl Connection {
    /// Sends requests and returns what is answered, with the answer to one more that marks the end.
    fn ask(&mut self, requests: &[u8]) -> Vec<u8> {
        self.0
            .write_all(&[requests, b"mg nobody's k Oend\r\n"].concat())
            .expect("the server reads");
        let mut answer = Vec::new();
        let mut buffer = vec![0; 64 * 1024];
        while !answer.ends_with(b"EN knobody's Oend\r\n") {
            let count = match self.0.read(&mut buffer) {
                // The test was stopped for a while, or frozen.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read.unwrap_or_else(|error| {
                    let (requests, answer) = (requests.escape_ascii(), answer.escape_ascii());
                    panic!("{error} after {answer} to {requests}");
                }),
            };
            assert!(count > 0, "closed after {}", requests.escape_ascii());
            answer.extend_from_slice(&buffer[..count]);
        }
        answer
    }

    /// The bytes of a request, for the tokens that this server has drawn.
    fn bytes_of(&mut self, request: &Request) -> Vec<u8> {
        let answer = self.ask(format!("gets {}\r\n", request.key).as_bytes());
        let line = answer
            .split(|byte| *byte == b'\r')
            .next()
            .unwrap_or_default();
        let word = line
            .split(|byte| *byte == b' ')
            .nth(4)
            .map(String::from_utf8_lossy);
        let current: u64 = word.map_or(5, |word| word.parse().expect("a token"));
        let token = match request.token {
            Token::Current => current,
            Token::Older => current - 1,
            Token::Newest => u64::MAX,
        };
        let token = token.to_string().into_bytes();
        let mut parts = request.text.split(|byte| *byte == b'@');
        let mut bytes = parts.next().unwrap_or_default().to_vec();
        for part in parts {
            bytes.extend_from_slice(&token);
            bytes.extend_from_slice(part);
        }
        bytes
    }
}

const ENGINES: [&str; 4] = ["masstree", "mercury", "cdds", "reference"];

fn commands() -> usize {
    let asked = std::env::var("PANDO_DIFFERENTIAL_COMMANDS");
    asked.map_or(6000, |count| count.parse().expect("a number of commands"))
}

/// What both count: the figures of `stats` about commands, but for those that the list names.
const COUNTED: [&str; 18] = [
    "cmd_get",
    "cmd_set",
    "cmd_flush",
    "cmd_touch",
    "get_hits",
    "get_misses",
    "delete_misses",
    "delete_hits",
    "incr_misses",
    "incr_hits",
    "decr_misses",
    "decr_hits",
    "cas_misses",
    "cas_hits",
    "cas_badval",
    "touch_hits",
    "touch_misses",
    "store_too_large",
];

/// What [`COUNTED`] says since the last `stats reset`.
fn counted(connection: &mut Connection) -> Vec<(&'static str, u64)> {
    let answer = connection.ask(b"stats\r\n");
    let answer = String::from_utf8_lossy(&answer);
    let figure = |name: &'static str| {
        let mut lines = answer.lines();
        let prefix = format!("STAT {name} ");
        let value = lines.find_map(|line| line.strip_prefix(&prefix));
        (name, value.expect(name).parse().expect("a number"))
    };
    COUNTED.map(figure).to_vec()
}

/// Runs a seed; `pipelined` sends several requests at once.
fn run(ours: &Server, theirs: &Server, seed: u64, count: usize, pipelined: bool) {
    let mut rng = Rng::with_seed(seed);
    let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
    for connection in [&mut ours, &mut theirs] {
        connection.ask(b"flush_all\r\nstats reset\r\n");
    }
    let mut generator = Generator::new(&mut rng);
    let mut done = 0;
    while done < count {
        let together = if pipelined { 1 + done % 40 } else { 1 };
        let (mut ours_bytes, mut theirs_bytes) = (Vec::new(), Vec::new());
        for _ in 0..together {
            let mut request = generator.next();
            if pipelined {
                // What stands before it in the pipeline may change the token here only: listed.
                request.token = Token::Newest;
            }
            ours_bytes.extend(ours.bytes_of(&request));
            theirs_bytes.extend(theirs.bytes_of(&request));
        }
        let answers = (ours.ask(&ours_bytes), theirs.ask(&theirs_bytes));
        assert!(
            agree(&answers.0, &answers.1),
            "seed {seed}, command {done}: {}\nours:   {}\ntheirs: {}",
            ours_bytes.escape_ascii(),
            answers.0.escape_ascii(),
            answers.1.escape_ascii()
        );
        done += together;
        assert_eq!(
            counted(&mut ours),
            counted(&mut theirs),
            "ours and theirs after command {done} of seed {seed}: {}",
            ours_bytes.escape_ascii()
        );
    }
}

#[test]
fn answers_are_those_of_memcached() {
    let Some(theirs) = Server::memcached() else {
        println!("memcached is not installed: nothing was compared");
        return;
    };
    let version = theirs.connect().ask(b"version\r\n");
    println!("{}", version.escape_ascii());
    for engine in ENGINES {
        let ours = Server::pando(engine);
        let count = commands() / ENGINES.len();
        for seed in 0..4 {
            run(&ours, &theirs, seed, count / 4, false);
            run(&ours, &theirs, 100 + seed, count / 4, true);
        }
    }
}

/// Lines that the generator would hardly meet, one at a time.
#[test]
fn odd_lines_are_answered_alike() {
    let Some(theirs) = Server::memcached() else {
        println!("memcached is not installed: nothing was compared");
        return;
    };
    let ours = Server::pando("masstree");
    for lines in generator::odd_lines() {
        let (mut ours, mut theirs) = (ours.connect(), theirs.connect());
        let answers = (ours.ask(&lines), theirs.ask(&lines));
        assert!(
            agree(&answers.0, &answers.1),
            "{}\nours:   {}\ntheirs: {}",
            lines.escape_ascii(),
            answers.0.escape_ascii(),
            answers.1.escape_ascii()
        );
    }
}

/// Tokens of one key, kept by a client over whatever happens to the key: `@` is the one that was
/// told by the last `gets k`, requests behind a `/` come after it.
#[test]
fn kept_tokens_are_judged_alike() {
    let Some(theirs) = Server::memcached() else {
        println!("memcached is not installed: nothing was compared");
        return;
    };
    let dialogues = [
        "set k 0 0 1|a|/cas k 0 0 1 @|z|get k|",
        "set k 0 0 1|a|/set k 0 0 1|b|cas k 0 0 1 @|z|get k|",
        "set k 0 0 1|a|/delete k|set k 0 0 1|a|cas k 0 0 1 @|z|get k|",
        "set k 0 0 1|a|/flush_all|cas k 0 0 1 @|z|get k|",
        "flush_all|set k 0 0 1|a|/flush_all|set k 0 0 1|b|cas k 0 0 1 @|z|get k|",
        "flush_all|set k 0 0 1|a|/flush_all|set k 0 0 1|b|ms k 1 C@|z|get k|",
        "flush_all|set k 0 0 1|a|/flush_all|set k 0 0 1|b|md k C@|get k|",
        "flush_all|set k 0 0 1|1|/flush_all|set k 0 0 1|1|ma k C@ v|get k|",
        "set k 0 0 1|a|/set k 0 -1 1|b|set k 0 0 1|a|cas k 0 0 1 @|z|get k|",
        "set k 0 0 1|a|/set k 0 0 1|b|ms k 1 I C@|z|mg k v|mg k v|",
        "set k 0 0 1|a|/append k 0 0 1|b|md k C@ I|cas k 0 0 2 @|zz|mg k v|",
    ];
    for engine in ENGINES {
        let ours = Server::pando(engine);
        for dialogue in dialogues {
            let (before, after) = dialogue.split_once('/').expect("two parts");
            let answers = [&ours, &theirs].map(|server| {
                let mut wire = server.connect();
                wire.ask(before.replace('|', "\r\n").as_bytes());
                let request = Request {
                    text: after.replace('|', "\r\n").into_bytes(),
                    key: "k".into(),
                    token: Token::Current,
                };
                let bytes = wire.bytes_of(&request);
                wire.ask(&bytes).escape_ascii().to_string()
            });
            assert_eq!(answers[0], answers[1], "{dialogue} on {engine}");
        }
    }
}

/// What a server answers to this datagram, up to the answer to one that asks for a marker; without
/// the headers, which are checked.
fn datagrams(server: &Server, commands: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    socket
        .connect((Ipv4Addr::LOCALHOST, server.port))
        .expect("an address");
    socket
        .set_read_timeout(Some(PATIENCE))
        .expect("a socket option");
    for (id, commands) in [(0x0102_u16, commands), (0xfffe, b"mn\r\n")] {
        let header = [id.to_be_bytes(), [0, 0], [0, 1], [0, 0]].concat();
        let datagram = [&header, commands].concat();
        socket.send(&datagram).expect("it is sent");
    }
    let (mut answer, mut buffer, mut sequence) = (Vec::new(), [0; 2000], 0);
    loop {
        let bytes = match socket.recv(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            received => received.expect("an answer"),
        };
        let field = |at: usize| u16::from_be_bytes([buffer[at], buffer[at + 1]]);
        if field(0) == 0xfffe {
            return answer;
        }
        assert_eq!((field(0), field(2), field(6)), (0x0102, sequence, 0));
        assert!(bytes <= 1400);
        sequence = (sequence + 1) % field(4);
        answer.extend_from_slice(&buffer[8..bytes]);
    }
}

#[test]
fn datagrams_are_answered_alike() {
    let Some(theirs) = Server::memcached() else {
        println!("memcached is not installed: nothing was compared");
        return;
    };
    let ours = Server::pando("mercury");
    let long = "v".repeat(9000);
    for commands in [
        "set a 7 0 1|x|",
        "get a|",
        "gets none|",
        "get a none a|",
        "add a 0 0 1|x|",
        "incr a 1|",
        "set n 0 0 1 noreply|5|",
        "incr n 3|",
        "mg n v k|",
        "mg none v q|",
        "get n|get a|mn|",
        "touch a 0|",
        "delete a|",
        "delete a noreply|",
        &format!("set long 0 0 9000|{long}|"),
        "get long|",
        "get n long n|",
        "mg long v s|",
        "flush_all|",
        "get n|",
        "verbosity 1|",
        "get",
        "",
    ] {
        let bytes = commands.replace('|', "\r\n").into_bytes();
        let answers = (datagrams(&ours, &bytes), datagrams(&theirs, &bytes));
        let shown = |bytes: &[u8]| bytes.escape_ascii().to_string();
        assert_eq!(shown(&answers.0), shown(&answers.1), "{commands}");
    }
}
