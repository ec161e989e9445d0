//! The differences from Redis that are meant, each with its reason. README lists the same.

use pando_protocol::resp::Value;

/// Why these two replies may differ, or `None` if they may not.
pub(super) fn reason(arguments: &[Vec<u8>], ours: &Value, theirs: &Value) -> Option<&'static str> {
    let name = arguments[0].to_ascii_lowercase();
    let word = |index: usize| arguments.get(index).map(|word| word.to_ascii_lowercase());
    match name.as_slice() {
        b"command" if word(1).is_none_or(|word| word == b"count") => {
            Some("COMMAND: there are fewer commands")
        }
        b"dbsize" => match (ours, theirs) {
            (Value::Integer(ours), Value::Integer(theirs)) if ours.abs_diff(*theirs) <= 3 => {
                Some("DBSIZE: expired keys count until they are removed, which takes its time")
            }
            _ => None,
        },
        b"hscan" if is_unknown_cursor(ours) => {
            Some("HSCAN: a cursor that the server has not given out is an error")
        }
        b"object" if word(1).as_deref() == Some(b"refcount") => {
            let counts = matches!((ours, theirs), (Value::Integer(_), Value::Integer(_)));
            counts.then_some("OBJECT REFCOUNT: Redis shares small integers until they are copied")
        }
        _ => None,
    }
}

fn is_unknown_cursor(reply: &Value) -> bool {
    matches!(reply, Value::Error(text) if text.starts_with(b"ERR unknown cursor"))
}
