//! LATENCY: histograms by command, and the commands that took longest.

use std::fmt::Write as _;

use pando_db::{CommandError, Progress};
use pando_protocol::command::{self, CommandSpec};

use super::error::Echo;
use super::{AdminError, Call, Handled};
use crate::histogram::{Counts, VALUE_BITS};
use crate::latency::LatencySeries;
use crate::shared::wall_us;

const HELP: &[&str] = &[
    "DOCTOR",
    "    Return what there is to say about latency events, as text.",
    "GRAPH <event>",
    "    Draw the samples of an event.",
    "HISTOGRAM [<command> ...]",
    "    Return how long clients waited, from arrival to reply, for each command.",
    "HISTORY <event>",
    "    Return the samples of an event.",
    "LATEST",
    "    Return the newest sample of each event.",
    "RESET [<event> ...]",
    "    Forget the samples of these events, or of all.",
];

/// LATENCY and its subcommands.
pub(super) fn execute(call: &mut Call<'_, '_, '_>) -> Handled {
    let subcommand = call.request.get(1).unwrap_or_default().to_ascii_lowercase();
    match subcommand.as_slice() {
        b"doctor" => doctor(call),
        b"graph" => graph(call),
        b"help" => call.help("LATENCY", HELP),
        b"histogram" => histogram(call),
        b"history" => history(call),
        b"latest" => latest(call),
        b"reset" => reset(call),
        _ => Err(CommandError::Syntax.into()),
    }
}

fn latest(call: &mut Call<'_, '_, '_>) -> Handled {
    let events = call.shared.latency.events();
    call.reply.array(events.len());
    for (name, series) in events {
        let newest = series.samples.back();
        call.reply.array(4);
        call.reply.bulk(name);
        call.reply
            .integer(newest.map_or(0, |sample| sample.at_s as i64));
        call.reply
            .integer(newest.map_or(0, |sample| sample.latency_ms as i64));
        call.reply.integer(series.worst_ms as i64);
    }
    Ok(Progress::Done)
}

fn history(call: &mut Call<'_, '_, '_>) -> Handled {
    let series = call
        .shared
        .latency
        .series(call.request.arg(2))
        .unwrap_or_default();
    call.reply.array(series.samples.len());
    for sample in series.samples {
        call.reply.array(2);
        call.reply.integer(sample.at_s as i64);
        call.reply.integer(sample.latency_ms as i64);
    }
    Ok(Progress::Done)
}

fn reset(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    let forgotten = call.shared.latency.reset(|name| {
        request.len() == 2 || request.args_from(2).any(|event| event == name.as_bytes())
    });
    call.reply.count(forgotten);
    Ok(Progress::Done)
}

/// The numbers of the commands that the request names (a container stands for its subcommands), or
/// of all.
fn chosen(call: &Call<'_, '_, '_>) -> Vec<u16> {
    let commands = &call.shared.commands;
    if call.request.len() == 2 {
        return (0..commands.len() as u16).collect();
    }
    let mut specs: Vec<&'static CommandSpec> = Vec::new();
    for name in call.request.args_from(2) {
        let (container, subcommand) = match name.iter().position(|byte| *byte == b'|') {
            Some(bar) => (&name[..bar], Some(&name[bar + 1..])),
            None => (name, None),
        };
        let Some(spec) = command::lookup(container) else {
            continue;
        };
        match subcommand {
            Some(subcommand) => specs.extend(spec.subcommand(subcommand)),
            None => specs.extend(std::iter::once(spec).chain(spec.subcommands)),
        }
    }
    specs.into_iter().map(|spec| commands.of(spec)).collect()
}

/// For each command its calls and, for powers of two of (about) a microsecond, how many waited no
/// longer; classes that add nothing are left out. O(workers × commands).
fn histogram(call: &mut Call<'_, '_, '_>) -> Handled {
    let mut figures = call.shared.figures();
    let mut found: Vec<(&'static str, Counts)> = Vec::new();
    for number in chosen(call) {
        let latencies = figures.commands[usize::from(number)].latencies.take();
        let name = call.shared.commands.name(number);
        if let (Some(latencies), Some(name)) = (latencies, name)
            && latencies.total() > 0
        {
            found.push((name, latencies));
        }
    }
    call.reply.map(found.len());
    for (name, latencies) in found {
        let classes = classes(&latencies);
        call.reply.bulk(name);
        call.reply.map(2);
        call.reply.bulk("calls");
        call.reply.integer(latencies.total() as i64);
        call.reply.bulk("histogram_usec");
        call.reply.map(classes.len());
        for (microseconds, count) in classes {
            call.reply.integer(microseconds as i64);
            call.reply.integer(count as i64);
        }
    }
    Ok(Progress::Done)
}

/// Upper ends of classes in microseconds, with the count of values up to there.
fn classes(latencies: &Counts) -> Vec<(u64, u64)> {
    let (mut classes, mut before) = (Vec::new(), 0);
    // The first class ends at 1024 ns, the last includes what is beyond the histogram's range.
    for exponent in 10..=VALUE_BITS {
        let last = exponent == VALUE_BITS;
        let count = if last {
            latencies.total()
        } else {
            latencies.below(1 << exponent)
        };
        if count > before {
            classes.push(((1_u64 << exponent) / 1000, count));
            before = count;
        }
    }
    classes
}

fn doctor(call: &mut Call<'_, '_, '_>) -> Handled {
    let events = call.shared.latency.events();
    let mut text = String::new();
    if call.shared.settings.latency_threshold_ms() == 0 {
        text.push_str(
            "Latency events are not recorded: CONFIG SET latency-monitor-threshold <milliseconds> \
             turns them on. LATENCY HISTOGRAM works without.\n",
        );
    } else if events.is_empty() {
        text.push_str("No command has taken longer than latency-monitor-threshold.\n");
    }
    for (name, series) in &events {
        let count = series.samples.len() as u64;
        let sum: u64 = series.samples.iter().map(|sample| sample.latency_ms).sum();
        let mean = sum / count.max(1);
        let _ = writeln!(
            text,
            "{name}: {count} samples, mean {mean} ms, worst {} ms. SLOWLOG GET shows the commands.",
            series.worst_ms
        );
    }
    call.reply.verbatim(&text);
    Ok(Progress::Done)
}

fn graph(call: &mut Call<'_, '_, '_>) -> Handled {
    let event = call.request.arg(2);
    let series = call.shared.latency.series(event);
    let Some(series) = series.filter(|series| !series.samples.is_empty()) else {
        return Err(AdminError::NoLatencySamples {
            event: Echo::of(event),
        });
    };
    let drawn = draw(
        &String::from_utf8_lossy(event),
        &series,
        wall_us() / 1_000_000,
    );
    call.reply.verbatim(&drawn);
    Ok(Progress::Done)
}

/// Columns of the samples, oldest first, each from the least to the greatest latency, with the age
/// of the sample below it.
fn draw(event: &str, series: &LatencySeries, now_s: u64) -> String {
    /// Rows of the graph, and steps in each row.
    const ROWS: usize = 4;
    const STEPS: [char; 3] = ['_', 'o', '#'];
    let latencies = || series.samples.iter().map(|sample| sample.latency_ms);
    let (high, low) = (
        latencies().max().unwrap_or(0),
        latencies().min().unwrap_or(0),
    );
    let mut text = format!(
        "{event} - high {high} ms, low {low} ms (all time high {} ms)\n{}\n",
        series.worst_ms,
        "-".repeat(80)
    );
    let levels = (ROWS * STEPS.len() - 1) as u64;
    let level = |latency: u64| ((latency - low) * levels / (high - low).max(1)) as usize;
    for row in (0..ROWS).rev() {
        for latency in latencies() {
            let level = level(latency);
            text.push(match (level / STEPS.len()).cmp(&row) {
                std::cmp::Ordering::Less => ' ',
                std::cmp::Ordering::Equal => STEPS[level % STEPS.len()],
                std::cmp::Ordering::Greater => '|',
            });
        }
        text.push('\n');
    }
    let ages: Vec<String> = series
        .samples
        .iter()
        .map(|sample| age(now_s.saturating_sub(sample.at_s)))
        .collect();
    text.push('\n');
    for row in 0..ages.iter().map(String::len).max().unwrap_or(0) {
        text.extend(ages.iter().map(|age| age.chars().nth(row).unwrap_or(' ')));
        text.push('\n');
    }
    text
}

fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Histogram;
    use crate::latency::{COMMAND, LatencyMonitor};

    #[test]
    fn classes_are_cumulative_and_skip_what_adds_nothing() {
        let histogram = Histogram::default();
        histogram.record(500, 2);
        histogram.record(3_000, 1);
        histogram.record(u64::MAX, 4);
        let mut counts = Counts::default();
        counts.add(&histogram);
        assert_eq!(classes(&counts), [(1, 2), (4, 3), (68_719_476, 7)]);
    }

    #[test]
    fn a_graph_reaches_from_least_to_greatest() {
        let monitor = LatencyMonitor::default();
        for (at_s, latency_ms) in [(10, 50), (40, 120), (100, 20)] {
            monitor.enter(COMMAND, at_s, latency_ms);
        }
        let drawn = draw("command", &monitor.series(b"command").unwrap(), 100);
        let expected = format!(
            "command - high 120 ms, low 20 ms (all time high 120 ms)\n{}\n \
             # \n | \n_| \n||_\n\n110\nmms\n",
            "-".repeat(80)
        );
        assert_eq!(drawn, expected);
    }
}
