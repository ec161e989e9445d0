//! `pando-peers`: our persistent tree beside Berkeley DB, LMDB and `RocksDB`, on one tmpfs.
//!
//! The CDDS paper's comparison (§4.2, Figures 6 and 7): one thread puts, gets and deletes pairs of
//! 25-byte keys and 2048-byte values, each operation durable by itself, and the same without
//! durability. Unlike there, caches are not emptied between operations.
//!
//! A crate of its own, since it links and loads foreign code. LMDB is built with it. Berkeley DB
//! and `RocksDB` are Debian's shared libraries, loaded when they are measured.
//!
//! | module | what it is |
//! |---|---|
//! | `workload` | keys, values, the phases |
//! | `store` | what a store does, and the list of them |
//! | `ours`, `lmdb`, `berkeley`, `rocks` | the stores |

mod berkeley;
mod lmdb;
mod ours;
mod rocks;
mod store;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::store::{Kind, Outcome, Scratch};
use crate::workload::{Keys, Phase, Plan, Times};

/// Measures stores of pairs beside each other.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Stores to measure, in this order; all of them unless said.
    #[arg(long, value_enum, value_delimiter = ',')]
    stores: Vec<Kind>,
    /// Measure without durability.
    #[arg(long)]
    volatile: bool,
    /// Pairs.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Bytes of a value.
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u32).range(16..=65536))]
    value_bytes: u32,
    /// What the keys' 25 bytes are.
    #[arg(long, value_enum, default_value_t = Keys::Decimal)]
    keys: Keys,
    /// Rounds, in each of which every store is measured once; medians are shown.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// A directory on a tmpfs.
    #[arg(long, default_value = "/dev/shm")]
    directory: PathBuf,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pando-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Outcome<()> {
    let plan = Plan {
        pairs: arguments.pairs,
        value_bytes: arguments.value_bytes as usize,
        keys: arguments.keys,
    };
    let stores = if arguments.stores.is_empty() {
        Kind::ALL.to_vec()
    } else {
        arguments.stores.clone()
    };
    let mut times: Vec<Vec<Times>> = vec![Vec::new(); stores.len()];
    for _ in 0..arguments.rounds {
        for (times, kind) in times.iter_mut().zip(&stores) {
            let scratch = Scratch::new(&arguments.directory)?;
            let mut store = kind.create(&scratch, plan.room(), !arguments.volatile)?;
            times.push(plan.run(&mut *store)?);
        }
    }
    println!("ns each: the median of the rounds, the least and the most");
    println!("{:<10} {:>24} {:>24} {:>24}", "", "put", "get", "delete");
    for (times, kind) in times.iter().zip(&stores) {
        print!("{:<10}", kind.to_string());
        for phase in Phase::ALL {
            print!(" {:>24}", workload::summary(times, phase));
        }
        println!();
    }
    Ok(())
}
