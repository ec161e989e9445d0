//! The settings that CONFIG SET can change, in the form that workers read: one atomic each.
//!
//! | field | writer | under | reader |
//! |---|---|---|---|
//! | every atomic | [`Settings::publish`] | `Shared`'s mutex of `config` | workers, `Relaxed` |
//! | `password` | the same | mutex | AUTH, HELLO |
//!
//! A worker may see two settings of one CONFIG SET at different moments; they are independent.

use std::sync::Mutex;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

use pando_db::Durability;

use crate::config::{Config, OutputLimit};
use crate::shared::lock;

/// See the module's header; each getter is one `Relaxed` load.
#[derive(Debug)]
pub struct Settings {
    clients_max: AtomicUsize,
    timeout_s: AtomicU64,
    tcp_keepalive_s: AtomicU64,
    query_buffer_bytes_max: AtomicUsize,
    output_hard_bytes: AtomicU64,
    output_soft_bytes: AtomicU64,
    output_soft_seconds: AtomicU64,
    slowlog_slower_than_us: AtomicI64,
    latency_threshold_ms: AtomicU64,
    latency_tracking: AtomicBool,
    durability: AtomicU8,
    checkpoint_log_bytes: AtomicU64,
    checkpoint_interval_s: AtomicU64,
    checkpoint_share_percent: AtomicU32,
    replication_timeout_s: AtomicU64,
    protected_mode: AtomicBool,
    password_set: AtomicBool,
    password: Mutex<Vec<u8>>,
}

impl Settings {
    pub(crate) fn new(config: &Config) -> Self {
        let settings = Self {
            clients_max: AtomicUsize::new(0),
            timeout_s: AtomicU64::new(0),
            tcp_keepalive_s: AtomicU64::new(0),
            query_buffer_bytes_max: AtomicUsize::new(0),
            output_hard_bytes: AtomicU64::new(0),
            output_soft_bytes: AtomicU64::new(0),
            output_soft_seconds: AtomicU64::new(0),
            slowlog_slower_than_us: AtomicI64::new(0),
            latency_threshold_ms: AtomicU64::new(0),
            latency_tracking: AtomicBool::new(true),
            durability: AtomicU8::new(0),
            checkpoint_log_bytes: AtomicU64::new(0),
            checkpoint_interval_s: AtomicU64::new(0),
            checkpoint_share_percent: AtomicU32::new(0),
            replication_timeout_s: AtomicU64::new(60),
            protected_mode: AtomicBool::new(true),
            password_set: AtomicBool::new(false),
            password: Mutex::default(),
        };
        settings.publish(config);
        settings
    }

    pub(crate) fn publish(&self, config: &Config) {
        self.clients_max
            .store(config.clients_max, Ordering::Relaxed);
        self.timeout_s.store(config.timeout_s, Ordering::Relaxed);
        self.tcp_keepalive_s
            .store(config.tcp_keepalive_s, Ordering::Relaxed);
        self.query_buffer_bytes_max
            .store(config.query_buffer_bytes_max, Ordering::Relaxed);
        let output = config.output_limits.normal;
        self.output_hard_bytes
            .store(output.hard_bytes, Ordering::Relaxed);
        self.output_soft_bytes
            .store(output.soft_bytes, Ordering::Relaxed);
        self.output_soft_seconds
            .store(output.soft_seconds, Ordering::Relaxed);
        self.slowlog_slower_than_us
            .store(config.slowlog_slower_than_us, Ordering::Relaxed);
        self.latency_threshold_ms
            .store(config.latency_threshold_ms, Ordering::Relaxed);
        self.latency_tracking
            .store(config.latency_tracking, Ordering::Relaxed);
        self.durability
            .store(config.durability as u8, Ordering::Relaxed);
        self.checkpoint_log_bytes
            .store(config.checkpoint_log_bytes, Ordering::Relaxed);
        self.checkpoint_interval_s
            .store(config.checkpoint_interval_s, Ordering::Relaxed);
        self.checkpoint_share_percent
            .store(config.checkpoint_share_percent, Ordering::Relaxed);
        self.replication_timeout_s
            .store(config.replication.timeout_s, Ordering::Relaxed);
        self.protected_mode
            .store(config.protected_mode, Ordering::Relaxed);
        lock(&self.password).clone_from(&config.password);
        self.password_set
            .store(!config.password.is_empty(), Ordering::Relaxed);
    }

    /// Connections at a time.
    #[must_use]
    pub fn clients_max(&self) -> usize {
        self.clients_max.load(Ordering::Relaxed)
    }

    /// Seconds after which a silent link to a primary or a replica is closed.
    #[must_use]
    pub fn replication_timeout_s(&self) -> u64 {
        self.replication_timeout_s.load(Ordering::Relaxed)
    }

    /// Seconds after which an idle connection is closed; 0 is never.
    #[must_use]
    pub fn timeout_s(&self) -> u64 {
        self.timeout_s.load(Ordering::Relaxed)
    }

    /// Seconds between probes of an idle TCP connection, for new connections; 0 is none.
    #[must_use]
    pub fn tcp_keepalive_s(&self) -> u64 {
        self.tcp_keepalive_s.load(Ordering::Relaxed)
    }

    /// Unprocessed bytes that one connection may hold.
    #[must_use]
    pub fn query_buffer_bytes_max(&self) -> usize {
        self.query_buffer_bytes_max.load(Ordering::Relaxed)
    }

    /// Limits on the output that waits for an ordinary client or a monitor.
    #[must_use]
    pub fn output_limit(&self) -> OutputLimit {
        OutputLimit {
            hard_bytes: self.output_hard_bytes.load(Ordering::Relaxed),
            soft_bytes: self.output_soft_bytes.load(Ordering::Relaxed),
            soft_seconds: self.output_soft_seconds.load(Ordering::Relaxed),
        }
    }

    /// Microseconds from which a command is slow; negative is never.
    #[must_use]
    pub fn slowlog_slower_than_us(&self) -> i64 {
        self.slowlog_slower_than_us.load(Ordering::Relaxed)
    }

    /// Milliseconds from which a command is a latency event; 0 is never.
    #[must_use]
    pub fn latency_threshold_ms(&self) -> u64 {
        self.latency_threshold_ms.load(Ordering::Relaxed)
    }

    /// Whether histograms by command are kept.
    #[must_use]
    pub fn latency_tracking(&self) -> bool {
        self.latency_tracking.load(Ordering::Relaxed)
    }

    /// When requests of new connections are answered.
    #[must_use]
    pub fn durability(&self) -> Durability {
        let mode = self.durability.load(Ordering::Relaxed);
        Durability::ALL[usize::from(mode)]
    }

    /// When a checkpoint is due: after this many bytes of log, after this many seconds; 0 is never.
    pub(crate) fn checkpoints(&self) -> (u64, u64) {
        (
            self.checkpoint_log_bytes.load(Ordering::Relaxed),
            self.checkpoint_interval_s.load(Ordering::Relaxed),
        )
    }

    /// Percentage of its time in which a checkpoint's thread works while requests are served.
    pub(crate) fn checkpoint_share_percent(&self) -> u32 {
        self.checkpoint_share_percent.load(Ordering::Relaxed)
    }

    /// Whether new connections must authenticate.
    #[must_use]
    pub fn requires_password(&self) -> bool {
        self.password_set.load(Ordering::Relaxed)
    }

    /// Whether other hosts are refused.
    #[must_use]
    pub fn is_protected(&self) -> bool {
        self.protected_mode.load(Ordering::Relaxed) && !self.requires_password()
    }

    /// Whether `offered` is the password. Takes time that depends on the length of `offered` only.
    #[must_use]
    pub fn is_password(&self, offered: &[u8]) -> bool {
        let password = lock(&self.password);
        let mut difference = usize::from(password.len() != offered.len());
        for (index, byte) in offered.iter().enumerate() {
            let expected = if password.is_empty() {
                0
            } else {
                password[index % password.len()]
            };
            difference |= usize::from(byte ^ expected);
        }
        std::hint::black_box(difference) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_password_matches() {
        let config = Config {
            password: b"secret".to_vec(),
            ..Config::default()
        };
        let settings = Settings::new(&config);
        assert!(settings.requires_password());
        assert!(settings.is_password(b"secret"));
        for wrong in [&b""[..], b"secre", b"secrets", b"secretsecret", b"Secret"] {
            assert!(!settings.is_password(wrong));
        }
        let settings = Settings::new(&Config::default());
        assert!(!settings.requires_password());
        assert!(!settings.is_password(b"x"));
    }
}
