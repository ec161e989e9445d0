//! MONITOR: sends every executed command, as a line, to the clients that asked.
//!
//! | field | writer | ordering | reader |
//! |---|---|---|---|
//! | `count` | MONITOR, RESET, the end of a monitor, inside the mutex | `Relaxed` | every command |
//! | `monitors` | the same | mutex | the worker that feeds |
//!
//! While nobody monitors, a command costs one `Relaxed` load. Lines of different workers come in
//! approximate order. Secrets are never shown (see [`redacted`]), nor are administrative commands.

use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use pando_protocol::Request;
use pando_protocol::command::{CommandId, CommandSpec, Flag, HostCommand};

use crate::config::Setting;
use crate::shared::lock;

/// One connection that monitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Monitor {
    pub(crate) client: u64,
    pub(crate) worker: usize,
}

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Monitors {
    count: AtomicUsize,
    monitors: Mutex<Vec<Monitor>>,
}

impl Monitors {
    /// Whether anybody monitors.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn add(&self, monitor: Monitor) {
        let mut monitors = lock(&self.monitors);
        if !monitors.contains(&monitor) {
            monitors.push(monitor);
        }
        self.count.store(monitors.len(), Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, client: u64) {
        let mut monitors = lock(&self.monitors);
        monitors.retain(|monitor| monitor.client != client);
        self.count.store(monitors.len(), Ordering::Relaxed);
    }

    /// The monitoring clients.
    pub(crate) fn all(&self) -> Vec<Monitor> {
        lock(&self.monitors).clone()
    }
}

/// Whether monitors see this command.
pub(crate) fn is_shown(spec: &CommandSpec) -> bool {
    !spec.flags.has(Flag::SkipMonitor) && !spec.flags.has(Flag::Admin)
}

/// The line of a command: time, database, address, quoted arguments.
pub(crate) fn line(now_us: u64, database: usize, address: &str, request: Request<'_>) -> Vec<u8> {
    let (seconds, microseconds) = (now_us / 1_000_000, now_us % 1_000_000);
    let mut line = format!("+{seconds}.{microseconds:06} [{database} {address}]");
    for (index, argument) in request.args_from(0).enumerate() {
        line.push(' ');
        let argument = if redacted(request, index) {
            REDACTED
        } else {
            argument
        };
        quote(&mut line, argument);
    }
    line.push_str("\r\n");
    line.into_bytes()
}

/// Replaces a secret.
pub(crate) const REDACTED: &[u8] = b"(redacted)";

/// Whether argument `index` may be a secret: what follows AUTH (as a command or inside HELLO) and
/// the password in CONFIG SET.
pub(crate) fn redacted(request: Request<'_>, index: usize) -> bool {
    let command = pando_protocol::command::lookup(request.arg(0)).map(|spec| spec.id);
    match command {
        Some(CommandId::Host(HostCommand::Auth)) => index > 0,
        Some(CommandId::Host(HostCommand::Hello)) => (2..index)
            .rev()
            .take(2)
            .any(|before| request.is(before, "AUTH")),
        Some(CommandId::Host(HostCommand::Migrate)) => {
            let follows = |word: &str, words: usize| {
                let mut before = (6..index).rev().take(words);
                before.any(|before| request.is(before, word))
            };
            let keys = (6..index).find(|at| request.is(*at, "KEYS"));
            keys.is_none() && (follows("AUTH", 1) || follows("AUTH2", 2))
        }
        Some(CommandId::Host(HostCommand::Config)) => {
            index >= 3
                && index % 2 == 1
                && request.is(1, "SET")
                && Setting::find(request.arg(index - 1)).is_some_and(Setting::is_secret)
        }
        _ => false,
    }
}

/// Writes an argument in double quotes, escaped as in Redis.
pub(crate) fn quote(line: &mut String, argument: &[u8]) {
    line.push('"');
    for byte in argument {
        match byte {
            b'"' => line.push_str("\\\""),
            b'\\' => line.push_str("\\\\"),
            b'\n' => line.push_str("\\n"),
            b'\r' => line.push_str("\\r"),
            b'\t' => line.push_str("\\t"),
            0x07 => line.push_str("\\a"),
            0x08 => line.push_str("\\b"),
            b' '..=b'~' => line.push(char::from(*byte)),
            _ => {
                let _ = write!(line, "\\x{byte:02x}");
            }
        }
    }
    line.push('"');
}

#[cfg(test)]
mod tests {
    use pando_protocol::RequestBuffer;

    use super::*;

    fn arguments_of(arguments: &[&[u8]]) -> String {
        let request = RequestBuffer::from_args(arguments);
        let line = line(
            1_500_000_000_000_042,
            3,
            "127.0.0.1:9",
            request.as_request(),
        );
        let line = String::from_utf8(line).unwrap();
        let rest = line
            .strip_prefix("+1500000000.000042 [3 127.0.0.1:9] ")
            .unwrap();
        rest.strip_suffix("\r\n").unwrap().to_owned()
    }

    #[test]
    fn arguments_are_quoted_as_redis_quotes_them() {
        assert_eq!(
            arguments_of(&[b"set", b"a\x01b\"\\", b"\r\n\t\xff \x07\x08'", b""]),
            r#""set" "a\x01b\"\\" "\r\n\t\xff \a\b'" """#
        );
    }

    #[test]
    fn secrets_are_never_shown() {
        for (arguments, expected) in [
            (
                &[&b"auth"[..], b"u", b"p"][..],
                r#""auth" "(redacted)" "(redacted)""#,
            ),
            (
                &[b"HELLO", b"3", b"auth", b"u", b"p", b"setname", b"n"],
                r#""HELLO" "3" "auth" "(redacted)" "(redacted)" "setname" "n""#,
            ),
            (
                &[b"config", b"set", b"timeout", b"1", b"requirepass", b"p"],
                r#""config" "set" "timeout" "1" "requirepass" "(redacted)""#,
            ),
            (&[b"get", b"auth", b"x"], r#""get" "auth" "x""#),
        ] {
            assert_eq!(arguments_of(arguments), expected);
        }
    }

    #[test]
    fn a_monitor_is_counted_once() {
        let monitors = Monitors::default();
        let monitor = Monitor {
            client: 1,
            worker: 0,
        };
        monitors.add(monitor);
        monitors.add(monitor);
        assert_eq!((monitors.any(), monitors.all().len()), (true, 1));
        monitors.remove(1);
        assert!(!monitors.any());
    }
}
