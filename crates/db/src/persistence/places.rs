//! Former places of logs and parts of checkpoints: the directories besides the data directory, one
//! per line, in a file of the data directory for each kind. They are searched even when the
//! configuration no longer names them.
//!
//! A recorded directory without any sign of a server is refused: its disk may not be mounted, and
//! missing files cannot report what they lack. A directory that the configuration no longer names
//! is forgotten once it has none of these files. A moved one is forgotten when another configured
//! directory has such files and was not recorded.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use pando_durability::checkpoint::{self, Directories};
use pando_durability::disk::{self, Disk};

use super::small_file;
use crate::durable::options::DurabilityOptions;
use crate::limits;

/// What is kept in directories of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// Segments of the log.
    Log,
    /// Parts of checkpoints.
    Parts,
}

/// Longest file that is read.
const BYTES_MAX: u64 = 1024 * 1024;

impl Kept {
    /// Its name for people.
    pub(super) fn what(self) -> &'static str {
        match self {
            Self::Log => "a log",
            Self::Parts => "a part of the checkpoints",
        }
    }

    /// The name of that file.
    fn name(self) -> &'static str {
        match self {
            Self::Log => "log-directories.pando",
            Self::Parts => "checkpoint-directories.pando",
        }
    }

    /// The file that names the directories.
    pub(super) fn path(self, data: &Path) -> PathBuf {
        data.join(self.name())
    }

    /// Whether any of it is in a directory.
    pub(super) fn is_in(self, disk: &dyn Disk, directory: &Path) -> io::Result<bool> {
        let is_one = |name: &String| match self {
            Self::Log => name.starts_with("log-0"),
            Self::Parts => checkpoint::is_part(name),
        };
        match disk.list(directory) {
            Ok(names) => Ok(names.iter().any(is_one)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The directories that the configuration names for it, besides the data directory, each once.
    pub(super) fn configured(self, options: &DurabilityOptions) -> Vec<PathBuf> {
        let mut places = vec![absolute(&options.data_directory)];
        let named = match self {
            Self::Log => options.log_directories(),
            Self::Parts => options.checkpoint_directories(),
        };
        for path in named {
            if !places.contains(&absolute(&path)) {
                places.push(absolute(&path));
            }
        }
        places.split_off(1)
    }
}

/// The recorded directories with files of a server, and those without that were not moved to one of
/// those that are `configured`.
pub(super) fn sort(
    kept: Kept,
    disk: &dyn Disk,
    noted: &[PathBuf],
    configured: &[PathBuf],
) -> Result<(Vec<PathBuf>, Vec<PathBuf>), (PathBuf, io::Error)> {
    let fails = |path: &PathBuf| {
        let path = path.clone();
        move |error| (path, error)
    };
    let (mut there, mut missing) = (Vec::new(), Vec::new());
    for path in noted {
        if disk::was_used(disk, path).map_err(fails(path))? {
            there.push(path.clone());
        } else {
            missing.push(path.clone());
        }
    }
    for path in configured.iter().filter(|path| !noted.contains(path)) {
        if !missing.is_empty() && kept.is_in(disk, path).map_err(fails(path))? {
            missing.pop();
        }
    }
    Ok((there, missing))
}

/// The canonical form in which paths are recorded and compared.
pub(super) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Where the files of checkpoints are, if these directories are `known` besides the data directory.
pub(super) fn checkpoint_files(options: &DurabilityOptions, known: Vec<PathBuf>) -> Directories {
    let data = absolute(&options.data_directory);
    let mut parts = Vec::new();
    for path in options.checkpoint_directories() {
        let path = absolute(&path);
        let path = if path == data {
            options.data_directory.clone()
        } else {
            path
        };
        if !parts.contains(&path) {
            parts.push(path);
        }
    }
    let former = known.into_iter().filter(|path| !parts.contains(path));
    Directories {
        manifests: options.data_directory.clone(),
        former: former.collect(),
        parts,
        piece_bytes: limits::CHECKPOINT_PIECE_BYTES,
    }
}

/// The recorded directories; none if there is no file.
pub(super) fn read(kept: Kept, disk: &dyn Disk, data: &Path) -> io::Result<Vec<PathBuf>> {
    let bytes = small_file::read(disk, &kept.path(data), BYTES_MAX)?.unwrap_or_default();
    let text = std::str::from_utf8(&bytes).map_err(|_| ErrorKind::InvalidData)?;
    Ok(text.lines().map(PathBuf::from).collect())
}

/// Records directories; durable on return. Names that are not text or contain a line feed are left
/// out.
pub(super) fn write(
    kept: Kept,
    disk: &dyn Disk,
    data: &Path,
    directories: &[PathBuf],
) -> io::Result<()> {
    let mut text = String::new();
    for name in directories.iter().filter_map(|path| path.to_str()) {
        if !name.contains('\n') {
            text.push_str(name);
            text.push('\n');
        }
    }
    small_file::replace(disk, data, kept.name(), text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_durability::disk::SimulatedDisk;

    #[test]
    fn what_is_noted_is_read() {
        let (disk, data) = (SimulatedDisk::new(), Path::new("/data"));
        disk.create_directory(data).expect("there is power");
        for kept in [Kept::Log, Kept::Parts] {
            assert_eq!(
                read(kept, &disk, data).expect("no file"),
                Vec::<PathBuf>::new()
            );
            for count in [1, 3, 2] {
                let directories: Vec<_> =
                    (0..count).map(|it| format!("/log {it}").into()).collect();
                write(kept, &disk, data, &directories).expect("there is power");
                assert_eq!(read(kept, &disk, data).expect("a file"), directories);
            }
            let golden = disk.contents(&kept.path(data)).expect("it is there");
            assert_eq!(golden, b"/log 0\n/log 1\n");
            disk.put(&kept.path(data), b"/a\xff\n");
            let error = read(kept, &disk, data).expect_err("no text");
            assert_eq!(error.kind(), ErrorKind::InvalidData);
        }
        let names: Vec<_> = disk.files().into_iter().map(|(path, _)| path).collect();
        let names = names.iter().map(|path| path.to_str().expect("text"));
        assert_eq!(
            names.collect::<Vec<_>>(),
            [
                "/data/checkpoint-directories.pando",
                "/data/log-directories.pando"
            ]
        );
    }
}
