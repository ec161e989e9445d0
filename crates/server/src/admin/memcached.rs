//! `stats` of memcached clients, and the setting that they change.
//!
//! `stats` tells memcached's names for what Pando counts too. What only memcached's memory has
//! (slab classes, its LRU lists and their crawler) is left out; `stats items` is empty for the same
//! reason, and `stats slabs` tells of no class.

use pando_protocol::memcached::{Line, Reply, error};

use crate::host::MEMCACHED_VERSION;
use crate::process;
use crate::shared::{Shared, wall_us};

/// `stats`, `stats settings`, `stats items`, `stats slabs`, `stats sizes` or `stats reset`.
pub(crate) fn stats(shared: &Shared, line: Line<'_>, reply: &mut Reply<'_>) {
    match line.word(1) {
        None => general(shared, reply),
        Some(b"settings") => settings(shared, reply),
        Some(b"items") => {}
        Some(b"slabs") => {
            reply.stat("active_slabs", 0);
            reply.stat("total_malloced", shared.memory_used());
        }
        Some(b"sizes") => reply.stat("sizes_status", "disabled"),
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
    for (name, value) in shared.database.memcached_figures().iter() {
        reply.stat(name, value);
    }
    reply.stat("bytes_read", figures.input_bytes);
    reply.stat("bytes_written", figures.output_bytes);
    reply.stat("limit_maxbytes", config.max_memory);
    reply.stat("accepting_conns", 1);
    reply.stat("threads", shared.workers());
    reply.stat("bytes", shared.memory_used());
    reply.stat("curr_items", items);
    reply.stat("reclaimed", figures.database.expired_keys);
}

fn settings(shared: &Shared, reply: &mut Reply<'_>) {
    let config = shared.config();
    let listening = shared.listening();
    let first = listening.memcached.first();
    reply.stat("maxbytes", config.max_memory);
    reply.stat("maxconns", config.clients_max);
    reply.stat("tcpport", first.map_or(0, std::net::SocketAddr::port));
    reply.stat("udpport", 0);
    match first {
        Some(address) => reply.stat("inter", address.ip()),
        None => reply.stat("inter", "NULL"),
    }
    reply.stat("verbosity", 0);
    match &config.memcached_socket {
        Some(path) => reply.stat("domain_socket", path.display()),
        None => reply.stat("domain_socket", "NULL"),
    }
    reply.stat("num_threads", shared.workers());
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

/// Sets the bound of memory, as CONFIG SET maxmemory does.
pub(crate) fn set_max_memory(shared: &Shared, bytes: usize) {
    let changed = shared.change_config(|config| {
        config.max_memory = bytes as u64;
        Ok::<_, std::convert::Infallible>(())
    });
    let Ok(()) = changed;
}
