//! ROLE REPLICAOF SLAVEOF WAIT CLUSTER: a server that stands alone.

use pando_db::{CommandError, HostProgress};
use pando_protocol::number;

use super::{AdminError, Call, Handled};

/// ROLE: a primary without replicas, at offset 0 since nothing is sent to anybody.
pub(super) fn role(call: &mut Call<'_, '_, '_>) -> Handled {
    let reply = &mut *call.reply;
    reply.array(3);
    reply.bulk("master");
    reply.integer(0);
    reply.array(0);
    Ok(HostProgress::Done)
}

/// REPLICAOF NO ONE changes nothing; following another server is refused.
pub(super) fn replicaof(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    if request.is(1, "NO") && request.is(2, "ONE") {
        return call.ok();
    }
    let port = number::parse_i64(request.arg(2));
    if port.is_some_and(|port| (0..=65535).contains(&port)) {
        Err(AdminError::NoReplication)
    } else {
        Err(AdminError::MasterPort)
    }
}

/// WAIT: no replica acknowledges anything, however long one waits, so the answer is 0 at once.
pub(super) fn wait(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    number::parse_i64(request.arg(1)).ok_or(CommandError::NotAnInteger)?;
    let timeout = number::parse_i64(request.arg(2)).ok_or(AdminError::TimeoutNotAnInteger)?;
    if timeout < 0 {
        return Err(AdminError::TimeoutNegative);
    }
    call.reply.integer(0);
    Ok(HostProgress::Done)
}
