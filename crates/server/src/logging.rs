//! Logs: one line per event on standard error, with its fields.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::LogLevel;

/// Changes what is logged, while the server runs.
#[derive(Clone, Debug)]
pub struct LogControl {
    filter: reload::Handle<LevelFilter, tracing_subscriber::Registry>,
}

impl LogControl {
    /// Starts logging, for the whole process; once.
    #[must_use]
    pub fn install(level: LogLevel) -> Self {
        let (layer, filter) = reload::Layer::new(level.filter());
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false);
        tracing_subscriber::registry()
            .with(layer)
            .with(lines)
            .init();
        Self { filter }
    }

    /// Sets the least severe events that are logged.
    pub fn set_level(&self, level: LogLevel) {
        // Fails only when the log is gone, and then nobody reads it.
        let _ = self.filter.modify(|filter| *filter = level.filter());
    }
}
