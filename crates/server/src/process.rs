//! The operating system's data on this process and machine; 0 or empty where it has none.
//!
//! Read from `/proc`: this needs no unsafe code, and INFO is called rarely.

use std::fs;

/// Resident bytes of the process.
pub(crate) fn resident_bytes() -> u64 {
    kilobytes_of("/proc/self/status", "VmRSS:") * 1024
}

/// Of these, the bytes that belong to no file.
pub(crate) fn anonymous_bytes() -> u64 {
    kilobytes_of("/proc/self/status", "RssAnon:") * 1024
}

/// Whether the process has the rights of root.
pub(crate) fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    // Real, effective, saved, of files.
    users.and_then(|users| users.split_ascii_whitespace().nth(1)) == Some("0")
}

/// Bytes of memory of the machine.
pub(crate) fn machine_bytes() -> u64 {
    kilobytes_of("/proc/meminfo", "MemTotal:") * 1024
}

fn kilobytes_of(path: &str, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap_or_default();
    line.split_ascii_whitespace()
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

/// Processor time in seconds: in the kernel and in the process, its own and its children's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ProcessorTime {
    pub(crate) system: f64,
    pub(crate) user: f64,
    pub(crate) system_children: f64,
    pub(crate) user_children: f64,
}

/// Processor time used so far, in steps of 10 ms.
pub(crate) fn processor_time() -> ProcessorTime {
    parse_stat(&fs::read_to_string("/proc/self/stat").unwrap_or_default()).unwrap_or_default()
}

fn parse_stat(stat: &str) -> Option<ProcessorTime> {
    /// Linux counts user-visible time in hundredths of a second on every machine.
    const TICKS: f64 = 100.0;
    // The second field is the program's name in parentheses, and may hold blanks.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest
        .split_ascii_whitespace()
        .skip(11)
        .map(str::parse::<f64>);
    let mut next = || fields.next()?.ok().map(|ticks| ticks / TICKS);
    Some(ProcessorTime {
        user: next()?,
        system: next()?,
        user_children: next()?,
        system_children: next()?,
    })
}

/// The operating system with its version and the machine's architecture, as INFO names them.
pub(crate) fn operating_system() -> String {
    let read = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
        text.trim().to_owned()
    };
    format!(
        "{} {} {}",
        read("ostype"),
        read("osrelease"),
        std::env::consts::ARCH
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_parentheses_is_skipped() {
        let stat = "7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 150 250 30 40 20 0 1";
        let time = parse_stat(stat).unwrap();
        assert!((time.user - 1.5).abs() < 1e-9 && (time.system - 2.5).abs() < 1e-9);
        assert!((time.user_children - 0.3).abs() < 1e-9);
        assert!((time.system_children - 0.4).abs() < 1e-9);
        assert_eq!(parse_stat("nonsense"), None);
    }

    #[test]
    fn this_process_has_memory() {
        assert!(anonymous_bytes() > 0 && resident_bytes() > anonymous_bytes());
        assert!(resident_bytes() > 0 && machine_bytes() > resident_bytes());
        assert!(operating_system().starts_with("Linux "));
    }
}
