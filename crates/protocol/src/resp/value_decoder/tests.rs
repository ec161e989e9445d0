//! Replies in whole and in pieces, and what a decoder refuses.

use super::*;
use proptest::prelude::*;

fn decode_pieces(bytes: &[u8], piece: usize) -> Result<Vec<Value>, ReplyError> {
    let (mut decoder, mut replies) = (ValueDecoder::new(), Vec::new());
    for mut input in bytes.chunks(piece) {
        while let Some(reply) = decoder.next(&mut input)? {
            replies.push(reply);
        }
        assert!(input.is_empty());
    }
    Ok(replies)
}

fn decode(bytes: &[u8]) -> Result<Vec<Value>, ReplyError> {
    let whole = decode_pieces(bytes, bytes.len().max(1));
    for piece in [1, 2, 3, 5] {
        assert_eq!(
            decode_pieces(bytes, piece),
            whole,
            "in pieces of {piece} bytes"
        );
    }
    whole
}

fn shown(bytes: &[u8]) -> String {
    match decode(bytes) {
        Ok(replies) => format!("{replies:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_type_has_a_variant() {
    for (bytes, text) in [
        (&b"+OK\r\n"[..], "[+OK]"),
        (b"-ERR no\r\n", "[-ERR no]"),
        (b":-5\r\n:0\r\n", "[-5, 0]"),
        (
            b"$3\r\na\r\n\r\n$0\r\n\r\n$-1\r\n",
            "[\"a\\r\\n\", \"\", null-bulk]",
        ),
        (b"*0\r\n*-1\r\n_\r\n", "[[], null-array, null]"),
        (b"*2\r\n*1\r\n:1\r\n$1\r\nx\r\n", "[[[1], \"x\"]]"),
        (b"#t\r\n#f\r\n", "[#true, #false]"),
        (
            b",1.5\r\n,-inf\r\n,nan\r\n,1e+17\r\n",
            "[,1.5, ,-inf, ,nan, ,1e+17]",
        ),
        (
            b"(123456789012345678901234567890\r\n",
            "[(123456789012345678901234567890]",
        ),
        (b"!5\r\nERR x\r\n", "[!ERR x]"),
        (b"=6\r\ntxt:ab\r\n", "[=txt:\"ab\"]"),
        (b"%2\r\n+a\r\n:1\r\n+b\r\n%0\r\n", "[{+a: 1, +b: {}}]"),
        (b"~1\r\n:1\r\n>2\r\n+m\r\n:2\r\n", "[~[1], >[+m, 2]]"),
        (b"|1\r\n+ttl\r\n:3\r\n*1\r\n:1\r\n", "[|{+ttl: 3} [1]]"),
        (
            b"*2\r\n|0\r\n:1\r\n|1\r\n:1\r\n:2\r\n:3\r\n",
            "[[|{} 1, |{1: 2} 3]]",
        ),
    ] {
        assert_eq!(shown(bytes), text);
    }
}

#[test]
fn what_is_no_reply_is_an_error() {
    for (bytes, text) in [
        (&b"x\r\n"[..], "0x78 begins no reply"),
        (b"\r\n", "malformed line of type 0x0d"),
        (b"+a\n", "malformed line of type 0x2b"),
        (b":a\r\n", "malformed line of type 0x3a"),
        (b":+1\r\n", "malformed line of type 0x3a"),
        (b"_x\r\n", "malformed line of type 0x5f"),
        (b"#\r\n", "malformed line of type 0x23"),
        (b",x\r\n", "malformed line of type 0x2c"),
        (b"(1x\r\n", "malformed line of type 0x28"),
        (b"$-2\r\n", "malformed line of type 0x24"),
        (b"!-1\r\n", "malformed line of type 0x21"),
        (b"$9223372036854775807\r\n", "malformed line of type 0x24"),
        (b"*-2\r\n", "malformed line of type 0x2a"),
        (b"%-1\r\n", "malformed line of type 0x25"),
        (b"=3\r\ntxt\r\n", "malformed line of type 0x3d"),
        (b"$1\r\nabc\r\n", "a string is not followed by CR LF"),
    ] {
        assert_eq!(shown(bytes), text);
    }
    assert_eq!(
        decode_pieces(&vec![b'+'; REPLY_LINE_BYTES_MAX + 1], 4096),
        Err(ReplyError::LineTooLong)
    );
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize| [b"*1\r\n".repeat(depth), b":1\r\n".to_vec()].concat();
    assert!(decode_pieces(&nested(REPLY_DEPTH_MAX), 1000).is_ok());
    assert_eq!(
        decode_pieces(&nested(REPLY_DEPTH_MAX + 1), 1000),
        Err(ReplyError::TooDeep)
    );
}

#[test]
fn a_header_takes_no_memory_before_its_elements_come() {
    let mut decoder = ValueDecoder::new();
    let mut input = &b"*1000000000\r\n%4611686018427387903\r\n$500000000\r\nx"[..];
    assert_eq!(decoder.next(&mut input), Ok(None));
    let reserved: usize = decoder
        .open
        .iter()
        .map(|open| open.elements.capacity())
        .sum();
    assert!(reserved <= 2 * TRUSTED_LEN_MAX);
    assert!(
        decoder
            .string
            .is_some_and(|string| string.bytes.capacity() < 1024)
    );
}

fn values() -> impl Strategy<Value = Value> {
    let text = "[ -~]{0,10}".prop_map(String::into_bytes);
    let bytes = prop::collection::vec(any::<u8>(), 0..20);
    let leaf = prop_oneof![
        Just(Value::Null),
        Just(Value::NullBulk),
        Just(Value::NullArray),
        any::<bool>().prop_map(Value::Boolean),
        any::<i64>().prop_map(Value::Integer),
        any::<i128>().prop_map(|value| Value::BigNumber(value.to_string().into_bytes())),
        any::<f64>().prop_map(|value| Value::Double(crate::number::format_f64(value).into_bytes())),
        text.clone().prop_map(Value::Simple),
        text.prop_map(Value::Error),
        bytes.clone().prop_map(Value::Bulk),
        bytes.clone().prop_map(Value::BulkError),
        bytes.prop_map(|bytes| Value::Verbatim(*b"mkd", bytes)),
    ];
    leaf.prop_recursive(4, 64, 6, |inner| {
        let elements = prop::collection::vec(inner.clone(), 0..6);
        let pairs = prop::collection::vec((inner.clone(), inner.clone()), 0..4);
        prop_oneof![
            elements.clone().prop_map(Value::Array),
            elements.clone().prop_map(Value::Set),
            elements.prop_map(Value::Push),
            pairs.clone().prop_map(Value::Map),
            (pairs, inner).prop_map(|(pairs, value)| Value::Attributed(pairs, Box::new(value))),
        ]
    })
}

fn encode(value: &Value, out: &mut Vec<u8>) {
    let line = |out: &mut Vec<u8>, kind: char, text: &[u8]| {
        out.extend_from_slice(&[&[kind as u8], text, b"\r\n"].concat());
    };
    let len = |out: &mut Vec<u8>, kind, len: usize| line(out, kind, len.to_string().as_bytes());
    let string = |out: &mut Vec<u8>, kind, bytes: &[u8]| {
        len(out, kind, bytes.len());
        out.extend_from_slice(&[bytes, b"\r\n"].concat());
    };
    match value {
        Value::Null => line(out, '_', b""),
        Value::NullBulk => line(out, '$', b"-1"),
        Value::NullArray => line(out, '*', b"-1"),
        Value::Simple(text) => line(out, '+', text),
        Value::Error(text) => line(out, '-', text),
        Value::Double(text) => line(out, ',', text),
        Value::BigNumber(text) => line(out, '(', text),
        Value::Integer(value) => line(out, ':', value.to_string().as_bytes()),
        Value::Boolean(value) => line(out, '#', if *value { b"t" } else { b"f" }),
        Value::Bulk(bytes) => string(out, '$', bytes),
        Value::BulkError(bytes) => string(out, '!', bytes),
        Value::Verbatim(format, text) => string(out, '=', &[format, &b":"[..], text].concat()),
        Value::Array(elements) | Value::Set(elements) | Value::Push(elements) => {
            let kind = match value {
                Value::Array(_) => '*',
                Value::Set(_) => '~',
                _ => '>',
            };
            len(out, kind, elements.len());
            for element in elements {
                encode(element, out);
            }
        }
        Value::Map(pairs) | Value::Attributed(pairs, _) => {
            let kind = if matches!(value, Value::Map(_)) {
                '%'
            } else {
                '|'
            };
            len(out, kind, pairs.len());
            for (key, value) in pairs {
                encode(key, out);
                encode(value, out);
            }
            if let Value::Attributed(_, value) = value {
                encode(value, out);
            }
        }
    }
}

proptest! {
    #[test]
    fn replies_survive_the_wire_in_any_pieces(
        values in prop::collection::vec(values(), 1..4),
        piece in 1usize..40,
    ) {
        let mut bytes = Vec::new();
        for value in &values {
            encode(value, &mut bytes);
        }
        prop_assert_eq!(decode_pieces(&bytes, piece), Ok(values));
    }
}
