//! The load generator against servers of a few lines.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::thread;

use clap::{Parser, ValueEnum};

use super::*;
use crate::workload::WorkloadName;
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

/// How the server of these tests misbehaves.
#[derive(Clone, Copy, Default)]
struct Fault {
    /// Every so manieth read gets a wrong value.
    lie: Option<u64>,
    /// Every so manieth read gets a reply of the right shape in which one thing is wrong: a byte of
    /// a column, or the order of two keys.
    twist: Option<u64>,
    /// The read of this number is answered after so long, and all that follow it.
    stall: Option<(u64, Duration)>,
}

/// A row per key; a string is a row of one column without a name.
type Rows = Mutex<BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>>>;

/// Answers GET, SET, HSET, HGETALL and KRANGE.
fn serve(fault: Fault) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let state = Arc::new((Rows::default(), AtomicU64::new(0)));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let state = Arc::clone(&state);
            thread::spawn(move || answer(stream.unwrap(), &state.0, &state.1, fault));
        }
    });
    address
}

fn answer(mut stream: std::net::TcpStream, rows: &Rows, reads: &AtomicU64, fault: Fault) {
    let mut decoder = pando_protocol::resp::Decoder::default();
    let (mut input, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        input.extend_from_slice(&buffer[..count]);
        let (mut from, mut output) = (0, Vec::new());
        let rest = loop {
            let mut ranges = Vec::new();
            match decoder.next(&mut input, from, &mut ranges).unwrap() {
                pando_protocol::resp::Decoded::Incomplete { start, .. } => break start,
                pando_protocol::resp::Decoded::Request { end, .. }
                | pando_protocol::resp::Decoded::TooLong { end } => from = end,
            }
            let request = pando_protocol::Request::new(&input, &ranges);
            let mut reply = pando_protocol::Reply::new(&mut output, RespVersion::Resp2);
            execute(&request, &mut reply, rows, reads, fault);
        };
        input.drain(..rest);
        if stream.write_all(&output).is_err() {
            return;
        }
    }
}

fn execute(
    request: &pando_protocol::Request<'_>,
    reply: &mut pando_protocol::Reply<'_>,
    rows: &Rows,
    reads: &AtomicU64,
    fault: Fault,
) {
    let mut rows = rows.lock().unwrap();
    if request.is(0, "SET") {
        let row = BTreeMap::from([(Vec::new(), request.arg(2).to_vec())]);
        rows.insert(request.arg(1).to_vec(), row);
        return reply.ok();
    }
    if request.is(0, "HSET") {
        let row = rows.entry(request.arg(1).to_vec()).or_default();
        for at in (2..request.len()).step_by(2) {
            row.insert(request.arg(at).to_vec(), request.arg(at + 1).to_vec());
        }
        return reply.integer(1);
    }
    let number = reads.fetch_add(1, Ordering::Relaxed) + 1;
    let strikes = |every: Option<u64>| every.is_some_and(|every| number.is_multiple_of(every));
    let (lies, twists) = (strikes(fault.lie), strikes(fault.twist));
    if let Some((at, time)) = fault.stall
        && number == at
    {
        let start = Instant::now();
        while start.elapsed() < time {
            thread::yield_now();
        }
    }
    if request.is(0, "GET") {
        match rows.get(request.arg(1)).and_then(|row| row.get(&[][..])) {
            Some(value) if lies => reply.bulk(vec![0xee; value.len()]),
            Some(value) => reply.bulk(value),
            None => reply.null(),
        }
    } else if request.is(0, "HGETALL") {
        let empty = BTreeMap::new();
        let row = rows.get(request.arg(1)).unwrap_or(&empty);
        let skipped = usize::from(lies);
        reply.array(2 * row.len().saturating_sub(skipped));
        for (name, value) in row.iter().skip(skipped) {
            reply.bulk(name);
            reply.bulk(twisted(value, twists));
        }
    } else {
        let limit: usize = std::str::from_utf8(request.arg(4))
            .unwrap()
            .parse()
            .unwrap();
        let found = rows.range(request.arg(1)[1..].to_vec()..);
        let mut found: Vec<_> = found.take(limit).collect();
        if twists {
            found.reverse();
        }
        reply.array(2);
        reply.null();
        reply.array(if lies { 0 } else { 2 * found.len() });
        for (key, row) in found.iter().filter(|_| !lies) {
            reply.bulk(key);
            if request.len() > 5 {
                reply.array(1);
                reply.bulk(&row[request.arg(7)]);
                continue;
            }
            reply.array(2 * row.len());
            for (name, value) in *row {
                reply.bulk(name);
                reply.bulk(value);
            }
        }
    }
}

fn twisted(value: &[u8], twists: bool) -> Vec<u8> {
    let mut value = value.to_vec();
    value[0] ^= u8::from(twists);
    value
}

fn liar(every: u64) -> SocketAddr {
    serve(Fault {
        lie: Some(every),
        ..Fault::default()
    })
}

fn honest() -> SocketAddr {
    serve(Fault::default())
}

fn worker(options: &Options, server: SocketAddr) -> Result<Worker, LoadError> {
    let items = Arc::new(AtomicU64::new(options.keys));
    Worker::connect(options, server, &items, 0, 1)
}

/// Works for a fifth of a second.
fn run(server: SocketAddr, more: &[&str]) -> Result<Histogram<u64>, LoadError> {
    let outcome = worker(&options(server, more), server)?.run(Duration::from_millis(200));
    outcome.map(|outcome| outcome.latency)
}

/// Works until so many requests are answered, however slow the machine is.
fn run_requests(worker: &mut Worker, count: u64) -> Result<u64, LoadError> {
    let mut answered = 0;
    while answered < count {
        answered += worker.run(Duration::from_millis(10))?.latency.len();
    }
    Ok(answered)
}

#[test]
fn right_replies_pass_the_verification() {
    let server = honest();
    let options = options(server, &["--verify", "--pipeline", "8"]);
    run_requests(&mut worker(&options, server).unwrap(), 1000).unwrap();
}

#[test]
fn a_planted_wrong_reply_is_found() {
    let server = liar(100);
    let options = options(server, &["--verify", "--pipeline", "8"]);
    let result = run_requests(&mut worker(&options, server).unwrap(), 1000);
    assert!(
        matches!(result, Err(LoadError::WrongReply { .. })),
        "{result:?}"
    );
}

/// Fills the server and runs a workload on it for some hundred requests.
fn run_workload(server: SocketAddr, name: WorkloadName) -> Result<u64, LoadError> {
    let name = name.name();
    let options = options(server, &["--workload", &name, "--fill", "--pipeline", "4"]);
    fill(&options, server)?;
    run_requests(&mut worker(&options, server)?, 300)
}

#[test]
fn every_workload_runs() {
    let server = honest();
    for name in WorkloadName::value_variants() {
        run_workload(server, *name).unwrap_or_else(|error| panic!("{}: {error}", name.name()));
    }
}

#[test]
fn a_row_that_lacks_a_column_and_an_empty_range_are_found() {
    for name in [WorkloadName::YcsbB, WorkloadName::YcsbE] {
        let result = run_workload(liar(50), name);
        assert!(
            matches!(result, Err(LoadError::WrongReply { .. })),
            "{}: {result:?}",
            name.name()
        );
    }
}

/// The same with every reply checked against the model.
fn verify_workload(server: SocketAddr, name: WorkloadName) -> Result<u64, LoadError> {
    let name = name.name();
    let more = ["--workload", &name, "--fill", "--verify", "--pipeline", "4"];
    let options = options(server, &more);
    fill(&options, server)?;
    run_requests(&mut worker(&options, server)?, 600)
}

#[test]
fn right_rows_and_ranges_pass_the_verification() {
    for name in WorkloadName::value_variants() {
        let result = verify_workload(honest(), *name);
        result.unwrap_or_else(|error| panic!("{}: {error}", name.name()));
    }
}

#[test]
fn a_changed_column_and_a_range_out_of_order_are_found() {
    let twist = || {
        serve(Fault {
            twist: Some(20),
            ..Fault::default()
        })
    };
    for name in [
        WorkloadName::MycsbA,
        WorkloadName::YcsbF,
        WorkloadName::MycsbE,
        WorkloadName::YcsbE,
    ] {
        let result = verify_workload(twist(), name);
        assert!(
            matches!(result, Err(LoadError::WrongReply { .. })),
            "{}: {result:?}",
            name.name()
        );
        // The shape is right: only the model can tell.
        run_workload(twist(), name).unwrap();
    }
}

#[test]
fn a_server_that_hangs_up_is_named() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            // What was sent is read, so that the end is an end and no reset.
            let _ = stream.unwrap().read(&mut [0; 4096]);
        }
    });
    let error = run(address, &[]).unwrap_err().to_string();
    assert!(error.contains(&address.to_string()), "{error}");
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let took = || {
        let start = Instant::now();
        let latency = run(honest(), &["--rate", "1000"]).unwrap();
        // One request each millisecond, from the first millisecond on, before the 200th.
        assert_eq!(latency.len(), 199);
        start.elapsed()
    };
    // Replies that are there already are not awaited: that would take ten seconds, each time.
    assert!((0..3).any(|_| took() < Duration::from_secs(9)));
}

#[test]
fn a_stall_is_charged_for_the_requests_that_waited() {
    let stall = Duration::from_millis(60);
    let server = serve(Fault {
        stall: Some((50, stall)),
        ..Fault::default()
    });
    let open = run(server, &["--rate", "1000"]).unwrap();
    // Requests fell due each millisecond of the stall and waited for its end: about half of them
    // longer than half of it. A closed loop would have seen one slow reply per connection.
    let slow = open.len() - open.count_between(0, stall.as_micros() as u64 / 2);
    assert!(slow >= 20, "{slow} slow requests");
    assert_eq!(open.len(), 199);
}

#[test]
fn what_a_stall_has_held_up_is_sent_as_soon_as_there_is_room() {
    let most_us = || {
        let server = serve(Fault {
            stall: Some((50, Duration::from_millis(60))),
            ..Fault::default()
        });
        let options = options(server, &["--rate", "1000"]);
        let mut worker = worker(&options, server).unwrap();
        let outcome = worker.run(Duration::from_millis(800)).unwrap();
        outcome.latency.max()
    };
    // Not at the end of the run, which is 690 ms after the stall, each time. A machine that is busy
    // may add stalls of its own now and then.
    let runs: Vec<u64> = (0..5)
        .map(|_| most_us())
        .take_while(|most| *most >= 400_000)
        .collect();
    assert!(runs.len() < 5, "{runs:?} µs");
}

#[test]
fn latencies_have_three_digits() {
    let mut histogram = latencies().unwrap();
    for millis in 1..=100_000 {
        histogram.saturating_record(millis * 1000);
    }
    for quantile in [0.01, 0.5, 0.9, 0.99, 0.999, 1.0] {
        let (got, exact) = (histogram.value_at_quantile(quantile) as f64, quantile * 1e8);
        assert!((got / exact - 1.0).abs() <= 0.001, "{got} for {exact}");
    }
}

#[test]
fn histograms_are_accurate_from_a_microsecond_to_an_hour_and_add_up() {
    let (mut one, mut other) = (latencies().unwrap(), latencies().unwrap());
    let mut exact = Vec::new();
    // Thirty values in each power of two, so that no scale is left out.
    for power in 0..31 {
        for part in 0..30_u64 {
            let micros = (1_u64 << power) + ((1_u64 << power) * part) / 30;
            let histogram = if part % 2 == 0 { &mut one } else { &mut other };
            histogram.record(micros).unwrap();
            exact.push(micros);
        }
    }
    one.add(&other).unwrap();
    assert_eq!(one.len() as usize, exact.len());
    for (index, micros) in exact.iter().enumerate() {
        let quantile = (index as f64 + 0.5) / exact.len() as f64;
        let got = one.value_at_quantile(quantile) as f64;
        let error = (got / *micros as f64 - 1.0).abs();
        assert!(error <= 0.001, "{got} for {micros} µs at {quantile}");
    }
    // Beyond an hour is an hour, not an error.
    one.saturating_record(u64::MAX);
    assert!(one.max() >= 3_600_000_000);
}

#[test]
fn a_rate_must_be_a_rate() {
    for rate in ["0", "-5", "NaN", "inf"] {
        let options = options(honest(), &[&format!("--rate={rate}")]);
        assert!(matches!(super::super::run(&options), Err(LoadError::Rate)));
    }
}

#[test]
fn a_dead_server_is_named() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = run(address, &[]).unwrap_err().to_string();
    assert!(error.contains(&address.to_string()), "{error}");
}

/// A memcached of two commands; every so manieth read gets a wrong value.
fn serve_memcached(lie: Option<u64>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let map: Arc<Mutex<BTreeMap<Vec<u8>, Vec<u8>>>> = Arc::default();
    let reads = Arc::new(AtomicU64::new(0));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, map, reads) = (stream.unwrap(), Arc::clone(&map), Arc::clone(&reads));
            let lies = move || {
                let number = reads.fetch_add(1, Ordering::Relaxed) + 1;
                lie.is_some_and(|every| number.is_multiple_of(every))
            };
            thread::spawn(move || answer_memcached(stream, &map, lies));
        }
    });
    address
}

fn answer_memcached(
    stream: std::net::TcpStream,
    map: &Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    lies: impl Fn() -> bool,
) {
    use std::io::{BufRead, BufReader};
    // A reply per write would wait for the client's delayed acknowledgements.
    stream.set_nodelay(true).unwrap();
    let mut output = stream.try_clone().unwrap();
    let mut input = BufReader::new(stream);
    let mut line = String::new();
    while input.read_line(&mut line).is_ok_and(|count| count > 0) {
        let words: Vec<_> = line.split_whitespace().collect();
        let reply = if words[0] == "ms" {
            let mut value = vec![0; words[2].parse::<usize>().unwrap() + 2];
            input.read_exact(&mut value).unwrap();
            value.truncate(value.len() - 2);
            map.lock().unwrap().insert(words[1].into(), value);
            b"HD\r\n".to_vec()
        } else {
            match map.lock().unwrap().get(words[1].as_bytes()) {
                Some(value) => {
                    let head = format!("VA {}\r\n", value.len());
                    let value = twisted(value, lies());
                    [head.as_bytes(), &value, b"\r\n"].concat()
                }
                None => b"EN\r\n".to_vec(),
            }
        };
        if output.write_all(&reply).is_err() {
            return;
        }
        line.clear();
    }
}

#[test]
fn memcached_servers_are_driven_and_verified() {
    let more = ["--protocol", "memcached", "--verify", "--pipeline", "4"];
    let server = serve_memcached(None);
    let options = options(server, &more);
    run_requests(&mut worker(&options, server).unwrap(), 100).unwrap();
}

#[test]
fn a_wrong_reply_planted_in_memcached_is_found() {
    let more = ["--protocol", "memcached", "--verify", "--pipeline", "4"];
    let server = serve_memcached(Some(50));
    let options = options(server, &more);
    let result = run_requests(&mut worker(&options, server).unwrap(), 1000);
    assert!(
        matches!(result, Err(LoadError::WrongReply { .. })),
        "{result:?}"
    );
}

#[test]
fn memcached_has_no_rows() {
    let more = ["--protocol", "memcached", "--workload", "ycsb-a"];
    let options = options(honest(), &more);
    let error = super::super::run(&options).unwrap_err().to_string();
    assert_eq!(error, "memcached has no rows: ycsb-a needs a RESP server");
}

#[test]
fn other_hosts_are_refused() {
    let options = options("192.0.2.1:6379".parse().unwrap(), &[]);
    assert!(matches!(
        super::super::run(&options),
        Err(LoadError::NotLoopback(_))
    ));
}
