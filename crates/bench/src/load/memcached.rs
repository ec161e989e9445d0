//! The part of memcached's protocol that the load needs: `mg KEY v` and `ms KEY BYTES`, and for
//! several keys in one request the older `get KEY KEY …`, which client libraries send.
//!
//! Replies become the values that a RESP server answers with, so that one check fits both: `VA` a
//! string, `EN` null, `HD` the status OK, `VALUE …` lines up to `END` an array of strings (of the
//! keys that are there), everything else an error.

use std::io::Write;

use pando_protocol::resp::Value;

pub(super) fn push_get(output: &mut Vec<u8>, key: &[u8]) {
    output.extend_from_slice(b"mg ");
    output.extend_from_slice(key);
    output.extend_from_slice(b" v\r\n");
}

pub(super) fn push_set(output: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    output.extend_from_slice(b"ms ");
    output.extend_from_slice(key);
    write!(output, " {}\r\n", value.len()).expect("a vector takes every byte");
    output.extend_from_slice(value);
    output.extend_from_slice(b"\r\n");
}

pub(super) fn push_get_many<'k>(output: &mut Vec<u8>, keys: impl Iterator<Item = &'k [u8]>) {
    output.extend_from_slice(b"get");
    for key in keys {
        output.push(b' ');
        output.extend_from_slice(key);
    }
    output.extend_from_slice(b"\r\n");
}

/// Takes the next whole reply off the front of `input`; `None` and `input` as it was when there is
/// none.
pub(super) fn next(input: &mut &[u8]) -> Option<Value> {
    let bytes = *input;
    let line_end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let (line, rest) = (&bytes[..line_end], &bytes[line_end + 2..]);
    let mut words = line.split(|byte| *byte == b' ');
    let (value, rest) = match words.next() {
        Some(b"VA") => {
            let length = words.next().and_then(|word| std::str::from_utf8(word).ok());
            let Some(length) = length.and_then(|word| word.parse::<usize>().ok()) else {
                *input = rest;
                return Some(Value::Error(line.to_vec()));
            };
            let data = rest.get(..length)?;
            (Value::Bulk(data.to_vec()), rest.get(length + 2..)?)
        }
        Some(b"VALUE" | b"END") => {
            let (values, rest) = values(bytes)?;
            (values, rest)
        }
        Some(b"EN") => (Value::Null, rest),
        Some(b"HD") => (Value::Simple(b"OK".to_vec()), rest),
        _ => (Value::Error(line.to_vec()), rest),
    };
    *input = rest;
    Some(value)
}

/// The values of a `get` up to its `END`, and what follows it.
fn values(mut bytes: &[u8]) -> Option<(Value, &[u8])> {
    let mut values = Vec::new();
    loop {
        let line_end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
        let (line, rest) = (&bytes[..line_end], &bytes[line_end + 2..]);
        if line == b"END" {
            return Some((Value::Array(values), rest));
        }
        let length = std::str::from_utf8(line)
            .ok()
            .and_then(|line| line.strip_prefix("VALUE "))
            .and_then(|words| words.split(' ').nth(2)?.parse::<usize>().ok());
        let Some(length) = length else {
            return Some((Value::Error(line.to_vec()), rest));
        };
        values.push(Value::Bulk(rest.get(..length)?.to_vec()));
        bytes = rest.get(length + 2..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_taken_whole_and_in_order() {
        let sent = b"VA 3\r\na\r\n\r\nHD\r\nEN\r\nSERVER_ERROR no\r\nVA x\r\n";
        let mut input = &sent[..];
        assert_eq!(next(&mut input), Some(Value::Bulk(b"a\r\n".to_vec())));
        assert_eq!(next(&mut input), Some(Value::Simple(b"OK".to_vec())));
        assert_eq!(next(&mut input), Some(Value::Null));
        let error = Value::Error(b"SERVER_ERROR no".to_vec());
        assert_eq!(next(&mut input), Some(error));
        assert_eq!(next(&mut input), Some(Value::Error(b"VA x".to_vec())));
        assert_eq!(next(&mut input), None);
    }

    #[test]
    fn values_of_several_keys_are_one_reply() {
        let sent = b"VALUE a 0 3\r\nEND\r\nVALUE b 0 0\r\n\r\nEND\r\nEND\r\nVALUE a\r\n";
        let mut input = &sent[..];
        let both = vec![Value::Bulk(b"END".to_vec()), Value::Bulk(Vec::new())];
        assert_eq!(next(&mut input), Some(Value::Array(both)));
        assert_eq!(next(&mut input), Some(Value::Array(Vec::new())));
        let error = Value::Error(b"VALUE a".to_vec());
        assert_eq!(next(&mut input), Some(error));
        let mut output = Vec::new();
        push_get_many(&mut output, [b"a".as_slice(), b"b"].into_iter());
        assert_eq!(output, b"get a b\r\n");
    }

    #[test]
    fn half_a_reply_is_left_where_it_is() {
        for sent in [&b"VA 3\r\nabc\r\n"[..], b"VALUE a 0 3\r\nabc\r\nEND\r\n"] {
            for cut in 0..sent.len() {
                let mut input = &sent[..cut];
                assert_eq!(next(&mut input), None);
                assert_eq!(input.len(), cut);
            }
        }
    }
}
