//! Small files that are replaced as a whole.

use std::io::{self, ErrorKind};
use std::path::Path;

use pando_durability::disk::{Access, Disk};

/// Reads a file of at most so many bytes; `None`: there is none.
pub fn read(disk: &dyn Disk, path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match disk.open(path, Access::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let length = file.bytes()?;
    if length > bytes_max {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length as usize];
    let read = file.read_full_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(Some(bytes))
}

/// Writes the file in this directory anew; on return it is durable under its name. After a crash
/// before, it is what it was.
pub fn replace(disk: &dyn Disk, directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let path = directory.join(name);
    let unfinished = path.with_extension("new");
    match disk.remove(&unfinished) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = disk.create(&unfinished, Access::Write)?;
    file.write_all_at(bytes, 0)?;
    file.sync()?;
    disk.rename(&unfinished, &path)?;
    disk.sync_directory(directory)
}

/// Removes the file from this directory, if it is there; on return that is durable.
pub fn remove(disk: &dyn Disk, directory: &Path, name: &str) -> io::Result<()> {
    match disk.remove(&directory.join(name)) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    disk.sync_directory(directory)
}
