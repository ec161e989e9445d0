//! The pando binary.

#![forbid(unsafe_code)]

#[cfg(pando_single)]
compile_error!("`--cfg pando_single` is for measurements of trees that one thread has to itself");

use std::alloc::System;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use pando_memory::Counting;
use pando_server::{
    Config, ConfigError, LogControl, Offline, Server, StartError, StopSignals, banner, sync_cost,
};
use tracing::error;

/// What `maxmemory` is compared with counts here.
#[global_allocator]
static ALLOCATOR: Counting<System> = Counting::new(System);

fn main() -> ExitCode {
    let mut arguments: Vec<_> = std::env::args_os().collect();
    let offline = Offline::take(&mut arguments);
    let config = match Config::from_command_line(arguments) {
        Ok(config) => config,
        // Says where to say it, and whether it is a failure at all (--help, --version).
        Err(ConfigError::Flags(error)) => error.exit(),
        Err(error) => {
            eprintln!("pando: {error}");
            return ExitCode::FAILURE;
        }
    };
    let log = LogControl::install(config.log_level);
    let ended = match offline {
        Some(offline) => offline.run(&config).map_err(|error| error.to_string()),
        None => run(config, log),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(config: Config, log: LogControl) -> Result<(), String> {
    let start = || {
        let signals = StopSignals::install().map_err(StartError::Signals)?;
        Server::start(config, pando_memory::used_bytes, Some(signals))
    };
    let server = start().map_err(|error| error.to_string())?;
    let shared = Arc::clone(server.shared());
    shared.on_log_level(move |level| log.set_level(level));
    let config = shared.config();
    let cost = sync_cost(&config);
    let text = banner(&config, &shared.listening(), &shared.database, cost);
    // Whoever started the server may have closed its end: that is no reason to stop.
    let _ = std::io::stdout().write_all(text.as_bytes());
    server.wait();
    match shared.failure() {
        Some(failure) => Err(failure.to_owned()),
        None => Ok(()),
    }
}
