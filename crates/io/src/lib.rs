//! Sockets, the poller, files and kernel limits behind a safe interface.
//!
//! | module | what it is |
//! |---|---|
//! | `poller` | reports which sockets are ready; wakes a waiting thread |
//! | `listener` | listening TCP and Unix sockets |
//! | `stream` | one connection |
//! | `datagram` | UDP sockets |
//! | `file` | files that are written through the page cache or past it, and their aligned buffers |
//! | `descriptors` | how many files the process may open |
//! | `priority` | threads that give way to others |
//!
//! The worker loop sees the kernel only through this crate: [`Poller`] says what is ready,
//! [`Stream`] moves bytes. A replacement for epoll (`io_uring` with provided buffers) goes behind
//! these two types.
//!
//! ```
//! use pando_io::{Interest, Poller, Token};
//!
//! let (waker_token, socket_token) = (Token(0), Token(1));
//! let mut poller = Poller::new(16, waker_token)?;
//! let (socket, peer) = std::os::unix::net::UnixStream::pair()?;
//! poller.add(&socket, socket_token, Interest::Read)?;
//! std::io::Write::write_all(&mut &peer, b"PING")?;
//! let ready: Vec<_> = poller.wait(None)?.map(|ready| ready.token).collect();
//! assert_eq!(ready, [socket_token]);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Deliberately absent: protocols, buffers of connections, threads, policy.

#![forbid(unsafe_code)]

mod datagram;
pub mod descriptors;
pub mod file;
mod listener;
mod poller;
mod priority;
mod stream;

pub use datagram::{DATAGRAM_BYTES_MAX, DatagramSocket};
pub use listener::{Accepted, Listener, ListenerError, TcpOptions};
pub use poller::{Interest, Poller, Ready, ReadyEvents, Token, Waker};
pub use priority::{lower_priority, run_when_idle, waited_for_processor};
pub use stream::{PeerName, Stream};
