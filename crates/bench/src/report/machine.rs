//! The machine and the versions that a report is about.

use std::path::Path;
use std::process::Command;

use super::model::Sizes;

/// Facts as names and values, in the order of the page.
#[derive(Debug)]
pub(super) struct Machine(pub(super) Vec<(&'static str, String)>);

impl Machine {
    /// This machine; what cannot be found out is said to be unknown.
    pub(super) fn here(pando: &Path, sizes: &Sizes) -> Self {
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
                "revision of the sources here",
                first_line(Command::new("git").args(["describe", "--always", "--dirty"])),
            ),
            (
                "redis-server",
                first_line(Command::new("redis-server").arg("--version")),
            ),
            (
                "memcached",
                first_line(Command::new("memcached").arg("--version")),
            ),
            ("crates", crates(include_str!("../../Cargo.toml"))),
            (
                "sizes",
                format!(
                    "{} keys in process, {} rows, {} ms over the wire, {} rounds",
                    sizes.keys, sizes.rows, sizes.wire_ms, sizes.repeats
                ),
            ),
        ])
    }
}

/// Names and versions of the dependencies that are pinned: the peers, and little else.
fn crates(manifest: &str) -> String {
    let pinned = manifest.lines().filter_map(|line| {
        let (name, rest) = line.split_once(" = ")?;
        let version = rest.split('"').find_map(|part| part.strip_prefix('='))?;
        Some(format!("{name} {version}"))
    });
    pinned.collect::<Vec<_>>().join(", ")
}

fn first_line(command: &mut Command) -> String {
    let Ok(output) = command.output() else {
        return "not installed".into();
    };
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().unwrap_or("unknown").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crates_are_those_of_the_manifest() {
        let manifest = "[dependencies]\nclap.workspace = true\ncongee = \"=0.4.1\"\n\
                        hdr = { version = \"=7.6.0\", default-features = false }\n";
        assert_eq!(crates(manifest), "congee 0.4.1, hdr 7.6.0");
        assert!(crates(include_str!("../../Cargo.toml")).contains("papaya "));
    }
}
