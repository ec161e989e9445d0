//! What a measurement by the simulated clock says.

use hdrhistogram::Histogram;

use super::ClusterOptions;

/// What the figures are called.
pub(crate) const RATE: &str = "operations/s";
pub(crate) const MEAN: &str = "mean, ms";
pub(super) const P95: &str = "95 % of operations, ms";
pub(crate) const ROUND_TRIPS: &str = "round trips";
pub(crate) const MEMNODES: &str = "memnodes";
pub(crate) const BYTES: &str = "bytes";
pub(crate) const KEYS_SCANNED: &str = "keys scanned/s";
pub(crate) const SCAN_MEAN: &str = "scan, mean, ms";
/// The only one by a real clock: proxies, memnodes and the simulation of their messages.
pub(super) const PROCESSOR: &str = "processor time of this machine, µs an operation";

/// Figures of the rates in ten parts of a measurement, and what they are called in a plot.
pub(crate) const PARTS: [(&str, &str); 10] = [
    ("operations/s, part 1", "1"),
    ("operations/s, part 2", "2"),
    ("operations/s, part 3", "3"),
    ("operations/s, part 4", "4"),
    ("operations/s, part 5", "5"),
    ("operations/s, part 6", "6"),
    ("operations/s, part 7", "7"),
    ("operations/s, part 8", "8"),
    ("operations/s, part 9", "9"),
    ("operations/s, part 10", "10"),
];

/// See the module's header.
pub(super) struct Measured {
    /// From here to there things count.
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) operations: u64,
    pub(super) latency: Histogram<u64>,
    pub(super) round_trips: u64,
    pub(super) memnodes: u64,
    pub(super) bytes: u64,
    pub(super) scans: u64,
    pub(super) keys_scanned: u64,
    pub(super) scan_ns: u64,
    pub(super) snapshots: u64,
    parts: [u64; PARTS.len()],
    /// Answers that were not what they had to be.
    pub(super) wrong: u64,
    pub(super) processor_seconds: f64,
}

impl Measured {
    pub(super) fn new(options: &ClusterOptions) -> Self {
        let begin = options.ms * 1_000_000 / 4;
        Self {
            begin,
            end: begin + options.ms * 1_000_000,
            operations: 0,
            latency: Histogram::new(3).expect("three digits"),
            round_trips: 0,
            memnodes: 0,
            bytes: 0,
            scans: 0,
            keys_scanned: 0,
            scan_ns: 0,
            snapshots: 0,
            parts: [0; PARTS.len()],
            wrong: 0,
            processor_seconds: 0.0,
        }
    }

    pub(super) fn counts(&self, now: u64) -> bool {
        (self.begin..self.end).contains(&now)
    }

    /// An operation that began then has ended.
    pub(super) fn ended(&mut self, now: u64, began: u64, round_trips: u64, memnodes: u64) {
        if !self.counts(now) {
            return;
        }
        self.operations += 1;
        self.round_trips += round_trips;
        self.memnodes += memnodes;
        let recorded = self.latency.record(now - began);
        recorded.expect("it grows");
        let part = (now - self.begin) * self.parts.len() as u64 / (self.end - self.begin);
        self.parts[part as usize] += 1;
    }

    pub(super) fn carried(&mut self, now: u64, bytes: usize) {
        if self.counts(now) {
            self.bytes += bytes as u64;
        }
    }

    pub(super) fn print(&self, options: &ClusterOptions) {
        let seconds = (self.end - self.begin) as f64 / 1e9;
        let each = |sum: u64| sum as f64 / self.operations as f64;
        println!("{RATE} {}", self.operations as f64 / seconds);
        println!("{MEAN} {}", self.latency.mean() / 1e6);
        println!(
            "{P95} {}",
            self.latency.value_at_quantile(0.95) as f64 / 1e6
        );
        println!("{ROUND_TRIPS} {}", each(self.round_trips));
        println!("{MEMNODES} {}", each(self.memnodes));
        println!("{BYTES} {}", each(self.bytes));
        println!(
            "{PROCESSOR} {}",
            self.processor_seconds * 1e6 / self.operations as f64
        );
        if options.scanners > 0 {
            println!("{KEYS_SCANNED} {}", self.keys_scanned as f64 / seconds);
            println!(
                "{SCAN_MEAN} {}",
                self.scan_ns as f64 / self.scans as f64 / 1e6
            );
        }
        if options.snapshot {
            for ((figure, _), count) in PARTS.iter().zip(self.parts) {
                let rate = count as f64 / seconds * PARTS.len() as f64;
                println!("{figure} {rate}");
            }
        }
    }
}
