//! AUTH HELLO QUIT RESET.

use pando_db::{CommandError, Progress};
use pando_protocol::{RespVersion, number};

use super::error::Echo;
use super::{AdminError, Call, Handled, REDIS_VERSION, USER, client};
use crate::registry::ClientFlag;

/// AUTH password, or AUTH user password.
pub(super) fn auth(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    match request.len() {
        2 => {
            if !call.shared.settings.requires_password() {
                return Err(AdminError::NoPasswordConfigured);
            }
            authenticate(call, USER.as_bytes(), request.arg(1))?;
        }
        3 => authenticate(call, request.arg(1), request.arg(2))?,
        _ => return Err(CommandError::Syntax.into()),
    }
    call.ok()
}

fn authenticate(
    call: &mut Call<'_, '_, '_>,
    user: &[u8],
    password: &[u8],
) -> Result<(), AdminError> {
    let settings = &call.shared.settings;
    // The password is compared whatever the user, so that time does not tell which users exist.
    let accepted = settings.is_password(password) || !settings.requires_password();
    if accepted && user == USER.as_bytes() {
        call.client.authenticated = true;
        Ok(())
    } else {
        Err(AdminError::WrongPassword)
    }
}

/// HELLO [version [AUTH user password] [SETNAME name]]. As in Redis, a wrong name leaves the client
/// authenticated, and an unauthenticated client learns only that it is.
pub(super) fn hello(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    let version = match request.get(1) {
        None => None,
        Some(version) => match number::parse_i64(version) {
            None => return Err(AdminError::ProtocolVersion),
            Some(2) => Some(RespVersion::Resp2),
            Some(3) => Some(RespVersion::Resp3),
            Some(_) => return Err(AdminError::UnsupportedProtocol),
        },
    };
    let (mut credentials, mut name) = (None, None);
    let mut index = 2;
    while index < request.len() {
        let more = request.len() - index - 1;
        if request.is(index, "AUTH") && more >= 2 {
            credentials = Some((request.arg(index + 1), request.arg(index + 2)));
            index += 3;
        } else if request.is(index, "SETNAME") && more >= 1 {
            name = Some(request.arg(index + 1));
            index += 2;
        } else {
            return Err(AdminError::HelloOption {
                option: Echo::of(request.arg(index)),
            });
        }
    }
    if let Some((user, password)) = credentials {
        authenticate(call, user, password)?;
    }
    if !call.client.authenticated {
        return Err(AdminError::HelloUnauthenticated);
    }
    if let Some(name) = name {
        client::set_name(call, name)?;
    }
    if let Some(version) = version {
        call.client.protocol = version;
        call.reply.set_version(version);
    }
    describe(call);
    Ok(Progress::Done)
}

fn describe(call: &mut Call<'_, '_, '_>) {
    let reply = &mut *call.reply;
    reply.map(7);
    reply.bulk("server");
    // Clients branch on this name.
    reply.bulk("redis");
    reply.bulk("version");
    reply.bulk(REDIS_VERSION);
    reply.bulk("proto");
    reply.integer(if call.client.protocol == RespVersion::Resp3 {
        3
    } else {
        2
    });
    reply.bulk("id");
    reply.integer(call.client.id as i64);
    reply.bulk("mode");
    reply.bulk("standalone");
    reply.bulk("role");
    reply.bulk("master");
    reply.bulk("modules");
    reply.array(0);
}

/// QUIT.
pub(super) fn quit(call: &mut Call<'_, '_, '_>) -> Handled {
    call.reply.ok();
    Ok(Progress::Close)
}

/// RESET: the state of a new connection, including monitoring and names.
pub(super) fn reset(call: &mut Call<'_, '_, '_>) -> Handled {
    call.turn.reset(call.client);
    call.client.durability = call.shared.settings.durability();
    call.client.replicated = None;
    call.client.authenticated = !call.shared.settings.requires_password();
    call.reply.set_version(call.client.protocol);
    if call.record.has(ClientFlag::Monitor) {
        call.shared.monitors.remove(call.client.id);
    }
    // As in Redis, NO-EVICT stays.
    for flag in [ClientFlag::Monitor, ClientFlag::NoTouch] {
        call.record.set_flag(flag, false);
    }
    call.record
        .change_names(|names| names.name = Box::default());
    call.reply.simple("RESET");
    Ok(Progress::Done)
}
