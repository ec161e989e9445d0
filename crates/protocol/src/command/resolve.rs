//! From a request to its command or subcommand.

use super::unbuilt::unbuilt_subcommand;
use super::{CommandSpec, is_unbuilt, lookup};
use crate::Request;

/// Why a request cannot be run.
#[derive(Clone, Copy, Debug)]
pub enum Refusal {
    /// No command has this name.
    UnknownCommand,
    /// The container has no such subcommand.
    UnknownSubcommand(&'static CommandSpec),
    /// The number of arguments does not fit.
    WrongArity(&'static CommandSpec),
    /// It would not fit a subcommand of Redis that is not built.
    WrongArityOfUnbuilt(&'static CommandSpec),
    /// It is longer than memory allows; with the command, if its name is known.
    TooLong(Option<&'static CommandSpec>),
    /// A line of HTTP, perhaps sent by a browser that was tricked into it: log it and close the
    /// connection without a reply.
    Http,
}

/// Longest part of a name, and of all arguments together, that an error repeats, in bytes.
const ECHO_BYTES_MAX: usize = 128;

/// The command that `request` names, or the subcommand when the command is a container, with the
/// number of arguments checked.
#[inline]
pub fn resolve(request: Request<'_>) -> Result<&'static CommandSpec, Refusal> {
    let name = request.arg(0);
    let Some(mut spec) = lookup(name) else {
        return Err(unknown(name));
    };
    if !spec.subcommands.is_empty()
        && let Some(name) = request.get(1)
    {
        spec = spec
            .subcommand(name)
            .ok_or_else(|| unknown_subcommand(spec, request))?;
    }
    if spec.accepts(request.len()) {
        Ok(spec)
    } else {
        Err(Refusal::WrongArity(spec))
    }
}

/// [`resolve`] with a memory of the last command: clients often send the same one many times in a
/// row.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resolver {
    name: [u8; NAME_BYTES_MAX],
    len: usize,
    spec: Option<&'static CommandSpec>,
}

/// Longest name that is remembered, in bytes.
const NAME_BYTES_MAX: usize = 16;

impl Resolver {
    /// Like [`resolve`].
    #[inline]
    pub fn resolve(&mut self, request: Request<'_>) -> Result<&'static CommandSpec, Refusal> {
        let name = request.arg(0);
        if let Some(spec) = self.spec
            && *name == self.name[..self.len]
            && spec.accepts(request.len())
        {
            return Ok(spec);
        }
        self.resolve_anew(request)
    }

    #[inline(never)]
    fn resolve_anew(&mut self, request: Request<'_>) -> Result<&'static CommandSpec, Refusal> {
        let spec = resolve(request)?;
        let name = request.arg(0);
        // A container's second word decides, and is not checked above.
        if spec.subcommands.is_empty()
            && lookup(name).is_some_and(|found| std::ptr::eq(found, spec))
            && let Some(place) = self.name.get_mut(..name.len())
        {
            place.copy_from_slice(name);
            (self.len, self.spec) = (name.len(), Some(spec));
        }
        Ok(spec)
    }
}

#[cold]
fn unknown(name: &[u8]) -> Refusal {
    if name.eq_ignore_ascii_case(b"host:") || name.eq_ignore_ascii_case(b"post") {
        Refusal::Http
    } else {
        Refusal::UnknownCommand
    }
}

#[cold]
fn unknown_subcommand(container: &'static CommandSpec, request: Request<'_>) -> Refusal {
    match unbuilt_subcommand(container, request.get(1).unwrap_or_default()) {
        Some(spec) if !spec.accepts(request.len()) => Refusal::WrongArityOfUnbuilt(spec),
        _ => Refusal::UnknownSubcommand(container),
    }
}

impl Refusal {
    /// The error reply to `request`, with its code.
    #[must_use]
    pub fn text(self, request: Request<'_>) -> Vec<u8> {
        match self {
            Refusal::UnknownCommand => unknown_command(request),
            Refusal::UnknownSubcommand(container) => {
                let mut text = b"ERR unknown subcommand '".to_vec();
                text.extend_from_slice(echo(request.get(1).unwrap_or_default(), ECHO_BYTES_MAX));
                text.extend_from_slice(b"'. Try ");
                text.extend(container.name.bytes().map(|byte| byte.to_ascii_uppercase()));
                text.extend_from_slice(b" HELP.");
                text
            }
            Refusal::WrongArity(spec) | Refusal::WrongArityOfUnbuilt(spec) => {
                format!("ERR wrong number of arguments for '{}' command", spec.name).into_bytes()
            }
            Refusal::TooLong(_) => b"ERR the request is too long".to_vec(),
            Refusal::Http => b"ERR HTTP is not spoken here".to_vec(),
        }
    }
}

fn unknown_command(request: Request<'_>) -> Vec<u8> {
    let name = request.arg(0);
    let mut text = b"ERR unknown command '".to_vec();
    text.extend_from_slice(echo(name, ECHO_BYTES_MAX));
    if name.eq_ignore_ascii_case(b"sync") || name.eq_ignore_ascii_case(b"psync") {
        // redis-cli --rdb and replicas print this line.
        text.extend_from_slice(
            b"': replicas are servers of Pando (docs/REPLICATION.md); for a copy of the data use \
              `pando dump --from HOST:PORT` (docs/BACKUP.md)",
        );
        return text;
    }
    text.extend_from_slice(if is_unbuilt(name) {
        b"': not supported yet, with args beginning with: "
    } else {
        b"', with args beginning with: "
    });
    let start = text.len();
    for argument in request.args_from(1) {
        let written = text.len() - start;
        if written >= ECHO_BYTES_MAX {
            break;
        }
        text.push(b'\'');
        text.extend_from_slice(echo(argument, ECHO_BYTES_MAX - written));
        text.extend_from_slice(b"' ");
    }
    text
}

/// The part of `bytes` that an error repeats: up to a NUL, and not too long.
fn echo(bytes: &[u8], bytes_max: usize) -> &[u8] {
    let bytes = &bytes[..bytes.len().min(bytes_max)];
    let end = bytes.iter().position(|byte| *byte == 0);
    &bytes[..end.unwrap_or(bytes.len())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RequestBuffer;

    fn refuse(arguments: &[&[u8]]) -> String {
        let request = RequestBuffer::from_args(arguments);
        let request = request.as_request();
        let text = resolve(request).unwrap_err().text(request);
        String::from_utf8_lossy(&text).into_owned()
    }

    #[test]
    fn a_container_resolves_to_its_subcommand() {
        for (arguments, name) in [
            (&["client", "ID"][..], "client|id"),
            (&["CONFIG", "get", "*"], "config|get"),
            (&["Command"], "command"),
            (&["GET", "k"], "get"),
            (&["debug", "sleep", "0"], "debug"),
        ] {
            let request = RequestBuffer::from_args(arguments);
            assert_eq!(resolve(request.as_request()).unwrap().name, name);
        }
    }

    #[test]
    fn the_number_of_arguments_is_checked_where_the_arity_stands() {
        let wrong = |name| format!("ERR wrong number of arguments for '{name}' command");
        assert_eq!(refuse(&[b"GET"]), wrong("get"));
        assert_eq!(refuse(&[b"get", b"a", b"b"]), wrong("get"));
        assert_eq!(refuse(&[b"CLIENT"]), wrong("client"));
        assert_eq!(refuse(&[b"client", b"SetName"]), wrong("client|setname"));
        // Those that are not built, too.
        assert_eq!(refuse(&[b"acl", b"SetUser"]), wrong("acl|setuser"));
        assert_eq!(refuse(&[b"cluster", b"keyslot"]), wrong("cluster|keyslot"));
        assert_eq!(
            refuse(&[b"acl", b"setuser", b"a"]),
            "ERR unknown subcommand 'setuser'. Try ACL HELP."
        );
    }

    #[test]
    fn a_resolver_says_what_resolve_does() {
        let requests: &[&[&[u8]]] = &[
            &[b"GET", b"k"],
            &[b"GET", b"l"],
            &[b"get", b"k"],
            &[b"GET"],
            &[b"GETS", b"k"],
            &[b"CLIENT", b"ID"],
            &[b"CLIENT", b"LIST"],
            &[b"CLIENT"],
            &[b"COMMAND"],
            &[b"COMMAND", b"COUNT"],
            &[b"GET", b"k"],
            &[b""],
            &[b"a name of more than sixteen bytes"],
        ];
        let mut resolver = Resolver::default();
        for arguments in requests.iter().chain(requests) {
            let request = RequestBuffer::from_args(*arguments);
            let request = request.as_request();
            let said = |result: Result<&'static CommandSpec, Refusal>| match result {
                Ok(spec) => spec.name.as_bytes().to_vec(),
                Err(refusal) => refusal.text(request),
            };
            assert_eq!(
                said(resolver.resolve(request)),
                said(resolve(request)),
                "{arguments:?}"
            );
        }
    }

    #[test]
    fn an_unknown_name_is_repeated_up_to_a_bound() {
        assert_eq!(
            refuse(&[b"F\0oo", b"\xc3\xbf\0a", b"", b"b"]),
            "ERR unknown command 'F', with args beginning with: '\u{ff}' '' 'b' "
        );
        let (long, third) = ([b'x'; 200], [b'y'; 100]);
        assert_eq!(
            refuse(&[&long, &third, &third, b"w"]),
            format!(
                "ERR unknown command '{}', with args beginning with: '{}' '{}' ",
                "x".repeat(128),
                "y".repeat(100),
                "y".repeat(25)
            )
        );
        assert_eq!(
            refuse(&[b"VAdd", b"k", b"v"]),
            "ERR unknown command 'VAdd': not supported yet, with args beginning with: 'k' 'v' "
        );
        for command in [&[&b"SYNC"[..]][..], &[b"psync", b"?", b"-1"]] {
            let text = refuse(command);
            let name = String::from_utf8_lossy(command[0]);
            assert!(
                text.starts_with(&format!("ERR unknown command '{name}': ")),
                "{text}"
            );
            for told in ["`pando dump --from HOST:PORT`", "docs/REPLICATION.md"] {
                assert!(text.contains(told) && !text.contains('\n'), "{text}");
            }
        }
        assert_eq!(
            refuse(&[b"client", b"list2"]),
            "ERR unknown subcommand 'list2'. Try CLIENT HELP."
        );
        assert_eq!(
            refuse(&[b"client|list"]),
            "ERR unknown command 'client|list', with args beginning with: "
        );
    }

    #[test]
    fn http_is_told_apart() {
        for name in ["POST", "Host:"] {
            let request = RequestBuffer::from_args([name, "/"]);
            assert!(matches!(resolve(request.as_request()), Err(Refusal::Http)));
        }
    }
}
