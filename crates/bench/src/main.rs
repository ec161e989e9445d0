//! `pando-bench`: this server and its peers under the same workloads, alternating, in one run.
//!
//! `wire` drives servers with redis-benchmark and prints the CPU seconds that a server spends per
//! million operations: a figure that is robust on a noisy machine and with a client that saturates
//! first. `load` drives running servers with its own load generator: closed or open loop, chosen
//! distributions, verified replies. `embedded` drives engines and embedded peers, each in a fresh
//! process; `bars` compares the tree's goals with its results; `allocators` compares our pools with
//! general allocators. `hash` does so for maps without key order. `hitrate` measures which share of
//! reads a bounded cache answers. `memcached` compares the memcached port with memcached. `restart`
//! times servers that restart with their data. `pmem` times what persistent memory costs, without a
//! tree, and `cdds` what its tree, its layouts and its hash table cost. `report` answers every
//! question on one page. `guard` compares two builds.
//!
//! Deliberately absent: traffic to anything but 127.0.0.1.

#![forbid(unsafe_code)]

mod accounting;
mod arguments;
mod beside;
mod cdds;
mod cluster;
mod distribution;
mod embedded;
mod figures;
mod guard;
mod hash;
mod hitrate;
mod listener;
mod load;
mod locking;
mod pmem;
mod progress;
mod report;
mod restart;
mod rounds;
mod servers;
mod wire;
mod workload;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[cfg(all(feature = "jemalloc", not(feature = "mimalloc")))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures Pando and its peers side by side.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Question,
}

#[derive(Debug, Subcommand)]
enum Question {
    /// Server CPU per million operations over loopback, beside redis-server.
    Wire(wire::Options),
    /// Load on running RESP servers, in turns, with ratios to the first.
    Load(load::Options),
    /// Engines and embedded peers in process, on the Masstree paper's workload.
    Embedded(embedded::Options),
    /// Every in-process goal of the tree, each as a ratio of paired runs.
    Bars(embedded::BarsOptions),
    /// The tree on our pools and on general allocators, in turns.
    Allocators(embedded::AllocatorsOptions),
    /// The engine Mercury and concurrent hash maps in process, on the Mercury paper's workloads.
    Hash(hash::Options),
    /// One target of `hash`, in this process.
    #[command(hide = true)]
    HashOne(hash::OneOptions),
    /// Every question, on one page.
    Report(report::Options),
    /// Hits of bounded caches on the same traces, beside redis-server and memcached.
    Hitrate(hitrate::Options),
    /// The memcached port beside memcached, and both engines over RESP, with the cheapest client.
    Memcached(beside::Options),
    /// The time that servers take to come back with their data, beside redis-server.
    Restart(restart::Options),
    /// Flushes, blocks and commits of persistent memory, without a tree.
    Pmem(pmem::Options),
    /// The persistent tree: versions, layouts, its hash table beside it, two threads.
    Cdds(cdds::Options),
    /// Two builds on a fixed set of cells; names regressions.
    Guard(guard::Options),
    /// Starts a server as the other commands do, prints its process id, waits for standard input
    /// to end.
    #[command(hide = true)]
    Hold {
        /// A program that listens on `--port`.
        program: std::path::PathBuf,
    },
    /// Removes what a guard leaves in this directory when the guard's end of standard input goes.
    #[command(hide = true)]
    Sweep {
        /// Its worktrees and builds.
        scratch: std::path::PathBuf,
    },
    /// Listens and never answers.
    #[command(hide = true)]
    Mute {
        /// On 127.0.0.1.
        #[arg(long)]
        port: u16,
    },
    /// One measurement, in this process.
    #[command(hide = true, subcommand)]
    Cell(embedded::Cell),
}

fn main() -> ExitCode {
    let result: Result<(), Box<dyn std::error::Error>> = match Arguments::parse().command {
        Question::Wire(options) => wire::run(&options).map_err(Into::into),
        Question::Load(options) => load::run(&options).map_err(Into::into),
        Question::Embedded(options) => embedded::run(&options).map_err(Into::into),
        Question::Bars(options) => embedded::run_bars(&options).map_err(Into::into),
        Question::Allocators(options) => embedded::run_allocators(&options).map_err(Into::into),
        Question::Hash(options) => hash::run(&options).map_err(Into::into),
        Question::HashOne(options) => hash::run_one(&options).map_err(Into::into),
        Question::Report(options) => report::run(&options).map_err(Into::into),
        Question::Hitrate(options) => hitrate::run(&options).map_err(Into::into),
        Question::Memcached(options) => beside::run(&options).map_err(Into::into),
        Question::Restart(options) => restart::run(&options).map_err(Into::into),
        Question::Pmem(options) => pmem::run(&options).map_err(Into::into),
        Question::Cdds(options) => cdds::run(&options).map_err(Into::into),
        Question::Guard(options) => guard::run(&options).map_err(Into::into),
        Question::Sweep { scratch } => {
            guard::sweep(&scratch);
            Ok(())
        }
        Question::Hold { program } => servers::hold(&program).map_err(Into::into),
        Question::Mute { port } => servers::mute(port).map_err(Into::into),
        Question::Cell(cell) => embedded::run_cell(&cell).map_err(Into::into),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pando-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
