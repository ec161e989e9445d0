//! Values of settings: from text and back, in Redis' notation.

use std::fmt::Write as _;

use pando_protocol::number;

use super::error::WrongLimits;
use super::{OutputLimit, OutputLimits};

/// What is logged, in Redis' words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Everything.
    Debug,
    /// Much that is rarely useful.
    Verbose,
    /// What an operator wants to know.
    Notice,
    /// Only what needs attention.
    Warning,
}

impl LogLevel {
    /// All levels.
    pub const ALL: [Self; 4] = [Self::Debug, Self::Verbose, Self::Notice, Self::Warning];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Verbose => "verbose",
            Self::Notice => "notice",
            Self::Warning => "warning",
        }
    }

    /// The least severe events of `tracing` that are logged.
    #[must_use]
    pub const fn filter(self) -> tracing::level_filters::LevelFilter {
        use tracing::level_filters::LevelFilter;
        match self {
            Self::Debug => LevelFilter::TRACE,
            Self::Verbose => LevelFilter::DEBUG,
            Self::Notice => LevelFilter::INFO,
            Self::Warning => LevelFilter::WARN,
        }
    }
}

/// `yes` or `no`.
pub(super) fn parse_switch(text: &str) -> Option<bool> {
    if text.eq_ignore_ascii_case("yes") {
        Some(true)
    } else if text.eq_ignore_ascii_case("no") {
        Some(false)
    } else {
        None
    }
}

pub(super) fn print_switch(on: bool) -> Vec<u8> {
    if on { b"yes".to_vec() } else { b"no".to_vec() }
}

/// An integer in its canonical decimal.
pub(super) fn parse_integer(text: &str) -> Option<i64> {
    number::parse_i64(text.as_bytes())
}

/// An amount of memory: digits and a unit (b, k, kb, m, mb, g, gb; k is 1000, kb is 1024), in any
/// case. As in Redis, no digits are 0, and what exceeds 64 bits is the most that they hold.
pub(crate) fn parse_memory(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    let add = |sum: u64, digit: u8| {
        let sum = sum.saturating_mul(10);
        sum.saturating_add(u64::from(digit - b'0'))
    };
    Some(number.bytes().fold(0, add).saturating_mul(factor))
}

/// A part of the memory limit, absolute or as a share of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryShare {
    /// This many bytes.
    Bytes(u64),
    /// This percentage of `maxmemory`, at most 100.
    Percent(u8),
}

impl MemoryShare {
    /// The bytes that it stands for; 0 is no limit, as is a share of no limit.
    #[must_use]
    pub const fn of(self, max_memory: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => (max_memory as u128 * percent as u128 / 100) as u64,
        }
    }
}

impl std::fmt::Display for MemoryShare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// An amount of memory, or a percentage.
pub(super) fn parse_memory_share(text: &str) -> Option<MemoryShare> {
    match text.strip_suffix('%') {
        Some(percent) => {
            let percent = percent.parse().ok().filter(|percent| *percent <= 100);
            percent.map(MemoryShare::Percent)
        }
        None => parse_memory(text).map(MemoryShare::Bytes),
    }
}

/// Octal permissions.
pub(super) fn parse_mode(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o777)
}

/// Groups of four words: class, hard limit, soft limit, seconds. Classes that are not named keep
/// their limits.
pub(super) fn parse_output_limits(
    text: &str,
    before: OutputLimits,
) -> Result<OutputLimits, WrongLimits> {
    let mut limits = before;
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    if !words.len().is_multiple_of(4) {
        return Err(WrongLimits::Count);
    }
    for group in words.chunks(4) {
        let class = match group[0].to_ascii_lowercase().as_str() {
            "normal" => &mut limits.normal,
            "slave" | "replica" => &mut limits.replica,
            "pubsub" => &mut limits.pubsub,
            _ => return Err(WrongLimits::Class),
        };
        let memory = |text| parse_memory(text).ok_or(WrongLimits::Limit);
        *class = OutputLimit {
            hard_bytes: memory(group[1])?,
            soft_bytes: memory(group[2])?,
            soft_seconds: group[3].parse().map_err(|_| WrongLimits::Limit)?,
        };
    }
    Ok(limits)
}

pub(super) fn print_output_limits(limits: &OutputLimits) -> String {
    let print = |class: &str, limit: OutputLimit| {
        format!(
            "{class} {} {} {}",
            limit.hard_bytes, limit.soft_bytes, limit.soft_seconds
        )
    };
    [
        print("normal", limits.normal),
        print("slave", limits.replica),
        print("pubsub", limits.pubsub),
    ]
    .join(" ")
}

/// A number as Redis prints percentiles: without trailing zeros.
pub(crate) fn print_percentile(percent: f64) -> String {
    let text = format!("{percent:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A value as a word of the configuration file: in double quotes if needed.
pub(crate) fn quote(value: &[u8]) -> String {
    let plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\' | b'#');
    if !value.is_empty() && value.iter().all(plain) {
        return value.iter().copied().map(char::from).collect();
    }
    let mut word = String::from("\"");
    for byte in value {
        match byte {
            b'"' => word.push_str("\\\""),
            b'\\' => word.push_str("\\\\"),
            b'\n' => word.push_str("\\n"),
            b'\r' => word.push_str("\\r"),
            b'\t' => word.push_str("\\t"),
            b' '..=b'~' => word.push(char::from(*byte)),
            _ => {
                let _ = write!(word, "\\x{byte:02x}");
            }
        }
    }
    word.push('"');
    word
}
