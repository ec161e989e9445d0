//! Where logs have been: the directories beside the data directory, one a line, in a file of the
//! latter. A log is looked for there although the configuration names it no more.
//!
//! A directory that has gone is noted and passed over: what the log lacks for it, the log says.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use pando_durability::disk::{Access, Disk};

const NAME: &str = "log-directories.pando";
const UNFINISHED: &str = "log-directories.new";

/// Longest file that is read.
const BYTES_MAX: u64 = 1024 * 1024;

/// The directories that are noted; none if there is no file.
pub(super) fn read(disk: &dyn Disk, data: &Path) -> io::Result<Vec<PathBuf>> {
    let file = match disk.open(&data.join(NAME), Access::Read) {
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
    disk.rename(&unfinished, &data.join(NAME))?;
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
        disk.put(&data.join(NAME), b"/a\xff\n");
        let error = read(&disk, data).expect_err("no text");
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }
}
