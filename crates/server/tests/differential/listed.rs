//! The differences from Redis that are meant, each with its reason. `docs/REDIS.md` lists the same.

use pando_protocol::resp::Value;

/// Why these two replies may differ, or `None` if they may not. `history` holds all commands so
/// far, words separated by spaces.
pub(super) fn reason(
    arguments: &[Vec<u8>],
    ours: &Value,
    theirs: &Value,
    history: &[String],
) -> Option<&'static str> {
    let name = arguments[0].to_ascii_lowercase();
    let word = |index: usize| arguments.get(index).map(|word| word.to_ascii_lowercase());
    match name.as_slice() {
        b"command" if word(1).is_none_or(|word| word == b"count") => {
            Some("COMMAND: there are fewer commands")
        }
        b"bitcount" | b"bitpos" if matches!(ours, Value::Error(_)) => {
            Some("BITCOUNT, BITPOS: arguments are checked before the key, as in Redis 8")
        }
        b"dbsize" => match (ours, theirs) {
            (Value::Integer(ours), Value::Integer(theirs)) if ours.abs_diff(*theirs) <= 3 => {
                Some("DBSIZE: expired keys count until they are removed, which takes its time")
            }
            _ => None,
        },
        b"hscan" | b"sscan" | b"zscan" if is_unknown_cursor(ours) => {
            Some("HSCAN, SSCAN, ZSCAN: a cursor that the server has not given out is an error")
        }
        b"object" if word(1).as_deref() == Some(b"refcount") => {
            let counts = matches!((ours, theirs), (Value::Integer(_), Value::Integer(_)));
            counts.then_some("OBJECT REFCOUNT: Redis shares small integers until they are copied")
        }
        b"object"
            if *ours == Value::Bulk(b"listpack".to_vec())
                && *theirs == Value::Bulk(b"hashtable".to_vec()) =>
        {
            Some("OBJECT ENCODING: small sets are listpacks, as in Redis 7.2")
        }
        b"object"
            if *ours == Value::Bulk(b"listpack".to_vec())
                && *theirs == Value::Bulk(b"quicklist".to_vec()) =>
        {
            Some("OBJECT ENCODING: small lists are listpacks, as in Redis 7.2")
        }
        b"object" if word(1).as_deref() == Some(b"encoding") => {
            let written = arguments
                .get(2)
                .is_some_and(|key| has_bits_written(key, history));
            (written && *theirs == Value::Bulk(b"raw".to_vec()))
                .then_some("OBJECT ENCODING: bits written as they were leave the encoding alone")
        }
        _ => None,
    }
}

/// Whether a command that writes bits was sent for this key, or another key was copied or renamed
/// to it.
fn has_bits_written(key: &[u8], history: &[String]) -> bool {
    let key = key.escape_ascii().to_string();
    let mut lines = history.iter().map(|line| line.split(' '));
    lines.any(|mut words| {
        let name = words.next().unwrap_or_default();
        let is = |names: &[&str]| names.iter().any(|it| name.eq_ignore_ascii_case(it));
        let place = if is(&["setbit", "bitfield"]) {
            0
        } else if is(&["copy", "rename", "renamenx"]) {
            1
        } else {
            return false;
        };
        words.nth(place) == Some(&key)
    })
}

fn is_unknown_cursor(reply: &Value) -> bool {
    matches!(reply, Value::Error(text) if text.starts_with(b"ERR unknown cursor"))
}
