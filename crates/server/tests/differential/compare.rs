//! How the replies of two servers to one command are compared.

use std::time::Duration;

use pando_protocol::resp::Value;

/// What must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compare {
    /// Everything, byte for byte.
    Exact,
    /// The elements, in any order.
    Unordered,
    /// Pairs of keys and values, in any order; flat in RESP2, a map in RESP3.
    Map,
    /// Times in seconds up to this difference; the sign always.
    Seconds(u64),
    /// The same in milliseconds.
    Milliseconds(u64),
    /// Only the kind of reply and its length: the content is random.
    Shape,
    /// A whole HSCAN or ZSCAN in one reply: cursor 0 and pairs in any order.
    ScanReply,
    /// A whole SSCAN in one reply: cursor 0 and members in any order.
    MembersReply,
    /// Everything but the times of what is pending in streams, and how streams are cut.
    Timeless,
    /// A SCAN followed to its end: the set of keys.
    Scan,
    /// A DUMP restored on the other server: the value.
    Dump,
}

impl Compare {
    /// The same when the two sides may have executed a command that much apart from each other.
    pub(super) fn of_apart(self, apart: Duration) -> Self {
        match self {
            Self::Seconds(difference) => Self::Seconds(difference + apart.as_secs()),
            Self::Milliseconds(difference) => {
                Self::Milliseconds(difference + apart.as_millis() as u64)
            }
            other => other,
        }
    }
}

/// Whether the replies agree; the commands of a transaction are compared one by one by the caller.
pub(super) fn agree(compare: Compare, ours: &Value, theirs: &Value) -> bool {
    if ours == theirs {
        return true;
    }
    if is_error(ours) || is_error(theirs) {
        return false;
    }
    match compare {
        Compare::Exact | Compare::Scan | Compare::Dump => false,
        Compare::Unordered => sorted(ours) == sorted(theirs),
        Compare::Map => sorted_pairs(ours) == sorted_pairs(theirs),
        Compare::Seconds(difference) | Compare::Milliseconds(difference) => match (ours, theirs) {
            (Value::Integer(ours), Value::Integer(theirs)) => {
                ours.signum() == theirs.signum() && ours.abs_diff(*theirs) <= difference
            }
            _ => false,
        },
        Compare::Timeless => timeless(ours) == timeless(theirs),
        Compare::Shape => shape(ours) == shape(theirs),
        Compare::MembersReply => match (ours, theirs) {
            (Value::Array(ours), Value::Array(theirs)) if ours.len() == 2 && theirs.len() == 2 => {
                ours[0] == theirs[0] && sorted(&ours[1]) == sorted(&theirs[1])
            }
            _ => false,
        },
        Compare::ScanReply => match (ours, theirs) {
            (Value::Array(ours), Value::Array(theirs)) if ours.len() == 2 && theirs.len() == 2 => {
                ours[0] == theirs[0] && sorted_pairs(&ours[1]) == sorted_pairs(&theirs[1])
            }
            _ => false,
        },
    }
}

/// The same without what two servers have of their own.
fn timeless(value: &Value) -> Value {
    const OWN: [&[u8]; 4] = [
        b"idle",
        b"seen-time",
        b"radix-tree-keys",
        b"radix-tree-nodes",
    ];
    let is_own =
        |name: Option<&Value>| matches!(name, Some(Value::Bulk(name)) if OWN.contains(&&name[..]));
    match value {
        Value::Array(elements) => {
            let mut elements = elements.clone();
            for index in 1..elements.len() {
                if is_own(elements.get(index - 1)) {
                    elements[index] = Value::Integer(0);
                }
            }
            // An id, perhaps a consumer, when it was delivered, and how often.
            match &mut elements[..] {
                [Value::Bulk(_), time @ Value::Integer(_), Value::Integer(_)]
                | [
                    Value::Bulk(_),
                    Value::Bulk(_),
                    time @ Value::Integer(_),
                    Value::Integer(_),
                ] => {
                    *time = Value::Integer(0);
                }
                _ => {}
            }
            Value::Array(elements.iter().map(timeless).collect())
        }
        Value::Map(pairs) => {
            let pairs = pairs.iter().map(|(name, value)| {
                let value = if is_own(Some(name)) {
                    Value::Integer(0)
                } else {
                    timeless(value)
                };
                (name.clone(), value)
            });
            Value::Map(pairs.collect())
        }
        other => other.clone(),
    }
}

pub(super) fn is_error(value: &Value) -> bool {
    matches!(value, Value::Error(_))
}

fn text(value: &Value) -> String {
    format!("{value:?}")
}

fn sorted(value: &Value) -> Vec<String> {
    let mut elements: Vec<_> = match value {
        Value::Array(elements) | Value::Set(elements) => elements.iter().map(text).collect(),
        other => vec![text(other)],
    };
    elements.sort();
    elements
}

fn sorted_pairs(value: &Value) -> Vec<(String, String)> {
    let mut pairs: Vec<_> = match value {
        Value::Map(pairs) => pairs
            .iter()
            .map(|(key, value)| (text(key), text(value)))
            .collect(),
        Value::Array(elements) => elements
            .chunks(2)
            .map(|pair| (text(&pair[0]), pair.get(1).map(text).unwrap_or_default()))
            .collect(),
        other => vec![(text(other), String::new())],
    };
    pairs.sort();
    pairs
}

fn shape(value: &Value) -> (&'static str, usize) {
    match value {
        Value::Array(elements) => ("array", elements.len()),
        Value::Map(pairs) => ("map", pairs.len()),
        Value::Bulk(_) => ("bulk", 0),
        null if null.is_null() => ("null", 0),
        _ => ("other", 0),
    }
}
