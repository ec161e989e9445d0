//! Protected mode: while no password is set, other hosts are refused.
//!
//! A server that listens on more than the loopback without a password gives its data to anyone who
//! finds it. So, unless `protected-mode no` declares the network trusted, it then serves only this
//! machine: loopback peers and Unix sockets. This applies to every way to the keyspace: RESP and
//! memcached over TCP (told why, then closed), memcached over UDP (no reply).
//!
//! A connection is judged when it is accepted: setting or removing a password later changes nothing
//! for it. `/metrics` shows no data and is served.

use std::net::IpAddr;

use pando_io::PeerName;

use crate::config::Config;
use crate::registry::WireProtocol;
use crate::settings::Settings;
use crate::shared::Listening;

/// Whether a connection from `peer` is refused.
pub(crate) fn refuses(settings: &Settings, peer: &PeerName) -> bool {
    match peer {
        PeerName::Tcp(address) => settings.is_protected() && !is_local(address.ip()),
        PeerName::Unix(_) => false,
    }
}

/// Whether nobody outside this machine can have this address.
pub(crate) fn is_local(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// The reply to a refused client.
pub(crate) fn refusal(protocol: WireProtocol) -> &'static [u8] {
    match protocol {
        WireProtocol::Resp => {
            b"-DENIED protected mode: no password is set, so only this machine is served. Set one \
              (requirepass), listen on the loopback only (bind 127.0.0.1), or, in a network that \
              you trust, set protected-mode no.\r\n"
        }
        WireProtocol::Memcached => {
            b"SERVER_ERROR protected mode: no password is set, so only this machine is served; \
              see protected-mode\r\n"
        }
    }
}

/// The message at a start when hosts that can reach the server are refused.
#[must_use]
pub fn exposure(config: &Config, listening: &Listening) -> Option<&'static str> {
    let protected = config.protected_mode && config.password.is_empty();
    let addresses = [
        &listening.tcp,
        &listening.memcached,
        &listening.memcached_udp,
    ];
    let open = addresses
        .into_iter()
        .flatten()
        .any(|address| !is_local(address.ip()));
    (protected && open).then_some(
        "protected mode: no password is set, so other hosts are refused; see requirepass, bind and \
         protected-mode",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(protected_mode: bool, password: &str) -> Settings {
        Settings::new(&Config {
            protected_mode,
            password: password.into(),
            ..Config::default()
        })
    }

    #[test]
    fn other_hosts_are_refused_while_there_is_no_password() {
        let peer = |address: &str| PeerName::Tcp(address.parse().unwrap());
        let others = [
            "10.0.0.1:5",
            "[2001:db8::1]:5",
            "[::ffff:10.0.0.1]:5",
            "[fe80::1]:5",
        ];
        for other in others {
            assert!(refuses(&settings(true, ""), &peer(other)), "{other}");
            assert!(!refuses(&settings(true, "x"), &peer(other)), "{other}");
            assert!(!refuses(&settings(false, ""), &peer(other)), "{other}");
        }
        for own in [
            "127.0.0.1:5",
            "127.9.9.9:5",
            "[::1]:5",
            "[::ffff:127.0.0.1]:5",
        ] {
            assert!(!refuses(&settings(true, ""), &peer(own)), "{own}");
        }
        let unix = PeerName::Unix(std::path::Path::new("/s").into());
        assert!(!refuses(&settings(true, ""), &unix));
    }

    #[test]
    fn the_start_says_who_is_refused() {
        let at = |address: &str| Listening {
            memcached: vec![address.parse().unwrap()],
            ..Listening::default()
        };
        let config = Config::default();
        assert!(exposure(&config, &at("0.0.0.0:1")).is_some());
        assert!(exposure(&config, &at("[::]:1")).is_some());
        assert!(exposure(&config, &at("127.0.0.1:1")).is_none());
        let password = b"x".to_vec();
        let config = Config { password, ..config };
        assert!(exposure(&config, &at("0.0.0.0:1")).is_none());
    }
}
