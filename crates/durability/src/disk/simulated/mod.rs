//! A disk in memory that fails as disks do, at the call that a test chooses.
//!
//! | failure | how a test requests it |
//! |---|---|
//! | the power, in the middle of a call | [`Fault::PowerLoss`] at that call, then [`SimulatedDisk::crash`] |
//! | the process alone | [`SimulatedDisk::restart`]: all writes stay, synced or not |
//! | sectors written in any order, torn writes, lost names and lengths | the seed of `crash` |
//! | any call (EIO); a write then leaves a part behind | [`Fault::Error`] |
//! | every call of a kind | [`SimulatedDisk::fail_all`] |
//! | a sync that fails, drops what was written, and succeeds the next time | [`Fault::SyncTrap`] |
//! | a full disk, or one full disk of several | [`SimulatedDisk::set_capacity`], [`SimulatedDisk::set_capacity_below`] (also reported by [`Disk::room`]) |
//! | slow writes, as long as a test wants | [`SimulatedDisk::stalls`] |
//! | a read-only volume (EROFS) | [`SimulatedDisk::set_read_only`] |
//! | writes and reads that stop early | [`SimulatedDisk::set_short_calls`] |
//! | bits that flip at rest | [`SimulatedDisk::flip`] |
//!
//! States of a sector: *durable* (on disk, whatever happens) and *pending* (each version written
//! since the last sync; after a crash the sector holds any one of them, or the durable one). The
//! changes of a directory are pending in the same way, each independently. `crash` with seed 0
//! keeps nothing pending, with seed 1 all of it, with any other seed a random part.
//!
//! Invariants:
//! - **DS1** A call's number is its place in [`SimulatedDisk::calls`]; faults are planned by it.
//!   The numbers are the same in every run whose callers make the same calls in the same order.
//! - **DS2** After the power is off every call fails, so nothing that a test's server does later
//!   reaches the disk that `crash` returns.

mod content;
mod stalls;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use content::{Content, Directory};
use fastrand::Rng;
pub use stalls::Stalls;

use pando_sync::lock;

use super::{Access, Disk, DiskFile, Room};
use crate::limits::BLOCK_BYTES;

/// The operation of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the method of its name")]
pub enum CallKind {
    Create,
    Open,
    Read,
    Write,
    Sync,
    Allocate,
    Rename,
    Remove,
    List,
    CreateDirectory,
    SyncDirectory,
    Lock,
}

impl CallKind {
    /// Whether the call may change the disk's content.
    pub fn changes(self) -> bool {
        !matches!(self, Self::Open | Self::Read | Self::List | Self::Lock)
    }
}

/// One call that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The operation.
    pub kind: CallKind,
    /// The file or directory.
    pub path: PathBuf,
    /// Bytes to read, write or allocate.
    pub bytes: usize,
}

/// The planned outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails; a write may leave its first sectors behind.
    Error(ErrorKind),
    /// A sync fails and drops what was written since the last one; any other call just fails.
    SyncTrap,
    /// Power fails during the call: its effect is pending.
    PowerLoss,
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
    stalls: Arc<Stalls>,
}

#[derive(Clone, Debug)]
struct State {
    files: BTreeMap<u64, Content>,
    directories: BTreeMap<PathBuf, Directory>,
    next_file: u64,
    calls: Vec<Call>,
    faults: BTreeMap<usize, Fault>,
    /// Operations that fail whenever they are called.
    failing: Option<(CallKind, ErrorKind)>,
    locked: BTreeSet<u64>,
    /// By the directory below which files count; empty for the whole disk.
    capacities: BTreeMap<PathBuf, u64>,
    short_calls: Option<Rng>,
    read_only: bool,
    writes_through: bool,
    power: bool,
}

/// The action of a call, after faults have been looked up.
enum Course {
    Go,
    PowerLoss,
    Fail { error: io::Error, trap: bool },
}

impl Default for SimulatedDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl SimulatedDisk {
    /// An empty disk without faults.
    pub fn new() -> Self {
        Self::from(State {
            files: BTreeMap::new(),
            directories: BTreeMap::new(),
            next_file: 0,
            calls: Vec::new(),
            faults: BTreeMap::new(),
            failing: None,
            locked: BTreeSet::new(),
            capacities: BTreeMap::new(),
            short_calls: None,
            read_only: false,
            writes_through: true,
            power: true,
        })
    }

    fn from(state: State) -> Self {
        Self {
            state: Arc::new(Mutex::new(state)),
            stalls: Arc::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test that panicked holds no invariant that another relies on.
        lock(&self.state)
    }

    /// The calls made so far, in order (DS1).
    pub fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    /// How many calls were made so far.
    pub fn call_count(&self) -> usize {
        self.state().calls.len()
    }

    /// Plans a fault for the call of this number.
    pub fn fail_at(&self, call: usize, fault: Fault) {
        self.state().faults.insert(call, fault);
    }

    /// Makes every call of a kind fail from now on, one kind at a time.
    pub fn fail_all(&self, kind: CallKind, error: ErrorKind) {
        self.state().failing = Some((kind, error));
    }

    /// Forgets the planned faults.
    pub fn clear_faults(&self) {
        let mut state = self.state();
        state.faults.clear();
        state.failing = None;
    }

    /// Limits the bytes of files on the disk; `None`: no limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.set_capacity_below(Path::new(""), bytes);
    }

    /// The same for the files below a directory, as if it were its own disk.
    pub fn set_capacity_below(&self, directory: &Path, bytes: Option<u64>) {
        let capacities = &mut self.state().capacities;
        match bytes {
            Some(bytes) => capacities.insert(directory.to_owned(), bytes),
            None => capacities.remove(directory),
        };
    }

    /// Total bytes of its files.
    pub fn used(&self) -> u64 {
        self.state().used_below(Path::new(""))
    }

    /// Total bytes of the files below a directory.
    pub fn used_below(&self, directory: &Path) -> u64 {
        self.state().used_below(directory)
    }

    /// Makes reads and writes stop early, at random; writes of whole blocks stop at a block.
    pub fn set_short_calls(&self, seed: Option<u64>) {
        self.state().short_calls = seed.map(Rng::with_seed);
    }

    /// Sets whether files can be written through; if not, they must be synced.
    pub fn set_writes_through(&self, can: bool) {
        self.state().writes_through = can;
    }

    /// Cuts the power: every later call fails (DS2).
    pub fn end_power(&self) {
        self.state().power = false;
    }

    /// Whether the power is on.
    pub fn has_power(&self) -> bool {
        self.state().power
    }

    /// The disk after a power loss: of the pending data, the seed chooses a part.
    #[must_use]
    pub fn crash(&self, seed: u64) -> Self {
        let mut old = self.state();
        old.power = false;
        let mut rng = Rng::with_seed(seed);
        let mut keeps = |what: &[()]| match seed {
            0 => 0,
            1 => what.len(),
            _ => rng.usize(0..=what.len()),
        };
        let mut new = old.reborn();
        for content in new.files.values_mut() {
            content.settle(&mut keeps);
        }
        for directory in new.directories.values_mut() {
            directory.settle(&mut keeps);
        }
        new.forget_unnamed();
        Self::from(new)
    }

    /// The disk after the process ended and the machine stayed up: all writes, with pending ones
    /// still pending.
    #[must_use]
    pub fn restart(&self) -> Self {
        let mut old = self.state();
        old.power = false;
        let mut new = old.reborn();
        new.forget_unnamed();
        Self::from(new)
    }

    /// A disk with the same content, so that a test can continue from one state in several ways.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self::from(self.state().reborn())
    }

    /// What a file holds now.
    pub fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        Some(state.files[&state.find(path).ok()?].visible().to_vec())
    }

    /// Stores a file, durable, replacing any former one.
    pub fn put(&self, path: &Path, bytes: &[u8]) {
        let mut state = self.state();
        let directory = parent(path).to_owned();
        state.directories.entry(directory).or_default();
        let file = state.add(path);
        let content = state.files.get_mut(&file).expect("it was added");
        content.write(0, bytes);
        content.sync();
        let directory = state
            .directories
            .get_mut(parent(path))
            .expect("added above");
        directory.link(name(path), file);
        directory.sync();
    }

    /// Makes the disk read-only, like a volume mounted so, or writable again.
    pub fn set_read_only(&self, read_only: bool) {
        self.state().read_only = read_only;
    }

    /// The control that holds back its writes; none at first.
    pub fn stalls(&self) -> &Stalls {
        &self.stalls
    }

    /// Flips a bit at rest. `false`: the file is shorter than that.
    pub fn flip(&self, path: &Path, offset: u64, bit: u8) -> bool {
        let mut state = self.state();
        let Ok(file) = state.find(path) else {
            return false;
        };
        let content = state.files.get_mut(&file).expect("it has a name");
        content.flip(offset as usize, bit)
    }

    /// The files that have a name, with their lengths.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let state = self.state();
        let mut files = Vec::new();
        for (path, directory) in &state.directories {
            for (name, file) in directory.names() {
                files.push((path.join(name), state.files[file].visible().len() as u64));
            }
        }
        files
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

fn name(path: &Path) -> &str {
    let name = path.file_name().and_then(|name| name.to_str());
    name.expect("the simulated disk has Unicode names")
}

fn error(kind: ErrorKind) -> io::Error {
    io::Error::new(kind, "the simulated disk failed")
}

/// The error of a disk that cannot read or write (EIO).
fn no_power() -> io::Error {
    io::Error::other("the power is off")
}

impl State {
    /// The same content for the next process: no calls, faults or locks.
    fn reborn(&self) -> Self {
        Self {
            files: self.files.clone(),
            directories: self.directories.clone(),
            next_file: self.next_file,
            calls: Vec::new(),
            faults: BTreeMap::new(),
            failing: None,
            locked: BTreeSet::new(),
            capacities: self.capacities.clone(),
            short_calls: self.short_calls.clone(),
            read_only: self.read_only,
            writes_through: self.writes_through,
            power: true,
        }
    }

    fn forget_unnamed(&mut self) {
        let named: BTreeSet<u64> = self
            .directories
            .values()
            .flat_map(Directory::all_files)
            .collect();
        self.files.retain(|file, _| named.contains(file));
    }

    /// Removed files take no space.
    fn used_below(&self, path: &Path) -> u64 {
        self.directories
            .iter()
            .filter(|(directory, _)| directory.starts_with(path))
            .flat_map(|(_, directory)| directory.names())
            .map(|(_, file)| self.files[file].visible().len() as u64)
            .sum()
    }

    /// Records a call and determines its outcome.
    fn begin(&mut self, kind: CallKind, path: &Path, bytes: usize) -> io::Result<Course> {
        if !self.power {
            return Err(no_power());
        }
        let failing = self.failing.filter(|(failing, _)| *failing == kind);
        let failing = failing.map(|(_, error)| Fault::Error(error));
        let refused = self.read_only && kind.changes();
        let refused = refused.then_some(Fault::Error(ErrorKind::ReadOnlyFilesystem));
        let fault = self.faults.get(&self.calls.len()).copied();
        let fault = fault.or(failing).or(refused);
        self.calls.push(Call {
            kind,
            path: path.to_owned(),
            bytes,
        });
        Ok(match fault {
            None => Course::Go,
            Some(Fault::PowerLoss) => {
                self.power = false;
                Course::PowerLoss
            }
            Some(Fault::Error(kind)) => Course::Fail {
                error: error(kind),
                trap: false,
            },
            Some(Fault::SyncTrap) => Course::Fail {
                error: error(ErrorKind::Other),
                trap: true,
            },
        })
    }

    /// For calls that are never left half done.
    fn begin_simple(&mut self, kind: CallKind, path: &Path) -> io::Result<Course> {
        match self.begin(kind, path, 0)? {
            Course::Fail { error, .. } => Err(error),
            course => Ok(course),
        }
    }

    fn directory(&mut self, path: &Path) -> io::Result<&mut Directory> {
        self.directories
            .get_mut(path)
            .ok_or_else(|| error(ErrorKind::NotFound))
    }

    fn find(&self, path: &Path) -> io::Result<u64> {
        let directory = self.directories.get(parent(path));
        let file = directory.and_then(|directory| directory.find(name(path)));
        file.ok_or_else(|| error(ErrorKind::NotFound))
    }

    /// A new file without a name.
    fn add(&mut self, path: &Path) -> u64 {
        let file = self.next_file;
        self.next_file += 1;
        self.files.insert(file, Content::new(path));
        file
    }

    fn content(&mut self, file: u64) -> &mut Content {
        self.files.get_mut(&file).expect("an open file exists")
    }

    fn check_room(&self, file: u64, end: u64) -> io::Result<()> {
        let content = &self.files[&file];
        let more = end.saturating_sub(content.visible().len() as u64);
        let is_full = |(below, capacity): (&PathBuf, &u64)| {
            content.path.starts_with(below) && self.used_below(below) + more > *capacity
        };
        if self.capacities.iter().any(is_full) {
            return Err(error(ErrorKind::StorageFull));
        }
        Ok(())
    }

    /// How many of `bytes` a call moves.
    fn shortened(&mut self, bytes: usize, unit: usize) -> usize {
        match &mut self.short_calls {
            Some(rng) if bytes > unit => unit * rng.usize(1..=bytes / unit),
            _ => bytes,
        }
    }
}

impl SimulatedDisk {
    fn handle(&self, file: u64, access: Access, locked: bool) -> Box<dyn DiskFile> {
        let through = access == Access::WriteThrough && self.state().writes_through;
        Box::new(Handle {
            disk: self.clone(),
            file,
            through,
            writable: access != Access::Read,
            locked,
        })
    }
}

/// The result of a call during which the power failed.
fn after<T>(course: &Course, value: T) -> io::Result<T> {
    match course {
        Course::PowerLoss => Err(no_power()),
        _ => Ok(value),
    }
}

impl Disk for SimulatedDisk {
    fn create(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        let file = {
            let mut state = self.state();
            let course = state.begin_simple(CallKind::Create, path)?;
            if state.find(path).is_ok() {
                return Err(error(ErrorKind::AlreadyExists));
            }
            state.directory(parent(path))?;
            let file = state.add(path);
            state.directory(parent(path))?.link(name(path), file);
            after(&course, file)?
        };
        Ok(self.handle(file, access, false))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        let file = {
            let mut state = self.state();
            let course = state.begin_simple(CallKind::Open, path)?;
            if state.read_only && access != Access::Read {
                return Err(error(ErrorKind::ReadOnlyFilesystem));
            }
            after(&course, state.find(path)?)?
        };
        Ok(self.handle(file, access, false))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let course = state.begin_simple(CallKind::Rename, from)?;
        let file = state.find(from)?;
        assert_eq!(
            parent(from),
            parent(to),
            "names move within a directory only"
        );
        state
            .directory(parent(from))?
            .rename(name(from), name(to), file);
        to.clone_into(&mut state.content(file).path);
        after(&course, ())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let course = state.begin_simple(CallKind::Remove, path)?;
        state.find(path)?;
        state.directory(parent(path))?.unlink(name(path));
        after(&course, ())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut state = self.state();
        let course = state.begin_simple(CallKind::List, directory)?;
        let names = state.directory(directory)?.names();
        after(&course, names.map(|(name, _)| name.clone()).collect())
    }

    /// Directories themselves are durable at once: they are made before a database is served.
    fn create_directory(&self, directory: &Path) -> io::Result<()> {
        let mut state = self.state();
        let course = state.begin_simple(CallKind::CreateDirectory, directory)?;
        state.directories.entry(directory.to_owned()).or_default();
        after(&course, ())
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        let mut state = self.state();
        let course = state.begin_simple(CallKind::SyncDirectory, directory)?;
        after(&course, ())?;
        state.directory(directory)?.sync();
        Ok(())
    }

    /// A directory with a capacity is a volume of its own. Not a call of DS1: it asks the disk for
    /// a number only.
    fn room(&self, directory: &Path) -> io::Result<Room> {
        let state = self.state();
        if !state.power {
            return Err(no_power());
        }
        let volumes = (1..).zip(&state.capacities);
        // The deepest of those that contain it is the last one.
        let found = volumes
            .filter(|(_, (below, _))| directory.starts_with(below))
            .last();
        let (volume, total, used) = found
            .map_or((0, u64::MAX, 0), |(volume, (below, capacity))| {
                (volume, *capacity, state.used_below(below))
            });
        Ok(Room {
            volume,
            free: total.saturating_sub(used),
            total,
        })
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskFile>>> {
        let file = {
            let mut state = self.state();
            let course = state.begin_simple(CallKind::Lock, path)?;
            if state.read_only {
                return Err(error(ErrorKind::ReadOnlyFilesystem));
            }
            let file = if let Ok(file) = state.find(path) {
                file
            } else {
                state.directory(parent(path))?;
                let file = state.add(path);
                state.directory(parent(path))?.link(name(path), file);
                file
            };
            if !state.locked.insert(file) {
                return Ok(None);
            }
            after(&course, file)?
        };
        Ok(Some(self.handle(file, Access::Write, true)))
    }

    fn try_lock_to_read(&self, path: &Path) -> io::Result<Option<Box<dyn DiskFile>>> {
        let file = {
            let mut state = self.state();
            let course = state.begin_simple(CallKind::Lock, path)?;
            let file = state.find(path)?;
            if !state.locked.insert(file) {
                return Ok(None);
            }
            after(&course, file)?
        };
        Ok(Some(self.handle(file, Access::Read, true)))
    }
}

/// An open file.
#[derive(Debug)]
struct Handle {
    disk: SimulatedDisk,
    file: u64,
    through: bool,
    writable: bool,
    locked: bool,
}

impl Handle {
    fn begin(&self, kind: CallKind, bytes: usize) -> io::Result<(MutexGuard<'_, State>, Course)> {
        let mut state = self.disk.state();
        let path = state.content(self.file).path.clone();
        let course = state.begin(kind, &path, bytes)?;
        Ok((state, course))
    }
}

impl DiskFile for Handle {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let (mut state, course) = self.begin(CallKind::Read, bytes.len())?;
        match course {
            Course::Go => {}
            Course::PowerLoss => return Err(no_power()),
            Course::Fail { error, .. } => return Err(error),
        }
        let wanted = state.shortened(bytes.len(), 1);
        let visible = state.content(self.file).visible();
        let from = usize::try_from(offset).expect("small").min(visible.len());
        let count = wanted.min(visible.len() - from);
        bytes[..count].copy_from_slice(&visible[from..from + count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        assert!(self.writable, "written through a handle for reading");
        if self.through {
            let unaligned = |value: usize| !value.is_multiple_of(BLOCK_BYTES);
            if unaligned(bytes.len())
                || unaligned(offset as usize)
                || unaligned(bytes.as_ptr().addr())
            {
                return Err(error(ErrorKind::InvalidInput));
            }
        }
        let path = self.disk.state().content(self.file).path.clone();
        self.disk.stalls.pass(&path);
        let (mut state, course) = self.begin(CallKind::Write, bytes.len())?;
        state.check_room(self.file, offset + bytes.len() as u64)?;
        let unit = if self.through { BLOCK_BYTES } else { 1 };
        let count = state.shortened(bytes.len(), unit);
        match course {
            Course::Go => {
                let content = state.content(self.file);
                content.write(offset, &bytes[..count]);
                if self.through {
                    content.sync_range(offset, count);
                }
                Ok(count)
            }
            Course::PowerLoss => {
                state.content(self.file).write(offset, bytes);
                Err(no_power())
            }
            Course::Fail { error, .. } => {
                // Which part arrived is unknown: say, the first half.
                state
                    .content(self.file)
                    .write(offset, &bytes[..bytes.len() / 2]);
                Err(error)
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        let (mut state, course) = self.begin(CallKind::Sync, 0)?;
        let content = state.content(self.file);
        match course {
            Course::Go => content.sync(),
            Course::PowerLoss => return Err(no_power()),
            Course::Fail { error, trap } => {
                if trap {
                    content.revert();
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        let (mut state, course) = self.begin(CallKind::Allocate, bytes as usize)?;
        if let Course::Fail { error, .. } = course {
            return Err(error);
        }
        state.check_room(self.file, bytes)?;
        state.content(self.file).extend(bytes as usize);
        after(&course, ())
    }

    fn bytes(&self) -> io::Result<u64> {
        let mut state = self.disk.state();
        if !state.power {
            return Err(no_power());
        }
        Ok(state.content(self.file).visible().len() as u64)
    }

    fn writes_through(&self) -> bool {
        self.through
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.locked {
            self.disk.state().locked.remove(&self.file);
        }
    }
}
