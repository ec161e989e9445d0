//! SLOWLOG: commands that took long.

use pando_db::{CommandError, Progress};
use pando_protocol::number;

use super::{AdminError, Call, Handled};

const HELP: &[&str] = &[
    "GET [<count>]",
    "    Return the newest slow commands (10 unless given, -1 is all), each as number, time,",
    "    microseconds, arguments, client address and client name.",
    "LEN",
    "    Return how many slow commands are remembered.",
    "RESET",
    "    Forget them.",
];

/// Entries that GET returns unless told.
const GET_COUNT: usize = 10;

/// SLOWLOG and its subcommands.
pub(super) fn execute(call: &mut Call<'_, '_, '_>) -> Handled {
    let subcommand = call.request.get(1).unwrap_or_default().to_ascii_lowercase();
    match subcommand.as_slice() {
        b"get" => get(call),
        b"help" => call.help("SLOWLOG", HELP),
        b"len" => {
            call.reply.count(call.shared.slowlog.len());
            Ok(Progress::Done)
        }
        b"reset" => {
            call.shared.slowlog.reset();
            call.ok()
        }
        _ => Err(CommandError::Syntax.into()),
    }
}

fn get(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    let count = match request.len() {
        2 => GET_COUNT,
        3 => match number::parse_i64(request.arg(2)).filter(|count| *count >= -1) {
            None => return Err(AdminError::SlowlogCount),
            Some(count) => usize::try_from(count).unwrap_or(usize::MAX),
        },
        _ => return Err(AdminError::wrong_subcommand("SLOWLOG", request.arg(1))),
    };
    let commands = call.shared.slowlog.newest(count);
    let reply = &mut *call.reply;
    reply.array(commands.len());
    for command in commands {
        reply.array(6);
        reply.integer(command.id as i64);
        reply.integer(command.at_s as i64);
        reply.integer(command.duration_us as i64);
        reply.array(command.arguments.len());
        for argument in command.arguments {
            reply.bulk(argument);
        }
        reply.bulk(command.address);
        reply.bulk(command.client_name);
    }
    Ok(Progress::Done)
}
