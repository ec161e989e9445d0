//! Where logs have been: the directories beside the data directory, one a line, in a file of the
//! latter. A log is looked for there although the configuration names it no more.
//!
//! A directory that is noted and shows nothing of a server is refused: its disk may not be mounted,
//! and a log that is nowhere says itself nothing of what it lacks. One that the configuration names
//! no more is forgotten once no segment is there; one that was moved, when another one that the
//! configuration names has segments and was not noted.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use pando_durability::disk::{self, Access, Disk};

use crate::durable::options::DurabilityOptions;

const NAME: &str = "log-directories.pando";
const UNFINISHED: &str = "log-directories.new";

/// Longest file that is read.
const BYTES_MAX: u64 = 1024 * 1024;

/// The file.
pub(super) fn path(data: &Path) -> PathBuf {
    data.join(NAME)
}

/// Whether segments of a log are in a directory.
pub(super) fn has_log(disk: &dyn Disk, directory: &Path) -> io::Result<bool> {
    match disk.list(directory) {
        Ok(names) => Ok(names.iter().any(|name| name.starts_with("log-0"))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The noted directories that show files of a server, and those that do not and were not moved to
/// one of those that are `configured`.
pub(super) fn sort(
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
        if !missing.is_empty() && has_log(disk, path).map_err(fails(path))? {
            missing.pop();
        }
    }
    Ok((there, missing))
}

/// The path in the one form in which paths are noted and compared.
pub(super) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// The directories of the log beside the data directory, each once.
pub(super) fn configured(options: &DurabilityOptions) -> Vec<PathBuf> {
    let mut places = vec![absolute(&options.data_directory)];
    for path in options.log_directories() {
        if !places.contains(&absolute(&path)) {
            places.push(absolute(&path));
        }
    }
    places.split_off(1)
}

/// The directories that are noted; none if there is no file.
pub(super) fn read(disk: &dyn Disk, data: &Path) -> io::Result<Vec<PathBuf>> {
    let file = match disk.open(&path(data), Access::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let length = file.bytes()?;
    if length > BYTES_MAX {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length as usize];
    let read = file.read_full_at(&mut bytes, 0)?;
    let text = std::str::from_utf8(&bytes[..read]).map_err(|_| ErrorKind::InvalidData)?;
    Ok(text.lines().map(PathBuf::from).collect())
}

/// Notes directories: durable when this returns. Names that are no text or hold a line feed are
/// left out.
pub(super) fn write(disk: &dyn Disk, data: &Path, directories: &[PathBuf]) -> io::Result<()> {
    let mut text = String::new();
    for name in directories.iter().filter_map(|path| path.to_str()) {
        if !name.contains('\n') {
            text.push_str(name);
            text.push('\n');
        }
    }
    let unfinished = data.join(UNFINISHED);
    match disk.remove(&unfinished) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = disk.create(&unfinished, Access::Write)?;
    file.write_all_at(text.as_bytes(), 0)?;
    file.sync()?;
    disk.rename(&unfinished, &path(data))?;
    disk.sync_directory(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_durability::disk::SimulatedDisk;

    #[test]
    fn what_is_noted_is_read() {
        let (disk, data) = (SimulatedDisk::new(), Path::new("/data"));
        disk.create_directory(data).expect("there is power");
        assert_eq!(read(&disk, data).expect("no file"), Vec::<PathBuf>::new());
        for count in [1, 3, 2] {
            let directories: Vec<_> = (0..count).map(|it| format!("/log {it}").into()).collect();
            write(&disk, data, &directories).expect("there is power");
            assert_eq!(read(&disk, data).expect("a file"), directories);
        }
        let golden = disk.contents(&path(data)).expect("it is there");
        assert_eq!(golden, b"/log 0\n/log 1\n");
        disk.put(&data.join(NAME), b"/a\xff\n");
        let error = read(&disk, data).expect_err("no text");
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }
}
