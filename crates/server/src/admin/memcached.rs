//! `stats` for memcached clients, and the setting that they change.
//!
//! `stats` uses memcached's names for what Pando also counts. What only memcached's memory has (its
//! LRU lists and their crawler) is left out, or reported as off in `stats settings`. `get_expired`
//! counts the commands that met an expired item; there are fewer here, since such items are also
//! removed in the background. `get_flushed` is 0: a flushed item is gone at once, and nobody meets
//! it. `stats items` and `stats slabs` show one class, 1, which holds every item: collectors sum
//! over the classes they find there. Its chunks have the average length of items. `stats cachedump`
//! of this class lists items, as many as fit in [`LIST_BYTES_MAX`].
//!
//! | field | what it counts here |
//! |---|---|
//! | `conn_yields` | reads that were full, so that the rest waited until other connections were served |
//! | `expired_unfetched`, `evicted_unfetched` | items not read since they were written last; LRU policies only, which alone know |
//! | `evicted_nonzero` | evicted items that had an expiry |
//!
//! Left out, because there is nothing like it or it is unknown: `libevent`, NAPI ids; pooled reply
//! and read buffers (`response_obj_*`, `read_buf_*`); `slab_*`, `slabs_moved` (memory is not moved
//! by pages); `lru_*`, `moves_*`, `*_hot`, `*_warm`, `*_cold`, `evicted_active`, `direct_reclaims`,
//! `tailrepairs` (no lists); `crawler_*` (the expirer looks only at due items); `age`,
//! `evicted_time` (the oldest item is unknown); `log_*` (no `watch`); `malloc_fails` (the process
//! ends).

use std::ops::ControlFlow;

use pando_db::Turn;
use pando_protocol::memcached::number::unsigned_32;
use pando_protocol::memcached::{Line, Reply, error};

use crate::host::MEMCACHED_VERSION;
use crate::process;
use crate::registry::{ClientFlag, WireProtocol};
use crate::shared::{Shared, wall_us};

/// Most bytes of a list of items, as in memcached.
const LIST_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Number of memcached's slab classes; the one class here has this number.
const CLASSES: u32 = 64;
const CLASS: u32 = 1;

/// `stats`, with or without a word that selects a part.
pub(crate) fn stats(shared: &Shared, turn: &mut Turn<'_>, line: Line<'_>, reply: &mut Reply<'_>) {
    match line.word(1) {
        None => general(shared, reply),
        Some(b"settings") => settings(shared, reply),
        Some(b"items") => items(shared, reply),
        Some(b"slabs") => slabs(shared, reply),
        Some(b"conns") => connections(shared, reply),
        Some(b"sizes") => reply.stat("sizes_status", "disabled"),
        Some(b"detail") => {
            match line.word(2) {
                // Nothing is counted by key prefixes, as memcached does by default.
                Some(b"on" | b"off") => reply.line("OK"),
                Some(b"dump") => reply.line("END"),
                _ => reply.line(error::BAD_DETAIL),
            }
            return;
        }
        Some(b"cachedump") => {
            list(turn, line, reply);
            return;
        }
        Some(b"reset") => {
            shared.database.reset_memcached();
            reply.line("RESET");
            return;
        }
        Some(_) => {
            reply.line(error::ERROR);
            return;
        }
    }
    reply.line("END");
}

/// `stats cachedump class count`; a count of 0 is no bound.
fn list(turn: &mut Turn<'_>, line: Line<'_>, reply: &mut Reply<'_>) {
    let (Some(class), Some(count)) = (line.word(2), line.word(3)) else {
        return reply.line(error::BAD_CACHEDUMP);
    };
    let (Some(class), Some(count)) = (unsigned_32(class), unsigned_32(count)) else {
        return reply.line(error::BAD_FORMAT);
    };
    if class >= CLASSES {
        return reply.line(error::BAD_CLASS);
    }
    if class == CLASS {
        let (begin, mut listed) = (reply.position(), 0);
        turn.list_memcached(|item| {
            reply.raw(b"ITEM ");
            reply.raw(item.key);
            reply.line(&format!(" [{} b; {} s]", item.bytes, item.expires_s));
            listed += 1;
            if listed == count || reply.position() - begin >= LIST_BYTES_MAX {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
    }
    reply.line("END");
}

fn general(shared: &Shared, reply: &mut Reply<'_>) {
    let config = shared.config();
    let figures = shared.figures_total();
    let time = process::processor_time();
    let (items, ..) = shared.database.summary(0);
    reply.stat("pid", std::process::id());
    reply.stat("uptime", shared.now_ms() / 1000);
    reply.stat("time", wall_us() / 1_000_000);
    reply.stat("version", MEMCACHED_VERSION);
    reply.stat("pointer_size", usize::BITS);
    reply.stat("rusage_user", format_args!("{:.6}", time.user));
    reply.stat("rusage_system", format_args!("{:.6}", time.system));
    reply.stat("max_connections", config.clients_max);
    reply.stat("curr_connections", shared.registry.len());
    reply.stat("total_connections", figures.connections_received);
    reply.stat("rejected_connections", figures.connections_rejected);
    reply.stat("connection_structures", shared.registry.len());
    let reserved = crate::limits::descriptors_reserved(config.threads);
    reply.stat("reserved_fds", reserved);
    for (name, value) in shared.database.memcached_figures().iter() {
        reply.stat(name, value);
    }
    reply.stat("get_flushed", 0);
    reply.stat("bytes_read", figures.input_bytes);
    reply.stat("bytes_written", figures.output_bytes);
    reply.stat("limit_maxbytes", config.max_memory);
    reply.stat("accepting_conns", 1);
    reply.stat("listen_disabled_num", figures.connections_rejected);
    // Refused clients are told so: nobody waits to be accepted.
    reply.stat("time_in_listen_disabled_us", 0);
    reply.stat("threads", shared.workers());
    hash_table(shared, reply);
    reply.stat("bytes", shared.memory_used());
    reply.stat("curr_items", items);
    reply.stat("evictions", figures.database.evicted_keys);
    reply.stat("reclaimed", figures.database.expired_keys);
    reply.stat("conn_yields", figures.yields);
    unfetched(shared, &figures.database, "", reply);
}

/// Items removed without having been read, where that is known.
fn unfetched(shared: &Shared, figures: &pando_db::Statistics, prefix: &str, reply: &mut Reply<'_>) {
    if !shared.config().eviction_policy.knows_unread() {
        return;
    }
    for (name, value) in [
        ("expired_unfetched", figures.expired_unread_keys),
        ("evicted_unfetched", figures.evicted_unread_keys),
    ] {
        reply.stat(&format!("{prefix}{name}"), value);
    }
}

/// The hash tables, on an engine that has them: their buckets as a power of two, rounded down,
/// which is that of database 0 if the others hold little.
fn hash_table(shared: &Shared, reply: &mut Reply<'_>) {
    let (mut buckets, mut bytes, mut resizing) = (None, 0, 0);
    shared.database.gauges(&mut |gauge| match gauge.name {
        "buckets" => buckets = Some(gauge.value as u64),
        "table_bytes" => bytes = gauge.value as u64,
        "resizing_tables" => resizing = gauge.value as u64,
        _ => {}
    });
    if let Some(buckets) = buckets {
        let power = buckets.max(1).ilog2();
        reply.stat("hash_power_level", power);
        reply.stat("hash_bytes", bytes);
        reply.stat("hash_is_expanding", u8::from(resizing > 0));
    }
}

/// Items in one class; nothing when there is none, as in memcached.
fn items(shared: &Shared, reply: &mut Reply<'_>) {
    let (items, ..) = shared.database.summary(0);
    if items == 0 {
        return;
    }
    let figures = shared.figures_total().database;
    let refused = shared.database.memcached_figures();
    let mut refused = refused.iter();
    let refused = refused.find(|(name, _)| *name == "store_no_memory");
    reply.stat("items:1:number", items);
    reply.stat("items:1:mem_requested", shared.memory_used());
    reply.stat("items:1:evicted", figures.evicted_keys);
    reply.stat("items:1:evicted_nonzero", figures.evicted_expiring_keys);
    reply.stat("items:1:outofmemory", refused.map_or(0, |(_, count)| count));
    reply.stat("items:1:reclaimed", figures.expired_keys);
    unfetched(shared, &figures, "items:1:", reply);
}

/// memcached's page size.
const PAGE_BYTES: u64 = 1 << 20;

/// Memory in one class; memcached has more, by the sizes of items.
fn slabs(shared: &Shared, reply: &mut Reply<'_>) {
    let (items, ..) = shared.database.summary(0);
    let used = shared.memory_used() as u64;
    if let Some(chunk_bytes) = used.checked_div(items).map(|bytes| bytes.max(1)) {
        reply.stat("1:chunk_size", chunk_bytes);
        reply.stat("1:chunks_per_page", (PAGE_BYTES / chunk_bytes).max(1));
        reply.stat("1:total_pages", used.div_ceil(PAGE_BYTES));
        reply.stat("1:total_chunks", items);
        reply.stat("1:used_chunks", items);
        reply.stat("1:free_chunks", 0);
        reply.stat("1:free_chunks_end", 0);
        for (name, value) in shared.database.memcached_figures().iter() {
            let of_slabs = [
                "get_hits",
                "cmd_set",
                "delete_hits",
                "incr_hits",
                "decr_hits",
                "cas_hits",
                "cas_badval",
                "touch_hits",
            ];
            if of_slabs.contains(&name) {
                reply.stat(&format!("1:{name}"), value);
            }
        }
    }
    reply.stat("active_slabs", u8::from(items > 0));
    reply.stat("total_malloced", shared.memory_used());
}

/// The connections of memcached clients, by their ids. O(connections).
fn connections(shared: &Shared, reply: &mut Reply<'_>) {
    let now_ms = shared.now_ms();
    for record in shared.registry.snapshot() {
        let origin = record.origin();
        if origin.protocol != WireProtocol::Memcached {
            continue;
        }
        let id = record.id();
        let kind = if origin.unix_socket { "unix" } else { "tcp" };
        let idle_ms = now_ms.saturating_sub(record.last_interaction_ms());
        reply.stat(
            &format!("{id}:addr"),
            format_args!("{kind}:{}", origin.address),
        );
        let local = format_args!("{kind}:{}", origin.local_address);
        reply.stat(&format!("{id}:listen_addr"), local);
        let state = if record.has(ClientFlag::Blocked) {
            "conn_waiting"
        } else {
            "conn_read"
        };
        reply.stat(&format!("{id}:state"), state);
        reply.stat(&format!("{id}:secs_since_last_cmd"), idle_ms / 1000);
    }
}

fn settings(shared: &Shared, reply: &mut Reply<'_>) {
    let config = shared.config();
    let listening = shared.listening();
    let first = listening.memcached.first();
    reply.stat("maxbytes", config.max_memory);
    reply.stat("maxconns", config.clients_max);
    reply.stat("tcpport", first.map_or(0, std::net::SocketAddr::port));
    let udp = listening.memcached_udp.first();
    reply.stat("udpport", udp.map_or(0, std::net::SocketAddr::port));
    match first {
        Some(address) => reply.stat("inter", address.ip()),
        None => reply.stat("inter", "NULL"),
    }
    reply.stat("verbosity", 0);
    let evicts = config.eviction_policy != pando_db::EvictionPolicy::NoEviction;
    reply.stat("evictions", if evicts { "on" } else { "off" });
    match &config.memcached_socket {
        Some(path) => reply.stat("domain_socket", path.display()),
        None => reply.stat("domain_socket", "NULL"),
    }
    reply.stat("num_threads", shared.workers());
    reply.stat("num_threads_per_udp", u8::from(udp.is_some()));
    for off in [
        "shutdown_command",
        "slab_reassign",
        "lru_crawler",
        "lru_maintainer_thread",
        "lru_segmented",
        "temp_lru",
        "track_sizes",
        "ssl_enabled",
    ] {
        reply.stat(off, "no");
    }
    reply.stat("slab_automove", 0);
    reply.stat("maxconns_fast", "yes");
    reply.stat("detail_enabled", "no");
    reply.stat("binding_protocol", "ascii");
    reply.stat("cas_enabled", "yes");
    reply.stat("tcp_backlog", config.tcp_backlog);
    reply.stat("auth_enabled_sasl", "no");
    let ascii = if shared.settings.requires_password() {
        "yes"
    } else {
        "no"
    };
    reply.stat("auth_enabled_ascii", ascii);
    reply.stat("item_size_max", config.memcached_item_bytes_max);
    reply.stat("flush_enabled", "yes");
    reply.stat("dump_enabled", "no");
    reply.stat("idle_timeout", config.timeout_s);
}

/// Sets the memory limit, like CONFIG SET maxmemory.
pub(crate) fn set_max_memory(shared: &Shared, bytes: usize) {
    let changed = shared.change_config(|config| {
        config.max_memory = bytes as u64;
        Ok::<_, std::convert::Infallible>(())
    });
    let Ok(()) = changed;
}
