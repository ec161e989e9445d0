//! The page about settings in the documentation, made from the table.

use std::fmt::Write as _;

use super::Config;
use super::error::SettingError;
use super::setting::{Change, SETTINGS, Setting};

const HEAD: &str = "\
# Settings

Every setting is a flag of `pando`, a line of the configuration file and a parameter of CONFIG GET.
This page is made from the table of settings; after a change there, make it again:

    cargo run -q -p pando-server --example settings > docs/SETTINGS.md

Flags win over the file (`--config FILE`), the file over the defaults. In the file a line is
`name value`; `#` begins a comment; values with blanks stand in quotes, as in `redis.conf`. Where
two names are given, both are understood everywhere; CONFIG REWRITE writes the one that Redis has.
Amounts of memory take the units b, k (1000), kb (1024), m, mb, g and gb.
";

/// The page.
#[must_use]
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    let defaults = Config::default();
    for setting in SETTINGS.iter().filter(|setting| !setting.fixed) {
        describe(&mut page, setting, &defaults);
    }
    page.push_str(
        "\n## What Redis has and this server has not\n\n\
         These are understood with one value each, so that clients and files that name it work; \
         any\nother value is refused.\n\n",
    );
    for setting in SETTINGS.iter().filter(|setting| setting.fixed) {
        let _ = writeln!(
            page,
            "- `{}`: {}",
            setting.name,
            lower_first(setting.meaning)
        );
    }
    page
}

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
        Change::AtStart => "only at start",
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

/// What the setting says when it is given nonsense.
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
