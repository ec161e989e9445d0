//! The pando binary.

#![forbid(unsafe_code)]

use std::alloc::System;
use std::io::Write;
use std::process::ExitCode;

use pando_memory::Counting;
use pando_server::{Config, ConfigError, LogControl, Server, StartError, StopSignals, banner};
use tracing::error;

/// What `maxmemory` is compared with counts here.
#[global_allocator]
static ALLOCATOR: Counting<System> = Counting::new(System);

fn main() -> ExitCode {
    let config = match Config::from_command_line(std::env::args_os()) {
        Ok(config) => config,
        // Says where to say it, and whether it is a failure at all (--help, --version).
        Err(ConfigError::Flags(error)) => error.exit(),
        Err(error) => {
            eprintln!("pando: {error}");
            return ExitCode::FAILURE;
        }
    };
    let log = LogControl::install(config.log_level);
    match run(config, log) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(config: Config, log: LogControl) -> Result<(), StartError> {
    let signals = StopSignals::install().map_err(StartError::Signals)?;
    let server = Server::start(config, pando_memory::used_bytes, Some(signals))?;
    let shared = server.shared();
    shared.on_log_level(move |level| log.set_level(level));
    let text = banner(&shared.config(), &shared.listening());
    // Whoever started the server may have closed its end: that is no reason to stop.
    let _ = std::io::stdout().write_all(text.as_bytes());
    server.wait();
    Ok(())
}
