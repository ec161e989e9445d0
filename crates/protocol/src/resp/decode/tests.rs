//! The decoder's rules, each under every way of cutting the bytes into reads.

use super::*;
use crate::Request;

type Outcome = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

/// A connection that receives its bytes in pieces of `piece` bytes, and moves unconsumed ones to
/// the front of its buffer each time.
fn receive(decoder: &mut Decoder, bytes: &[u8], piece: usize) -> Outcome {
    let (mut buffer, mut requests) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        buffer.extend_from_slice(piece);
        let mut from = 0;
        let mut ranges = Vec::new();
        let start = loop {
            let first = ranges.len();
            match decoder.next(&mut buffer, from, &mut ranges) {
                Ok(Decoded::Request { arguments, end }) => {
                    assert_eq!(arguments, ranges.len() - first);
                    let request = Request::new(&buffer, &ranges[first..]);
                    requests.push(request.args_from(0).map(<[u8]>::to_vec).collect());
                    from = end;
                }
                Ok(Decoded::TooLong { end }) => {
                    assert_eq!(ranges.len(), first + 1);
                    let name = Request::new(&buffer, &ranges[first..]).arg(0);
                    requests.push(vec![b"too long".to_vec(), name.to_vec()]);
                    from = end;
                }
                Ok(Decoded::Incomplete {
                    start,
                    bytes_missing,
                }) => {
                    assert!(bytes_missing > 0 && start >= from && ranges.len() == first);
                    break start;
                }
                Err(error) => {
                    assert_eq!(ranges.len(), first);
                    return (requests, Some(error));
                }
            }
        };
        buffer.drain(..start);
    }
    (requests, None)
}

fn decode_with(decoder: impl Fn() -> Decoder, bytes: &[u8]) -> Outcome {
    let whole = receive(&mut decoder(), bytes, bytes.len().max(1));
    for piece in [1, 2, 3, 7, 16 * 1024] {
        let pieces = receive(&mut decoder(), bytes, piece);
        assert_eq!(pieces, whole, "in pieces of {piece} bytes");
    }
    whole
}

fn decode(bytes: &[u8]) -> Outcome {
    decode_with(Decoder::default, bytes)
}

fn requests(bytes: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let (requests, error) = decode(bytes);
    assert_eq!(error, None);
    requests
}

fn error(bytes: &[u8]) -> String {
    let (_, error) = decode(bytes);
    String::from_utf8_lossy(&error.expect("an error").text()).into_owned()
}

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

#[test]
fn requests_of_a_pipeline_come_in_turn() {
    let bytes = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nPING\r\nECHO \"a b\"\n*1\r\n$0\r\n\r\n";
    let expected: [&[&[u8]]; 4] = [&[b"GET", b"k"], &[b"PING"], &[b"ECHO", b"a b"], &[b""]];
    assert_eq!(requests(bytes), expected);
}

#[test]
fn arguments_are_binary() {
    let argument: Vec<u8> = (0..=u8::MAX).chain(*b"\r\n*1\r\n$4\r\n").collect();
    let mut bytes = format!("*2\r\n$4\r\nECHO\r\n${}\r\n", argument.len()).into_bytes();
    bytes.extend_from_slice(&argument);
    bytes.extend_from_slice(b"\r\n");
    assert_eq!(requests(&bytes), [[b"ECHO".to_vec(), argument]]);
}

#[test]
fn requests_without_arguments_are_skipped() {
    for nothing in [
        "*0\r\n",
        "*-1\r\n",
        "*-9223372036854775808\r\n",
        "\r\n",
        "\n\n",
        " \t \r\n",
    ] {
        let bytes = [nothing.as_bytes(), PING].concat();
        assert_eq!(requests(&bytes), [[b"PING"]], "{nothing:?}");
        assert_eq!(requests(nothing.as_bytes()).len(), 0);
    }
}

#[test]
fn the_two_bytes_of_a_line_end_are_skipped_unread() {
    let bytes = [b"*1\rX$4\rXPINGXX", PING].concat();
    assert_eq!(requests(&bytes), [[b"PING"], [b"PING"]]);
}

#[test]
fn a_count_is_a_canonical_number_within_bounds() {
    let expected = "ERR Protocol error: invalid multibulk length";
    for count in [
        "",
        "a",
        "03",
        "+3",
        "-0",
        " 1",
        "1 ",
        "1\0",
        "1048577",
        "2147483648",
        "9223372036854775808",
        "123456789012",
        "-",
        "--1",
        "1\n",
    ] {
        assert_eq!(
            error(format!("*{count}\r\n$1\r\n").as_bytes()),
            expected,
            "{count:?}"
        );
    }
    assert_eq!(
        error(format!("*{}\r\n", "1".repeat(65000)).as_bytes()),
        expected
    );
}

#[test]
fn a_length_is_a_canonical_number_within_bounds() {
    let expected = "ERR Protocol error: invalid bulk length";
    for len in [
        "",
        "-1",
        "abc",
        "04",
        "4 ",
        "+4",
        "00",
        "536870913",
        "9999999999",
        "9223372036854775808",
        "-9223372036854775808",
        "18446744073709551617",
    ] {
        assert_eq!(
            error(format!("*1\r\n${len}\r\nPING").as_bytes()),
            expected,
            "{len:?}"
        );
    }
    assert_eq!(
        error(format!("*1\r\n${}\r\n", "1".repeat(60000)).as_bytes()),
        expected
    );
}

#[test]
fn a_line_that_does_not_end_is_refused() {
    let digits = "1".repeat(1_000_000);
    for (head, expected) in [
        ("*", "ERR Protocol error: too big mbulk count string"),
        ("*1\r\n$", "ERR Protocol error: too big bulk count string"),
        ("*1\r\n:", "ERR Protocol error: too big bulk count string"),
        ("", "ERR Protocol error: too big inline request"),
    ] {
        for (bytes, is_error) in [
            (format!("{head}{digits}"), true),
            (format!("{head}{digits}\r\n"), true),
            (format!("{head}{}", &digits[..65537]), true),
            (format!("{head}{}", &digits[..65535]), false),
        ] {
            let (_, error) = receive(&mut Decoder::default(), bytes.as_bytes(), 16 * 1024);
            let text = error.map(|error| String::from_utf8(error.text()).unwrap());
            assert_eq!(text.as_deref(), is_error.then_some(expected), "{head:?}");
        }
    }
}

#[test]
fn the_longest_inline_request_is_accepted_in_any_pieces() {
    let line = format!("{}\n", "x".repeat(INLINE_BYTES_MAX)).into_bytes();
    assert_eq!(requests(&line), [[&line[..INLINE_BYTES_MAX]]]);
    let line = format!("{}\n", "x".repeat(INLINE_BYTES_MAX + 1)).into_bytes();
    assert_eq!(error(&line), "ERR Protocol error: too big inline request");
}

#[test]
fn an_argument_begins_with_its_length() {
    for (got, shown) in [("P", "P"), (":", ":"), ("\r\n", "\r"), ("\n", "\n")] {
        assert_eq!(
            error(format!("*1\r\n{got}1\r\n").as_bytes()),
            format!("ERR Protocol error: expected '$', got '{shown}'")
        );
    }
    let (_, error) = decode(b"*1\r\n\xff1\r\n");
    assert_eq!(
        error.unwrap().text(),
        b"ERR Protocol error: expected '$', got '\xff'"
    );
}

#[test]
fn quotes_of_an_inline_request_are_closed() {
    for line in ["PING \"a", "PING 'a", "PING \"a\"b"] {
        assert_eq!(
            error(format!("{line}\r\n").as_bytes()),
            "ERR Protocol error: unbalanced quotes in request"
        );
    }
}

#[test]
fn requests_before_an_error_stand() {
    let (requests, error) = decode(b"*1\r\n$4\r\nPING\r\n*2\r\n$1\r\nx\r\n$y\r\n");
    assert_eq!(requests, [[b"PING"]]);
    assert_eq!(error, Some(ProtocolError::InvalidBulkLength));
}

#[test]
fn a_client_that_has_not_authenticated_sends_little() {
    let decoder = || {
        let mut decoder = Decoder::default();
        decoder.set_authenticated(false);
        decoder
    };
    let text = |bytes: &[u8]| {
        let (_, error) = decode_with(decoder, bytes);
        error.map(|error| String::from_utf8(error.text()).unwrap())
    };
    assert_eq!(text(b"*10\r\n$16384\r\n"), None);
    assert_eq!(
        text(b"*11\r\n").as_deref(),
        Some("ERR Protocol error: unauthenticated multibulk length")
    );
    assert_eq!(
        text(b"*1\r\n$16385\r\n").as_deref(),
        Some("ERR Protocol error: unauthenticated bulk length")
    );
    assert_eq!(
        text(b"*1\r\n$536870913\r\n").as_deref(),
        Some("ERR Protocol error: invalid bulk length")
    );
    assert_eq!(
        text(b"*1048577\r\n").as_deref(),
        Some("ERR Protocol error: invalid multibulk length")
    );
}

#[test]
fn limits_may_change_between_requests() {
    let mut decoder = Decoder::default();
    let bytes = b"*1\r\n$20\r\n";
    assert_eq!(receive(&mut decoder, bytes, 64).1, None);
    let mut decoder = Decoder::default();
    decoder.set_limits(DecoderLimits {
        bulk_bytes_max: 19,
        ..DecoderLimits::default()
    });
    let (_, error) = receive(&mut decoder, bytes, 64);
    assert_eq!(error, Some(ProtocolError::InvalidBulkLength));
    // Beyond what the query buffer can hold.
    let mut decoder = Decoder::new(DecoderLimits {
        bulk_bytes_max: usize::MAX,
        ..DecoderLimits::default()
    });
    let (_, error) = receive(&mut decoder, b"*1\r\n$1073741824\r\n", 64);
    assert_eq!(error, Some(ProtocolError::InvalidBulkLength));
}

#[test]
fn what_is_missing_is_told_and_nothing_is_looked_at_twice() {
    let mut decoder = Decoder::default();
    let mut ranges = Vec::new();
    let mut buffer = b"*2\r\n$3\r\nSET\r\n$10000000\r\nabc".to_vec();
    let first = decoder.next(&mut buffer, 0, &mut ranges);
    let missing = 10_000_000 + 2 - 3;
    let expected = Decoded::Incomplete {
        start: 0,
        bytes_missing: missing,
    };
    assert_eq!(first, Ok(expected));
    // What has been parsed is not looked at again: it may even be overwritten.
    buffer[..25].fill(b'?');
    buffer.resize(buffer.len() + missing, 0);
    let decoded = decoder.next(&mut buffer, 0, &mut ranges);
    let end = buffer.len();
    assert_eq!(decoded, Ok(Decoded::Request { arguments: 2, end }));
    assert_eq!(ranges[1].len, 10_000_000);
    assert_eq!(decoder.heap_bytes() / size_of::<ArgumentRange>(), 4);
}

/// A header that was cut between CR and LF left its search behind for the next request's.
#[test]
fn a_cut_line_end_does_not_outlive_its_line() {
    let bytes = b"*1\r\n$4\r\nPING\r\n\n*1\r\n$4\r\nPING\r\n";
    for cut in 1..bytes.len() {
        let (mut decoder, mut ranges) = (Decoder::default(), Vec::new());
        let mut buffer = bytes[..cut].to_vec();
        let mut from = 0;
        loop {
            match decoder.next(&mut buffer, from, &mut ranges) {
                Ok(Decoded::Request { end, .. }) => from = end,
                Ok(Decoded::Incomplete { start, .. }) if buffer.len() < bytes.len() => {
                    from = start;
                    buffer = bytes.to_vec();
                }
                last => {
                    assert!(
                        matches!(last, Ok(Decoded::Incomplete { .. })),
                        "{cut}: {last:?}"
                    );
                    break;
                }
            }
        }
        assert_eq!(ranges.len(), 2, "{cut}");
    }
}

#[test]
fn a_large_count_takes_no_memory_before_its_arguments_come() {
    let mut decoder = Decoder::default();
    let mut ranges = Vec::new();
    let mut buffer = b"*1048576\r\n$1\r\na\r\n".to_vec();
    let decoded = decoder.next(&mut buffer, 0, &mut ranges);
    assert!(matches!(decoded, Ok(Decoded::Incomplete { start: 0, .. })));
    assert!(decoder.heap_bytes() < 1024 && ranges.capacity() < 128);
    let argument = b"$1\r\na\r\n";
    for _ in 1..1024 * 1024 {
        buffer.extend_from_slice(argument);
    }
    let decoded = decoder.next(&mut buffer, 0, &mut ranges);
    let expected = Decoded::Request {
        arguments: 1024 * 1024,
        end: buffer.len(),
    };
    assert_eq!(decoded, Ok(expected));
    assert!(decoder.heap_bytes() <= 16 * 1024);
}

/// The most bytes of the decoder's requests that lie in memory, and what it makes of them, of bytes
/// that arrive in pieces.
fn receive_bounded(bytes: &[u8], piece: usize, bytes_max: usize) -> (usize, Outcome) {
    let mut decoder = Decoder::default();
    decoder.limits.inline_bytes_max = 16;
    decoder.set_request_bytes_max(bytes_max);
    let (mut most, mut buffer, mut requests) = (0, Vec::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        buffer.extend_from_slice(piece);
        let (mut taken, error) = {
            let mut from = 0;
            let mut ranges = Vec::new();
            let mut taken = Vec::new();
            let error = loop {
                let first = ranges.len();
                match decoder.next(&mut buffer, from, &mut ranges) {
                    Ok(Decoded::Request { end, .. }) => {
                        let request = Request::new(&buffer, &ranges[first..]);
                        taken.push(request.args_from(0).map(<[u8]>::to_vec).collect());
                        from = end;
                    }
                    Ok(Decoded::TooLong { end }) => {
                        let name = Request::new(&buffer, &ranges[first..]).arg(0);
                        taken.push(vec![b"too long".to_vec(), name.to_vec()]);
                        from = end;
                    }
                    Ok(Decoded::Incomplete { start, .. }) => {
                        buffer.drain(..start);
                        break None;
                    }
                    Err(error) => break Some(error),
                }
            };
            (taken, error)
        };
        requests.append(&mut taken);
        if error.is_some() {
            return (most, (requests, error));
        }
        most = most.max(buffer.len() + decoder.heap_bytes());
    }
    (most, (requests, None))
}

#[test]
fn a_request_above_the_bound_is_refused_when_that_is_known_and_never_held() {
    let value = vec![b'v'; 5000];
    let mut set = b"*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$5000\r\n".to_vec();
    let announced = set.len();
    set.extend_from_slice(&value);
    set.extend_from_slice(b"\r\n$2\r\nEX\r\n");
    let mut many = b"*1000\r\n$3\r\nDEL\r\n".to_vec();
    for _ in 0..999 {
        many.extend_from_slice(b"$2\r\nxy\r\n");
    }
    let bytes = [PING, &set, PING, &many, PING].concat();
    let words =
        |words: &[&str]| -> Vec<_> { words.iter().map(|it| it.as_bytes().to_vec()).collect() };
    let expected = [
        words(&["PING"]),
        words(&["too long", "SET"]),
        words(&["PING"]),
        words(&["too long", "DEL"]),
        words(&["PING"]),
    ];
    for piece in [1, 2, 3, 7, 100, 900] {
        let (most, (requests, error)) = receive_bounded(&bytes, piece, 1000);
        assert_eq!(
            (&requests[..], error),
            (&expected[..], None),
            "pieces of {piece}"
        );
        assert!(most <= 1000, "{most} bytes held in pieces of {piece}");
    }
    // The refusal does not wait for the bytes.
    let (_, (requests, _)) = receive_bounded(&set[..announced], 7, 1000);
    assert_eq!(requests, expected[1..2]);
    // The name alone may be too long, and what is skipped may be wrong.
    let (_, outcome) = receive_bounded(b"*2\r\n$5000\r\nabc", 100, 1000);
    assert_eq!(outcome, (vec![words(&["too long", ""])], None));
    let wrong = [&set[..set.len() - 8], b"x\r\n"].concat();
    let (_, (_, error)) = receive_bounded(&wrong, 100, 1000);
    assert_eq!(error, Some(ProtocolError::ExpectedBulk { got: b'x' }));
}

#[test]
fn a_request_up_to_the_bound_is_as_without() {
    let bytes = [PING, b"*2\r\n$4\r\nECHO\r\n$900\r\n", &[b'x'; 900], b"\r\n"].concat();
    for piece in [1, 7, 100, 2000] {
        let (_, outcome) = receive_bounded(&bytes, piece, 1000);
        assert_eq!(outcome, receive(&mut Decoder::default(), &bytes, piece));
    }
}
