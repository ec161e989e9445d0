//! A progress bar on standard error.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

const WIDTH: usize = 30;

/// Counts steps and says how long they take.
#[derive(Debug)]
pub(crate) struct Progress {
    start: Instant,
    done: usize,
    total: usize,
    terminal: bool,
}

impl Progress {
    pub(crate) fn new(total: usize) -> Self {
        Self {
            start: Instant::now(),
            done: 0,
            total,
            terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Says what comes next. Without a terminal, one line per tenth of the work.
    pub(crate) fn step(&mut self, what: &str) {
        let tenth = |done: usize| done * 10 / self.total.max(1);
        if self.terminal {
            eprint!("\r\x1b[K{}  {what}", self.line());
            // A bar that cannot be drawn is no reason to stop.
            let _ = std::io::stderr().flush();
        } else if self.done == 0 || tenth(self.done) != tenth(self.done - 1) {
            eprintln!("{}", self.line());
        }
        self.done += 1;
    }

    /// Takes the bar off the line, for what is printed meanwhile.
    pub(crate) fn clear(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }

    /// Says how long everything took.
    pub(crate) fn end(&self) {
        let clear = if self.terminal { "\r\x1b[K" } else { "" };
        let taken = clock(self.start.elapsed());
        eprintln!("{clear}{} measurements in {taken}", self.total);
    }

    fn line(&self) -> String {
        let filled = self.done * WIDTH / self.total.max(1);
        let elapsed = self.start.elapsed();
        let left = elapsed
            .checked_div(self.done as u32)
            .map(|each| each * (self.total - self.done) as u32);
        format!(
            "[{}{}] {}/{} {}{}",
            "█".repeat(filled),
            "·".repeat(WIDTH - filled),
            self.done,
            self.total,
            clock(elapsed),
            left.map_or(String::new(), |left| format!(
                ", about {} left",
                clock(left)
            ))
        )
    }
}

fn clock(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills() {
        let mut progress = Progress::new(2);
        assert!(progress.line().starts_with("[······"));
        progress.done = 1;
        assert!(progress.line().contains(" 1/2 0:00, about 0:00 left"));
        progress.done = 2;
        assert!(
            progress
                .line()
                .starts_with(&format!("[{}]", "█".repeat(WIDTH)))
        );
    }
}
