//! ROLE REPLICA REPLICAOF SLAVEOF PREPLICATE WAIT WAITAOF: this server's part in replication.

use std::time::Duration;

use pando_db::{
    CheckWish, CommandError, LogEpoch, Milliseconds, Position, Progress, REPLICATION_FORMAT,
    ReplicaWait, Verdict, Wait,
};
use pando_protocol::number;

use super::{AdminError, Call, Handled};
use crate::config::{Replication, Target};
use crate::limits;
use crate::registry::ClientFlag;
use crate::replication::{Confirmed, LinkState, LinkStatus, Refused, Request, TaskState, Wish};
use crate::shared::Shared;

/// ROLE: a primary with its replicas, or a replica with its primary.
pub(super) fn role(call: &mut Call<'_, '_, '_>) -> Handled {
    let replication = &call.shared.replication;
    let reply = &mut *call.reply;
    if let Some((target, link)) = replication.link() {
        reply.array(5);
        reply.bulk("slave");
        reply.bulk(&target.host);
        reply.integer(i64::from(target.port));
        reply.bulk(match link.state {
            LinkState::Connect => "connect",
            LinkState::Connecting => "connecting",
            LinkState::Sync => "sync",
            LinkState::Connected => "connected",
        });
        reply.integer(link.told.applied as i64);
        return Ok(Progress::Done);
    }
    let (offset, _) = call.shared.database.backlog();
    let followers = replication.followers();
    reply.array(3);
    reply.bulk("master");
    reply.integer(offset as i64);
    reply.array(followers.len());
    for follower in followers {
        reply.array(3);
        reply.bulk(&follower.host);
        reply.bulk(follower.port.to_string());
        reply.bulk(follower.progress().offset.to_string());
    }
    Ok(Progress::Done)
}

/// REPLICAOF host port [FORCE], or NO ONE. It waits for the message of the former primary that is
/// being taken, if one is.
pub(super) fn replicaof(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    let target = if request.is(1, "NO") && request.is(2, "ONE") {
        None
    } else {
        let port = number::parse_i64(request.arg(2));
        if !port.is_some_and(|port| (0..=65535).contains(&port)) {
            return Err(AdminError::MasterPort);
        }
        let target = Target::of(request.arg(1), request.arg(2));
        Some(target.ok_or(AdminError::MasterPort)?)
    };
    let force = request.len() == 4 && request.is(3, "FORCE") && target.is_some();
    if request.len() > 3 && !force {
        return Err(CommandError::Syntax.into());
    }
    if call.inside_exec {
        return Err(CommandError::NotInTransaction.into());
    }
    let shared = call.shared;
    let same = shared.replication.link().map(|(target, _)| target) == target;
    if same && target.is_some() && !force {
        call.reply
            .simple("OK Already connected to specified master");
        return Ok(Progress::Done);
    }
    let changed = shared.change_config(|config| {
        config.replication.target.clone_from(&target);
        Ok::<(), AdminError>(())
    });
    changed?;
    let followed = shared.follow(target, force);
    followed.map_err(|_| AdminError::NoSession)?;
    call.ok()
}

/// FAILOVER [TO host port] [ABORT] [TIMEOUT ms]: hands over to a replica that has everything.
/// Writes are held back meanwhile; the reply comes at once, and INFO says how far it is.
pub(super) fn failover(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    let replication = &call.shared.replication;
    if request.len() == 2 && request.is(1, "ABORT") {
        return if replication.abort(false) {
            call.ok()
        } else {
            Err(AdminError::NoFailover)
        };
    }
    let (mut target, mut timeout, mut index) = (None, limits::REPLICA_PATIENCE, 1);
    while index < request.len() {
        if request.is(index, "TO") && request.len() > index + 2 && target.is_none() {
            let given = Target::of(request.arg(index + 1), request.arg(index + 2));
            target = Some(given.ok_or(AdminError::MasterPort)?);
            index += 3;
        } else if request.is(index, "TIMEOUT") && request.len() > index + 1 {
            let given = number::parse_i64(request.arg(index + 1));
            let given = given.filter(|given| *given > 0);
            let given = given.ok_or(AdminError::FailoverTimeout)?;
            timeout = Duration::from_millis(given as u64);
            index += 2;
        } else {
            return Err(CommandError::Syntax.into());
        }
    }
    if call.shared.database.follows() {
        return Err(AdminError::FailoverOnReplica);
    }
    if replication.candidate(target.as_ref()).is_none() {
        return Err(match target {
            Some(_) => AdminError::FailoverTarget,
            None => AdminError::FailoverAlone,
        });
    }
    if replication.ask(Wish::HandOver(target), timeout) {
        call.ok()
    } else {
        Err(AdminError::FailoverRuns)
    }
}

/// PREPLICATE: what a replica says ([`crate::replication`]).
pub(super) fn preplicate(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    if request.is(1, "ACK") && request.len() == 6 {
        return confirm(call);
    }
    if request.is(1, "CHECK") {
        return check(call);
    }
    if !request.is(1, "BEGIN") {
        return Err(AdminError::wrong_subcommand("PREPLICATE", request.arg(1)));
    }
    // Before their number: other formats have other words.
    if number::parse_i64(request.arg(2)) != Some(i64::from(REPLICATION_FORMAT)) {
        return Err(AdminError::ReplicationFormat);
    }
    if ![7, 9].contains(&request.len()) {
        return Err(CommandError::Syntax.into());
    }
    let run_id = request.arg(3);
    let is_id = run_id.len() == 40 && run_id.iter().all(u8::is_ascii_hexdigit);
    let port = number::parse_i64(request.arg(4)).and_then(|port| u16::try_from(port).ok());
    let (Some(port), true) = (port, is_id) else {
        return Err(CommandError::Syntax.into());
    };
    let position = (request.len() == 9).then(|| position(request.arg(7), request.arg(8)));
    let position = match position {
        Some(None) => return Err(CommandError::Syntax.into()),
        Some(position) => position,
        None => None,
    };
    let origin = call.record.origin();
    let host = origin.address.rsplit_once(':');
    let asked = Request {
        client: call.record.id(),
        worker: origin.worker,
        run_id: String::from_utf8_lossy(run_id).into_owned(),
        host: host
            .map_or("", |(host, _)| host)
            .trim_matches(['[', ']'])
            .to_owned(),
        port,
        keeps_log: request.is(5, "1"),
        has_branches: request.is(6, "1"),
        position,
    };
    let above = call.shared.replication.accept(call.shared.run_id(), asked);
    let above = above.map_err(|refused| match refused {
        Refused::Cycle => AdminError::ReplicationCycle,
        Refused::TooMany => AdminError::TooManyReplicas,
    })?;
    call.record.set_flag(ClientFlag::Replica, true);
    call.reply.simple(&format!("OK {}", above.join(" ")));
    Ok(Progress::Done)
}

/// PREPLICATE CHECK BEGIN, or LIST and numbers.
fn check(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    let numbers = (3..request.len()).map(|index| {
        let number = number::parse_i64(request.arg(index));
        number.and_then(|number| u32::try_from(number).ok())
    });
    let numbers: Option<Vec<u32>> = numbers.take(limits::CHECK_LIST_MAX).collect();
    let wish = match numbers {
        Some(none) if request.is(2, "BEGIN") && none.is_empty() => CheckWish::Begin,
        Some(buckets) if request.is(2, "LIST") => CheckWish::List(buckets),
        _ => return Err(CommandError::Syntax.into()),
    };
    if !call.shared.replication.wish(call.record.id(), wish) {
        return Err(AdminError::NoReplica);
    }
    Ok(Progress::Done)
}

const HELP: &[&str] = &[
    "CHECK",
    "    Begin to compare this replica with its primary.",
    "STATUS",
    "    Tell how that went, or goes: its state, and the first key that differs.",
];

/// REPLICA CHECK and STATUS.
pub(super) fn replica(call: &mut Call<'_, '_, '_>) -> Handled {
    let replication = &call.shared.replication;
    if call.request.is(1, "HELP") {
        return call.help("REPLICA", HELP);
    }
    let Some((_, link)) = replication.link() else {
        return Err(AdminError::NotAReplica);
    };
    if call.request.is(1, "CHECK") {
        if link.check == Some(Verdict::Running) {
            return Err(AdminError::CheckRuns);
        }
        return if replication.check() {
            call.ok()
        } else {
            Err(AdminError::LinkDown)
        };
    }
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned().into_bytes();
    let mut fields: Vec<(&str, Vec<u8>)> = Vec::new();
    let state = match link.check {
        None => "none",
        Some(Verdict::Running) => "running",
        Some(Verdict::Same { keys, epoch }) => {
            fields.push(("keys", keys.to_string().into()));
            fields.push(("epoch", epoch.to_string().into()));
            "same"
        }
        Some(Verdict::Differs(difference)) => {
            if !difference.branch.is_empty() {
                fields.push(("branch", difference.branch));
            }
            fields.push(("database", difference.database.to_string().into()));
            fields.push(("key", difference.key));
            fields.push(("primary-has", yes(difference.present.0)));
            fields.push(("replica-has", yes(difference.present.1)));
            fields.push(("epoch", difference.epoch.to_string().into()));
            "differs"
        }
        Some(Verdict::Failed(reason)) => {
            fields.push(("reason", reason.into()));
            "failed"
        }
    };
    call.reply.map(fields.len() + 1);
    call.reply.bulk("state");
    call.reply.bulk(state);
    for (name, value) in fields {
        call.reply.bulk(name);
        call.reply.bulk(value);
    }
    Ok(Progress::Done)
}

fn position(history: &[u8], epoch: &[u8]) -> Option<Position> {
    let history = std::str::from_utf8(history).ok()?;
    let epoch = std::str::from_utf8(epoch).ok()?;
    Some(Position {
        history: u128::from_str_radix(history, 16).ok()?,
        epoch: LogEpoch(epoch.parse().ok()?),
    })
}

fn confirm(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    let number = |index| {
        let number = number::parse_i64(request.arg(index));
        number.and_then(|number| u64::try_from(number).ok())
    };
    let [Some(bytes), Some(applied), Some(durable), Some(offset)] = [2, 3, 4, 5].map(number) else {
        return Err(CommandError::NotAnInteger.into());
    };
    let confirmed = Confirmed {
        bytes,
        applied,
        durable,
        offset,
    };
    let replication = &call.shared.replication;
    if !replication.confirm(call.record.id(), confirmed) {
        return Err(AdminError::NoReplica);
    }
    if replication.take_awaited() {
        call.shared.wake_workers();
    }
    Ok(Progress::Done)
}

/// How many replicas have everything written so far; and whether this server has it on disk.
pub(crate) fn has_all(shared: &Shared, wait: &ReplicaWait) -> (bool, usize) {
    let replicas = shared.replication.count(wait.followed, wait.on_disk);
    (shared.database.durable() >= wait.epoch, replicas)
}

fn wait_for_replicas(call: &mut Call<'_, '_, '_>, wait: ReplicaWait, timeout_ms: u64) -> Handled {
    let shared = call.shared;
    if wait.on_disk && !shared.database.is_durable() && wait.disks > 0 {
        return Err(AdminError::NoDisk);
    }
    let has = has_all(shared, &wait);
    // Where nobody ever followed, nobody is about to.
    let nobody = !shared.database.is_followed() && wait.replicas > 0;
    if wait.is_over(has) || call.inside_exec || nobody {
        wait.answer(call.reply, has);
        return Ok(Progress::Done);
    }
    let timeout = (timeout_ms > 0).then_some(Milliseconds(timeout_ms));
    Ok(Progress::Waits(Wait::Replicas { wait, timeout }))
}

/// WAIT: until so many replicas have all writes so far, on disk if they keep a log. On a server
/// that nobody has followed it replies at once.
pub(super) fn wait(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    let replicas = number::parse_i64(request.arg(1)).ok_or(CommandError::NotAnInteger)?;
    let timeout = number::parse_i64(request.arg(2)).ok_or(AdminError::TimeoutNotAnInteger)?;
    let timeout_ms = u64::try_from(timeout).map_err(|_| AdminError::TimeoutNegative)?;
    let database = &call.shared.database;
    if database.follows() {
        return Err(AdminError::WaitOnReplica);
    }
    let wait = ReplicaWait {
        replicas: usize::try_from(replicas).unwrap_or(0),
        followed: database.followed_epoch(),
        disks: 0,
        epoch: LogEpoch::NONE,
        on_disk: false,
    };
    wait_for_replicas(call, wait, timeout_ms)
}

/// WAITAOF: waits for the disks of this server and of replicas. Inside EXEC it replies with the
/// present state. It waits for all writes so far, including those of other connections.
pub(super) fn waitaof(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    let disks = number::parse_i64(request.arg(1)).ok_or(CommandError::NotAnInteger)?;
    let replicas = number::parse_i64(request.arg(2)).ok_or(CommandError::NotAnInteger)?;
    let timeout = number::parse_i64(request.arg(3)).ok_or(AdminError::TimeoutNotAnInteger)?;
    let timeout_ms = u64::try_from(timeout).map_err(|_| AdminError::TimeoutNegative)?;
    if !(0..=1).contains(&disks) {
        return Err(AdminError::LocalDisks);
    }
    let replicas = usize::try_from(replicas).map_err(|_| CommandError::NotPositive)?;
    let database = &call.shared.database;
    if disks == 1 && !database.is_durable() {
        return Err(AdminError::NoDisk);
    }
    if replicas > 0 && database.is_followed() {
        let wait = ReplicaWait {
            replicas,
            followed: database.followed_epoch(),
            disks,
            epoch: database.followed_epoch(),
            on_disk: true,
        };
        return wait_for_replicas(call, wait, timeout_ms);
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

/// INFO's lines: names and values in Redis' order.
pub(super) fn report(shared: &Shared, mut line: impl FnMut(&str, String)) {
    let replication = &shared.replication;
    let settings = shared.config().replication;
    let database = &shared.database;
    let (offset, kept) = database.backlog();
    let link = replication.link();
    line(
        "role",
        if link.is_some() { "slave" } else { "master" }.into(),
    );
    if let Some((target, link)) = &link {
        report_link((target, link), &settings, &mut line);
    }
    let followers = replication.followers();
    line("connected_slaves", followers.len().to_string());
    if settings.min_replicas > 0 && settings.max_lag_s > 0 {
        let lag_max = std::time::Duration::from_secs(settings.max_lag_s);
        line(
            "min_slaves_good_slaves",
            replication.good(lag_max).to_string(),
        );
    }
    for (index, follower) in followers.iter().enumerate() {
        let progress = follower.progress();
        let state = if progress.copying {
            "send_bulk"
        } else {
            "online"
        };
        let text = format!(
            "ip={},port={},state={state},offset={},lag={},lag_bytes={},epoch={}",
            follower.host,
            follower.port,
            progress.offset,
            progress.heard.elapsed().as_secs(),
            offset.saturating_sub(progress.offset),
            progress.applied,
        );
        line(&format!("slave{index}"), text);
    }
    let failover = match replication.failover() {
        TaskState::Nothing => "no-failover",
        TaskState::Waiting => "waiting-for-sync",
        TaskState::HandingOver => "failover-in-progress",
    };
    line("master_failover_state", failover.into());
    line(
        "master_replid",
        format!("{:032x}00000000", database.history()),
    );
    line("master_replid2", "0".repeat(40));
    line("master_repl_offset", offset.to_string());
    line("second_repl_offset", "-1".into());
    line(
        "repl_backlog_active",
        u8::from(database.is_followed()).to_string(),
    );
    line("repl_backlog_size", settings.backlog_bytes.to_string());
    let first = offset.saturating_sub(kept as u64);
    line("repl_backlog_first_byte_offset", first.to_string());
    line("repl_backlog_histlen", kept.to_string());
}

fn report_link(
    (target, link): (&Target, &LinkStatus),
    settings: &Replication,
    line: &mut impl FnMut(&str, String),
) {
    line("master_host", target.host.clone());
    line("master_port", target.port.to_string());
    let up = link.state == LinkState::Connected;
    line("master_link_status", if up { "up" } else { "down" }.into());
    let seconds = link
        .heard
        .map_or(-1, |heard| heard.elapsed().as_secs() as i64);
    line("master_last_io_seconds_ago", seconds.to_string());
    let copying = link.state == LinkState::Sync;
    line("master_sync_in_progress", u8::from(copying).to_string());
    line("slave_read_repl_offset", link.told.offset.to_string());
    line("slave_repl_offset", link.told.applied.to_string());
    if let Some(since) = link.down_since {
        let seconds = since.elapsed().as_secs();
        line("master_link_down_since_seconds", seconds.to_string());
    }
    if let Some(error) = &link.error {
        line("master_link_error", error.replace(['\r', '\n'], " "));
    }
    line("master_link_epoch", link.epoch.to_string());
    line("master_full_copies", link.copies.to_string());
    let behind = link.told.offset - link.told.applied.min(link.told.offset);
    line("master_lag_bytes", behind.to_string());
    line("slave_priority", settings.priority.to_string());
    line("slave_read_only", u8::from(settings.read_only).to_string());
    line("replica_announced", "1".into());
}
