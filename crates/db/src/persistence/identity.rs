//! The identity of a database: a random number in its own file, and in all others.
//!
//! | bytes | field |
//! |---|---|
//! | 8 | `PANDO-ID` |
//! | 32 | the number in hexadecimal digits |
//! | 1 | a line feed |
//!
//! A missing file is restored from the newest checkpoint's manifest, if there is one.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use pando_durability::disk::Disk;

use super::small_file;

pub(super) const NAME: &str = "identity.pando";
const MAGIC: &[u8] = b"PANDO-ID";
/// Longest file that is read.
const BYTES_MAX: u64 = 4096;

/// Why there is no identity.
#[derive(Debug)]
pub(crate) enum Failure {
    Disk(PathBuf, io::Error),
    Damaged(PathBuf),
}

/// Reads the identity; `None` if there is none.
pub(crate) fn read(disk: &dyn Disk, directory: &Path) -> Result<Option<u128>, Failure> {
    let path = directory.join(NAME);
    let bytes = match small_file::read(disk, &path, BYTES_MAX) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(None),
        Err(error) if error.kind() == ErrorKind::InvalidData => return Err(Failure::Damaged(path)),
        Err(error) => return Err(Failure::Disk(path, error)),
    };
    let number = bytes
        .strip_prefix(MAGIC)
        .and_then(|rest| rest.strip_suffix(b"\n"))
        .filter(|digits| digits.len() == 32)
        .and_then(|digits| std::str::from_utf8(digits).ok())
        .and_then(|digits| u128::from_str_radix(digits, 16).ok());
    number.map(Some).ok_or(Failure::Damaged(path))
}

/// Writes the identity; on return it is durable under its name.
pub(crate) fn write(disk: &dyn Disk, directory: &Path, identity: u128) -> Result<(), Failure> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(format!("{identity:032x}\n").as_bytes());
    let written = small_file::replace(disk, directory, NAME, &bytes);
    written.map_err(|error| Failure::Disk(directory.join(NAME), error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_durability::disk::SimulatedDisk;

    #[test]
    fn golden_bytes() {
        let (disk, directory) = (SimulatedDisk::new(), Path::new("/data"));
        disk.create_directory(directory).expect("there is power");
        write(&disk, directory, 0xabc).expect("there is power");
        let bytes = disk.contents(&directory.join(NAME)).expect("it is there");
        assert_eq!(bytes, b"PANDO-ID00000000000000000000000000000abc\n");
    }

    #[test]
    fn an_identity_survives_any_crash_or_is_not_there() {
        let directory = Path::new("/data");
        let fresh = SimulatedDisk::new();
        fresh.create_directory(directory).expect("there is power");
        fresh.sync_directory(directory).expect("there is power");
        for call in 0..12 {
            for seed in 0..4 {
                let disk = fresh.copy();
                let first = disk.call_count();
                disk.fail_at(first + call, pando_durability::disk::Fault::PowerLoss);
                let written = write(&disk, directory, 0xabc).is_ok();
                let found = read(&disk.crash(seed), directory).expect("never half an identity");
                assert!(found == Some(0xabc) || found.is_none() && !written);
            }
        }
        fresh.put(&directory.join(NAME), b"PANDO-ID12\n");
        assert!(matches!(read(&fresh, directory), Err(Failure::Damaged(_))));
    }
}
