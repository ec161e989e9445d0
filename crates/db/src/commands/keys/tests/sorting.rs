//! SORT.

use pando_protocol::RespVersion;

use super::*;

const NO_NUMBER: &str = "-ERR One or more scores can't be converted into double";

#[test]
fn elements_are_sorted() {
    let mut shell = Shell::new();
    shell.check(&[
        ("RPUSH l 3 10 -1 2.5 3", ":5"),
        ("SORT l", "*5 $2 -1 $3 2.5 $1 3 $1 3 $2 10"),
        ("SORT_RO l DESC LIMIT 1 2", "*2 $1 3 $1 3"),
        ("SORT l ALPHA", "*5 $2 -1 $2 10 $3 2.5 $1 3 $1 3"),
        ("SORT l LIMIT -3 1", "*1 $2 -1"),
        ("SORT l LIMIT 4 -5", "*1 $2 10"),
        ("SORT l LIMIT 5 9", "*0"),
        ("SORT l BY nosort LIMIT 1 2", "*2 $2 10 $2 -1"),
        ("SORT l BY nosort DESC LIMIT 1 2", "*2 $3 2.5 $2 -1"),
        ("SADD s 30 4 x", ":3"),
        ("SORT s", NO_NUMBER),
        ("SORT s ALPHA DESC", "*3 $1 x $1 4 $2 30"),
        ("SREM s x", ":1"),
        ("SORT s", "*2 $1 4 $2 30"),
        ("ZADD z 3 a 1 b 2 c", ":3"),
        ("SORT z ALPHA", "*3 $1 a $1 b $1 c"),
        ("SORT z BY none DESC", "*3 $1 a $1 c $1 b"),
        ("SORT z BY none DESC LIMIT 1 1", "*1 $1 c"),
        ("SORT z BY none LIMIT 1 5", "*2 $1 c $1 a"),
        ("OBJECT ENCODING z", "$8 listpack"),
        ("SORT absent GET #", "*0"),
        ("SET string x", "+OK"),
        (
            "SORT string",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
        ("SORT string NONSENSE", "-ERR syntax error"),
        ("SORT l LIMIT 1", "-ERR syntax error"),
        (
            "SORT l LIMIT 1 x",
            "-ERR value is not an integer or out of range",
        ),
        ("SORT l BY", "-ERR syntax error"),
        ("SORT_RO l STORE m", "-ERR syntax error"),
    ]);
    for (text, number) in [
        ("\"\"", "0"),
        ("\" 4\"", "4"),
        ("0x10", "16"),
        ("-inf", "-inf"),
    ] {
        shell.line("DEL one");
        shell.check(&[(&format!("RPUSH one {text} 8"), ":2")]);
        let first = if number.parse::<f64>().unwrap() < 8.0 {
            text
        } else {
            "8"
        };
        let first = first.trim_matches('"');
        let reply = format!("*1 ${} {first}", first.len());
        shell.check(&[("SORT one LIMIT 0 1", &reply)]);
    }
    for text in ["1e400", "nan", "\"4 \"", "\" \"", "a"] {
        shell.line("DEL one");
        shell.check(&[(&format!("RPUSH one {text} 8"), ":2")]);
        shell.check(&[("SORT one", NO_NUMBER)]);
    }
}

#[test]
fn patterns_name_keys_and_fields() {
    let mut shell = Shell::new();
    shell.check(&[
        ("RPUSH l 1 2 3", ":3"),
        ("MSET w_1 30 w_2 10 o_1 one o_2 two", "+OK"),
        ("HSET h_1 f 3 x->y z", ":2"),
        ("HSET h_2 f 1", ":1"),
        ("HSET h_3 f 2", ":1"),
        ("SORT l BY w_*", "*3 $1 3 $1 2 $1 1"),
        ("SORT l BY h_*->f", "*3 $1 2 $1 3 $1 1"),
        (
            "SORT l BY h_*->f DESC GET # GET o_*",
            "*6 $1 1 $3 one $1 3 $-1 $1 2 $3 two",
        ),
        ("SORT l GET h_*->x->y GET none LIMIT 0 1", "*2 $1 z $-1"),
        // Not a field without a name; and a hash is no string.
        ("SORT l GET o_*-> GET h_* LIMIT 0 1", "*2 $-1 $-1"),
        ("SORT l BY o_*", NO_NUMBER),
        ("SORT l BY o_* ALPHA", "*3 $1 3 $1 1 $1 2"),
        ("SORT l BY missing_* ALPHA DESC", "*3 $1 1 $1 2 $1 3"),
        ("SORT l BY missing_* DESC", "*3 $1 3 $1 2 $1 1"),
        ("EXPIRE w_1 100", ":1"),
    ]);
    shell.pass_ms(100_000);
    shell.check(&[
        ("SORT l BY w_*", "*3 $1 1 $1 3 $1 2"),
        ("SORT l GET w_*", "*3 $-1 $2 10 $-1"),
    ]);
    shell.speak(RespVersion::Resp3);
    shell.check(&[("SORT l GET w_*", "*3 _ $2 10 _")]);
}

#[test]
fn a_sort_is_stored() {
    Shell::new().check(&[
        ("SADD s 2 30 1", ":3"),
        ("SET d x EX 100", "+OK"),
        ("SORT s STORE d", ":3"),
        ("LRANGE d 0 -1", "*3 $1 1 $1 2 $2 30"),
        ("TTL d", ":-1"),
        // What a set has no order for is stored in the order of bytes.
        ("SORT s BY nosort DESC STORE d", ":3"),
        ("LRANGE d 0 -1", "*3 $2 30 $1 2 $1 1"),
        ("SORT d STORE d", ":3"),
        ("LRANGE d 0 -1", "*3 $1 1 $1 2 $2 30"),
        ("SORT d GET none GET # LIMIT 1 1 STORE d", ":2"),
        ("LRANGE d 0 -1", "*2 $0  $1 2"),
        ("SORT absent STORE d", ":0"),
        ("EXISTS d", ":0"),
        ("SADD s x", ":1"),
        ("SORT s STORE d", NO_NUMBER),
        ("EXISTS d", ":0"),
    ]);
}

/// Elements in portions, each sorted, merged, looked up, stored.
#[test]
fn a_long_sort_runs_in_slices() {
    const ELEMENTS: usize = 10_000;
    let mut shell = Shell::new();
    let number = |index: usize| (index * 7919 % ELEMENTS).to_string();
    for key in ["l", "other"] {
        let elements = (0..ELEMENTS).map(number);
        let request = ["RPUSH", key].map(String::from).into_iter().chain(elements);
        shell.run(request.collect::<Vec<_>>());
    }
    let request = ["SORT", "l", "DESC", "LIMIT", "5000", "3"];
    let (reply, slices) = shell.run_counting_slices(request);
    assert_eq!(reply, b"*3\r\n$4\r\n4999\r\n$4\r\n4998\r\n$4\r\n4997\r\n");
    assert!(slices > 3, "{slices}");
    // What was there at first counts: others change it meanwhile.
    let request = [
        "SORT", "l", "BY", "w*", "GET", "#", "GET", "w*", "STORE", "d",
    ];
    let mut another = shell.connect();
    let (reply, _) = shell.run_between_slices(request, |_| drop(another.line("DEL l")));
    assert_eq!(reply, format!(":{}\r\n", ELEMENTS * 2).as_bytes());
    shell.check(&[("LLEN d", ":20000"), ("EXISTS l", ":0")]);
    let elements = (0..ELEMENTS).map(|element| format!("{element}"));
    let mut sorted: Vec<_> = elements.collect();
    sorted.sort();
    for at in [0, 1, 4096, 9_999] {
        let (line, element) = (format!("LINDEX d {}", at * 2), &sorted[at]);
        shell.check(&[(&line, &format!("${} {element}", element.len()))]);
    }
    let (reply, slices) = shell.run_counting_slices(["SORT", "other", "BY", "nosort"]);
    assert!(reply.starts_with(b"*10000\r\n$1\r\n0\r\n$4\r\n7919\r\n") && slices > 1);
    shell.check(&[
        ("MULTI", "+OK"),
        ("SORT other LIMIT 0 1 STORE d", "+QUEUED"),
        ("EXEC", "*1 :1"),
    ]);
}
