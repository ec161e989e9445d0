//! `pando-bench`: this server and its peers on the same work, in turns, in one run.
//!
//! `wire` drives servers with redis-benchmark and prints the CPU seconds that a server spends per
//! million operations: a figure that survives a noisy machine and a client that saturates first.
//!
//! Deliberately absent: traffic to anything but 127.0.0.1.

#![forbid(unsafe_code)]

mod figures;
mod servers;
mod wire;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Question::Wire(options) => wire::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pando-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
