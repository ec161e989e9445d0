//! What a start shows while it reads what is on disk: a bar on a terminal, else lines in the log;
//! and what the service manager is told of it.

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

/// Tells of progress on the standard error stream, and `manager`.
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
            // What is over at once needs no line.
            last.1 = Some(progress.stage);
            return;
        }
        if is_new || is_done || last.0.elapsed() >= every {
            *last = (Instant::now(), Some(progress.stage));
            if terminal {
                // Whoever started the server may have closed its end.
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
