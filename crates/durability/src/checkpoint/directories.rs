//! Where the files of checkpoints are: manifests in one directory, parts in one or several.
//!
//! Part i is written to directory i modulo their number, its home. It is read from there, or from
//! any other known directory: directories may be added, left out and reordered between two starts,
//! and files may be moved.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use pando_sync::LogEpoch;

use super::{CheckpointError, parse_name, part_name};
use crate::disk::{Access, Disk, DiskFile};
use crate::limits::CHECKPOINT_PIECE_BYTES;

/// See the module's header.
#[derive(Clone, Debug)]
pub struct Directories {
    /// Of manifests.
    pub manifests: PathBuf,
    /// Of the part files being written, each once.
    pub parts: Vec<PathBuf>,
    /// Other places where part files may be.
    pub former: Vec<PathBuf>,
    /// Bytes that a thread writes to one directory before it continues in the next.
    pub piece_bytes: u64,
}

impl Directories {
    /// One directory for everything.
    #[must_use]
    pub fn one(directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into();
        Self {
            parts: vec![directory.clone()],
            manifests: directory,
            former: Vec::new(),
            piece_bytes: CHECKPOINT_PIECE_BYTES,
        }
    }

    /// The directory that a part is written to.
    pub(super) fn home(&self, part: u32) -> &Path {
        &self.parts[part as usize % self.parts.len()]
    }

    /// Where a part may be, its home first; each directory once.
    fn places(&self, part: u32) -> Vec<&Path> {
        let all = [self.home(part), &self.manifests].into_iter();
        let all = all.chain(self.parts.iter().chain(&self.former).map(|it| &**it));
        let mut places = Vec::new();
        for place in all {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }

    /// Opens a part, wherever it is.
    pub(super) fn open(
        &self,
        disk: &dyn Disk,
        start: LogEpoch,
        part: u32,
    ) -> Result<(PathBuf, Box<dyn DiskFile>), CheckpointError> {
        let name = part_name(start, part);
        let places = self.places(part);
        for place in &places {
            let path = place.join(&name);
            match disk.open(&path, Access::Read) {
                Ok(file) => return Ok((path, file)),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(CheckpointError::disk(&path)(error)),
            }
        }
        let looked_in = places.into_iter().map(Path::to_owned).collect();
        Err(CheckpointError::Missing { name, looked_in })
    }

    /// Makes the names of new parts durable.
    pub(super) fn sync(&self, disk: &dyn Disk) -> Result<(), CheckpointError> {
        self.parts.iter().try_for_each(|directory| {
            let synced = disk.sync_directory(directory);
            synced.map_err(CheckpointError::disk(directory))
        })
    }

    /// The files of checkpoints in all directories: start epoch, whether it is a manifest, and its
    /// path. Outside the directory of manifests only parts count.
    pub(super) fn files(
        &self,
        disk: &dyn Disk,
    ) -> Result<Vec<(LogEpoch, bool, PathBuf)>, CheckpointError> {
        let mut files = Vec::new();
        for place in self.places(0) {
            let is_first = place == self.manifests;
            let names = match disk.list(place) {
                Ok(names) => names,
                Err(error) if error.kind() == ErrorKind::NotFound && !is_first => continue,
                Err(error) => return Err(CheckpointError::disk(place)(error)),
            };
            for name in names {
                if !is_first && !is_part(&name) {
                    continue;
                }
                if let Some((start, manifest)) = parse_name(&name) {
                    files.push((start, manifest, place.join(name)));
                }
            }
        }
        Ok(files)
    }
}

/// Whether a file of this name is a part of a checkpoint.
#[must_use]
pub fn is_part(name: &str) -> bool {
    name.strip_suffix(".part").is_some() && parse_name(name).is_some()
}
