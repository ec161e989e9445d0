//! The pando binary.

#![forbid(unsafe_code)]

use std::alloc::System;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use pando_memory::Counting;
use pando_server::{
    Config, ConfigError, Invocation, LogControl, PidFile, Server, ServiceManager, StartError,
    StopSignals, banner, exposure, sync_cost,
};
use tracing::{error, info, warn};

/// This counts what `maxmemory` is compared with.
#[global_allocator]
static ALLOCATOR: Counting<System> = Counting::new(System);

/// A thread that panics ends the process, as released builds do at once: without one of its
/// threads a server would answer some clients, and nobody would know.
fn end_with_any_thread() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}

fn main() -> ExitCode {
    end_with_any_thread();
    let (offline, config) = match Invocation::from_command_line(std::env::args_os()) {
        Ok(Invocation::Serve(config)) => (None, config),
        Ok(Invocation::Offline(offline, config)) => (Some(offline), config),
        Ok(Invocation::Print(text)) => {
            // A reader that has read enough may have closed the output.
            let _ = std::io::stdout().write_all(&text);
            return ExitCode::SUCCESS;
        }
        // It knows where to print it, and whether it is a failure at all (--help, --version).
        Err(ConfigError::Flags(error)) => error.exit(),
        Err(error) => {
            for line in error.to_string().lines() {
                eprintln!("pando: {line}");
            }
            return ExitCode::FAILURE;
        }
    };
    let log_file = config.log_file.clone().filter(|_| offline.is_none());
    let log = match LogControl::install(config.log_level, log_file.as_deref()) {
        Ok(log) => log,
        Err(error) => {
            let path = log_file.unwrap_or_default();
            eprintln!(
                "pando: cannot write the log file {}: {error}",
                path.display()
            );
            return ExitCode::FAILURE;
        }
    };
    let ended = match offline {
        Some(offline) => offline.run(&config).map_err(|error| error.to_string()),
        None => run(*config, log),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("{error}");
            if log_file.is_some() {
                eprintln!("pando: {error}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(config: Config, log: LogControl) -> Result<(), String> {
    for remark in &config.remarks {
        info!("{remark}");
    }
    let manager = Arc::new(ServiceManager::at(
        std::env::var_os("NOTIFY_SOCKET").as_deref(),
    ));
    let start = || {
        let signals = StopSignals::install().map_err(StartError::Signals)?;
        Server::start(config, pando_memory::used_bytes, Some(signals), &manager)
    };
    let server = start().map_err(|error| error.to_string())?;
    let shared = Arc::clone(server.shared());
    shared.on_log_level(move |level| log.set_level(level));
    let config = shared.config();
    let _pid_file = config.pid_file.as_deref().and_then(PidFile::write);
    let listening = shared.listening();
    if let Some(text) = exposure(&config, &listening) {
        warn!("{text}");
    }
    let cost = sync_cost(&config);
    let text = banner(&config, &listening, &shared.database, cost);
    // The parent may have closed its end: that is no reason to stop.
    let _ = std::io::stdout().write_all(text.as_bytes());
    manager.ready(text.lines().last().unwrap_or_default());
    server.wait(|| manager.stopping());
    match shared.failure() {
        Some(failure) => Err(failure.to_owned()),
        None => Ok(()),
    }
}
