//! What one measurement says, and several of them side by side.

use hdrhistogram::Histogram;

use super::{Options, Sample};
use crate::rounds::{self, Figures};

type Figure = (&'static str, fn(&Sample) -> f64);

/// The name of the figure that is shown only when it says something.
const UNSENT: &str = "requests that could not be sent in time";

const FIGURES: [Figure; 7] = [
    ("thousand requests/s", |sample| sample.rate / 1e3),
    ("latency p50, µs", |sample| quantile(&sample.latency, 0.5)),
    ("latency p99, µs", |sample| quantile(&sample.latency, 0.99)),
    ("latency p99.9, µs", |sample| {
        quantile(&sample.latency, 0.999)
    }),
    ("latency max, µs", |sample| sample.latency.max() as f64),
    ("server CPU s per million", |sample| {
        sample.cpu_per_million.unwrap_or(f64::NAN)
    }),
    (UNSENT, |sample| sample.unsent as f64),
];

fn quantile(latency: &Histogram<u64>, quantile: f64) -> f64 {
    latency.value_at_quantile(quantile) as f64
}

/// All figures that could be measured.
pub(super) fn of(sample: &Sample) -> Figures {
    FIGURES
        .iter()
        .map(|(name, figure)| ((*name).to_owned(), figure(sample)))
        .filter(|(_, value)| value.is_finite())
        .collect()
}

/// Medians with least and most, and ratios to the first server, made repetition by repetition.
pub(super) fn side_by_side(options: &Options, samples: &[Vec<Sample>]) -> String {
    let unsent = samples.iter().flatten().any(|sample| sample.unsent > 0);
    let shown = |sample: &Sample| -> Figures {
        let figures = of(sample).into_iter();
        figures
            .filter(|(name, _)| unsent || name != UNSENT)
            .collect()
    };
    let of_server = |rounds: &Vec<Sample>| rounds.iter().map(shown).collect();
    let figures: Vec<Vec<Figures>> = samples.iter().map(of_server).collect();
    let servers: Vec<_> = options.targets().collect();
    heading(options) + &rounds::side_by_side(&servers, &figures)
}

fn heading(options: &Options) -> String {
    let workload = options.workload();
    let what = match options.workload {
        Some(name) => name.name(),
        None => format!(
            "{} % reads, {}-byte values",
            options.reads, workload.column_bytes
        ),
    };
    let rate = options
        .rate
        .map_or("closed loop".into(), |rate| format!("{rate} requests/s"));
    format!(
        "{} threads × {} connections, pipeline {}, {} keys {:?}, {what}, {rate}\n",
        options.threads, options.connections, options.pipeline, options.keys, workload.distribution,
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{Line, latencies};
    use super::*;

    fn sample(rate: f64, micros: u64, cpu_per_million: Option<f64>) -> Sample {
        let mut latency = latencies().unwrap();
        latency.record(micros).unwrap();
        Sample {
            rate,
            latency,
            cpu_per_million,
            unsent: 0,
        }
    }

    #[test]
    fn ratios_are_made_repetition_by_repetition() {
        let line = ["load", "127.0.0.1:1", "--vs", "127.0.0.1:2"];
        let options = Line::parse_from(line).options;
        // The machine was half as fast in the second repetition, for both.
        let first = [4000.0, 2000.0, 4200.0].map(|rate| sample(rate, 100, Some(2.0)));
        let second = [2000.0, 1000.0, 2100.0].map(|rate| sample(rate, 200, None));
        let text = side_by_side(&options, &[first.into(), second.into()]);
        let rates = "thousand requests/s\n  \
                     127.0.0.1:1    4.000 (2.000–4.200)   ratio   1.000 (1.000–1.000)\n  \
                     127.0.0.1:2    2.000 (1.000–2.100)   ratio   0.500 (0.500–0.500)\n";
        assert!(text.contains(rates), "{text}");
        let cpu = "server CPU s per million\n  \
                   127.0.0.1:1    2.000 (2.000–2.000)   ratio   1.000 (1.000–1.000)\n  \
                   127.0.0.1:2  not measured\n";
        assert!(text.contains(cpu), "{text}");
        assert!(!text.contains(UNSENT), "{text}");
    }

    #[test]
    fn a_measurement_without_a_request_has_no_infinite_figure() {
        let empty = Sample {
            rate: 0.0,
            latency: latencies().unwrap(),
            cpu_per_million: Some(0.01 / 0.0),
            unsent: 0,
        };
        let figures = of(&empty);
        assert!(
            figures.iter().all(|(_, value)| *value == 0.0),
            "{figures:?}"
        );
        assert!(figures.iter().all(|(name, _)| !name.contains("CPU")));
    }
}
