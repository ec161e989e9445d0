//! ACL: describes the one user, who may do everything.

use pando_db::{CommandError, Progress};
use pando_protocol::command::{self, Category};

use super::error::Echo;
use super::{AdminError, Call, Handled, USER};

const HELP: &[&str] = &[
    "CAT [<category>]",
    "    List the categories of commands, or the commands of one.",
    "GETUSER <username>",
    "    Return the rules of a user.",
    "LIST",
    "    List the rules of all users as text.",
    "USERS",
    "    List the names of all users.",
    "WHOAMI",
    "    Return the user of this connection.",
];

/// ACL and its subcommands.
pub(super) fn execute(call: &mut Call<'_, '_, '_>) -> Handled {
    let subcommand = call.request.get(1).unwrap_or_default().to_ascii_lowercase();
    match subcommand.as_slice() {
        b"cat" => cat(call),
        b"getuser" => get_user(call),
        b"help" => call.help("ACL", HELP),
        b"list" => {
            let rules = rules(call);
            call.reply.array(1);
            call.reply.bulk(rules);
            Ok(Progress::Done)
        }
        b"users" => {
            call.reply.array(1);
            call.reply.bulk(USER);
            Ok(Progress::Done)
        }
        b"whoami" => {
            call.reply.bulk(USER);
            Ok(Progress::Done)
        }
        _ => Err(CommandError::Syntax.into()),
    }
}

/// The user's line, with the mark of a password but not the password: unlike Redis the server keeps
/// no hash of it to show.
fn rules(call: &Call<'_, '_, '_>) -> String {
    let password = if call.shared.settings.requires_password() {
        ""
    } else {
        " nopass"
    };
    format!("user {USER} on{password} ~* &* +@all")
}

fn cat(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    match request.len() {
        2 => {
            call.reply.array(Category::ALL.len());
            for category in Category::ALL {
                call.reply.bulk(own_name(*category));
            }
        }
        3 => {
            let named = |category: &&Category| {
                own_name(**category)
                    .as_bytes()
                    .eq_ignore_ascii_case(request.arg(2))
            };
            let Some(category) = Category::ALL.iter().find(named) else {
                return Err(AdminError::UnknownCategory {
                    name: Echo::of(request.arg(2)),
                });
            };
            let members = command::told().filter(|spec| spec.categories.has(*category));
            let names: Vec<_> = members.map(|spec| spec.name).collect();
            call.reply.array(names.len());
            for name in names {
                call.reply.bulk(name);
            }
        }
        _ => return Err(AdminError::wrong_subcommand("ACL", request.arg(1))),
    }
    Ok(Progress::Done)
}

fn own_name(category: Category) -> &'static str {
    category.text().trim_start_matches('@')
}

fn get_user(call: &mut Call<'_, '_, '_>) -> Handled {
    if call.request.arg(2) != USER.as_bytes() {
        call.reply.null();
        return Ok(Progress::Done);
    }
    let open = !call.shared.settings.requires_password();
    let reply = &mut *call.reply;
    reply.map(6);
    reply.bulk("flags");
    reply.set(if open { 2 } else { 1 });
    reply.bulk("on");
    if open {
        reply.bulk("nopass");
    }
    reply.bulk("passwords");
    reply.array(0);
    for (name, rule) in [("commands", "+@all"), ("keys", "~*"), ("channels", "&*")] {
        reply.bulk(name);
        reply.bulk(rule);
    }
    reply.bulk("selectors");
    reply.array(0);
    Ok(Progress::Done)
}
