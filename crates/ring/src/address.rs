//! Where a server is.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::RingError;

/// Where a server is: `host:port`, `[IPv6 address]:port`, or `unix:/path` of its socket.
///
/// It holds no user and no password (its client does), so a ring file needs no protection,
/// and an error may name an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// A host's name or IP address without brackets, and a port.
    Tcp(String, u16),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = RingError;

    fn from_str(text: &str) -> Result<Self, RingError> {
        parse(text).map_err(|reason| RingError::Address {
            text: text.to_owned(),
            reason,
        })
    }
}

fn parse(text: &str) -> Result<Address, &'static str> {
    if let Some(path) = text.strip_prefix("unix:") {
        return if path.starts_with('/') {
            Ok(Address::Unix(path.into()))
        } else {
            Err("the path of a socket begins with `/`")
        };
    }
    if text.contains("://") || text.contains('@') {
        return Err("`host:port` or `unix:/path` is wanted; users and passwords are options");
    }
    let (host, port) = text.rsplit_once(':').ok_or("the port is missing")?;
    let port = match port.parse() {
        Ok(port) if port > 0 => port,
        _ => return Err("the port is no number from 1 to 65535"),
    };
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let strange = |letter: char| letter.is_whitespace() || letter.is_control() || letter == '/';
    match bare.unwrap_or(host) {
        "" => Err("the host is missing"),
        host if host.contains(strange) => Err("the host has a letter that no host has"),
        host if bare.is_none() && host.contains(':') => {
            Err("an IPv6 address is written in brackets")
        }
        host => Ok(Address::Tcp(host.to_owned(), port)),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(formatter, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(formatter, "{host}:{port}"),
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_what_it_prints() {
        for text in [
            "localhost:6379",
            "10.0.0.1:1",
            "[::1]:6379",
            "unix:/run/pando.sock",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_address_is_told() {
        for (text, reason) in [
            ("", "port is missing"),
            ("host", "port is missing"),
            (":6379", "host is missing"),
            ("host:", "no number"),
            ("host:0", "no number"),
            ("host:65536", "no number"),
            ("host:-1", "no number"),
            ("a b:1", "no host has"),
            ("::1:6379", "in brackets"),
            ("unix:run/x", "begins with"),
            ("redis://h:1", "is wanted"),
            ("user:secret@h:1", "are options"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
