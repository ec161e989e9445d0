//! The documentation page about settings, made from the table.

use std::fmt::Write as _;

use super::Config;
use super::error::SettingError;
use super::setting::{Change, Setting};

const HEAD: &str = "\
# Settings

Every setting is a flag of `pando`, a line of the configuration file and a parameter of CONFIG GET.
This page is generated from the table of settings. After a change there, regenerate it:

    cargo run -q -p pando-server --example settings > docs/SETTINGS.md

Flags win over the file (`pando FILE`, `--config FILE`), the file over the defaults. In the file a
line is `name value`; `#` begins a comment; values with blanks are quoted, as in `redis.conf`. If
two names are given, both work everywhere; CONFIG REWRITE writes Redis' name. Amounts of memory
accept the units b, k (1000), kb (1024), m, mb, g and gb.

`include PATH` reads another file in its place, or all files that match a pattern (`*`, `?`,
`[...]`), in name order. A path is relative to the server's working directory, as in Redis. If the
server refuses lines at the start, it names all of them.
";

/// The page.
#[must_use]
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    let defaults = Config::default();
    for setting in Setting::meant().filter(|setting| !setting.foreign) {
        describe(&mut page, setting, &defaults);
    }
    page.push_str(PERSISTENCE);
    for setting in Setting::meant().filter(|setting| setting.foreign) {
        let meaning = lower_first(setting.meaning);
        let _ = writeln!(page, "- `{}`: {meaning}", setting.name);
    }
    page.push_str(REFUSED);
    let inert = || Setting::all().filter(|setting| setting.is_inert());
    for setting in inert().filter(|setting| setting.inert_values().is_some()) {
        let _ = writeln!(page, "- `{}`: {}", setting.name, expected(setting));
    }
    page.push_str(INERT);
    let names = inert().filter(|setting| setting.inert_values().is_none());
    let names: Vec<String> = names.map(|setting| format!("`{}`", setting.name)).collect();
    let _ = writeln!(page, "{}.", names.join(", "));
    page
}

const PERSISTENCE: &str = "
## What other settings say, in Redis' words

`pando redis.conf` starts with a configuration file of Redis. If `durability` is not given, it
follows from these:

| `appendonly` | `save` | durability |
|---|---|---|
| yes, or not given | not empty, or not given | `sync` with `appendfsync always`, else `interval` |
| yes | empty | the same |
| no | not empty, or not given | `interval`, which keeps more than snapshots do |
| no, or not given | empty | `none` |

";

const REFUSED: &str = "
## Settings of Redis that cannot have another value

A value that would change what clients see, but does not here, is refused.

";

const INERT: &str = "
## Settings of Redis that mean nothing here

They are accepted with any value that Redis takes, and CONFIG GET, SET and REWRITE know them. (SET
refuses what Redis cannot change while it runs.) At the start, one line of the log names those that
were given.

";

fn describe(page: &mut String, setting: &Setting, defaults: &Config) {
    let value = setting.get(defaults);
    let default = match (setting.name, value.as_slice()) {
        // It is the machine's, not the page's.
        ("threads", _) => "the machine's cores".to_owned(),
        (_, b"") => "empty".to_owned(),
        (_, value) => format!("`{}`", String::from_utf8_lossy(value)),
    };
    let change = match setting.change {
        Change::Running => "CONFIG SET changes it",
        Change::AtStart | Change::Protected | Change::Present => "only at start",
    };
    let names = match setting.own_name {
        Some(own_name) => format!("{own_name}, {}", setting.name),
        None => setting.name.to_owned(),
    };
    let _ = write!(
        page,
        "\n## {names}\n\n{}.\n\n- Value: {}\n- Default: {default}\n- Change: {change}\n",
        setting.meaning,
        expected(setting)
    );
}

/// The setting's error for an invalid value.
fn expected(setting: &Setting) -> String {
    match setting.set(&mut Config::default(), b"\xff") {
        Err(SettingError::Value { expected, .. }) => expected.to_string(),
        _ => "any text".to_owned(),
    }
}

fn lower_first(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(|first| first.to_ascii_lowercase());
    first.into_iter().chain(characters).collect()
}
