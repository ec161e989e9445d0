//! Turns, warm-up, pipelines and cores: what the generator promises beside right replies.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::thread;

use rustix::thread::sched_getaffinity;

use super::*;

fn line(arguments: &[&str]) -> Options {
    Line::parse_from(["load"].iter().chain(arguments)).options
}

/// Answers every GET with null, `at_once` at a time: none before that many have arrived. Returns
/// its address and how many GETs it has answered.
fn serve_gets(at_once: usize) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(AtomicU64::new(0));
    let served = Arc::clone(&count);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, served) = (stream.unwrap(), Arc::clone(&served));
            thread::spawn(move || {
                let (mut buffer, mut waiting) = ([0; 4096], 0);
                while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
                    // A request's array header and nothing else of it has a star.
                    waiting += buffer[..bytes].split(|byte| *byte == b'*').count() - 1;
                    while waiting >= at_once {
                        waiting -= at_once;
                        served.fetch_add(at_once as u64, Ordering::Relaxed);
                        if stream.write_all(&b"$-1\r\n".repeat(at_once)).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    (address, count)
}

#[test]
fn servers_are_measured_in_turns_with_the_same_seed() {
    let options = line(&[
        "127.0.0.1:1",
        "127.0.0.1:2",
        "--vs=127.0.0.1:3",
        "--repeats=2",
        "--seed=9",
    ]);
    let mut order = Vec::new();
    let samples = in_turns(&options, |index, server, seed| {
        order.push((server.port(), seed));
        Ok((index, seed))
    })
    .unwrap();
    assert_eq!(order, [(1, 9), (2, 9), (3, 9), (1, 10), (2, 10), (3, 10)]);
    assert_eq!(samples[2], [(2, 9), (2, 10)]);
}

#[test]
fn what_fails_ends_the_turns() {
    let options = line(&["127.0.0.1:1", "--repeats=2"]);
    let result = in_turns(&options, |_, server, _| {
        Err::<(), _>(LoadError::Closed { server })
    });
    assert!(matches!(result, Err(LoadError::Closed { .. })));
}

#[test]
fn the_warm_up_is_not_measured() {
    let (server, served) = serve_gets(1);
    let name = server.to_string();
    let options = line(&[
        &name,
        "--threads=2",
        "--connections=3",
        "--reads=100",
        "--warm-up=0.02",
        "--seconds=0.02",
    ]);
    let items = Arc::new(AtomicU64::new(options.keys));
    let sample = measure(&options, server, &items, 1).unwrap();
    let measured = sample.latency.len();
    assert!(measured >= 6, "each connection is answered once at least");
    let warm = served.load(Ordering::Relaxed) - measured;
    assert!(warm >= 6, "{warm} requests before {measured} measured ones");
    assert!(sample.rate > 0.0);
    // Servers of this test run in its own process.
    assert_eq!(sample.cpu_per_million.is_some(), cfg!(target_os = "linux"));
}

#[test]
fn a_pipeline_is_sent_before_its_first_reply() {
    let (server, served) = serve_gets(8);
    let name = server.to_string();
    let options = line(&[&name, "--connections=1", "--pipeline=8", "--reads=100"]);
    let options = Options {
        warm_up: 0.0,
        seconds: 0.0,
        ..options
    };
    let items = Arc::new(AtomicU64::new(options.keys));
    let sample = measure(&options, server, &items, 1).unwrap();
    assert_eq!(sample.latency.len(), 8);
    assert_eq!(served.load(Ordering::Relaxed), 16);
}

#[test]
fn threads_stay_on_their_cores() {
    let all = sched_getaffinity(None).unwrap();
    let core = (0..CpuSet::MAX_CPU).find(|core| all.is_set(*core)).unwrap();
    thread::spawn(move || {
        stay(&[], 3).unwrap();
        assert_eq!(sched_getaffinity(None).unwrap().count(), all.count());
        // The second thread of one core has the first one's.
        stay(&[core], 1).unwrap();
        let own = sched_getaffinity(None).unwrap();
        assert!(own.is_set(core) && own.count() == 1);
        let error = stay(&[CpuSet::MAX_CPU], 0).unwrap_err().to_string();
        assert_eq!(error, format!("cannot run on core {}", CpuSet::MAX_CPU));
    })
    .join()
    .unwrap();
}

#[test]
fn times_and_skews_that_are_none_are_refused() {
    for (argument, expected) in [
        ("--seconds=-1", "--seconds must be seconds, at most a day"),
        ("--warm-up=NaN", "--warm-up must be seconds, at most a day"),
        ("--theta=1", "--theta must be at least 0 and below 1"),
    ] {
        let error = run(&line(&["127.0.0.1:1", argument])).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}
