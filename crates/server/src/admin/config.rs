//! CONFIG: settings while the server runs.

use pando_db::{CommandError, Progress};
use pando_io::descriptors;
use pando_protocol::pattern;

use super::error::Echo;
use super::{AdminError, Call, Handled};
use crate::config::{self, Change, Config, Setting, SettingError};
use crate::limits;

const HELP: &[&str] = &[
    "GET <pattern> [<pattern> ...]",
    "    Return the settings whose names match, with their values.",
    "RESETSTAT",
    "    Begin anew to count what INFO reports.",
    "REWRITE",
    "    Write the settings to the configuration file.",
    "SET <name> <value> [<name> <value> ...]",
    "    Change settings, all of them or none.",
    "    These settings of Redis are taken with any value, and change nothing:",
];

/// Most bytes of a line of the help that lists names.
const HELP_LINE_BYTES: usize = 78;

/// CONFIG and its subcommands.
pub(super) fn execute(call: &mut Call<'_, '_, '_>) -> Handled {
    let subcommand = call.request.get(1).unwrap_or_default().to_ascii_lowercase();
    match subcommand.as_slice() {
        b"get" => get(call),
        b"help" => help(call),
        b"resetstat" => {
            call.shared.reset_statistics();
            call.ok()
        }
        b"rewrite" => rewrite(call),
        b"set" => set(call),
        _ => Err(CommandError::Syntax.into()),
    }
}

fn help(call: &mut Call<'_, '_, '_>) -> Handled {
    let mut lines: Vec<String> = HELP.iter().map(|line| (*line).to_owned()).collect();
    let inert = || Setting::all().filter(|setting| setting.is_inert());
    list_names(&mut lines, inert().filter(|it| it.inert_values().is_none()));
    lines.push("    These are taken with the values that change nothing here:".to_owned());
    list_names(&mut lines, inert().filter(|it| it.inert_values().is_some()));
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    call.help("CONFIG", &lines)
}

/// Appends the names of settings, as many as a line takes on each.
fn list_names(lines: &mut Vec<String>, settings: impl Iterator<Item = &'static Setting>) {
    let mut line = String::new();
    for setting in settings {
        if line.len() + setting.name.len() > HELP_LINE_BYTES {
            lines.push(std::mem::take(&mut line));
        }
        line.push_str(if line.is_empty() { "      " } else { " " });
        line.push_str(setting.name);
    }
    lines.push(line);
}

/// Every name of a setting that matches a pattern, each once. O(settings × patterns).
fn get(call: &mut Call<'_, '_, '_>) -> Handled {
    let config = call.shared.config();
    let patterns: Vec<Vec<u8>> = call
        .request
        .args_from(2)
        .map(<[u8]>::to_ascii_lowercase)
        .collect();
    let is_pattern = |it: &[u8]| it.iter().any(|byte| b"[*?".contains(byte));
    let met = |name: &str, hidden: bool| {
        patterns
            .iter()
            .filter(|it| !hidden || !is_pattern(it))
            .any(|it| pattern::matches(it, name.as_bytes()))
    };
    let found: Vec<(&str, Vec<u8>)> = Setting::all()
        .flat_map(|setting| {
            let names = std::iter::once(setting.name).chain(setting.own_name);
            let config = &config;
            names
                .filter(|name| met(name, setting.hidden))
                .map(move |name| (name, setting.get(config)))
        })
        .collect();
    call.reply.map(found.len());
    for (name, value) in found {
        call.reply.bulk(name);
        call.reply.bulk(value);
    }
    Ok(Progress::Done)
}

fn set(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    if !request.len().is_multiple_of(2) {
        return Err(CommandError::Syntax.into());
    }
    let mut changes: Vec<(&'static Setting, &[u8])> = Vec::new();
    for index in (2..request.len()).step_by(2) {
        let name = request.arg(index);
        let failed = |reason: &str| AdminError::ConfigSet {
            name: Echo::of(name),
            reason: Echo::of(reason.as_bytes()),
        };
        let Some(setting) = Setting::find(name) else {
            return Err(AdminError::UnknownSetting {
                name: Echo::of(name),
            });
        };
        if let Some(refusal) = setting.change.refusal() {
            return Err(failed(refusal));
        }
        if changes.iter().any(|(known, _)| known.name == setting.name) {
            return Err(failed("duplicate parameter"));
        }
        changes.push((setting, request.arg(index + 1)));
    }
    call.shared
        .change_config(|config| apply(config, &changes))?;
    call.ok()
}

fn apply(config: &mut Config, changes: &[(&'static Setting, &[u8])]) -> Result<(), AdminError> {
    let clients_max_before = config.clients_max;
    for (setting, value) in changes {
        let present = setting.get(config);
        setting.set(config, value).map_err(refusal)?;
        if setting.change == Change::Present && setting.get(config) != present {
            return Err(AdminError::ConfigSet {
                name: Echo::of(setting.name.as_bytes()),
                reason: Echo::of(b"it is changed at the start alone"),
            });
        }
    }
    config.validate().map_err(refusal)?;
    make_room(config.clients_max, clients_max_before, config.threads)
}

/// Raises the limit of open files for more connections.
fn make_room(clients_max: usize, before: usize, threads: usize) -> Result<(), AdminError> {
    if clients_max <= before {
        return Ok(());
    }
    let reserved = limits::descriptors_reserved(threads);
    let limit = descriptors::raise_limit(clients_max as u64 + reserved);
    let possible = limit.saturating_sub(reserved);
    if possible < clients_max as u64 {
        let reason = format!(
            "The operating system is not able to handle the specified number of clients, try with \
             {possible}"
        );
        return Err(AdminError::ConfigSet {
            name: Echo::of(b"maxclients"),
            reason: Echo::of(reason.as_bytes()),
        });
    }
    Ok(())
}

fn refusal(error: SettingError) -> AdminError {
    let (name, reason) = match error {
        SettingError::Value {
            setting,
            got,
            expected,
        } => (setting, expected.reason(&got)),
        SettingError::Relation {
            setting, expected, ..
        } => (setting, format!("expected {expected}")),
        SettingError::Unknown { got } => {
            return AdminError::UnknownSetting {
                name: Echo::of(got.as_bytes()),
            };
        }
    };
    AdminError::ConfigSet {
        name: Echo::of(name.as_bytes()),
        reason: Echo::of(reason.as_bytes()),
    }
}

fn rewrite(call: &mut Call<'_, '_, '_>) -> Handled {
    let config = call.shared.config();
    let Some(path) = &config.file else {
        return Err(AdminError::NoConfigFile);
    };
    config::rewrite(&config, path).map_err(|error| {
        tracing::warn!(path = %path.display(), %error, "the configuration file was not rewritten");
        AdminError::RewriteFailed {
            reason: Echo::of(error.to_string().as_bytes()),
        }
    })?;
    tracing::info!(path = %path.display(), "configuration file rewritten");
    call.ok()
}
