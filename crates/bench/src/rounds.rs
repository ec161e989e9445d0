//! Targets alternate: each measurement in its own process, round by round, so that a slow minute of
//! the machine affects all of them; then medians and ratios to the first target, per round.
//!
//! A process under measurement prints lines `name value`. It ends with this one, whatever ends this
//! one ([`bound_to_this_process`]).

use std::fmt::{Display, Write};
use std::io;
use std::path::Path;

use thiserror::Error;

use crate::figures::Spread;
use crate::progress::Progress;
use crate::servers::bound_to_this_process;

/// What one measurement says: figures by name.
pub(crate) type Figures = Vec<(String, f64)>;

/// Why a process has measured nothing.
#[derive(Debug, Error)]
pub(crate) enum CellError {
    #[error("cannot run {program}: {source}")]
    Start { program: String, source: io::Error },
    #[error("{message}")]
    Failed { message: String },
    #[error("it printed no figures")]
    NoFigures,
}

/// Runs this tool with these arguments: its figures.
pub(crate) fn measure<S: AsRef<str>>(arguments: &[S]) -> Result<Figures, CellError> {
    let program = std::env::current_exe().map_err(|source| CellError::Start {
        program: "this tool".into(),
        source,
    })?;
    measure_with(&program, arguments)
}

/// The same with another build of this tool.
pub(crate) fn measure_with<S: AsRef<str>>(
    program: &Path,
    arguments: &[S],
) -> Result<Figures, CellError> {
    measure_under(program, arguments, None)
}

/// The same with a variable of the environment set.
pub(crate) fn measure_under<S: AsRef<str>>(
    program: &Path,
    arguments: &[S],
    variable: Option<(&str, &str)>,
) -> Result<Figures, CellError> {
    let program = program.display().to_string();
    let output = bound_to_this_process(&program)
        .args(arguments.iter().map(AsRef::as_ref))
        .envs(variable)
        .output()
        .map_err(|source| CellError::Start { program, source })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().trim_start_matches("pando-bench: ");
        let message = if said.is_empty() {
            format!("it ended with {}", output.status)
        } else {
            said.to_owned()
        };
        return Err(CellError::Failed { message });
    }
    let figures = parse(&String::from_utf8_lossy(&output.stdout));
    if figures.is_empty() {
        return Err(CellError::NoFigures);
    }
    Ok(figures)
}

/// Lines of a name and a value; what took no time by the clock has no rate and is left out.
fn parse(text: &str) -> Figures {
    let figure = |line: &str| {
        let (name, value) = line.rsplit_once(' ')?;
        Some((name.to_owned(), value.parse::<f64>().ok()?))
    };
    let figures = text.lines().filter_map(figure);
    figures.filter(|(_, value)| value.is_finite()).collect()
}

/// Every target once in each round, with a progress bar: figures by target, then by round.
pub(crate) fn in_turns<T: Display, E>(
    targets: &[T],
    rounds: usize,
    mut measure: impl FnMut(&T) -> Result<Figures, E>,
) -> Result<Vec<Vec<Figures>>, E> {
    let mut progress = Progress::new(targets.len() * rounds);
    let mut samples: Vec<Vec<Figures>> = targets.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (target, samples) in targets.iter().zip(&mut samples) {
            progress.step(&target.to_string());
            samples.push(measure(target)?);
        }
    }
    progress.end();
    Ok(samples)
}

/// Per figure, in the order in which targets have them: each target's median (least–most), and its
/// ratio to the first target.
pub(crate) fn side_by_side<T: Display>(targets: &[T], samples: &[Vec<Figures>]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in samples.iter().flatten().flatten() {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let targets: Vec<String> = targets.iter().map(ToString::to_string).collect();
    let width = targets.iter().map(|name| name.chars().count()).max();
    let width = width.unwrap_or_default();
    let mut text = String::new();
    for name in names {
        let _ = writeln!(text, "\n{name}");
        for (target, rounds) in targets.iter().zip(samples) {
            let values: Vec<f64> = rounds.iter().filter_map(|it| figure(it, name)).collect();
            if values.is_empty() {
                let _ = writeln!(text, "  {target:width$}  not measured");
                continue;
            }
            let pairs = rounds.iter().zip(&samples[0]);
            let ratios = pairs.filter_map(|(own, first)| {
                let ratio = figure(own, name)? / figure(first, name)?;
                ratio.is_finite().then_some(ratio)
            });
            let ratios: Vec<f64> = ratios.collect();
            let ratio = if ratios.is_empty() {
                String::new()
            } else {
                format!("   ratio {}", Spread::of(ratios))
            };
            let _ = writeln!(text, "  {target:width$}  {}{ratio}", Spread::of(values));
        }
    }
    text
}

/// The figure of this name.
pub(crate) fn figure(figures: &Figures, name: &str) -> Option<f64> {
    let found = figures.iter().find(|(other, _)| other == name);
    found.map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_names_and_finite_values() {
        let figures = parse("get, million/s 1.5\nnothing\nput, million/s inf\nbytes 8\n");
        let expected = [
            ("get, million/s".to_owned(), 1.5),
            ("bytes".to_owned(), 8.0),
        ];
        assert_eq!(figures, expected);
    }

    #[test]
    fn targets_take_turns_and_ratios_are_made_round_by_round() {
        let mut order = String::new();
        // The machine is half as fast in the second round, for both; only `b` can scan.
        let samples = in_turns(&["a", "b"], 3, |target| {
            let speed = [4.0, 2.0, 4.2][order.len() / 2];
            order.push_str(target);
            let mut figures = vec![("get".to_owned(), speed)];
            if *target == "b" {
                figures[0].1 /= 2.0;
                figures.push(("scan".into(), speed));
            }
            Ok::<_, CellError>(figures)
        });
        assert_eq!(order, "ababab");
        let text = side_by_side(&["a", "b"], &samples.unwrap());
        let expected = "\nget\n  \
                        a    4.000 (2.000–4.200)   ratio   1.000 (1.000–1.000)\n  \
                        b    2.000 (1.000–2.100)   ratio   0.500 (0.500–0.500)\n\
                        \nscan\n  a  not measured\n  b    4.000 (2.000–4.200)\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn the_first_failure_ends_the_turns() {
        let result = in_turns(&["a"], 2, |_| Err::<Figures, _>(CellError::NoFigures));
        assert!(matches!(result, Err(CellError::NoFigures)));
    }

    #[test]
    fn a_process_that_fails_is_quoted() {
        let shell = Path::new("/bin/sh");
        let error = |script: &str| {
            let failed = measure_with(shell, &["-c", script]).unwrap_err();
            failed.to_string()
        };
        assert_eq!(error("echo 'pando-bench: no keys' >&2; exit 1"), "no keys");
        assert!(error("exit 3").contains("exit status: 3"));
        assert_eq!(error("true"), "it printed no figures");
        let gone = measure_with(Path::new("/no/such/build"), &["cell"]).unwrap_err();
        assert!(!gone.to_string().is_empty());
    }
}
