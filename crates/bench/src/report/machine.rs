//! The machine and the versions that a report is about.

use std::path::Path;
use std::process::Command;

/// Facts as names and values, in the order of the page.
#[derive(Debug)]
pub(super) struct Machine(pub(super) Vec<(&'static str, String)>);

impl Machine {
    /// This machine; what cannot be found out is said to be unknown.
    pub(super) fn here(pando: &Path) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let after = |text: &str, name: &str| {
            text.lines()
                .find(|line| line.starts_with(name))
                .and_then(|line| line.split_once(':'))
                .map_or("unknown".to_owned(), |(_, value)| value.trim().to_owned())
        };
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let memory = after(&read("/proc/meminfo"), "MemTotal");
        let gigabytes = memory
            .split_whitespace()
            .next()
            .and_then(|kilobytes| kilobytes.parse::<f64>().ok())
            .map_or(memory.clone(), |kilobytes| {
                format!("{:.0} GB", kilobytes * 1024.0 / 1e9)
            });
        let huge = read("/sys/kernel/mm/transparent_hugepage/enabled");
        let huge = huge
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'))
            .map_or("unknown", |(chosen, _)| chosen)
            .to_owned();
        let load = read("/proc/loadavg");
        Self(vec![
            ("processor", after(&read("/proc/cpuinfo"), "model name")),
            ("cores", cores.to_string()),
            ("memory", gigabytes),
            (
                "kernel",
                read("/proc/sys/kernel/osrelease").trim().to_owned(),
            ),
            ("transparent huge pages", huge),
            (
                "load average at the end",
                load.split(' ').next().unwrap_or("unknown").to_owned(),
            ),
            ("pando", first_line(Command::new(pando).arg("--version"))),
            ("pando-bench", env!("CARGO_PKG_VERSION").to_owned()),
            (
                "redis-server",
                first_line(Command::new("redis-server").arg("--version")),
            ),
            (
                "memcached",
                first_line(Command::new("memcached").arg("--version")),
            ),
        ])
    }
}

fn first_line(command: &mut Command) -> String {
    let Ok(output) = command.output() else {
        return "not installed".into();
    };
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().unwrap_or("unknown").trim().to_owned()
}
