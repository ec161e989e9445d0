//! Converts between the text of a setting and its field; a mismatch names what was expected.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::BindAddress;
use super::error::{Expected, WrongScores};
use super::value::{parse_integer, parse_memory, parse_switch, print_percentile};

/// Stores what was parsed.
pub(super) fn set<T, V: TryInto<T>>(
    field: &mut T,
    value: Result<V, Expected>,
) -> Result<(), Expected> {
    let Ok(value) = value?.try_into() else {
        unreachable!("a setting's range fits its field");
    };
    *field = value;
    Ok(())
}

pub(super) fn text(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value).ok()
}

pub(super) fn print(value: impl Display) -> Vec<u8> {
    format!("{value}").into_bytes()
}

pub(super) fn integer(value: &[u8], least: i64, most: i64) -> Result<i64, Expected> {
    let number = text(value).and_then(parse_integer);
    number
        .filter(|it| (least..=most).contains(it))
        .ok_or(Expected::Integer { least, most })
}

pub(super) fn memory(value: &[u8], least: u64, most: u64) -> Result<u64, Expected> {
    let bytes = text(value).and_then(parse_memory);
    bytes
        .filter(|it| (least..=most).contains(it))
        .ok_or(Expected::Memory { least, most })
}

pub(super) fn switch(value: &[u8]) -> Result<bool, Expected> {
    text(value).and_then(parse_switch).ok_or(Expected::Switch)
}

/// The word that `got` is, in any case.
pub(super) fn one_of(got: &[u8], words: &'static [&'static str]) -> Result<&'static str, Expected> {
    let mut words_of = words.iter();
    let found = words_of.find(|word| word.as_bytes().eq_ignore_ascii_case(got));
    found.copied().ok_or(Expected::OneOf(words))
}

/// The words that `got` consists of, in the order of `words`; at least one.
pub(super) fn some_of(got: &[u8], words: &'static [&'static str]) -> Result<Vec<u8>, Expected> {
    let got = text(got).ok_or(Expected::OneOf(words))?;
    let found = (got.split_ascii_whitespace())
        .map(|word| one_of(word.as_bytes(), words))
        .collect::<Result<Vec<_>, _>>()?;
    if found.is_empty() {
        return Err(Expected::OneOf(words));
    }
    let named = words.iter().copied().filter(|word| found.contains(word));
    Ok(named.collect::<Vec<_>>().join(" ").into_bytes())
}

pub(super) fn only(
    got: &[u8],
    values: &'static [&'static str],
    why: &'static str,
) -> Result<(), Expected> {
    let is = |value: &&str| value.as_bytes().eq_ignore_ascii_case(got);
    if values.iter().any(is) {
        Ok(())
    } else {
        Err(Expected::Only { values, why })
    }
}

pub(super) fn parse_path(value: &[u8]) -> Result<Option<std::path::PathBuf>, Expected> {
    match text(value) {
        Some("") => Ok(None),
        Some(path) if !path.contains('\0') => Ok(Some(path.into())),
        _ => Err(Expected::Text),
    }
}

pub(super) fn print_path(path: Option<&std::path::Path>) -> Vec<u8> {
    path.map(|path| path.to_string_lossy().into_owned())
        .unwrap_or_default()
        .into_bytes()
}

pub(super) fn parse_paths(value: &[u8]) -> Result<Vec<std::path::PathBuf>, Expected> {
    let words = text(value).filter(|paths| !paths.contains('\0'));
    let words = words.ok_or(Expected::Text)?.split_ascii_whitespace();
    Ok(words.map(Into::into).collect())
}

pub(super) fn print_paths(paths: &[std::path::PathBuf]) -> Vec<u8> {
    let words: Vec<_> = paths.iter().map(|path| path.to_string_lossy()).collect();
    words.join(" ").into_bytes()
}

pub(super) fn parse_port_or_off(value: &[u8]) -> Result<Option<u16>, Expected> {
    match text(value) {
        Some("off") => Ok(None),
        Some(port) => port.parse().map(Some).map_err(|_| Expected::PortOrOff),
        None => Err(Expected::PortOrOff),
    }
}

pub(super) fn parse_addresses(value: &[u8]) -> Result<Vec<BindAddress>, Expected> {
    let words = text(value)
        .ok_or(Expected::Addresses)?
        .split_ascii_whitespace();
    words
        .map(|word| parse_address(word).ok_or(Expected::Addresses))
        .collect()
}

pub(super) fn parse_address(word: &str) -> Option<BindAddress> {
    let (word, optional) = word
        .strip_prefix('-')
        .map_or((word, false), |word| (word, true));
    let ip = match word {
        "*" => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        "::*" => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => word.parse().ok()?,
    };
    Some(BindAddress { ip, optional })
}

pub(super) fn print_addresses(addresses: &[BindAddress]) -> Vec<u8> {
    let words: Vec<String> = addresses
        .iter()
        .map(|address| format!("{}{}", if address.optional { "-" } else { "" }, address.ip))
        .collect();
    words.join(" ").into_bytes()
}

pub(super) fn parse_percentiles(value: &[u8]) -> Result<Vec<f64>, Expected> {
    let words = text(value)
        .ok_or(Expected::Percentiles)?
        .split_ascii_whitespace();
    let parse = |word: &str| {
        word.parse()
            .ok()
            .filter(|percent| (0.0..=100.0).contains(percent))
    };
    words
        .map(|word| parse(word).ok_or(Expected::Percentiles))
        .collect()
}

pub(super) fn print_percentiles(percentiles: &[f64]) -> Vec<u8> {
    let words: Vec<String> = percentiles.iter().copied().map(print_percentile).collect();
    words.join(" ").into_bytes()
}

/// Whether it is a title that Redis takes: what is in braces is a variable, and something is left
/// where the program's name is empty.
pub(super) fn title(value: &[u8]) -> Result<(), Expected> {
    let template = text(value).ok_or(Expected::Title)?;
    let (mut rest, mut is_empty) = (template, true);
    while let Some((before, after)) = rest.split_once('{') {
        is_empty &= before.trim_matches(' ').is_empty();
        if let Some(after) = after.strip_prefix('{') {
            (rest, is_empty) = (after, false);
            continue;
        }
        let (name, after) = after.split_once('}').ok_or(Expected::Title)?;
        match name {
            // Nothing stands for them here.
            "title" | "server-mode" => {}
            "listen-addr" | "config-file" | "port" | "tls-port" | "unixsocket" => is_empty = false,
            _ => return Err(Expected::Title),
        }
        rest = after;
    }
    is_empty &= rest.trim_matches(' ').is_empty();
    if is_empty {
        return Err(Expected::Title);
    }
    Ok(())
}

/// Three scores, as CONFIG GET shows them.
pub(super) fn killer_scores(value: &[u8]) -> Result<Vec<u8>, Expected> {
    let wrong = |what| Expected::KillerScores(what);
    let words = text(value).ok_or(wrong(WrongScores::Count))?.split(' ');
    let words: Vec<_> = words.collect();
    if words.len() != 3 {
        return Err(wrong(WrongScores::Count));
    }
    let scores = words.into_iter().map(|word| {
        let score = word.parse::<i32>().ok();
        let score = score.filter(|score| (-2_000..=2_000).contains(score));
        score.map(|score| score.to_string())
    });
    let scores: Option<Vec<_>> = scores.collect();
    let scores = scores.ok_or(wrong(WrongScores::Score))?;
    Ok(scores.join(" ").into_bytes())
}
