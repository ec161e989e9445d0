//! Pipelines of several clients on the same collections, which the server carries out together.

use crate::harness::{TestServer, Wire, request};

const CLIENTS: usize = 8;
const REQUESTS: usize = 60;

/// Sends a pipeline of each client before any reply is read.
fn send_all(wires: &mut [Wire], of: impl Fn(usize, usize) -> Vec<u8>) {
    for (client, wire) in wires.iter_mut().enumerate() {
        let pipeline: Vec<u8> = (0..REQUESTS).flat_map(|index| of(client, index)).collect();
        wire.send(pipeline);
    }
}

fn number(wire: &mut Wire) -> usize {
    let line = wire.line();
    line.strip_prefix(':')
        .expect("an integer")
        .parse()
        .expect("an integer")
}

fn bulk(wire: &mut Wire) -> String {
    assert!(wire.line().starts_with('$'));
    wire.line()
}

/// Every reply is that of its own request (JU1 as-if-alone, JW1 answered-once).
fn everybody_gets_their_own_answers(flags: &[&str]) {
    let server = TestServer::start(&[&["--threads", "1"], flags].concat());
    let mut wires: Vec<Wire> = (0..CLIENTS).map(|_| server.connect()).collect();
    let mut monitor = server.connect();
    monitor.send("MONITOR\r\n");
    monitor.expect("+OK\r\n");
    let element = |client: usize, index: usize| format!("{client}-{index}");
    send_all(&mut wires, |client, index| match index {
        // Something else now and then.
        7 => request(&[b"PING"]),
        23 => request(&[b"SADD", b"list", b"x"]),
        _ => request(&[b"RPUSH", b"list", element(client, index).as_bytes()]),
    });
    let pushed = CLIENTS * (REQUESTS - 2);
    let mut expected = vec![String::new(); pushed];
    for (client, wire) in wires.iter_mut().enumerate() {
        let mut last = 0;
        for index in 0..REQUESTS {
            match index {
                7 => wire.expect("+PONG\r\n"),
                23 => assert!(wire.line().starts_with("-WRONGTYPE"), "{client}"),
                _ => {
                    let length = number(wire);
                    assert!(length > last, "{client} {index}: {length} after {last}");
                    last = length;
                    let place = &mut expected[length - 1];
                    assert!(place.is_empty(), "{length} was answered twice");
                    *place = element(client, index);
                }
            }
        }
    }
    let shown = (0..CLIENTS * REQUESTS).filter(|_| monitor.line().contains("\"RPUSH\""));
    assert_eq!(shown.count(), pushed);
    let mut admin = server.connect();
    let counts = admin.ask_any(&["INFO", "commandstats"]);
    let line = format!("cmdstat_rpush:calls={pushed},");
    assert!(counts.contains(&line), "{counts}");
    for (index, element) in expected.iter().enumerate() {
        let reply = format!("${}\r\n{element}\r\n", element.len());
        admin.ask(&["LINDEX", "list", &index.to_string()], &reply);
    }
    // Everything is popped, in order, by one of them.
    send_all(&mut wires, |_, _| request(&[b"LPOP", b"list"]));
    let mut popped = Vec::new();
    for wire in &mut wires {
        let mut last = None;
        for _ in 0..REQUESTS {
            // The last two of each find nothing, or those of another.
            let header = wire.line();
            if header == "$-1" {
                continue;
            }
            let element = wire.line();
            let place = expected.iter().position(|it| *it == element);
            assert!(place > last, "{element} comes too late");
            last = place;
            popped.push(element);
        }
    }
    popped.sort();
    expected.sort();
    assert_eq!(popped, expected);
    admin.ask(&["EXISTS", "list"], ":0\r\n");
    each_takes_another_member(&mut admin, &mut wires);
}

fn each_takes_another_member(admin: &mut Wire, wires: &mut [Wire]) {
    let all: Vec<String> = (0..500).map(|member| member.to_string()).collect();
    for member in &all {
        admin.ask(&["ZADD", "set", member, member], ":1\r\n");
    }
    send_all(wires, |_, _| request(&[b"ZPOPMIN", b"set"]));
    let mut taken: Vec<String> = Vec::new();
    for wire in wires {
        for _ in 0..REQUESTS {
            assert_eq!(wire.line(), "*2");
            let (member, score) = (bulk(wire), bulk(wire));
            assert_eq!(member, score);
            taken.push(member);
        }
    }
    taken.sort();
    taken.dedup();
    assert_eq!(taken.len(), CLIENTS * REQUESTS);
    admin.ask(&["ZCARD", "set"], ":20\r\n");
}

#[test]
fn everybody_gets_their_own_answers_of_masstree() {
    everybody_gets_their_own_answers(&[]);
}

#[test]
fn everybody_gets_their_own_answers_of_mercury() {
    everybody_gets_their_own_answers(&["--engine", "mercury"]);
}

#[test]
fn everybody_gets_their_own_answers_of_minuet() {
    everybody_gets_their_own_answers(&["--engine", "minuet"]);
}
