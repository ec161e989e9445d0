//! What the server says when it is ready: who it is, where it listens, what it promises.

use std::fmt::Write as _;

use crate::config::Config;
use crate::shared::Listening;

/// The banner, ended by a line for programs: `listening` and the addresses, as `kind=address`.
#[must_use]
pub fn banner(config: &Config, listening: &Listening) -> String {
    let workers = if config.threads == 1 {
        "worker"
    } else {
        "workers"
    };
    let mut text = format!(
        "pando {}: an ordered in-memory database that speaks the Redis protocol\n\
         engine {}, {} {workers}, {} databases, at most {} clients\n\
         durability: none. Nothing is kept on disk yet: a restart begins empty.\n\
         listening",
        env!("CARGO_PKG_VERSION"),
        config.engine.name(),
        config.threads,
        config.databases,
        config.clients_max,
    );
    for address in &listening.tcp {
        let _ = write!(text, " tcp={address}");
    }
    if let Some(path) = &listening.unix_socket {
        let _ = write!(text, " unix={}", path.display());
    }
    for address in &listening.memcached {
        let _ = write!(text, " memcached={address}");
    }
    if let Some(path) = &listening.memcached_socket {
        let _ = write!(text, " memcached-unix={}", path.display());
    }
    for address in &listening.metrics {
        let _ = write!(text, " metrics={address}");
    }
    text.push('\n');
    text
}
