//! CLIENT and MONITOR: what a connection may learn and change about itself and others.

use std::fmt::Write as _;
use std::sync::Arc;

use pando_db::{CommandError, Durability, Milliseconds, Progress, Replicated, ReplyMode};
use pando_protocol::number;

use super::error::Echo;
use super::{AdminError, Call, Handled, USER};
use crate::limits;
use crate::monitor::Monitor;
use crate::registry::{ClientFlag, ClientRecord, WireProtocol};
use crate::shared::Shared;

const HELP: &[&str] = &[
    "CACHING (YES|NO)",
    "    Refused: no client is told what changes.",
    "DURABILITY [NONE|INTERVAL|SYNC|REPLICATED <replicas> [TIMEOUT <milliseconds>]]",
    "    Return when requests of this connection are answered, or set it: at once, or when",
    "    what the reply shows is on disk here, or on the disks of so many replicas, too.",
    "GETNAME",
    "    Return the name of this connection.",
    "GETREDIR",
    "    Return -1: no client is told what changes.",
    "ID",
    "    Return the number of this connection.",
    "INFO",
    "    Return what CLIENT LIST says of this connection.",
    "KILL <ip:port>",
    "    Close the connection from this address.",
    "KILL <option> <value> [<option> <value> [...]]",
    "    Close the connections that match all options:",
    "    * ID <client-id>, ADDR (<ip:port>|<unixsocket>:0), LADDR (<ip:port>|<unixsocket>:0),",
    "      TYPE (NORMAL|MASTER|REPLICA|PUBSUB), USER <username>, MAXAGE <seconds>,",
    "      SKIPME (YES|NO), which is YES unless given.",
    "LIST [TYPE (NORMAL|MASTER|REPLICA|PUBSUB)] [ID <client-id> [<client-id> ...]]",
    "    Return one line for each connection.",
    "NO-EVICT (ON|OFF)",
    "    Keep this connection when memory is short.",
    "NO-TOUCH (ON|OFF)",
    "    Read without renewing access marks.",
    "PAUSE <milliseconds> [WRITE|ALL]",
    "    Hold back all commands, or those that write, of every connection.",
    "REPLY (ON|OFF|SKIP)",
    "    Send replies, none, or none for the next command.",
    "SETINFO (LIB-NAME|LIB-VER) <value>",
    "    Say which library speaks.",
    "SETNAME <name>",
    "    Name this connection.",
    "TRACKING (ON|OFF)",
    "    OFF is accepted; ON is refused.",
    "TRACKINGINFO",
    "    Return that tracking is off.",
    "UNBLOCK <client-id> [TIMEOUT|ERROR]",
    "    End the WAITAOF of a connection, as if its time were over or by an error.",
    "UNPAUSE",
    "    End a pause.",
];

/// CLIENT and its subcommands.
pub(super) fn execute(call: &mut Call<'_, '_, '_>) -> Handled {
    let subcommand = call.request.get(1).unwrap_or_default().to_ascii_lowercase();
    match subcommand.as_slice() {
        b"caching" => Err(AdminError::CachingWithoutTracking),
        b"durability" => durability(call),
        b"getname" => get_name(call),
        b"getredir" => integer(call, -1),
        b"help" => call.help("CLIENT", HELP),
        b"id" => integer(call, call.client.id as i64),
        b"info" => info(call),
        b"kill" => kill(call),
        b"list" => list(call),
        b"no-evict" => no_evict(call),
        b"no-touch" => no_touch(call),
        b"pause" => pause(call),
        b"reply" => reply_mode(call),
        b"setinfo" => set_info(call),
        b"setname" => {
            set_name(call, call.request.arg(2))?;
            call.ok()
        }
        b"tracking" => tracking(call),
        b"trackinginfo" => tracking_info(call),
        b"unblock" => unblock(call),
        b"unpause" => {
            call.shared.database.unpause();
            call.shared.wake_workers();
            call.ok()
        }
        _ => Err(CommandError::Syntax.into()),
    }
}

/// MONITOR: from now on this connection receives every command that runs.
pub(super) fn monitor(call: &mut Call<'_, '_, '_>) -> Handled {
    if call.inside_exec {
        return Err(AdminError::MonitorInTransaction);
    }
    let monitor = Monitor {
        client: call.client.id,
        worker: call.record.origin().worker,
    };
    call.record.set_flag(ClientFlag::Monitor, true);
    call.shared.monitors.add(monitor);
    call.ok()
}

fn integer(call: &mut Call<'_, '_, '_>, value: i64) -> Handled {
    call.reply.integer(value);
    Ok(Progress::Done)
}

fn get_name(call: &mut Call<'_, '_, '_>) -> Handled {
    let name = call.record.names().name;
    if name.is_empty() {
        call.reply.null();
    } else {
        call.reply.bulk(name);
    }
    Ok(Progress::Done)
}

/// CLIENT SETNAME and HELLO's SETNAME; an empty name removes it.
pub(super) fn set_name(call: &mut Call<'_, '_, '_>, name: &[u8]) -> Result<(), AdminError> {
    check_name("Client names", name)?;
    call.record.change_names(|names| names.name = name.into());
    Ok(())
}

/// CLIENT LIST separates fields by spaces and clients by line breaks.
fn check_name(what: &'static str, name: &[u8]) -> Result<(), AdminError> {
    if name.iter().all(u8::is_ascii_graphic) {
        Ok(())
    } else {
        Err(AdminError::ClientName { what })
    }
}

fn set_info(call: &mut Call<'_, '_, '_>) -> Handled {
    let (request, record) = (call.request, call.record);
    let value = request.arg(3);
    if request.is(2, "LIB-NAME") {
        check_name("lib-name", value)?;
        record.change_names(|names| names.library = value.into());
    } else if request.is(2, "LIB-VER") {
        check_name("lib-ver", value)?;
        record.change_names(|names| names.library_version = value.into());
    } else {
        return Err(AdminError::ClientAttribute {
            option: Echo::of(request.arg(2)),
        });
    }
    call.ok()
}

/// DURABILITY [mode]: as for any reply, the reply to a change waits by the mode that was in force.
fn durability(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    match request.len() {
        2 => {
            let text = match call.client.replicated {
                None => call.client.durability.name().to_owned(),
                Some(Replicated { replicas, timeout }) => {
                    let limit = timeout.map(|limit| format!(" timeout {}", limit.0));
                    format!("replicated {replicas}{}", limit.unwrap_or_default())
                }
            };
            call.reply.bulk(text);
            return Ok(Progress::Done);
        }
        4 | 6 if request.is(2, "REPLICATED") => return replicated(call),
        3 => {}
        _ => return Err(AdminError::wrong_subcommand("CLIENT", request.arg(1))),
    }
    let name = std::str::from_utf8(request.arg(2)).ok();
    let mode = name
        .and_then(Durability::from_name)
        .ok_or(AdminError::DurabilityMode)?;
    if mode != Durability::None && !call.shared.database.is_durable() {
        return Err(AdminError::NothingKept);
    }
    call.client.durability = mode;
    call.client.replicated = None;
    call.ok()
}

/// DURABILITY REPLICATED replicas [TIMEOUT milliseconds].
fn replicated(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    let replicas = number::parse_i64(request.arg(3)).ok_or(CommandError::NotAnInteger)?;
    let range = 1..=limits::REPLICAS_MAX as i64;
    if !range.contains(&replicas) {
        return Err(AdminError::ReplicatedRange);
    }
    let mut timeout = None;
    if request.len() == 6 {
        if !request.is(4, "TIMEOUT") {
            return Err(CommandError::Syntax.into());
        }
        let given = number::parse_i64(request.arg(5)).ok_or(AdminError::TimeoutNotAnInteger)?;
        let given = u64::try_from(given).map_err(|_| AdminError::TimeoutNegative)?;
        timeout = (given > 0).then_some(Milliseconds(given));
    }
    if !call.shared.database.is_durable() {
        return Err(AdminError::NothingKept);
    }
    // What earlier replies waited for is no concern of this one.
    call.client.take_awaits();
    call.client.durability = Durability::Sync;
    call.client.replicated = Some(Replicated {
        replicas: replicas as u8,
        timeout,
    });
    call.ok()
}

fn on_or_off(call: &Call<'_, '_, '_>) -> Result<bool, CommandError> {
    match (call.request.is(2, "ON"), call.request.is(2, "OFF")) {
        (true, _) => Ok(true),
        (_, true) => Ok(false),
        _ => Err(CommandError::Syntax),
    }
}

fn no_evict(call: &mut Call<'_, '_, '_>) -> Handled {
    let on = on_or_off(call)?;
    call.record.set_flag(ClientFlag::NoEvict, on);
    call.ok()
}

fn no_touch(call: &mut Call<'_, '_, '_>) -> Handled {
    let on = on_or_off(call)?;
    call.client.no_touch = on;
    call.record.set_flag(ClientFlag::NoTouch, on);
    call.ok()
}

fn tracking(call: &mut Call<'_, '_, '_>) -> Handled {
    if on_or_off(call)? {
        Err(AdminError::NoTracking)
    } else {
        call.ok()
    }
}

fn tracking_info(call: &mut Call<'_, '_, '_>) -> Handled {
    let reply = &mut *call.reply;
    reply.map(3);
    reply.bulk("flags");
    reply.set(1);
    reply.bulk("off");
    reply.bulk("redirect");
    reply.integer(-1);
    reply.bulk("prefixes");
    reply.array(0);
    Ok(Progress::Done)
}

/// UNBLOCK id [TIMEOUT | ERROR]: a wait for keys, replicas or the disk is one that others may end;
/// a pause, DEBUG SLEEP and SAVE do not, as in Redis.
fn unblock(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    let by_error = match request.len() {
        3 => false,
        4 if request.is(3, "TIMEOUT") => false,
        4 if request.is(3, "ERROR") => true,
        4 => return Err(AdminError::UnblockReason),
        _ => return Err(AdminError::wrong_subcommand("CLIENT", request.arg(1))),
    };
    let id = number::parse_i64(request.arg(2)).ok_or(CommandError::NotAnInteger)?;
    let record = call.shared.registry.get(id as u64);
    let ended = record.and_then(|record| Some((record.claim_wait()?, record)));
    if let Some((wait, record)) = &ended
        && let Some(mailbox) = call.shared.mailbox(record.origin().worker)
    {
        mailbox.unblock(record.id(), *wait, by_error);
    }
    integer(call, i64::from(ended.is_some()))
}

fn pause(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    let all = match request.len() {
        3 => true,
        4 if request.is(3, "ALL") => true,
        4 if request.is(3, "WRITE") => false,
        4 => return Err(AdminError::PauseMode),
        _ => return Err(AdminError::wrong_subcommand("CLIENT", request.arg(1))),
    };
    let timeout = number::parse_i64(request.arg(2)).ok_or(AdminError::TimeoutNotAnInteger)?;
    let timeout = u64::try_from(timeout).map_err(|_| AdminError::TimeoutNegative)?;
    let database = &call.shared.database;
    let now = database.options().clock.now();
    database.pause(now.saturating_add(Milliseconds(timeout).into()), all);
    call.ok()
}

fn reply_mode(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    if request.is(2, "ON") {
        call.client.reply_mode = ReplyMode::On;
        return call.ok();
    }
    if request.is(2, "OFF") {
        call.client.reply_mode = ReplyMode::Off;
    } else if request.is(2, "SKIP") {
        if call.client.reply_mode != ReplyMode::Off {
            call.client.reply_mode = ReplyMode::SkipNext;
        }
    } else {
        return Err(CommandError::Syntax.into());
    }
    Ok(Progress::Done)
}

fn info(call: &mut Call<'_, '_, '_>) -> Handled {
    let line = describe(call.shared, call.record, call.shared.now_ms());
    call.reply.verbatim(&line);
    Ok(Progress::Done)
}

/// The connections that LIST and KILL mean by TYPE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientType {
    Normal,
    Replica,
    /// Masters, whose links are no clients, and subscribers: there are none.
    Other,
}

impl ClientType {
    fn of(record: &ClientRecord) -> Self {
        if record.has(ClientFlag::Replica) {
            Self::Replica
        } else {
            Self::Normal
        }
    }
}

fn client_type(name: &[u8]) -> Result<ClientType, AdminError> {
    match name.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(ClientType::Normal),
        b"slave" | b"replica" => Ok(ClientType::Replica),
        b"master" | b"pubsub" => Ok(ClientType::Other),
        _ => Err(AdminError::ClientType {
            name: Echo::of(name),
        }),
    }
}

/// One line for each selected connection. O(connections).
fn list(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    let clients = if request.len() == 2 {
        call.shared.registry.snapshot()
    } else if request.len() == 4 && request.is(2, "TYPE") {
        let kind = client_type(request.arg(3))?;
        let mut clients = call.shared.registry.snapshot();
        clients.retain(|record| kind == ClientType::of(record));
        clients
    } else if request.len() > 3 && request.is(2, "ID") {
        let mut clients = Vec::new();
        for id in request.args_from(3) {
            let id = number::parse_i64(id).ok_or(AdminError::ClientId)?;
            clients.extend(call.shared.registry.get(id as u64));
        }
        clients
    } else {
        return Err(CommandError::Syntax.into());
    };
    let now_ms = call.shared.now_ms();
    let mut text = String::new();
    for record in clients.iter().filter(|record| !record.is_killed()) {
        text.push_str(&describe(call.shared, record, now_ms));
    }
    call.reply.verbatim(&text);
    Ok(Progress::Done)
}

/// The line of CLIENT LIST, with Redis' fields in Redis' order.
fn describe(shared: &Shared, record: &ClientRecord, now_ms: u64) -> String {
    let (origin, names, buffers) = (record.origin(), record.names(), record.buffers());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let seconds = |since_ms: u64| now_ms.saturating_sub(since_ms) / 1000;
    let command = shared
        .commands
        .name(record.last_command())
        .unwrap_or("NULL");
    let events = if buffers.output_bytes > 0 { "rw" } else { "r" };
    let mut line = format!(
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} db={}",
        record.id(),
        origin.address,
        origin.local_address,
        origin.descriptor,
        text(&names.name),
        seconds(record.created_ms()),
        seconds(record.last_interaction_ms()),
        flags(record),
        record.database(),
    );
    let _ = write!(
        line,
        " sub=0 psub=0 ssub=0 multi={} qbuf={} qbuf-free={} argv-mem=0 multi-mem={} rbs={} rbp={} \
         obl={} oll=0 omem={} tot-mem={} events={events} cmd={command} user={USER} \
         redir=-1 resp={} lib-name={} lib-ver={}",
        record.queued_requests(),
        buffers.query_bytes,
        buffers.query_free_bytes,
        record.transaction_bytes(),
        buffers.output_capacity_bytes,
        buffers.output_capacity_bytes,
        buffers.output_bytes,
        buffers.output_bytes,
        record.memory_bytes(),
        record.protocol(),
        text(&names.library),
        text(&names.library_version),
    );
    if origin.protocol == WireProtocol::Memcached {
        line.push_str(" protocol=memcached");
    }
    line.push('\n');
    line
}

/// The letters that CLIENT LIST shows, in Redis' order; N is none.
fn flags(record: &ClientRecord) -> String {
    let letters = [
        (record.has(ClientFlag::Monitor), 'O'),
        (record.has(ClientFlag::Replica), 'S'),
        (record.queued_requests() >= 0, 'x'),
        (
            record.has(ClientFlag::Blocked) || record.has(ClientFlag::Held),
            'b',
        ),
        (record.has(ClientFlag::Closing), 'c'),
        (record.is_killed(), 'A'),
        (record.has(ClientFlag::UnixSocket), 'U'),
        (record.has(ClientFlag::NoEvict), 'e'),
        (record.has(ClientFlag::NoTouch), 'T'),
    ];
    let flags: String = letters
        .iter()
        .filter(|(on, _)| *on)
        .map(|(_, letter)| letter)
        .collect();
    if flags.is_empty() {
        "N".to_owned()
    } else {
        flags
    }
}

/// The filter of CLIENT KILL.
#[derive(Debug, Default)]
struct Filter<'c> {
    id: Option<u64>,
    address: Option<&'c [u8]>,
    local_address: Option<&'c [u8]>,
    kind: Option<ClientType>,
    age_s: Option<u64>,
}

impl Filter<'_> {
    fn meets(&self, record: &ClientRecord, now_ms: u64) -> bool {
        let origin = record.origin();
        let age_s = now_ms.saturating_sub(record.created_ms()) / 1000;
        self.id.is_none_or(|id| id == record.id())
            && self
                .address
                .is_none_or(|address| address == origin.address.as_bytes())
            && self
                .local_address
                .is_none_or(|address| address == origin.local_address.as_bytes())
            && self.kind.is_none_or(|kind| kind == ClientType::of(record))
            && self.age_s.is_none_or(|least_s| age_s >= least_s)
            && !record.is_killed()
    }
}

fn kill(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    if request.len() == 3 {
        let filter = Filter {
            address: Some(request.arg(2)),
            ..Filter::default()
        };
        let (killed, progress) = close(call, &filter, false);
        if killed == 0 {
            return Err(AdminError::NoSuchClient);
        }
        call.reply.ok();
        return Ok(progress);
    }
    let (mut filter, mut skip_me) = (Filter::default(), true);
    for index in (2..request.len()).step_by(2) {
        let Some(value) = request.get(index + 1) else {
            return Err(CommandError::Syntax.into());
        };
        match request.arg(index).to_ascii_lowercase().as_slice() {
            b"id" => {
                let id = number::parse_i64(value).filter(|id| *id > 0);
                filter.id = Some(id.ok_or(AdminError::ClientIdNotPositive)? as u64);
            }
            b"addr" => filter.address = Some(value),
            b"laddr" => filter.local_address = Some(value),
            b"type" => filter.kind = Some(client_type(value)?),
            b"user" if value == USER.as_bytes() => {}
            b"user" => {
                return Err(AdminError::NoSuchUser {
                    name: Echo::of(value),
                });
            }
            b"maxage" => {
                let age = number::parse_i64(value).ok_or(AdminError::MaxAgeNotAnInteger)?;
                let age = u64::try_from(age).ok().filter(|age| *age > 0);
                filter.age_s = Some(age.ok_or(AdminError::MaxAgeNotPositive)?);
            }
            b"skipme" if value.eq_ignore_ascii_case(b"yes") => skip_me = true,
            b"skipme" if value.eq_ignore_ascii_case(b"no") => skip_me = false,
            _ => return Err(CommandError::Syntax.into()),
        }
    }
    let (killed, progress) = close(call, &filter, skip_me);
    call.reply.count(killed);
    Ok(progress)
}

/// Closes the matching connections; returns how many, and whether this one is among them.
/// O(connections).
fn close(call: &Call<'_, '_, '_>, filter: &Filter<'_>, skip_me: bool) -> (usize, Progress) {
    let (mut killed, mut progress) = (0, Progress::Done);
    let now_ms = call.shared.now_ms();
    let clients: Vec<Arc<ClientRecord>> = match filter.id {
        Some(id) => call.shared.registry.get(id).into_iter().collect(),
        None => call.shared.registry.snapshot(),
    };
    for record in clients.iter().filter(|record| filter.meets(record, now_ms)) {
        if record.id() == call.client.id {
            if skip_me {
                continue;
            }
            // This one closes after its reply.
            progress = Progress::Close;
        } else {
            record.kill();
            if let Some(mailbox) = call.shared.mailbox(record.origin().worker) {
                mailbox.close(record.id());
            }
        }
        killed += 1;
    }
    (killed, progress)
}
