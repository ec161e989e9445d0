//! A filed pool on a simulated disk, whose power ends and whose sectors tear.

use std::io;
use std::path::Path;

use pando_durability::disk::{Access, Disk, DiskFile, SimulatedDisk};
use rustix::mm::MapFlags;

use super::Filed;
use super::journal::{BLOCK_BYTES, Journal, head};
use crate::mapped::{Mapping, file};
use crate::region::Region;
use crate::{Offset, PoolError};

/// A file whose syncs are left out.
#[derive(Debug)]
pub(super) struct Unsynced(pub(super) Box<dyn DiskFile>);

impl DiskFile for Unsynced {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.0.allocate(bytes)
    }

    fn bytes(&self) -> io::Result<u64> {
        self.0.bytes()
    }

    fn writes_through(&self) -> bool {
        self.0.writes_through()
    }
}

impl Filed {
    /// Puts a file for an empty pool of so many bytes on a disk.
    pub fn put_on(disk: &SimulatedDisk, path: &Path, bytes: u64) {
        let directory = path.parent().expect("a file in a directory");
        disk.create_directory(directory).expect("a new one");
        let mut file = head(bytes).as_slice().to_vec();
        file.resize((BLOCK_BYTES + bytes) as usize, 0);
        disk.put(path, &file);
    }

    /// Opens a file of a disk, whose journal begins anew after so many bytes; without syncs, as a
    /// planted fault, if so asked.
    pub fn open_on(
        disk: &SimulatedDisk,
        path: &Path,
        (lap_bytes, is_synced): (u64, bool),
    ) -> Result<Self, PoolError> {
        let open = |access| -> io::Result<Box<dyn DiskFile>> {
            let file = disk.open(path, access)?;
            Ok(if is_synced {
                file
            } else {
                Box::new(Unsynced(file))
            })
        };
        let (places, records) = (open(Access::Write)?, open(Access::WriteThrough)?);
        let mut journal = Journal::open(places, records)?;
        journal.set_lap_bytes(lap_bytes);
        let bytes = journal.pool_bytes();
        let file = file::anonymous(bytes)?;
        let mapping =
            Mapping::new(&file, 0, bytes, MapFlags::SHARED).map_err(PoolError::NotMappable)?;
        // SAFETY: the mapping is readable and writable, nobody else has its file, and it lives as
        // long as the region.
        let region = unsafe { Region::new(mapping.start(), bytes) };
        let mut content = vec![0; bytes as usize];
        let places = disk.open(path, Access::Read)?;
        places.read_full_at(&mut content, BLOCK_BYTES)?;
        region.write(Offset::new(0), &content);
        Ok(Self::over(region, journal, (mapping, file)))
    }
}
