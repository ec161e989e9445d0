//! The progress of a start that reads the files on disk, and of a dump of a running server: a
//! changing line on a terminal, else lines in the log. The service manager is told of a start, too.

use std::io::{IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pando_db::{OnProgress, RecoveryProgress, Stage};
use tracing::info;

use crate::manager::ServiceManager;
use crate::shared::lock;

/// Columns of the bar.
const BAR: usize = 30;

/// How often the bar moves, and how often a line is logged.
const REDRAW: Duration = Duration::from_millis(100);
const LINES: Duration = Duration::from_secs(2);

/// Reports progress on the standard error stream, and to `manager`.
pub(crate) fn reporter(manager: Arc<ServiceManager>) -> OnProgress {
    let terminal = std::io::stderr().is_terminal();
    let last = Mutex::new((Instant::now(), None));
    let told = Mutex::new(None);
    Arc::new(move |progress| {
        let at = (name(progress.stage), percent(progress));
        if lock(&told).replace(at) != Some(at) {
            manager.starting(at.0, at.1);
        }
        let mut last = lock(&last);
        let every = if terminal { REDRAW } else { LINES };
        let is_new = last.1 != Some(progress.stage);
        let is_done = progress.done >= progress.total;
        if !terminal && (is_new || last.0.elapsed() < every) {
            // A stage that is over at once needs no line.
            last.1 = Some(progress.stage);
            return;
        }
        if is_new || is_done || last.0.elapsed() >= every {
            *last = (Instant::now(), Some(progress.stage));
            if terminal {
                // The parent may have closed its end.
                let _ = write!(
                    std::io::stderr(),
                    "\r{}\x1b[K{}",
                    bar(progress),
                    end(progress)
                );
            } else {
                let (stage, percent) = (name(progress.stage), percent(progress));
                info!(percent, "{stage}");
            }
        }
    })
}

/// The progress of a dump of a running server, on the standard error stream.
pub(crate) struct DumpProgress {
    keys_total: u64,
    begun: Instant,
    shown: Instant,
    is_terminal: bool,
}

impl DumpProgress {
    /// Of about this many keys.
    pub(crate) fn of(keys_total: u64) -> Self {
        let begun = Instant::now();
        Self {
            keys_total,
            begun,
            shown: begun,
            is_terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Reports this many dumped keys and bytes.
    pub(crate) fn show(&mut self, keys: u64, bytes: u64) {
        let every = if self.is_terminal { REDRAW } else { LINES };
        if self.shown.elapsed() < every {
            return;
        }
        self.shown = Instant::now();
        let text = dumped(keys, self.keys_total, bytes, self.begun.elapsed());
        if self.is_terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
        } else {
            info!("{text}");
        }
    }

    /// The dump is over.
    pub(crate) fn end(&self) {
        if self.is_terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn dumped(keys: u64, keys_total: u64, bytes: u64, elapsed: Duration) -> String {
    let mebibytes = bytes as f64 / f64::from(1 << 20);
    let percent = (keys.min(keys_total) * 100).checked_div(keys_total);
    format!(
        "{keys} of {keys_total} keys ({} %), {mebibytes:.0} MiB, {:.0} MiB/s",
        percent.unwrap_or(100),
        mebibytes / elapsed.as_secs_f64().max(0.001)
    )
}

fn name(stage: Stage) -> &'static str {
    match stage {
        Stage::Scan => "reading the log",
        Stage::Load => "loading the checkpoint",
        Stage::Replay => "replaying the log",
    }
}

fn percent(progress: RecoveryProgress) -> u64 {
    match progress.total {
        0 => 100,
        total => progress.done.min(total) * 100 / total,
    }
}

fn bar(progress: RecoveryProgress) -> String {
    let percent = percent(progress);
    let filled = BAR * percent as usize / 100;
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    format!(
        "{:<22} [{}{}] {percent:>3} %  {:.0} of {:.0} MiB",
        name(progress.stage),
        "#".repeat(filled),
        ".".repeat(BAR - filled),
        mebibytes(progress.done),
        mebibytes(progress.total),
    )
}

/// The line ends with its stage.
fn end(progress: RecoveryProgress) -> &'static str {
    if progress.done >= progress.total {
        "\n"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_tells_how_far_it_is() {
        let text = dumped(1, 4, 30 << 20, Duration::from_secs(3));
        assert_eq!(text, "1 of 4 keys (25 %), 30 MiB, 10 MiB/s");
        assert!(dumped(0, 0, 0, Duration::ZERO).starts_with("0 of 0 keys (100 %)"));
    }

    #[test]
    fn the_bar_fills() {
        let at = |done, total| {
            bar(RecoveryProgress {
                stage: Stage::Load,
                done,
                total,
            })
        };
        assert!(at(0, 4 << 20).starts_with("loading the checkpoint [......"));
        assert!(at(2 << 20, 4 << 20).contains("###...") && at(2 << 20, 4 << 20).contains(" 50 %"));
        assert!(at(4 << 20, 4 << 20).ends_with("4 of 4 MiB"));
        assert!(at(0, 0).contains("100 %"));
    }
}
