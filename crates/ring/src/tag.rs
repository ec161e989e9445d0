//! Tags: the part of a key that decides on its node.
//!
//! The rule is that of Redis Cluster: what stands between the first `{` and the first `}` behind
//! it, unless that is empty. Keys with one tag are on one node.

/// The part of `key` that is hashed.
pub(super) fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else {
        return key;
    };
    let inside = &key[open + 1..];
    match inside.iter().position(|&byte| byte == b'}') {
        Some(length) if length > 0 => &inside[..length],
        _ => key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_what_redis_cluster_hashes() {
        for (key, hashed) in [
            ("plain", "plain"),
            ("{user1000}.following", "user1000"),
            ("before{user1000}after", "user1000"),
            ("foo{}{bar}", "foo{}{bar}"),
            ("foo{{bar}}zap", "{bar"),
            ("foo{bar}{zap}", "bar"),
            ("foo{bar", "foo{bar"),
            ("}foo{bar}", "bar"),
            ("foo}bar", "foo}bar"),
            ("", ""),
            ("{}", "{}"),
        ] {
            assert_eq!(tag(key.as_bytes()), hashed.as_bytes(), "{key}");
        }
    }
}
