//! The HTTP side of `/metrics`: one thread for each address, one request at a time.
//!
//! A request has at most [`REQUEST_BYTES_MAX`] bytes and [`REQUEST_TIME_MAX`]; the client has as
//! long again to take the reply. So a stalled client delays others by twice that time, and memory
//! is bounded by one request and one page.
//!
//! | field | writer | ordering | reader |
//! |---|---|---|---|
//! | `stop` | drop | `Relaxed` (the connection that follows it wakes the thread) | the threads |

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::shared::Shared;

/// Longest request in bytes, headers included.
const REQUEST_BYTES_MAX: usize = 8 * 1024;

/// How long a client may take to send its request, and again to take the reply.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(2);

/// Serves `/metrics` until it is dropped.
#[derive(Debug)]
pub struct Metrics {
    addresses: Vec<SocketAddr>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Metrics {
    /// Begins to serve on `listeners`.
    pub fn start(shared: &Arc<Shared>, listeners: Vec<TcpListener>) -> io::Result<Self> {
        let mut metrics = Self {
            addresses: Vec::with_capacity(listeners.len()),
            stop: Arc::new(AtomicBool::new(false)),
            threads: Vec::with_capacity(listeners.len()),
        };
        for listener in listeners {
            metrics.addresses.push(listener.local_addr()?);
            let (shared, stop) = (Arc::clone(shared), Arc::clone(&metrics.stop));
            let thread = std::thread::Builder::new().name("metrics".into());
            metrics
                .threads
                .push(thread.spawn(move || serve(&listener, &shared, &stop))?);
        }
        Ok(metrics)
    }

    /// Where it serves.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for (address, thread) in self.addresses.iter().zip(self.threads.drain(..)) {
            let mut address = *address;
            if address.ip().is_unspecified() {
                address.set_ip(match address {
                    SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                    SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
                });
            }
            // The thread waits for a connection. Without one it ends with the process.
            if TcpStream::connect_timeout(&address, REQUEST_TIME_MAX).is_ok() {
                let _ = thread.join();
            }
        }
    }
}

fn serve(listener: &TcpListener, shared: &Shared, stop: &AtomicBool) {
    loop {
        let accepted = listener.accept();
        if stop.load(Ordering::Relaxed) {
            return;
        }
        match accepted {
            Ok((stream, peer)) => {
                if let Err(error) = answer(stream, shared) {
                    tracing::debug!(%peer, %error, "metrics request failed");
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a metrics connection");
                // Perhaps too few descriptors: retrying at once would only waste the processor.
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Page { body: bool },
    Missing,
    WrongMethod,
    Malformed,
    TooLong,
}

fn answer(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let asked = read_request(&mut stream, Instant::now() + REQUEST_TIME_MAX)?;
    let (status, body, send_body) = match asked {
        Asked::Page { body } => ("200 OK", super::page(shared), body),
        Asked::Missing => ("404 Not Found", "only /metrics is here\n".to_owned(), true),
        Asked::WrongMethod => (
            "405 Method Not Allowed",
            "only GET and HEAD\n".to_owned(),
            true,
        ),
        Asked::Malformed => ("400 Bad Request", "not HTTP\n".to_owned(), true),
        Asked::TooLong => (
            "431 Request Header Fields Too Large",
            "the request is too long\n".to_owned(),
            true,
        ),
    };
    let kind = if status == "200 OK" {
        "text/plain; version=0.0.4"
    } else {
        "text/plain"
    };
    let mut reply = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    if send_body {
        reply.push_str(&body);
    }
    write_all(
        &mut stream,
        reply.as_bytes(),
        Instant::now() + REQUEST_TIME_MAX,
    )?;
    stream.shutdown(Shutdown::Write)
}

fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(io::ErrorKind::TimedOut.into())
    } else {
        Ok(left)
    }
}

fn write_all(stream: &mut TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(time_left(deadline)?))?;
        match stream.write(bytes)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => bytes = &bytes[written..],
        }
    }
    Ok(())
}

/// Reads up to the end of the headers.
fn read_request(stream: &mut TcpStream, deadline: Instant) -> io::Result<Asked> {
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        if request.windows(4).any(|window| window == b"\r\n\r\n") {
            return Ok(parse(&request));
        }
        if request.len() > REQUEST_BYTES_MAX {
            return Ok(Asked::TooLong);
        }
        stream.set_read_timeout(Some(time_left(deadline)?))?;
        match stream.read(&mut buffer)? {
            0 => return Ok(Asked::Malformed),
            read => request.extend_from_slice(&buffer[..read]),
        }
    }
}

fn parse(request: &[u8]) -> Asked {
    let line = request
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let [method, target, version] = words[..] else {
        return Asked::Malformed;
    };
    if !version.starts_with(b"HTTP/1.") {
        return Asked::Malformed;
    }
    let path = target
        .split(|byte| *byte == b'?')
        .next()
        .unwrap_or_default();
    match method {
        b"GET" | b"HEAD" if path == b"/metrics" => Asked::Page {
            body: method == b"GET",
        },
        b"GET" | b"HEAD" => Asked::Missing,
        _ => Asked::WrongMethod,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart() {
        for (request, expected) in [
            (
                "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
                Asked::Page { body: true },
            ),
            (
                "GET /metrics?x=1 HTTP/1.0\r\n\r\n",
                Asked::Page { body: true },
            ),
            (
                "HEAD /metrics HTTP/1.1\r\n\r\n",
                Asked::Page { body: false },
            ),
            ("GET / HTTP/1.1\r\n\r\n", Asked::Missing),
            ("POST /metrics HTTP/1.1\r\n\r\n", Asked::WrongMethod),
            ("GET /metrics\r\n\r\n", Asked::Malformed),
            ("*1\r\n$4\r\nPING\r\n\r\n", Asked::Malformed),
        ] {
            assert_eq!(parse(request.as_bytes()), expected, "{request}");
        }
    }
}
