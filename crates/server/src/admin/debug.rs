//! DEBUG: subcommands used by clients' test suites.

use pando_db::{CommandError, Progress, Wait, describe_object};

use super::error::Echo;
use super::{AdminError, Call, Handled};
use crate::config::parse_memory;

const HELP: &[&str] = &[
    "ERROR <text>",
    "    Answer an error with this text.",
    "OBJECT <key>",
    "    Describe the value at the key.",
    "QUICKLIST-PACKED-THRESHOLD <size>",
    "    Is taken, and changes nothing: lists have other nodes here.",
    "SET-ACTIVE-EXPIRE <0|1>",
    "    Look for expired keys in the background, or do not.",
    "SLEEP <seconds>",
    "    Answer after this time; other connections are served meanwhile.",
];

/// Longest sleep in seconds.
const SLEEP_SECONDS_MAX: f64 = 86_400.0;

/// DEBUG and its subcommands.
pub(super) fn execute(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    match (
        request.arg(1).to_ascii_lowercase().as_slice(),
        request.len(),
    ) {
        (b"help", 2) => call.help("DEBUG", HELP),
        (b"error", 3) => Err(AdminError::Given {
            text: Echo::of(request.arg(2)),
        }),
        (b"object", 3) => {
            let keyspace = &mut call.turn.keyspace(call.client.index());
            let described = describe_object(keyspace, request.arg(2));
            call.reply
                .simple(&described.ok_or(CommandError::NoSuchKey)?);
            Ok(Progress::Done)
        }
        (b"quicklist-packed-threshold", 3) => {
            let size = std::str::from_utf8(request.arg(2)).ok();
            size.and_then(parse_memory)
                .ok_or(AdminError::NoMemoryValue)?;
            call.ok()
        }
        (b"sleep", 3) => Ok(Progress::Waits(Wait::Time {
            milliseconds: sleep_ms(request.arg(2)),
        })),
        (b"set-active-expire", 3) => {
            call.shared
                .database
                .set_active_expire(leading_integer(request.arg(2)) != 0);
            call.ok()
        }
        _ => Err(AdminError::wrong_subcommand("DEBUG", request.arg(1))),
    }
}

/// Seconds as C's `strtod` reads them: anything that is not a number is 0.
fn sleep_ms(seconds: &[u8]) -> u64 {
    let text = std::str::from_utf8(seconds).unwrap_or_default();
    let seconds = text.trim().parse().unwrap_or(0.0_f64);
    if seconds.is_nan() {
        return 0;
    }
    (seconds.clamp(0.0, SLEEP_SECONDS_MAX) * 1000.0).ceil() as u64
}

/// An integer as C's `atoi` reads it: the digits at the beginning.
fn leading_integer(text: &[u8]) -> i64 {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0_i64, |sum, digit| {
        sum.wrapping_mul(10).wrapping_add(i64::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_milliseconds() {
        for (seconds, expected) in [
            ("0", 0),
            ("0.05", 50),
            ("1.5", 1500),
            ("-1", 0),
            ("x", 0),
            ("nan", 0),
            ("1e300", 86_400_000),
        ] {
            assert_eq!(sleep_ms(seconds.as_bytes()), expected, "{seconds}");
        }
        assert_eq!((leading_integer(b"12x"), leading_integer(b"x")), (12, 0));
    }
}
