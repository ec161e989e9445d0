//! The differences from Redis that are meant, each with its reason. README lists the same.

use pando_protocol::resp::Value;

/// Why these two replies may differ, or `None` if they may not.
pub(super) fn reason(
    _arguments: &[Vec<u8>],
    _ours: &Value,
    _theirs: &Value,
) -> Option<&'static str> {
    None
}
