//! Listening sockets.
//!
//! A Unix socket leaves a file behind when its process is killed. Before binding, an existing
//! socket file is tried: if nobody answers it is removed, if somebody does the path is in use. Any
//! other kind of file is never touched. Dropping a [`Listener`] removes its own file, unless
//! another process has replaced it.
//!
//! Deliberately absent: names; the caller resolves a host name first.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mio::net::{TcpListener, UnixListener};
use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};
use thiserror::Error;

use crate::{PeerName, Stream};

/// Why a socket cannot be listened on.
#[derive(Debug, Error)]
pub enum ListenerError {
    /// The kernel refuses; `AddrInUse` when another process has the port.
    #[error("cannot listen on {address}: {source}")]
    Tcp {
        /// The address.
        address: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The same for datagrams.
    #[error("cannot receive datagrams on {address}: {source}")]
    Udp {
        /// The address.
        address: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The kernel refuses.
    #[error("cannot listen on {}: {source}", path.display())]
    Unix {
        /// The socket's path.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A server answers on the socket.
    #[error("cannot listen on {}: another server answers there", .0.display())]
    UnixInUse(PathBuf),
    /// The path is a file of another kind, which is left alone.
    #[error("cannot listen on {}: it exists and is not a socket", .0.display())]
    NotASocket(PathBuf),
}

impl ListenerError {
    /// Whether somebody else listens there.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        match self {
            Self::Tcp { source, .. } | Self::Udp { source, .. } | Self::Unix { source, .. } => {
                source.kind() == io::ErrorKind::AddrInUse
            }
            Self::UnixInUse(_) => true,
            Self::NotASocket(_) => false,
        }
    }

    /// Whether the machine lacks the address, or its family.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        let (Self::Tcp { source, .. } | Self::Udp { source, .. }) = self else {
            return false;
        };
        let families = [
            Errno::AFNOSUPPORT,
            Errno::PFNOSUPPORT,
            Errno::PROTONOSUPPORT,
        ];
        source.kind() == io::ErrorKind::AddrNotAvailable
            || Errno::from_io_error(source).is_some_and(|error| families.contains(&error))
    }
}

/// Settings of a listening TCP socket.
#[derive(Clone, Copy, Debug)]
pub struct TcpOptions {
    /// Most connections that the kernel queues until they are accepted; it may lower this.
    pub backlog: u32,
}

/// A connection from a listener.
#[derive(Debug)]
pub struct Accepted {
    /// The connection, non-blocking.
    pub stream: Stream,
    /// The other end.
    pub peer: PeerName,
    /// This end.
    pub local: PeerName,
}

/// A listening socket, non-blocking.
#[derive(Debug)]
pub struct Listener {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        path: Arc<Path>,
        file: SocketFile,
    },
}

/// Distinguishes a socket's file from one with which another process has replaced it.
#[derive(Debug, PartialEq, Eq)]
struct SocketFile {
    device: u64,
    inode: u64,
}

impl SocketFile {
    fn at(path: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }
}

impl Listener {
    /// Listens on a TCP address; port 0 is any free one. An IPv6 address accepts no IPv4
    /// connections, and the address can be reused at once after its process has ended.
    pub fn tcp(address: SocketAddr, options: TcpOptions) -> Result<Self, ListenerError> {
        let bind = || {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
            if address.is_ipv6() {
                socket.set_only_v6(true)?;
            }
            socket.set_reuse_address(true)?;
            socket.set_nonblocking(true)?;
            socket.bind(&address.into())?;
            socket.listen(i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
            Ok(TcpListener::from_std(socket.into()))
        };
        let listener = bind().map_err(|source| ListenerError::Tcp { address, source })?;
        Ok(Self {
            kind: Kind::Tcp(listener),
        })
    }

    /// Listens on a Unix socket at `path`, with the permissions `mode` if given, else as the
    /// process's mask allows.
    pub fn unix(path: &Path, mode: Option<u32>, backlog: u32) -> Result<Self, ListenerError> {
        remove_stale(path)?;
        let bind = || {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            socket.set_nonblocking(true)?;
            socket.bind(&SockAddr::unix(path)?)?;
            if let Some(mode) = mode {
                fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
            }
            let file = SocketFile::at(path)?;
            socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
            Ok((UnixListener::from_std(socket.into()), file))
        };
        let (listener, file) = bind().map_err(|source| ListenerError::Unix {
            path: path.into(),
            source,
        })?;
        Ok(Self {
            kind: Kind::Unix {
                listener,
                path: path.into(),
                file,
            },
        })
    }

    /// Where it listens, with the port chosen for port 0.
    pub fn name(&self) -> io::Result<PeerName> {
        match &self.kind {
            Kind::Tcp(listener) => Ok(PeerName::Tcp(listener.local_addr()?)),
            Kind::Unix { path, .. } => Ok(PeerName::Unix(Arc::clone(path))),
        }
    }

    /// Accepts the next connection; `None` when there is none now. An error means that the process
    /// lacks something (files, memory): the connection stays queued and may be accepted later.
    pub fn accept(&self) -> io::Result<Option<Accepted>> {
        loop {
            let error = match self.accept_one() {
                Ok(accepted) => return Ok(Some(accepted)),
                Err(error) => error,
            };
            match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(None),
                // The peer is gone again, or a signal arrived.
                io::ErrorKind::ConnectionAborted
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::NotConnected
                | io::ErrorKind::Interrupted => {}
                _ => return Err(error),
            }
        }
    }

    fn accept_one(&self) -> io::Result<Accepted> {
        match &self.kind {
            Kind::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                let local = PeerName::Tcp(stream.local_addr()?);
                let stream = Stream::new(stream.into(), true);
                Ok(Accepted {
                    stream,
                    peer: PeerName::Tcp(peer),
                    local,
                })
            }
            Kind::Unix { listener, path, .. } => {
                let (stream, _) = listener.accept()?;
                let name = PeerName::Unix(Arc::clone(path));
                let stream = Stream::new(stream.into(), false);
                Ok(Accepted {
                    stream,
                    peer: name.clone(),
                    local: name,
                })
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.kind {
            Kind::Tcp(listener) => listener.as_fd(),
            Kind::Unix { listener, .. } => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Kind::Unix { path, file, .. } = &self.kind
            && SocketFile::at(path).is_ok_and(|there| there == *file)
        {
            // Nothing can be done about a failure; the next start removes the file.
            let _ = fs::remove_file(path);
        }
    }
}

/// Frees `path` for a socket file.
fn remove_stale(path: &Path) -> Result<(), ListenerError> {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !metadata.file_type().is_socket() {
        return Err(ListenerError::NotASocket(path.into()));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)
            .map_err(|source| ListenerError::Unix {
                path: path.into(),
                source,
            }),
        // A full backlog or a lack of permission also indicates a living server.
        _ => Err(ListenerError::UnixInUse(path.into())),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;
    use crate::{Interest, Poller, Token};

    const OPTIONS: TcpOptions = TcpOptions { backlog: 16 };

    /// A folder of this test's own, removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("pando-io-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn accept(listener: &Listener) -> Accepted {
        let mut poller = Poller::new(2, Token(1)).unwrap();
        poller.add(listener, Token(0), Interest::Read).unwrap();
        loop {
            if let Some(accepted) = listener.accept().unwrap() {
                return accepted;
            }
            for _ in poller.wait(Some(Duration::from_secs(5))).unwrap() {}
        }
    }

    #[test]
    fn a_tcp_connection_is_accepted_with_its_options() {
        let listener = Listener::tcp("127.0.0.1:0".parse().unwrap(), OPTIONS).unwrap();
        assert!(listener.accept().unwrap().is_none());
        let PeerName::Tcp(address) = listener.name().unwrap() else {
            panic!("not TCP")
        };
        let client = TcpStream::connect(address).unwrap();
        let accepted = accept(&listener);
        assert_eq!(accepted.peer, PeerName::Tcp(client.local_addr().unwrap()));
        assert_eq!(accepted.local, PeerName::Tcp(address));
        accepted
            .stream
            .set_tcp_options(Some(Duration::from_mins(5)))
            .unwrap();
        let socket = socket2::SockRef::from(&accepted.stream);
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(
            socket.tcp_keepalive_interval().unwrap(),
            Duration::from_secs(100)
        );
        accepted.stream.set_tcp_options(None).unwrap();
        assert!(!socket.keepalive().unwrap());
    }

    #[test]
    fn a_port_belongs_to_one_listener() {
        let first = Listener::tcp("127.0.0.1:0".parse().unwrap(), OPTIONS).unwrap();
        let PeerName::Tcp(address) = first.name().unwrap() else {
            panic!("not TCP")
        };
        let error = Listener::tcp(address, OPTIONS).unwrap_err();
        assert!(error.is_in_use(), "{error}");
    }

    #[test]
    fn a_unix_socket_is_taken_over_only_from_the_dead() {
        let folder = Folder::new("stale");
        let path = folder.0.join("socket");
        let first = Listener::unix(&path, Some(0o600), 16).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let error = Listener::unix(&path, None, 16).unwrap_err();
        assert!(matches!(error, ListenerError::UnixInUse(_)), "{error}");

        // What a killed process leaves: the file without the socket.
        drop(first);
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let second = Listener::unix(&path, None, 16).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        let accepted = accept(&second);
        assert_eq!(accepted.peer.to_string(), format!("{}:0", path.display()));
        drop(client);
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn another_kind_of_file_is_left_alone() {
        let folder = Folder::new("file");
        let path = folder.0.join("data");
        fs::write(&path, "precious").unwrap();
        let error = Listener::unix(&path, None, 16).unwrap_err();
        assert!(matches!(error, ListenerError::NotASocket(_)), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn the_file_of_a_successor_is_not_removed() {
        let folder = Folder::new("successor");
        let path = folder.0.join("socket");
        let first = Listener::unix(&path, None, 16).unwrap();
        fs::remove_file(&path).unwrap();
        let _second = Listener::unix(&path, None, 16).unwrap();
        drop(first);
        assert!(path.exists());
    }
}
