//! The load generator against servers of a few lines.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;

use clap::Parser;

use super::*;
use pando_protocol::RespVersion;

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    options: Options,
}

fn options(server: SocketAddr, more: &[&str]) -> Options {
    let server = server.to_string();
    let line = [
        "load",
        &server,
        "--connections",
        "2",
        "--keys",
        "10",
        "--reads",
        "50",
    ];
    CommandLine::parse_from(line.iter().chain(more)).options
}

/// Answers GET and SET from a map; every `lie`th GET gets a wrong value.
fn serve(lie: usize) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || answer(stream.unwrap(), lie));
        }
    });
    address
}

fn answer(mut stream: std::net::TcpStream, lie: usize) {
    let mut map = HashMap::new();
    let mut decoder = pando_protocol::resp::Decoder::default();
    let (mut input, mut buffer, mut gets) = (Vec::new(), [0; 4096], 0);
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        input.extend_from_slice(&buffer[..count]);
        let (mut from, mut output) = (0, Vec::new());
        let rest = loop {
            let mut ranges = Vec::new();
            match decoder.next(&mut input, from, &mut ranges).unwrap() {
                pando_protocol::resp::Decoded::Incomplete { start, .. } => break start,
                pando_protocol::resp::Decoded::Request { end, .. } => from = end,
            }
            let request = pando_protocol::Request::new(&input, &ranges);
            let mut reply = pando_protocol::Reply::new(&mut output, RespVersion::Resp2);
            if request.is(0, "SET") {
                map.insert(request.arg(1).to_vec(), request.arg(2).to_vec());
                reply.ok();
                continue;
            }
            gets += 1;
            match map.get(request.arg(1)) {
                Some(value) if gets % lie == 0 => reply.bulk(vec![0xee; value.len()]),
                Some(value) => reply.bulk(value),
                None => reply.null(),
            }
        };
        input.drain(..rest);
        stream.write_all(&output).unwrap();
    }
}

fn run(server: SocketAddr, more: &[&str]) -> Result<Histogram<u64>, LoadError> {
    let options = options(server, more);
    let mut worker = Worker::connect(&options, server, 0, 1)?;
    worker.run(Duration::from_millis(200))
}

#[test]
fn right_replies_pass_the_verification() {
    let latency = run(serve(usize::MAX), &["--verify", "--pipeline", "8"]).unwrap();
    assert!(latency.len() > 100);
}

#[test]
fn a_planted_wrong_reply_is_found() {
    let result = run(serve(100), &["--verify", "--pipeline", "8"]);
    assert!(
        matches!(result, Err(LoadError::WrongReply { .. })),
        "{result:?}"
    );
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let latency = run(serve(usize::MAX), &["--rate", "1000"]).unwrap();
    assert!(
        (100..=260).contains(&latency.len()),
        "{} requests in 0.2 s",
        latency.len()
    );
}

#[test]
fn a_dead_server_is_named() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = run(address, &[]).unwrap_err().to_string();
    assert!(error.contains(&address.to_string()), "{error}");
}

#[test]
fn other_hosts_are_refused() {
    let options = options("192.0.2.1:6379".parse().unwrap(), &[]);
    assert!(matches!(
        super::super::run(&options),
        Err(LoadError::NotLoopback(_))
    ));
}
