//! The resource use of a process: processor time and memory, from `/proc` (Linux).

use std::io;

/// Clock ticks per second in `/proc/PID/stat`, fixed by the kernel's interface.
const TICKS_PER_SECOND: f64 = 100.0;

/// Processor time in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuTime {
    pub(crate) user: f64,
    pub(crate) system: f64,
}

/// Of all threads, past and present, in ticks of 10 ms, by kind.
pub(crate) fn cpu_time(process: u32) -> io::Result<CpuTime> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The second field is the program's name in parentheses and may hold spaces.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let mut ticks = fields.split_whitespace().skip(11).map(str::parse::<f64>);
    match (ticks.next(), ticks.next()) {
        (Some(Ok(user)), Some(Ok(system))) => Ok(CpuTime {
            user: user / TICKS_PER_SECOND,
            system: system / TICKS_PER_SECOND,
        }),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Processor seconds: to the nanosecond for present threads, in ticks where the kernel does not
/// report that.
pub(crate) fn cpu_seconds(process: u32) -> io::Result<f64> {
    let mut nanoseconds = 0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread that has ended meanwhile reports nothing.
        let text = std::fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        let first = text.split(' ').next().and_then(|it| it.parse::<u64>().ok());
        nanoseconds += first.unwrap_or(0);
    }
    if nanoseconds > 0 {
        return Ok(nanoseconds as f64 / 1e9);
    }
    let time = cpu_time(process)?;
    Ok(time.user + time.system)
}

/// Resident memory in bytes.
pub(crate) fn resident_bytes(process: u32) -> io::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let kilobytes = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes
        .map(|kilobytes| kilobytes * 1024)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Resident memory of this process in bytes; 0 where the system does not report it.
pub(crate) fn own_resident_bytes() -> usize {
    resident_bytes(std::process::id()).map_or(0, |bytes| bytes as usize)
}

/// Share of this process's resident memory on huge pages, 0 to 1; 0 where the system does not
/// report it.
pub(crate) fn own_huge_share() -> f64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let kilobytes = |name: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_whitespace().next()?.parse::<f64>().ok()
    };
    let huge = kilobytes("AnonHugePages:").unwrap_or(0.0);
    kilobytes("Rss:").map_or(0.0, |resident| huge / resident)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_used_something() {
        let process = std::process::id();
        assert!(cpu_seconds(process).unwrap() > 0.0);
        assert!(cpu_time(process).unwrap().user >= 0.0);
        // Other tests of this process give memory back meanwhile.
        let is_seen = |_| {
            let before = own_resident_bytes();
            let block = std::hint::black_box(vec![1_u8; 64 << 20]);
            let after = own_resident_bytes();
            drop(block);
            after > before + (32 << 20)
        };
        assert!((0..10).any(is_seen));
        assert!(resident_bytes(u32::MAX).is_err(), "no such process");
    }
}
