//! Runs seeds of the simulator: `minuet-sim [--seed N] [--seeds COUNT] [--transactions COUNT]`.
//!
//! Prints one line a second, and ends at the first violation, with its seed.

#![forbid(unsafe_code)]

use pando_minuet::simulator::Planted;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What the command line says.
struct Arguments {
    seed: u64,
    seeds: u64,
    transactions: usize,
}

fn arguments() -> Result<Arguments, String> {
    let mut arguments = Arguments {
        seed: 0,
        seeds: 1,
        transactions: 1000,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words
            .next()
            .ok_or_else(|| format!("{word} needs a number"))?;
        let number: u64 = value.parse().map_err(|_| format!("{value} is no number"))?;
        match word.as_str() {
            "--seed" => arguments.seed = number,
            "--seeds" => arguments.seeds = number,
            "--transactions" => arguments.transactions = number as usize,
            _ => return Err(format!("{word} is unknown")),
        }
    }
    Ok(arguments)
}

fn main() -> ExitCode {
    let Arguments {
        seed,
        seeds,
        transactions,
    } = match arguments() {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let (start, mut said) = (Instant::now(), Instant::now());
    let (mut committed, mut adopted, mut borrowed) = (0, 0, 0);
    for number in seed..seed.saturating_add(seeds) {
        match pando_minuet::simulator::run(number, transactions, Planted::Nothing) {
            Ok(report) => {
                committed += report.committed;
                adopted += report.adopted;
                borrowed += report.borrowed;
            }
            Err(violation) => {
                println!("{violation}");
                return ExitCode::FAILURE;
            }
        }
        let done = number - seed + 1;
        if said.elapsed() > Duration::from_secs(1) || done == seeds {
            said = Instant::now();
            let seconds = start.elapsed().as_secs_f64();
            let an_hour = done as f64 / seconds * 3600.0;
            println!(
                "{done} seeds hold, {committed} transactions, {adopted} large merges, \
                 {borrowed} borrowed snapshots, {an_hour:.0} seeds an hour"
            );
        }
    }
    ExitCode::SUCCESS
}
