//! ROLE REPLICAOF SLAVEOF WAIT WAITAOF CLUSTER: a server without replicas.

use pando_db::{CommandError, Milliseconds, Progress};
use pando_protocol::number;

use super::{AdminError, Call, Handled};

/// ROLE: a primary without replicas, at offset 0 since nothing is replicated.
pub(super) fn role(call: &mut Call<'_, '_, '_>) -> Handled {
    let reply = &mut *call.reply;
    reply.array(3);
    reply.bulk("master");
    reply.integer(0);
    reply.array(0);
    Ok(Progress::Done)
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

/// WAIT: no replica acknowledges anything, however long one waits, so the reply is 0 at once.
pub(super) fn wait(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    number::parse_i64(request.arg(1)).ok_or(CommandError::NotAnInteger)?;
    let timeout = number::parse_i64(request.arg(2)).ok_or(AdminError::TimeoutNotAnInteger)?;
    if timeout < 0 {
        return Err(AdminError::TimeoutNegative);
    }
    call.reply.integer(0);
    Ok(Progress::Done)
}

/// WAITAOF: waits for the disk, never for replicas, as there are none. Inside EXEC it replies with
/// the present state. It waits for all writes so far, including those of other connections.
pub(super) fn waitaof(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    let disks = number::parse_i64(request.arg(1)).ok_or(CommandError::NotAnInteger)?;
    let replicas = number::parse_i64(request.arg(2)).ok_or(CommandError::NotAnInteger)?;
    let timeout = number::parse_i64(request.arg(3)).ok_or(AdminError::TimeoutNotAnInteger)?;
    let timeout_ms = u64::try_from(timeout).map_err(|_| AdminError::TimeoutNegative)?;
    if !(0..=1).contains(&disks) {
        return Err(AdminError::LocalDisks);
    }
    if replicas < 0 {
        return Err(CommandError::NotPositive.into());
    }
    if disks == 1 && !call.shared.database.is_durable() {
        return Err(AdminError::NoDisk);
    }
    let durable = call.turn.is_all_durable();
    if disks == 0 || durable || call.inside_exec {
        call.reply.array(2);
        call.reply.integer(i64::from(durable));
        call.reply.integer(0);
        return Ok(Progress::Done);
    }
    let timeout = (timeout_ms > 0).then_some(Milliseconds(timeout_ms));
    Ok(Progress::Waits(call.turn.disk(timeout)))
}
