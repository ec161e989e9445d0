//! Kept measurements, in a file: a first line that names the subject, then cell, round, figure,
//! value.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::BarsError;

/// Figures by cell and round, on disk as they come.
pub(crate) struct Kept {
    path: PathBuf,
    values: BTreeMap<(String, String), BTreeMap<usize, f64>>,
}

impl Kept {
    /// What `path` holds of `subject` and this program; nothing when it is of something else.
    pub(crate) fn open(path: PathBuf, subject: &str, fresh: bool) -> Result<Self, BarsError> {
        let mut kept = Self {
            path,
            values: BTreeMap::new(),
        };
        let own = std::env::current_exe().and_then(|path| program(&path));
        let first = format!("{subject} {}", kept.of_io(own)?);
        let text = fs::read_to_string(&kept.path).unwrap_or_default();
        let mut lines = text.lines();
        if fresh || lines.next() != Some(&first) {
            if let Some(directory) = kept.path.parent() {
                kept.of_io(fs::create_dir_all(directory))?;
            }
            kept.of_io(fs::write(&kept.path, format!("{first}\n")))?;
            return Ok(kept);
        }
        for line in lines {
            // A line that was cut off by a crash is measured again.
            let fields: Vec<_> = line.split('\t').collect();
            if let [cell, round, figure, value] = fields[..]
                && let (Ok(round), Ok(value)) = (round.parse(), value.parse())
            {
                kept.insert(cell, round, figure, value);
            }
        }
        Ok(kept)
    }

    fn of_io<T>(&self, result: io::Result<T>) -> Result<T, BarsError> {
        result.map_err(|source| BarsError::Kept {
            path: self.path.clone(),
            source,
        })
    }

    fn insert(&mut self, cell: &str, round: usize, figure: &str, value: f64) {
        let rounds = self.values.entry((cell.into(), figure.into())).or_default();
        rounds.insert(round, value);
    }

    /// Whether the cell was measured in this round.
    pub(crate) fn has(&self, cell: &str, round: usize) -> bool {
        self.values
            .iter()
            .any(|((name, _), rounds)| name == cell && rounds.contains_key(&round))
    }

    /// A figure by round.
    pub(crate) fn rounds(&self, cell: &str, figure: &str) -> BTreeMap<usize, f64> {
        let name = (cell.to_owned(), figure.to_owned());
        self.values.get(&name).cloned().unwrap_or_default()
    }

    /// Keeps a figure.
    pub(crate) fn put(
        &mut self,
        cell: &str,
        round: usize,
        figure: &str,
        value: f64,
    ) -> Result<(), BarsError> {
        let appended = fs::OpenOptions::new()
            .append(true)
            .open(&self.path)
            .and_then(|mut file| writeln!(file, "{cell}\t{round}\t{figure}\t{value}"));
        self.of_io(appended)?;
        self.insert(cell, round, figure, value);
        Ok(())
    }
}

/// What tells a program from another build of it.
pub(crate) fn program(path: &Path) -> io::Result<String> {
    let file = fs::metadata(path)?;
    let built = file.modified()?.duration_since(std::time::UNIX_EPOCH);
    let built = built.map_or(0, |built| built.as_nanos());
    Ok(format!("{} {built}", file.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_call_goes_on_and_another_subject_begins_anew() {
        let directory = std::env::temp_dir().join(format!("bars-{}", std::process::id()));
        let path = directory.join("kept.tsv");
        let mut kept = Kept::open(path.clone(), "10 huge", false).unwrap();
        kept.put("ours", 0, "get, million/s", 1.5).unwrap();
        let again = Kept::open(path.clone(), "10 huge", false).unwrap();
        assert!(again.has("ours", 0) && !again.has("ours", 1) && !again.has("crate", 0));
        assert_eq!(
            again.rounds("ours", "get, million/s")[&0].to_bits(),
            1.5_f64.to_bits()
        );
        assert!(!Kept::open(path, "11 huge", false).unwrap().has("ours", 0));
        fs::remove_dir_all(directory).unwrap();
    }
}
