//! Minuet's paper's §6 on hosts in one process, by a clock that is simulated.
//!
//! What runs are the product's own proxies, jobs and memnodes, with every message, lock, conflict
//! and repeated attempt that they make of the load. Time alone is a model: a message is on its way
//! for as long, a proxy is busy with each message that it takes, a memnode with each request and
//! its bytes. So figures for 35 hosts come from two cores, the same each time, and what they say is
//! how the work of an operation spreads; not what a machine of today does in a second.
//!
//! | what takes time | nanoseconds |
//! |---|---|
//! | a message's way | [`WAY_NS`](clock::WAY_NS) |
//! | a message at a proxy, which has three cores (Figure 9) | [`PROXY_NS`](clock::PROXY_NS) |
//! | a request at a memnode, which has two | [`MEMNODE_NS`](clock::MEMNODE_NS), and [`BYTE_NS`](clock::BYTE_NS) a byte |
//!
//! These were chosen once, so that one host does about what one of the paper's did, and a read
//! takes the paper's 0.4 ms. They are the same for all systems:
//!
//! - `minuet`: the product;
//! - `compared`: with inner nodes compared ([`pando_minuet::InnerNodes`]), Figure 10's baseline;
//! - `store`: two tables in partitions under locks, which stands in for the paper's commercial
//!   database (`store`).

mod clock;
mod measured;
mod store;
mod work;
mod world;

use clap::{Args, ValueEnum};

use crate::arguments::count;
use crate::embedded::EmbeddedError;
use store::Store;
use world::World;

pub(crate) use measured::{
    BYTES, KEYS_SCANNED, MEAN, MEMNODES, PARTS, RATE, ROUND_TRIPS, SCAN_MEAN,
};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum System {
    Minuet,
    Compared,
    Store,
}

/// What clients ask for, one operation after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Asked {
    /// Inserts of random keys.
    Insert,
    Read,
    Update,
    /// Of a key in each of two trees.
    InsertTwo,
    ReadTwo,
    UpdateTwo,
}

impl Asked {
    fn trees(self) -> usize {
        match self {
            Self::Insert | Self::Read | Self::Update => 1,
            Self::InsertTwo | Self::ReadTwo | Self::UpdateTwo => 2,
        }
    }

    fn is_read(self) -> bool {
        matches!(self, Self::Read | Self::ReadTwo)
    }

    fn is_insert(self) -> bool {
        matches!(self, Self::Insert | Self::InsertTwo)
    }
}

/// One measurement by the simulated clock; prints `name value` lines.
#[derive(Clone, Debug, Args)]
pub(crate) struct ClusterOptions {
    #[arg(long, value_enum)]
    system: System,
    #[arg(long, value_enum)]
    asked: Asked,
    #[arg(long)]
    hosts: u16,
    /// Clients of each host that does transactions.
    #[arg(long, default_value_t = 16)]
    clients: usize,
    /// Hosts that do transactions; all, when absent.
    #[arg(long)]
    busy_hosts: Option<u16>,
    /// Keys of each tree at first.
    #[arg(long, value_parser = count)]
    keys: usize,
    /// Simulated milliseconds that are measured, after a quarter as many.
    #[arg(long)]
    ms: u64,
    /// Clients that scan at snapshots besides, on the last hosts.
    #[arg(long, default_value_t = 0)]
    scanners: usize,
    /// Keys of a scan.
    #[arg(long, default_value_t = 1000)]
    scanned: usize,
    /// How old a scan's snapshot may be, in simulated microseconds; 0 asks for the present.
    #[arg(long, default_value_t = 0)]
    staleness_us: u64,
    /// Each scan makes a snapshot of its own.
    #[arg(long)]
    borrows_none: bool,
    /// One snapshot is made when the measurement begins; rates come by tenths of it.
    #[arg(long)]
    snapshot: bool,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl ClusterOptions {
    /// Hosts that have the clients that scan: those that do no transactions, or the last.
    fn scan_hosts(&self) -> u16 {
        let busy = self.busy_hosts.unwrap_or(self.hosts);
        (self.hosts - busy).max(1)
    }
}

/// Measures what `options` name, in this process.
pub(crate) fn run_cluster(options: &ClusterOptions) -> Result<(), EmbeddedError> {
    let measured = match options.system {
        System::Minuet | System::Compared => World::new(options).run(),
        System::Store => Store::new(options).run(),
    };
    if measured.wrong > 0 {
        return Err(EmbeddedError::WrongSum {
            what: "the cluster".into(),
            got: measured.wrong,
            expected: 0,
        });
    }
    measured.print(options);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(system: System, asked: Asked) -> ClusterOptions {
        ClusterOptions {
            system,
            asked,
            hosts: 3,
            clients: 4,
            busy_hosts: None,
            keys: 3000,
            ms: 50,
            scanners: 0,
            scanned: 200,
            staleness_us: 0,
            borrows_none: false,
            snapshot: false,
            seed: 1,
        }
    }

    fn measured(options: &ClusterOptions) -> measured::Measured {
        let measured = match options.system {
            System::Minuet | System::Compared => World::new(options).run(),
            System::Store => Store::new(options).run(),
        };
        assert_eq!(measured.wrong, 0, "{options:?}");
        let count = measured.operations;
        assert!(count > 0, "{options:?}: no operation");
        measured
    }

    #[test]
    fn every_system_answers_rightly() {
        for system in System::value_variants() {
            for asked in Asked::value_variants() {
                measured(&options(*system, *asked));
            }
        }
    }

    #[test]
    fn reads_of_one_key_grow_with_the_hosts_and_the_stores_pairs_do_not() {
        let rate = |system, asked, hosts| {
            let options = ClusterOptions {
                hosts,
                clients: 16,
                ..options(system, asked)
            };
            measured(&options).operations as f64
        };
        for system in [System::Minuet, System::Store] {
            let grown = rate(system, Asked::Read, 4) / rate(system, Asked::Read, 1);
            assert!(grown > 3.5, "{system:?}: {grown}");
        }
        let grown = |system| rate(system, Asked::ReadTwo, 8) / rate(system, Asked::ReadTwo, 2);
        let (ours, theirs) = (grown(System::Minuet), grown(System::Store));
        assert!(ours > 3.0 && theirs < 1.0, "{ours}, {theirs}");
    }

    #[test]
    fn scans_at_snapshots_see_every_key() {
        for (staleness_us, borrows_none) in [(0, false), (0, true), (10_000, false)] {
            let options = ClusterOptions {
                scanners: 3,
                staleness_us,
                borrows_none,
                ..options(System::Minuet, Asked::Update)
            };
            let measured = measured(&options);
            let (scans, snapshots) = (measured.scans, measured.snapshots);
            println!("{scans} scans, {snapshots} snapshots");
            assert!(scans > 0 && snapshots > 0);
            assert!(staleness_us == 0 || snapshots <= 8);
            assert!(!borrows_none || snapshots + 3 >= scans);
        }
    }

    #[test]
    fn a_snapshot_is_made_amid_updates() {
        let options = ClusterOptions {
            snapshot: true,
            ..options(System::Minuet, Asked::Update)
        };
        assert_eq!(measured(&options).snapshots, 1);
    }
}
