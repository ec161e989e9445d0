//! Logs: one line per event with its fields, on standard error or at the end of a file.
//!
//! The file is opened anew for each line, as in Redis: a tool that moves it away (logrotate) need
//! not notify the server. A line that cannot be written to the file goes to standard error.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
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
    /// Starts logging to `file`, or to standard error, for the whole process; once. Fails when the
    /// file cannot be written to.
    pub fn install(level: LogLevel, file: Option<&Path>) -> io::Result<Self> {
        file.map(open).transpose()?;
        let destination = Destination(file.map(Path::to_owned));
        let (layer, filter) = reload::Layer::new(level.filter());
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(file.is_none() && io::stderr().is_terminal())
            .with_writer(destination)
            .with_target(false);
        tracing_subscriber::registry()
            .with(layer)
            .with(lines)
            .init();
        Ok(Self { filter })
    }

    /// Sets the least severe events that are logged.
    pub fn set_level(&self, level: LogLevel) {
        // Fails only when the log is gone, and then nobody reads it.
        let _ = self.filter.modify(|filter| *filter = level.filter());
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// Where lines go: to this file, or to standard error.
#[derive(Debug)]
struct Destination(Option<PathBuf>);

impl<'a> MakeWriter<'a> for Destination {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line(self.0.as_deref().and_then(|path| open(path).ok()))
    }
}

/// Takes one line.
#[derive(Debug)]
struct Line(Option<File>);

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            // A full disk must not silence the server.
            Some(file) => file.write(line).or_else(|_| io::stderr().write(line)),
            None => io::stderr().write(line),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
