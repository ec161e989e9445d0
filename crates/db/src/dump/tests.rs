//! Payloads made and taken by `redis-server` 7.0.15, and such as it must not be given.

use pando_engine::{
    BodyRef, Deadline, FieldsDraft, HashDraft, ListDraft, RowTag, SortedDraft, StreamDraft,
    StreamId, StreamPending, StreamRef, StringBody,
};

use super::*;

const BOUNDS: Bounds = Bounds {
    value_bytes_max: 1 << 20,
    field_bytes_max: 1 << 16,
    total_bytes_max: 1 << 22,
};

/// What a body holds: one string, or names and values in turn.
fn contents(body: &Body<'_>) -> Vec<Vec<u8>> {
    match body.as_ref() {
        BodyRef::String(string) => vec![string.to_cow().into_owned()],
        BodyRef::Row(_, hash) => hash
            .iter()
            .flat_map(|(field, value)| [field.to_vec(), value.to_cow().into()])
            .collect(),
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("a hexadecimal digit") as u8;
    hex.as_bytes()
        .chunks(2)
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}

fn read(payload: &[u8]) -> Result<Vec<Vec<u8>>, PayloadError> {
    decode(payload, BOUNDS).map(|decoded| contents(&decoded.body))
}

fn sealed(value: &[u8]) -> Vec<u8> {
    let mut payload = value.to_vec();
    seal(&mut payload);
    payload
}

fn hash(fields: &[(&[u8], &[u8])]) -> Body<'static> {
    let mut draft = HashDraft::new(None);
    for (field, value) in fields {
        draft.set(field, value);
    }
    draft.finish()
}

/// What `redis-server` 7.0.15 answers to DUMP of these strings; none of them compressed, where our
/// bytes may differ.
const STRINGS: &[(&[u8], &str)] = &[
    (b"", "00000a005d9b5c400f7fa2da"),
    (b"hello", "000568656c6c6f0a006372df766534200a"),
    (b"-128", "00c0800a009966326d2f0c5bd9"),
    (b"-129", "00c17fff0a001760822854808480"),
    (b"32767", "00c1ff7f0a00495a37da17f4d52b"),
    (b"32768", "00c2008000000a0045d82eedd5bda910"),
    (b"-2147483648", "00c2000000800a00c74f873e33558187"),
    (
        b"2147483648",
        "000a323134373438333634380a00e7b129a34c1d76ee",
    ),
    (b"007", "00033030370a007258e27b4c69bad9"),
    (b"\0\xff\r\n", "000400ff0d0a0a008d10d19e4216ec65"),
];

#[test]
fn strings_have_the_bytes_that_redis_gives_them() {
    for (string, hex) in STRINGS {
        let body = Body::string(string);
        assert_eq!(encode(body.as_ref(), Form::Table), bytes(hex), "{string:?}");
        assert_eq!(read(&bytes(hex)), Ok(vec![string.to_vec()]));
    }
}

#[test]
fn strings_that_redis_compressed_are_read() {
    for (string, hex) in [
        (
            &b"a".repeat(100),
            "00c3094064016161e057000161610a00e8a3b507b06df271",
        ),
        (
            &b"abc".repeat(11),
            "00c30b210361626361e012020162630a008d69cc0c04a4eb30",
        ),
        (
            &b"0123456789".repeat(7),
            "00c31240460a3031323334353637383930e030090138390a005de80c288b3dba9d",
        ),
    ] {
        assert_eq!(read(&bytes(hex)), Ok(vec![string.clone()]));
    }
}

#[test]
fn lengths_of_every_size_round_trip() {
    for length in [0, 1, 20, 21, 63, 64, 16383, 16384, 100_000] {
        let mut random = fastrand::Rng::with_seed(length);
        let noise: Vec<u8> = std::iter::repeat_with(|| random.u8(..))
            .take(length as usize)
            .collect();
        for string in [noise, vec![b'z'; length as usize]] {
            let payload = encode(Body::string(&string).as_ref(), Form::Table);
            assert_eq!(read(&payload), Ok(vec![string]));
        }
    }
}

#[test]
fn lengths_longer_than_they_need_to_be_are_read() {
    for hex in [
        "00800000000361626309005b24928a72e57c5c",
        "008100000000000000036162630900e3128d14184b85d6",
    ] {
        assert_eq!(read(&bytes(hex)), Ok(vec![b"abc".to_vec()]));
    }
}

/// A hash with an element of every form, as `redis-server` 7.0.15 dumps it from a listpack.
#[test]
fn a_listpack_has_the_bytes_that_redis_gives_it() {
    let long = b"x".repeat(64);
    let fields: &[(&[u8], &[u8])] = &[
        (b"a", b"1"),
        (b"b", b"-1"),
        (b"c", b"4095"),
        (b"d", b"-4097"),
        (b"e", b"70000"),
        (b"f", b"-8388609"),
        (b"g", b"2147483648"),
        (b"h", b"text"),
        (b"i", b""),
        (b"j", b"9223372036854775807"),
        (b"k", &long),
    ];
    let body = hash(fields);
    let theirs = bytes(
        "10c34061409e149e00000016008161020101816202dfff02816302cf20051a6402f1ffef03816502f270110104\
         816602f3ffff7fff05816702f42031008020031400098168028474657874058169028001816a02f4ff8000077f\
         09816b02e04078e036000142ff0a0030186d1519638115",
    );
    assert_eq!(read(&theirs), Ok(contents(&body)));
    let BodyRef::Row(tag, row) = body.as_ref() else {
        panic!("a hash")
    };
    let hash = FieldsRef::new(tag, row, Milliseconds(0));
    // Under the compression, the very same block.
    let listpack = Reader::new(&theirs[1..], 1000)
        .string()
        .map(std::borrow::Cow::into_owned);
    assert_eq!(listpack_of(hash), listpack.expect("a string"));
    let ours = encode(body.as_ref(), Form::Packed);
    assert_eq!(
        (ours[0], read(&ours)),
        (kind::HASH_LISTPACK, Ok(contents(&body)))
    );
}

#[test]
fn a_small_listpack_is_byte_for_byte_that_of_redis() {
    let payload = encode(hash(&[(b"a", b"1")]).as_ref(), Form::Packed);
    assert_eq!(
        payload,
        bytes("100c0c00000002008161020101ff0a0084a693e8aa17e4db")
    );
}

#[test]
fn listpack_elements_round_trip_at_every_boundary() {
    let mut fields: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for bits in [7, 12, 15, 23, 31, 63] {
        for value in [
            (1_i128 << bits) - 1,
            1 << bits,
            -(1 << bits),
            -(1 << bits) - 1,
        ] {
            fields.push((
                value.to_string().into_bytes(),
                format!("{}", -value).into_bytes(),
            ));
        }
    }
    for length in [0, 63, 64, 125, 126, 127, 4095, 4096, 16378, 16380, 70_000] {
        fields.push((format!("f{length}").into_bytes(), vec![b'v'; length]));
    }
    let fields: Vec<_> = fields
        .iter()
        .map(|(field, value)| (&field[..], &value[..]))
        .collect();
    let body = hash(&fields);
    assert_eq!(
        read(&encode(body.as_ref(), Form::Packed)),
        Ok(contents(&body))
    );
    assert_eq!(
        read(&encode(body.as_ref(), Form::Table)),
        Ok(contents(&body))
    );
}

#[test]
fn a_hash_table_of_redis_is_read() {
    let payload = bytes("0402c00701790161c3094041017878e034000178780a0064f38df04024fe6d");
    let body = hash(&[(b"7", b"y"), (b"a", &b"x".repeat(65))]);
    assert_eq!(read(&payload), Ok(contents(&body)));
}

/// Blocks with every form of entry, that `redis-server` 7.0.15 restores to the same fields.
#[test]
fn packed_hashes_of_older_versions_are_read() {
    let xs = "78".repeat(300);
    let ziplist = format!(
        "0d41828201000078010000120000016103f102016203fd02016303feff03016403c0d4fe04016503f000008005\
         016603d00000004006016703e000000000000000c00a016803412c{xs}fe2f010000016907800000000\
         3656e64ff0900a4d93100de5128c2"
    );
    let fields: &[(&[u8], &[u8])] = &[
        (b"a", b"0"),
        (b"b", b"12"),
        (b"c", b"-1"),
        (b"d", b"-300"),
        (b"e", b"-8388608"),
        (b"f", b"1073741824"),
        (b"g", b"-4611686018427387904"),
        (b"h", &b"x".repeat(300)),
        (b"i", b"end"),
    ];
    assert_eq!(read(&bytes(&ziplist)), Ok(contents(&hash(fields))));

    let zipmap =
        format!("0941450301610102317a7a016200027a7a0163fe2c01000002{xs}7a7aff09005f803e07ae1a7818");
    let fields: &[(&[u8], &[u8])] = &[(b"a", b"1"), (b"b", b""), (b"c", &b"x".repeat(300))];
    assert_eq!(read(&bytes(&zipmap)), Ok(contents(&hash(fields))));

    let uncounted = bytes("0907fe0161010031ff090050c09dc7addfbc1f");
    assert_eq!(read(&uncounted), Ok(contents(&hash(&[(b"a", b"1")]))));
}

#[test]
fn bytes_behind_the_value_are_passed_over_as_redis_does() {
    let payload = bytes("00036162636761726261676509008bf9fc42cc45c810");
    assert_eq!(read(&payload), Ok(vec![b"abc".to_vec()]));
}

#[test]
fn a_damaged_footer_is_told_apart_from_a_bad_value() {
    let good = sealed(b"\x00\x03abc");
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        assert_eq!(read(&bad), Err(PayloadError::Footer), "byte {at}");
        assert_eq!(read(&good[..at]), Err(PayloadError::Footer), "cut at {at}");
    }
    // A later version is refused although its checksum is right, an earlier one is not.
    let mut later = [&b"\x00\x03abc"[..], &(VERSION_MAX + 1).to_le_bytes()].concat();
    let sum = checksum(&later);
    later.extend_from_slice(&sum.to_le_bytes());
    assert_eq!(read(&later), Err(PayloadError::Footer));
    assert_eq!(
        read(&bytes("0003616263000084376c7d4e0d0038")),
        Ok(vec![b"abc".to_vec()])
    );
}

#[test]
fn malformed_values_are_refused() {
    for value in [
        // Nothing; an unknown kind; a length cut off; an unknown encoding; a length with one.
        &b""[..],
        b"\x08\x03abc",
        b"\x1e\x03abc",
        b"\x00\x04abc",
        b"\x00\x40",
        b"\x00\x82\0\0\0\x03abc",
        b"\x00\xC4\x01\x01",
        b"\x04\xC0\x01",
        // LZF that unfolds to something else; a length out of all proportion.
        b"\x00\xC3\x02\x00\x00a",
        b"\x00\xC3\x02\x02\x00a",
        b"\x00\xC3\x02\x81\0\0\0\0\0\x20\0\0\x00a",
        // Hashes without fields, with a field twice, with too few.
        b"\x04\x00",
        b"\x04\x02\x01a\x011\x01a\x012",
        b"\x04\x02\x01a\x011",
        b"\x04\x81\xff\xff\xff\xff\xff\xff\xff\xff\x01a\x011",
        // Zipmaps: a wrong count, no end, a length beyond the end.
        b"\x09\x07\x05\x01a\x01\x001\xff",
        b"\x09\x06\x01\x01a\x01\x001",
        b"\x09\x07\x01\x01a\x09\x001\xff",
        b"\x09\x02\x00\xff",
        // Listpacks: none at all, empty, of a wrong size, of a wrong count, odd, a field twice, a
        // wrong length behind an element.
        b"\x10\x00",
        b"\x10\x07\x07\0\0\0\0\0\xff",
        b"\x10\x0c\x0d\0\0\0\x02\0\x81a\x02\x01\x01\xff",
        b"\x10\x0c\x0c\0\0\0\x03\0\x81a\x02\x01\x01\xff",
        b"\x10\x0a\x0a\0\0\0\x01\0\x81a\x02\xff",
        b"\x10\x11\x11\0\0\0\x04\0\x81a\x02\x01\x01\x81a\x02\x01\x01\xff",
        b"\x10\x0c\x0c\0\0\0\x02\0\x81a\x03\x01\x01\xff",
        b"\x10\x0c\x0c\0\0\0\x02\0\x81a\x02\xf5\x01\xff",
        // Ziplists: too short, a wrong tail, a wrong link.
        b"\x0d\x0a\x0a\0\0\0\0\0\0\0\0\0",
        b"\x0d\x10\x10\0\0\0\x0a\0\0\0\x02\0\0\x01a\x03\xf2\xff",
        b"\x0d\x10\x10\0\0\0\x0d\0\0\0\x02\0\0\x01a\x04\xf2\xff",
    ] {
        let refused = read(&sealed(value));
        assert!(
            matches!(refused, Err(PayloadError::Malformed { .. })),
            "{value:?}: {refused:?}"
        );
    }
    let sound = sealed(b"\x0d\x10\x10\0\0\0\x0d\0\0\0\x02\0\0\x01a\x03\xf2\xff");
    assert_eq!(read(&sound), Ok(vec![b"a".to_vec(), b"1".to_vec()]));
}

#[test]
fn sets_round_trip_in_each_form() {
    let set = |members: &[&[u8]]| {
        let mut draft = HashDraft::new(None);
        for member in members {
            draft.set(member, b"");
        }
        draft.finish_as(RowTag::Set)
    };
    let integers: &[&[u8]] = &[b"-1", b"300", b"2"];
    let wide: &[&[u8]] = &[b"-9223372036854775808", b"70000"];
    for (members, form, kind) in [
        (integers, Form::Packed, kind::SET_INTSET),
        (wide, Form::Packed, kind::SET_INTSET),
        (integers, Form::Table, kind::SET),
        (&[b"a", b"1"], Form::Packed, kind::SET),
    ] {
        let body = set(members);
        let payload = encode(body.as_ref(), form);
        assert_eq!(payload[0], kind);
        assert_eq!(read(&payload), Ok(contents(&body)));
    }
    // `redis-server` 7.0.15: an intset of 1, 2 and 300.
    let payload = bytes("0b0e0200000003000000010002002c01");
    assert_eq!(
        read(&sealed(&payload)),
        Ok(contents(&set(&[b"1", b"2", b"300"])))
    );
    // A member twice, out of order, of another length than announced.
    for value in [
        &b"\x02\x02\x01a\x01a"[..],
        b"\x02\x00",
        b"\x0b\x0c\x02\0\0\0\x02\0\0\0\x07\0\x07\0",
        b"\x0b\x0a\x02\0\0\0\x02\0\0\0\x07\0",
        b"\x0b\x0c\x03\0\0\0\x01\0\0\0\x07\0\0\0",
        b"\x14\x0d\x0d\0\0\0\x02\0\x81x\x02\x81x\x02\xff",
    ] {
        let refused = read(&sealed(value));
        assert!(
            matches!(refused, Err(PayloadError::Malformed { .. })),
            "{value:?}: {refused:?}"
        );
    }
}

#[test]
fn sorted_sets_round_trip_in_each_form() {
    let sorted = |entries: &[(&[u8], f64)]| {
        let mut draft = SortedDraft::new(None);
        for (member, score) in entries {
            draft.set(member, *score);
        }
        draft.finish()
    };
    let entries: &[(&[u8], f64)] = &[
        (b"a", 1.5),
        (b"b", -0.5),
        (b"c", f64::INFINITY),
        (b"d", f64::NEG_INFINITY),
        (b"7", 1e300),
        (b"e", 0.1),
    ];
    let body = sorted(entries);
    for (form, kind) in [
        (Form::Packed, kind::SORTED_LISTPACK),
        (Form::Table, kind::SORTED),
    ] {
        let payload = encode(body.as_ref(), form);
        assert_eq!(payload[0], kind);
        assert_eq!(read(&payload), Ok(contents(&body)));
    }
    // `redis-server` 7.0.15: ZADD z 1.5 a, as a listpack; by hand, in older forms.
    for payload in [
        &b"\x11\x0f\x0f\0\0\0\x02\0\x81a\x02\x831.5\x04\xff"[..],
        b"\x03\x01\x01a\x031.5",
        b"\x05\x01\x01a\0\0\0\0\0\0\xf8\x3f",
        b"\x0c\x13\x13\0\0\0\x0d\0\0\0\x02\0\0\x01a\x03\x031.5\xff",
    ] {
        assert_eq!(
            read(&sealed(payload)),
            Ok(contents(&sorted(&[(b"a", 1.5)])))
        );
    }
    for (digits, score) in [(b'\xfe', f64::INFINITY), (b'\xff', f64::NEG_INFINITY)] {
        let payload = sealed(&[&b"\x03\x01\x01a"[..], &[digits]].concat());
        assert_eq!(read(&payload), Ok(contents(&sorted(&[(b"a", score)]))));
    }
    // Nothing, a member twice, no number, a score missing.
    for value in [
        &b"\x05\x00"[..],
        b"\x05\x02\x01a\0\0\0\0\0\0\xf8\x3f\x01a\0\0\0\0\0\0\xf8\x3f",
        b"\x05\x01\x01a\0\0\0\0\0\0\xf8\x7f",
        b"\x03\x01\x01a\xfd",
        b"\x03\x01\x01a\x01x",
        b"\x11\x0a\x0a\0\0\0\x01\0\x81x\x02\xff",
    ] {
        let refused = read(&sealed(value));
        assert!(
            matches!(refused, Err(PayloadError::Malformed { .. })),
            "{value:?}: {refused:?}"
        );
    }
}

#[test]
fn streams_round_trip() {
    let id = |ms| StreamId { ms, seq: 1 };
    let mut draft = StreamDraft::new(None);
    let long = vec![b'v'; 3000];
    for ms in 1..250 {
        let value = if ms % 50 == 0 { &long[..] } else { b"12" };
        if ms % 3 == 0 {
            draft.push(id(ms), [&b"field"[..], value]);
        } else {
            draft.push(id(ms), [&b"field"[..], b"7", b"another", value]);
        }
    }
    draft.remove(id(7));
    let mut head = draft.head();
    (head.last, head.removed) = (StreamId::MAX, id(7));
    draft.set_head(head);
    draft.add_group(b"empty", StreamId::MIN, None);
    let group = draft.add_group(b"group", id(9), Some(8));
    for (ms, name) in [(3, b"one"), (7, b"two"), (9, b"one")] {
        let consumer = draft.see_consumer(group, name, 77);
        draft.set_pending(group, id(ms), StreamPending::new(consumer, 1 << 40, ms));
    }
    for body in [draft.finish(), StreamDraft::new(None).finish()] {
        let payload = encode(body.as_ref(), Form::Table);
        assert_eq!(payload[0], kind::STREAM_COUNTED);
        let decoded = decode(&payload, BOUNDS).expect("it is sound");
        // Numbers of groups and consumers are given anew.
        assert_eq!(encode(decoded.body.as_ref(), Form::Table), payload);
    }
}

const REDIS_STREAM: &str = "\
    13011000000000000000010000000000000001c3363d073d00000018000201400007816602000102\
    0100200103817602044012200a0002401708817702816702070108200e4021401f0101ff02030101\
    01020103010167010181ffffffffffffffff0100000000000000010000000000000001c61c2912a2\
    01000001010163c61c2912a20100000100000000000000010000000000000001";

/// `redis-server` 7.0.15: three entries of which one was removed, a group, and a pending entry.
#[test]
fn a_stream_of_redis_is_read() {
    let payload = bytes(REDIS_STREAM);
    let body = decode_value(&payload, BOUNDS).expect("it is sound").body;
    let BodyRef::Row(RowTag::Stream, row) = body.as_ref() else {
        panic!("{body:?}");
    };
    let stream = StreamRef::new(row);
    assert!(StreamRef::is_sound(row));
    assert_eq!((stream.len(), stream.head().added), (2, 3));
    let group = stream.group(b"g").expect("it is there");
    assert_eq!((stream.pending_count(group), group.read), (1, None));
    for end in 0..payload.len() {
        assert!(
            decode_value(&payload[..end], BOUNDS).is_err(),
            "cut at {end}"
        );
    }
}

#[test]
fn other_types_are_named() {
    for (kind, type_name) in [(6, "module's value"), (7, "module's value")] {
        assert_eq!(
            read(&sealed(&[kind, 1, 1, b'a'])),
            Err(PayloadError::Unsupported { type_name })
        );
    }
}

#[test]
fn nothing_unfolds_beyond_its_bounds() {
    let long = |length: usize| vec![b'a'; length];
    let string = encode(Body::string(&long(2000)).as_ref(), Form::Table);
    let table = encode(hash(&[(&long(500), &long(900))]).as_ref(), Form::Table);
    let listpack = encode(hash(&[(&long(500), &long(900))]).as_ref(), Form::Packed);
    let refuse = |payload: &[u8], value_bytes_max, field_bytes_max, total_bytes_max| {
        let bounds = Bounds {
            value_bytes_max,
            field_bytes_max,
            total_bytes_max,
        };
        matches!(decode(payload, bounds), Err(PayloadError::TooLong { .. }))
    };
    assert!(refuse(&string, 1999, 100, 9999) && refuse(&string, 2000, 100, 1999));
    assert!(!refuse(&string, 2000, 100, 2000));
    for payload in [&table, &listpack] {
        assert!(refuse(payload, 899, 500, 9999) && refuse(payload, 900, 499, 9999));
        assert!(refuse(payload, 900, 500, 1399) && !refuse(payload, 900, 500, 1500));
    }
}

/// As `redis-server` 7.0.15, 6.2 and 3.0 write them, with a large element as it is.
#[test]
fn lists_are_read_in_each_form() {
    let list = |elements: &[&[u8]]| {
        let mut draft = ListDraft::new(None);
        for element in elements {
            draft.push_back(StringBody::borrowed(element));
        }
        draft.finish()
    };
    let expected = Ok(contents(&list(&[b"a", b"b", b"c"])));
    for value in [
        &b"\x01\x03\x01a\x01b\x01c"[..],
        b"\x0a\x14\x14\0\0\0\x10\0\0\0\x03\0\0\x01a\x03\x01b\x03\x01c\xff",
        b"\x0e\x01\x14\x14\0\0\0\x10\0\0\0\x03\0\0\x01a\x03\x01b\x03\x01c\xff",
        b"\x12\x02\x02\x10\x10\0\0\0\x03\0\x81a\x02\x81b\x02\x81c\x02\xff\x01\x01d",
    ] {
        let mut read = read(&sealed(value));
        if value[0] == 18 {
            let four = read.as_mut().expect("it is sound");
            assert_eq!(four.split_off(6)[1], b"d");
        }
        assert_eq!(read, expected, "{value:?}");
    }
    let long = vec![b'x'; 20_000];
    let number = |index: u32| index.to_string().into_bytes();
    let mut many: Vec<Vec<u8>> = (0..5000).map(number).collect();
    many[3000] = long;
    let many: Vec<&[u8]> = many.iter().map(Vec::as_slice).collect();
    let body = list(&many);
    let payload = encode(body.as_ref(), Form::Packed);
    assert_eq!(read(&payload), Ok(contents(&body)));
    for value in [
        &b"\x01\0"[..],
        b"\x12\x01\x03\x01d",
        b"\x12\x01\x02\x01d",
        b"\x0e\0",
    ] {
        let refused = read(&sealed(value));
        assert!(
            matches!(refused, Err(PayloadError::Malformed { .. })),
            "{value:?}"
        );
    }
}

/// A hash of these names and values, and the deadlines of fields that have one.
fn timed(fields: &[(&str, &str, Option<u64>)]) -> Body<'static> {
    let mut draft = FieldsDraft::new(None, Milliseconds(0));
    for (field, value, deadline) in fields {
        let value = StringBody::borrowed(value.as_bytes());
        draft.set(field.as_bytes(), value, false);
        if let Some(deadline) = deadline {
            let given = draft.set_deadline(field.as_bytes(), Deadline(*deadline));
            given.expect("a short name");
        }
    }
    draft.finish()
}

/// The formats are those of Redis 7.4: there is no such server to ask.
#[test]
fn fields_keep_their_deadlines() {
    let hash = timed(&[
        ("a", "1", None),
        ("b", "2", Some(1300)),
        ("c", "3", Some(1044)),
    ]);
    let packed = encode(hash.as_ref(), Form::Packed);
    assert_eq!(&packed[..9], bytes("191404000000000000"));
    assert_eq!(&packed[packed.len() - 10..packed.len() - 8], [12, 0]);
    assert_eq!(read(&packed), Ok(contents(&hash)));
    // In the order of deadlines, the field without one last.
    let mut elements = Vec::new();
    let mut reader = Reader::new(&packed[9..], 1000);
    let block = reader.string().expect("a listpack");
    let shown = listpack::elements(&block, &mut |element| {
        elements.push(String::from_utf8_lossy(element).into_owned());
        Ok(())
    });
    assert_eq!(shown, Ok(()));
    assert_eq!(
        elements,
        ["c", "3", "1044", "b", "2", "1300", "a", "1", "0"]
    );
    let payload = encode(hash.as_ref(), Form::Table);
    // The earliest deadline, 1044; the count; then what each is later than it, and one: 257 in two
    // bytes.
    let value = bytes(
        "181404000000000000030001 61c001410101 62c002010163c003"
            .replace(' ', "")
            .as_str(),
    );
    assert_eq!(payload[..payload.len() - 10], value);
    assert_eq!(read(&payload), Ok(contents(&hash)));
    // What has passed is left out, and the rest is as Redis 7.0 reads it.
    let rest = encode_at(hash.as_ref(), Form::Table, Milliseconds(1300));
    assert_eq!(
        rest,
        encode(self::hash(&[(b"a", b"1")]).as_ref(), Form::Table)
    );
    // By candidates of 7.4, with absolute deadlines and no earliest one.
    let early = bytes("160244140163013300016101 31".replace(' ', "").as_str());
    let expected = timed(&[("a", "1", None), ("c", "3", Some(1044))]);
    assert_eq!(read(&sealed(&early)), Ok(contents(&expected)));
}

#[test]
fn damaged_deadlines_are_refused() {
    for value in [
        // A field twice; a deadline beyond what Redis holds, or beyond a number; no field.
        "1814040000000000000201016101310101610132",
        "18ffffffffffffff000101016101 31",
        "18ffffffffffffffff01020161013100",
        "18140400000000000000",
    ] {
        let value = bytes(&value.replace(' ', ""));
        let read = read(&sealed(&value));
        assert!(
            matches!(read, Err(PayloadError::Malformed { .. })),
            "{value:?}: {read:?}"
        );
    }
    // A listpack that ends inside an entry, or with a deadline that is no number.
    for elements in [
        &["a", "1"][..],
        &["a", "1", "0", "b"],
        &["a", "1", "x"],
        &["a", "1", "-1"],
    ] {
        let mut writer = listpack::Writer::new();
        for element in elements {
            writer.push(element.as_bytes());
        }
        let mut value = vec![kind::HASH_LISTPACK_EX_EARLY];
        rdb::write_string(&mut value, &writer.finish());
        let read = read(&sealed(&value));
        assert!(
            matches!(read, Err(PayloadError::Malformed { .. })),
            "{elements:?}: {read:?}"
        );
    }
}
