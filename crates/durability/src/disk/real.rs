//! The operating system's files.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use pando_io::file::{self, Access, File};

use super::{Disk, DiskFile, Room};

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(File::create(path, access)?))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(File::open(path, access)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_type()?.is_file()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create_directory(&self, directory: &Path) -> io::Result<()> {
        if directory.as_os_str().is_empty() || directory.is_dir() {
            return Ok(());
        }
        let parent = directory.parent();
        if let Some(parent) = parent {
            self.create_directory(parent)?;
        }
        match fs::create_dir(directory) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        match parent {
            Some(parent) if !parent.as_os_str().is_empty() => file::sync_directory(parent),
            _ => file::sync_directory(Path::new(".")),
        }
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        file::sync_directory(directory)
    }

    fn room(&self, directory: &Path) -> io::Result<Room> {
        file::room(directory)
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskFile>>> {
        let file = match File::create(path, Access::Write) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                File::open(path, Access::Write)?
            }
            other => other?,
        };
        let locked = file.try_lock()?;
        Ok(locked.then(|| Box::new(file) as Box<dyn DiskFile>))
    }

    fn try_lock_to_read(&self, path: &Path) -> io::Result<Option<Box<dyn DiskFile>>> {
        let file = File::open(path, Access::Read)?;
        let locked = file.try_lock()?;
        Ok(locked.then(|| Box::new(file) as Box<dyn DiskFile>))
    }
}

impl DiskFile for File {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync()
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.allocate(bytes)
    }

    fn bytes(&self) -> io::Result<u64> {
        self.bytes()
    }

    fn writes_through(&self) -> bool {
        self.writes_through()
    }
}
