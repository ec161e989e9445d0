//! What was measured: question, figure, series, place, round, value; and notes on what was not.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use super::ReportError;
use super::model::Comparison;
use crate::figures::Spread;

/// Where a value belongs.
type Name = (String, String, String, String);

/// All values, by round.
#[derive(Debug, Default)]
pub(super) struct Samples {
    values: BTreeMap<Name, BTreeMap<usize, f64>>,
    /// By question: what was skipped, and why.
    pub(super) notes: BTreeMap<String, Vec<String>>,
    /// By question: the seconds that its measurements took.
    pub(super) seconds: BTreeMap<String, f64>,
}

/// The figures under which notes and times are kept in the file.
const NOTE: &str = "note";
const SECONDS: &str = "seconds";

impl Samples {
    pub(super) fn put(&mut self, cell: [&str; 4], round: usize, value: f64) {
        let [question, figure, series, place] = cell.map(String::from);
        self.values
            .entry((question, figure, series, place))
            .or_default()
            .insert(round, value);
    }

    pub(super) fn note(&mut self, question: &str, text: &str) {
        let notes = self.notes.entry(question.into()).or_default();
        if !notes.iter().any(|note| note == text) {
            notes.push(text.into());
        }
    }

    pub(super) fn forget(&mut self, question: &str) {
        self.values.retain(|name, _| name.0 != question);
        self.notes.remove(question);
        self.seconds.remove(question);
    }

    fn rounds(&self, cell: [&str; 4]) -> Option<&BTreeMap<usize, f64>> {
        let [question, figure, series, place] = cell.map(String::from);
        self.values.get(&(question, figure, series, place))
    }

    /// The middle and the ends of all rounds.
    pub(super) fn spread(&self, cell: [&str; 4]) -> Option<Spread> {
        self.rounds(cell)
            .map(|rounds| Spread::of(rounds.values().copied()))
    }

    /// The middle and the ends of the ratios of `above` to `below`, round by round.
    pub(super) fn ratio(&self, above: [&str; 4], below: [&str; 4]) -> Option<Spread> {
        let (above, below) = (self.rounds(above)?, self.rounds(below)?);
        let ratios: Vec<f64> = above
            .iter()
            .filter_map(|(round, value)| Some(value / below.get(round)?))
            .filter(|ratio| ratio.is_finite())
            .collect();
        (!ratios.is_empty()).then(|| Spread::of(ratios))
    }

    /// What a paper's statement is here.
    pub(super) fn of_comparison(&self, question: &str, comparison: &Comparison) -> Option<Spread> {
        let Comparison {
            figure,
            above,
            below,
            ..
        } = comparison;
        let above = [question, figure, &above.0, &above.1];
        if below.0.is_empty() {
            return self.spread(above);
        }
        self.ratio(above, [question, figure, &below.0, &below.1])
    }

    /// One line per value, fields separated by tabs.
    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        for ((question, figure, series, place), rounds) in &self.values {
            for (round, value) in rounds {
                let _ = writeln!(
                    text,
                    "{question}\t{figure}\t{series}\t{place}\t{round}\t{value}"
                );
            }
        }
        for (question, seconds) in &self.seconds {
            let _ = writeln!(text, "{question}\t{SECONDS}\t\t\t0\t{seconds:.1}");
        }
        for (question, notes) in &self.notes {
            for note in notes {
                let _ = writeln!(
                    text,
                    "{question}\t{NOTE}\t{}\t\t0\t0",
                    note.replace('\t', " ")
                );
            }
        }
        text
    }

    pub(super) fn read(path: &Path) -> Result<Self, ReportError> {
        let text = std::fs::read_to_string(path).map_err(|source| ReportError::Read {
            path: path.into(),
            source,
        })?;
        let mut samples = Self::default();
        for (index, line) in text.lines().enumerate() {
            let broken = || ReportError::Samples {
                path: path.into(),
                line: index + 1,
            };
            let fields: Vec<_> = line.split('\t').collect();
            let [question, figure, series, place, round, value] = fields[..] else {
                return Err(broken());
            };
            let round = round.parse().map_err(|_| broken())?;
            let value = value.parse().map_err(|_| broken())?;
            match figure {
                NOTE => samples.note(question, series),
                SECONDS => {
                    samples.seconds.insert(question.into(), value);
                }
                _ => samples.put([question, figure, series, place], round, value),
            }
        }
        Ok(samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_made_round_by_round() {
        let mut samples = Samples::default();
        // The machine was twice as slow in round 1 for both.
        for (round, factor) in [(0, 1.0), (1, 0.5), (2, 1.0)] {
            samples.put(["q", "f", "a", "1"], round, 6.0 * factor);
            samples.put(["q", "f", "b", "1"], round, 3.0 * factor);
        }
        let ratio = samples.ratio(["q", "f", "a", "1"], ["q", "f", "b", "1"]);
        let ratio = ratio.unwrap();
        assert_eq!((ratio.least, ratio.median, ratio.most), (2.0, 2.0, 2.0));
        assert!(
            samples
                .ratio(["q", "f", "a", "1"], ["q", "f", "c", "1"])
                .is_none()
        );
    }

    #[test]
    fn a_written_file_reads_back() {
        let mut samples = Samples::default();
        samples.put(["q", "get, million/s", "a b", "δ 1"], 3, 1.25);
        samples.note("q", "redis-server is not installed");
        samples.seconds.insert("q".into(), 61.5);
        let directory = std::env::temp_dir().join(format!("samples-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("samples.tsv");
        std::fs::write(&path, samples.to_text()).unwrap();
        assert_eq!(Samples::read(&path).unwrap().to_text(), samples.to_text());
        std::fs::write(&path, "one\ttwo\n").unwrap();
        let error = Samples::read(&path).unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
