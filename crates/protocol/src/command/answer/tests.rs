//! Tests of the COMMAND container's answers.

use super::*;
use crate::command::told;
use crate::{RequestBuffer, RespVersion, Value, ValueDecoder};

fn bytes(version: RespVersion, line: &str) -> Vec<u8> {
    let request = RequestBuffer::from_args(line.split(' '));
    let mut out = Vec::new();
    answer(request.as_request(), &mut Reply::new(&mut out, version));
    out
}

fn ask(line: &str) -> Value {
    let bytes = bytes(RespVersion::Resp3, line);
    let mut input = &bytes[..];
    let value = ValueDecoder::new().next(&mut input).unwrap().unwrap();
    assert!(input.is_empty(), "{line}");
    value
}

fn shown(line: &str) -> String {
    ask(line).to_string().replace("\\'", "'")
}

fn text(value: &Value) -> String {
    match value {
        Value::Integer(value) => value.to_string(),
        value => String::from_utf8(value.as_bytes().unwrap().to_vec()).unwrap(),
    }
}

fn texts(value: &Value) -> Vec<String> {
    value.as_elements().unwrap().iter().map(text).collect()
}

fn field<'v>(map: &'v Value, name: &str) -> &'v Value {
    let mut pairs = map.as_pairs().unwrap().iter();
    &pairs.find(|(key, _)| text(key) == name).unwrap().1
}

/// One line of the table of expectations from a COMMAND INFO entry.
fn line_of(entry: &Value) -> String {
    let parts = entry.as_elements().unwrap();
    let or_dash = |text: String| if text.is_empty() { "-".into() } else { text };
    let mut tips = texts(&parts[7]);
    tips.sort();
    let keys: Vec<_> = parts[8]
        .as_elements()
        .unwrap()
        .iter()
        .map(key_text)
        .collect();
    [
        text(&parts[0]),
        text(&parts[1]),
        or_dash(texts(&parts[2]).join(",")),
        parts[3..6].iter().map(text).collect::<Vec<_>>().join(","),
        texts(&parts[6]).join(","),
        or_dash(tips.join(",")),
        or_dash(keys.join(";")),
    ]
    .join(" ")
}

fn key_text(keys: &Value) -> String {
    let flags = texts(field(keys, "flags")).join("+");
    if text(field(field(keys, "begin_search"), "type")) == "unknown" {
        return format!("unknown/{flags}");
    }
    let range = field(field(keys, "find_keys"), "spec");
    let begin = field(field(keys, "begin_search"), "spec");
    let first = if text(field(field(keys, "begin_search"), "type")) == "keyword" {
        let (word, from) = (field(begin, "keyword"), field(begin, "startfrom"));
        format!("{}@{from}", text(word))
    } else {
        field(begin, "index").to_string()
    };
    let step = field(range, "keystep");
    if text(field(field(keys, "find_keys"), "type")) == "keynum" {
        return format!("{first}/keynum/{step}/{flags}");
    }
    let mut last = text(field(range, "lastkey"));
    let limit = text(field(range, "limit"));
    if limit != "0" {
        last = format!("{last}:{limit}");
    }
    format!("{first}/{last}/{step}/{flags}")
}

/// What redis-server 7.0.15 says in COMMAND INFO, a command a line: name, arity, flags, key range,
/// categories, tips in alphabetical order, key specifications.
const EXPECTED: &str = include_str!("redis-7.0.15.txt");

#[test]
fn the_table_equals_that_of_redis() {
    for expected in EXPECTED.lines() {
        let name = expected.split(' ').next().unwrap();
        let reply = ask(&format!("COMMAND INFO {name}"));
        // FORCE is Pando's, WITHSCORE of a later version.
        let mut expected = expected.to_owned();
        for longer in ["replicaof 3 ", "zrank 3 ", "zrevrank 3 "] {
            if expected.starts_with(longer) {
                expected = expected.replace(" 3 ", " -3 ");
            }
        }
        assert_eq!(line_of(&reply.as_elements().unwrap()[0]), expected);
    }
}

/// Commands that Redis 7.0 lacks.
const OURS: &[&str] = &[
    "branch",
    "branch|create",
    "branch|diff",
    "branch|drop",
    "branch|help",
    "branch|info",
    "branch|list",
    "branch|main",
    "branch|merge",
    "branch|read",
    "branch|rename",
    "branch|reset",
    "branch|use",
    "snapshot",
    "snapshot|create",
    "snapshot|drop",
    "snapshot|help",
    "snapshot|info",
    "snapshot|list",
    "snapshot|read",
    "snapshot|rollback",
    "snapshot|use",
    "client|durability",
    "client|no-touch",
    "client|setinfo",
    "preplicate",
    "replica",
    "replica|check",
    "replica|help",
    "replica|status",
    "reshard",
    "reshard|begin",
    "reshard|changed",
    "reshard|drop",
    "reshard|fetch",
    "reshard|forget",
    "reshard|help",
    "reshard|put",
    "reshard|set",
    "reshard|status",
    "waitaof",
    "kdump",
    "hexpire",
    "hexpireat",
    "hexpiretime",
    "hgetdel",
    "hgetex",
    "hpersist",
    "hpexpire",
    "hpexpireat",
    "hpexpiretime",
    "hpttl",
    "hsetex",
    "httl",
    "kcount",
    "kprefix",
    "krange",
    "krangedel",
];

#[test]
fn what_redis_7_0_lacks_is_known() {
    let every = ask("COMMAND LIST");
    let expected: Vec<_> = EXPECTED
        .lines()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    let others = texts(&every)
        .into_iter()
        .filter(|name| !expected.contains(&&**name));
    assert_eq!(others.collect::<Vec<_>>(), OURS);
}

#[test]
fn info_has_the_shape_of_redis() {
    let resp3 =
        b"*3\r\n*10\r\n$6\r\ngetdel\r\n:2\r\n~2\r\n+write\r\n+fast\r\n:1\r\n:1\r\n:1\r\n~3\r\n\
        +@write\r\n+@string\r\n+@fast\r\n~0\r\n~1\r\n%3\r\n$5\r\nflags\r\n~3\r\n+RW\r\n+access\r\n\
        +delete\r\n$12\r\nbegin_search\r\n%2\r\n$4\r\ntype\r\n$5\r\nindex\r\n$4\r\nspec\r\n%1\r\n\
        $5\r\nindex\r\n:1\r\n$9\r\nfind_keys\r\n%2\r\n$4\r\ntype\r\n$5\r\nrange\r\n$4\r\nspec\r\n\
        %3\r\n$7\r\nlastkey\r\n:0\r\n$7\r\nkeystep\r\n:1\r\n$5\r\nlimit\r\n:0\r\n~0\r\n\
        _\r\n*10\r\n$4\r\nping\r\n:-1\r\n~1\r\n+fast\r\n:0\r\n:0\r\n:0\r\n~2\r\n+@fast\r\n\
        +@connection\r\n~2\r\n$25\r\nrequest_policy:all_shards\r\n\
        $29\r\nresponse_policy:all_succeeded\r\n~0\r\n~0\r\n";
    let line = "COMMAND INFO getdel get|x PING";
    assert_eq!(
        bytes(RespVersion::Resp3, line).escape_ascii().to_string(),
        resp3.escape_ascii().to_string()
    );
    assert_eq!(
        bytes(RespVersion::Resp2, "COMMAND INFO nope"),
        b"*1\r\n$-1\r\n"
    );
    assert_eq!(ask("COMMAND").as_elements().unwrap().len(), all().len());
    assert_eq!(ask("COMMAND INFO"), ask("COMMAND"));
    assert_eq!(ask("COMMAND COUNT"), Value::Integer(all().len() as i64));
    let reply = ask("COMMAND INFO object");
    let object = &reply.as_elements().unwrap()[0];
    let Value::Array(subcommands) = &object.as_elements().unwrap()[9] else {
        panic!("subcommands are an array");
    };
    assert_eq!(subcommands.len(), 5);
    // Those that are not built are told, too.
    for line in [
        "COMMAND INFO acl",
        "COMMAND DOCS acl",
        "COMMAND INFO module",
    ] {
        let shown = shown(line);
        let (built, unbuilt) = match line {
            "COMMAND INFO module" => ("module|list", "module|load"),
            _ => ("acl|whoami", "acl|setuser"),
        };
        assert!(shown.contains(built) && shown.contains(unbuilt), "{shown}");
    }
}

/// Those that Redis 7.0 says are, except such as are not built.
#[test]
fn commands_are_deprecated_as_in_redis() {
    let of = |spec: &CommandSpec| spec.deprecated.map(|it| (spec.name, it.since));
    let mut deprecated: Vec<_> = told().filter_map(of).collect();
    deprecated.sort_unstable();
    assert_eq!(
        deprecated,
        [
            ("brpoplpush", "6.2.0"),
            ("cluster|slots", "7.0.0"),
            ("georadius", "6.2.0"),
            ("georadius_ro", "6.2.0"),
            ("georadiusbymember", "6.2.0"),
            ("georadiusbymember_ro", "6.2.0"),
            ("getset", "6.2.0"),
            ("hmset", "4.0.0"),
            ("rpoplpush", "6.2.0"),
            ("slaveof", "5.0.0"),
            ("substr", "2.0.0"),
            ("zrangebylex", "6.2.0"),
            ("zrangebyscore", "6.2.0"),
            ("zrevrange", "6.2.0"),
            ("zrevrangebylex", "6.2.0"),
            ("zrevrangebyscore", "6.2.0"),
        ]
    );
}

#[test]
fn docs_have_the_shape_of_redis() {
    let docs = bytes(
        RespVersion::Resp3,
        "COMMAND DOCS nope getset Client|Id debug",
    );
    let getset = lookup(b"getset").unwrap();
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    let common = |spec: &CommandSpec, lines: usize| {
        let (summary, complexity) = (bulk(spec.summary), bulk(spec.complexity));
        let (name, since, group) = (bulk(spec.name), bulk(spec.since), bulk(spec.group.text()));
        format!(
            "{name}%{lines}\r\n$7\r\nsummary\r\n{summary}$5\r\nsince\r\n{since}$5\r\ngroup\r\n\
             {group}$10\r\ncomplexity\r\n{complexity}"
        )
    };
    let expected = [
        "%3\r\n".to_owned(),
        common(getset, 8),
        "$9\r\ndoc_flags\r\n~1\r\n+deprecated\r\n$16\r\ndeprecated_since\r\n$5\r\n6.2.0\r\n\
         $11\r\nreplaced_by\r\n"
            .to_owned(),
        bulk(getset.deprecated.unwrap().replaced_by),
        "$9\r\narguments\r\n*2\r\n%3\r\n$4\r\nname\r\n$3\r\nkey\r\n$4\r\ntype\r\n$3\r\nkey\r\n\
         $14\r\nkey_spec_index\r\n:0\r\n%2\r\n$4\r\nname\r\n$5\r\nvalue\r\n$4\r\ntype\r\n\
         $6\r\nstring\r\n"
            .to_owned(),
        common(find(b"client|id").unwrap(), 4),
        common(lookup(b"debug").unwrap(), 6),
        "$9\r\ndoc_flags\r\n~1\r\n+syscmd\r\n$9\r\narguments\r\n*1\r\n%3\r\n".to_owned(),
    ];
    let docs = String::from_utf8(docs).unwrap();
    assert!(docs.starts_with(&expected.concat()), "{docs}");
    // Arguments with flags, parts, tokens; history; subcommands.
    let docs = ask("COMMAND DOCS bitfield_ro expire object");
    let arguments = field(field(&docs, "bitfield_ro"), "arguments");
    assert_eq!(
        arguments.as_elements().unwrap()[1].to_string(),
        "{\"name\": \"encoding_offset\", \"type\": \"block\", \"token\": \"GET\", \
         \"flags\": ~[+optional, +multiple, +multiple_token], \"arguments\": \
         [{\"name\": \"encoding\", \"type\": \"string\"}, \
         {\"name\": \"offset\", \"type\": \"integer\"}]}"
    );
    let history = field(field(&docs, "expire"), "history");
    assert!(matches!(history, Value::Set(changes) if changes[0].as_elements().unwrap().len() == 2));
    let subcommands = field(field(&docs, "object"), "subcommands");
    assert_eq!(subcommands.as_pairs().unwrap().len(), 5);
    assert_eq!(ask("COMMAND DOCS").as_pairs().unwrap().len(), all().len());
}

#[test]
fn names_are_listed_and_filtered() {
    let list = |filter: &str| texts(&ask(&format!("COMMAND LIST FILTERBY {filter}")));
    assert_eq!(
        list("pattern *EXPIRETIME"),
        ["expiretime", "pexpiretime", "hexpiretime", "hpexpiretime"]
    );
    assert_eq!(
        list("PATTERN Slowlog|*"),
        [
            "slowlog|get",
            "slowlog|help",
            "slowlog|len",
            "slowlog|reset"
        ]
    );
    assert_eq!(
        list("aclcat TRANSACTION"),
        ["discard", "exec", "multi", "unwatch", "watch"]
    );
    assert!(list("ACLCAT @hash").is_empty() && list("ACLCAT nope").is_empty());
    assert!(list("MODULE x").is_empty());
    for line in [
        "x",
        "FILTERBY",
        "FILTERBY PATTERN",
        "FILTERBY nope x",
        "FILTERBY PATTERN a b",
    ] {
        assert_eq!(
            ask(&format!("COMMAND LIST {line}")).to_string(),
            "-ERR syntax error"
        );
    }
}

#[test]
fn keys_of_a_line_are_told() {
    for (line, expected) in [
        ("GETKEYS mset a 1 b 2", "[\"a\", \"b\"]"),
        ("GETKEYS object encoding k", "[\"k\"]"),
        ("GETKEYSANDFLAGS set k v", "[[\"k\", ~[+OW, +update]]]"),
        (
            "GETKEYSANDFLAGS copy a b",
            "[[\"a\", ~[+RO, +access]], [\"b\", ~[+OW, +update]]]",
        ),
        ("GETKEYS eval s 2 a b c", "[\"a\", \"b\"]"),
        (
            "GETKEYS spublish c m",
            "-ERR The command has no key arguments",
        ),
        ("GETKEYS eval s 2 a", "[]"),
        (
            "GETKEYS sintercard 2 a",
            "-ERR Invalid arguments specified for command",
        ),
        (
            "GETKEYSANDFLAGS zunionstore d 0 a",
            "-ERR Invalid arguments specified for command",
        ),
        (
            "GETKEYS xread count 2 block 1",
            "-ERR Invalid arguments specified for command",
        ),
        ("GETKEYS nope k", "-ERR Invalid command specified"),
        ("GETKEYS client nope", "-ERR Invalid command specified"),
        ("GETKEYS client|id x", "-ERR Invalid command specified"),
        ("GETKEYS client id", "-ERR The command has no key arguments"),
        (
            "GETKEYS client id x",
            "-ERR The command has no key arguments",
        ),
        (
            "GETKEYS krange - +",
            "-ERR The command has no key arguments",
        ),
        (
            "GETKEYS get a b",
            "-ERR Invalid number of arguments specified for command",
        ),
        (
            "GETKEYS object encoding",
            "-ERR Invalid number of arguments specified for command",
        ),
        (
            "GETKEYS get",
            "-ERR wrong number of arguments for 'command|getkeys' command",
        ),
    ] {
        assert_eq!(shown(&format!("COMMAND {line}")), expected);
    }
}

#[test]
fn keys_are_told_where_words_name_them_or_nothing_runs() {
    for (line, expected) in [
        (
            "GETKEYS pfmerge d",
            "-ERR Invalid arguments specified for command",
        ),
        ("GETKEYS pfmerge d s", "[\"d\", \"s\"]"),
        (
            "GETKEYS georadius k 1 1 1 km STORE d STOREDIST e",
            "[\"k\", \"d\", \"e\"]",
        ),
        (
            "GETKEYS georadius k 1 1 1 km STOREDIST e STORE d STORE f",
            "[\"k\", \"d\", \"e\"]",
        ),
        ("GETKEYS georadius k 1 1 1 km STORE", "[\"k\"]"),
        (
            "GETKEYS acl setuser a",
            "-ERR The command has no key arguments",
        ),
        (
            "GETKEYS acl setuser",
            "-ERR The command has no key arguments",
        ),
    ] {
        assert_eq!(shown(&format!("COMMAND {line}")), expected);
    }
}

#[test]
fn requests_that_do_not_fit_are_refused() {
    for (line, expected) in [
        (
            "COMMAND nope",
            "-ERR unknown subcommand 'nope'. Try COMMAND HELP.",
        ),
        (
            "COMMAND count x",
            "-ERR wrong number of arguments for 'command|count' command",
        ),
    ] {
        assert_eq!(shown(line), expected);
    }
}

#[test]
fn help_says_how_subcommands_are_written() {
    let lines = texts(&ask("COMMAND HELP"));
    assert!(lines[0].starts_with("COMMAND <subcommand>"));
    let getkeys = lines
        .iter()
        .position(|line| line == "GETKEYS command [arg [arg ...]]");
    let getkeys = getkeys.unwrap_or_else(|| panic!("{lines:#?}"));
    assert!(lines[getkeys + 1].starts_with("    Returns the keys"));
}
