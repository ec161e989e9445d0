//! The service manager: notifications to systemd for a service of `Type=notify`.
//!
//! If the environment names a socket (`NOTIFY_SOCKET`), datagrams of lines `NAME=value` are sent
//! there:
//!
//! | when | what |
//! |---|---|
//! | data are read at a start | `STATUS=` how far, `EXTEND_TIMEOUT_USEC=` more time to start |
//! | the server listens | `READY=1`, `STATUS=` where |
//! | it is to stop | `STOPPING=1`, `STATUS=` |
//!
//! A manager that does not listen changes nothing: what cannot be sent is dropped. `main` reads the
//! environment.
//!
//! Deliberately absent: the watchdog. A thread that reports every second that it is alive says
//! nothing about the workers.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// How much longer a start may take after each report of its progress.
const MORE_TIME: Duration = Duration::from_mins(1);

/// See the module's header.
#[derive(Debug, Default)]
pub struct ServiceManager {
    socket: Option<UnixDatagram>,
}

impl ServiceManager {
    /// The manager that listens on `address`: a path, or an abstract name after an `@`. Without an
    /// address, or when nobody listens there, nothing is sent.
    #[must_use]
    pub fn at(address: Option<&OsStr>) -> Self {
        let socket = address.and_then(|address| connect(address).ok());
        Self { socket }
    }

    /// The server serves.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    /// The server is to stop.
    pub fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=sends its last replies");
    }

    /// Reports the progress of a start.
    pub(crate) fn starting(&self, stage: &str, percent: u64) {
        let more_us = MORE_TIME.as_micros();
        self.tell(&format!(
            "STATUS={stage}, {percent} %\nEXTEND_TIMEOUT_USEC={more_us}"
        ));
    }

    fn tell(&self, state: &str) {
        if let Some(socket) = &self.socket {
            // See the module's header.
            let _ = socket.send(state.as_bytes());
        }
    }
}

fn connect(address: &OsStr) -> io::Result<UnixDatagram> {
    let address = match address.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(address)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 256];
        let len = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }

    #[test]
    fn an_abstract_address_is_told_too() {
        let name = format!("pando-manager-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        let manager = ServiceManager::at(Some(format!("@{name}").as_ref()));
        manager.starting("reading the log", 7);
        assert_eq!(
            received(&socket),
            "STATUS=reading the log, 7 %\nEXTEND_TIMEOUT_USEC=60000000"
        );
        manager.ready("listening");
        assert_eq!(received(&socket), "READY=1\nSTATUS=listening");
        // Nobody listens any more.
        drop(socket);
        manager.stopping();
        ServiceManager::at(None).stopping();
        ServiceManager::at(Some("/no/such/socket".as_ref())).stopping();
    }
}
