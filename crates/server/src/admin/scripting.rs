//! FUNCTION and MODULE: there are neither functions nor modules.

use pando_db::{CommandError, Progress};

use super::error::Echo;
use super::{AdminError, Call, Handled};

const FUNCTION_HELP: &[&str] = &[
    "FLUSH [ASYNC|SYNC]",
    "    Remove all functions, of which there are none.",
    "LIST [LIBRARYNAME <pattern>] [WITHCODE]",
    "    Return an empty list.",
    "STATS",
    "    Return that no function runs.",
];

const MODULE_HELP: &[&str] = &["LIST", "    Return an empty list."];

/// FUNCTION and its subcommands.
pub(super) fn function(call: &mut Call<'_, '_, '_>) -> Handled {
    let subcommand = call.request.get(1).unwrap_or_default().to_ascii_lowercase();
    match subcommand.as_slice() {
        b"flush" => flush(call),
        b"help" => call.help("FUNCTION", FUNCTION_HELP),
        b"list" => list(call),
        b"stats" => {
            let reply = &mut *call.reply;
            reply.map(2);
            reply.bulk("running_script");
            reply.null();
            reply.bulk("engines");
            reply.map(0);
            Ok(Progress::Done)
        }
        _ => Err(CommandError::Syntax.into()),
    }
}

fn flush(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    match request.len() {
        2 => call.ok(),
        3 if request.is(2, "SYNC") || request.is(2, "ASYNC") => call.ok(),
        3 => Err(AdminError::FunctionFlush),
        _ => Err(AdminError::wrong_subcommand("FUNCTION", request.arg(1))),
    }
}

fn list(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    let mut index = 2;
    while index < request.len() {
        if request.is(index, "WITHCODE") {
            index += 1;
        } else if request.is(index, "LIBRARYNAME") {
            if index + 1 == request.len() {
                return Err(AdminError::LibraryName);
            }
            index += 2;
        } else {
            return Err(AdminError::FunctionListArgument {
                name: Echo::of(request.arg(index)),
            });
        }
    }
    call.reply.array(0);
    Ok(Progress::Done)
}

/// MODULE and its subcommands.
pub(super) fn module(call: &mut Call<'_, '_, '_>) -> Handled {
    if call.request.is(1, "HELP") {
        return call.help("MODULE", MODULE_HELP);
    }
    call.reply.array(0);
    Ok(Progress::Done)
}
