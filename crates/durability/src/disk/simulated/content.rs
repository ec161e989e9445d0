//! The content of the simulated disk: the sectors of a file, the names of a directory, and what of
//! both is durable.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::limits::SECTOR_BYTES;

/// Chooses how much of the pending data survives a crash: a number up to the length.
type Keeps<'a> = dyn FnMut(&[()]) -> usize + 'a;

/// The bytes of one file.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub(super) path: PathBuf,
    visible: Vec<u8>,
    durable: Vec<u8>,
    /// Each version of a sector that was written since the last sync.
    pending: BTreeMap<usize, Vec<Vec<u8>>>,
}

impl Content {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            visible: Vec::new(),
            durable: Vec::new(),
            pending: BTreeMap::new(),
        }
    }

    pub(super) fn visible(&self) -> &[u8] {
        &self.visible
    }

    pub(super) fn extend(&mut self, bytes: usize) {
        if bytes > self.visible.len() {
            self.visible.resize(bytes, 0);
        }
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let from = offset as usize;
        let to = from + bytes.len();
        self.extend(to);
        self.visible[from..to].copy_from_slice(bytes);
        if bytes.is_empty() {
            return;
        }
        for sector in from / SECTOR_BYTES..=(to - 1) / SECTOR_BYTES {
            let version = self.sector(sector).to_vec();
            self.pending.entry(sector).or_default().push(version);
        }
    }

    fn sector(&self, sector: usize) -> &[u8] {
        let from = sector * SECTOR_BYTES;
        &self.visible[from..self.visible.len().min(from + SECTOR_BYTES)]
    }

    pub(super) fn sync(&mut self) {
        self.durable.resize(self.visible.len(), 0);
        for sector in std::mem::take(&mut self.pending).into_keys() {
            let from = sector * SECTOR_BYTES;
            let to = self.visible.len().min(from + SECTOR_BYTES);
            self.durable[from..to].copy_from_slice(&self.visible[from..to]);
        }
    }

    /// Makes a written-through write durable.
    pub(super) fn sync_range(&mut self, offset: u64, bytes: usize) {
        let (from, to) = (offset as usize, offset as usize + bytes);
        if self.durable.len() < to {
            self.durable.resize(to, 0);
        }
        self.durable[from..to].copy_from_slice(&self.visible[from..to]);
        let sectors = from / SECTOR_BYTES..to.div_ceil(SECTOR_BYTES);
        self.pending.retain(|sector, _| !sectors.contains(sector));
    }

    /// Drops what was written since the last sync.
    pub(super) fn revert(&mut self) {
        self.visible.clone_from(&self.durable);
        self.pending.clear();
    }

    pub(super) fn flip(&mut self, offset: usize, bit: u8) -> bool {
        let mask = 1 << (bit % 8);
        for bytes in [&mut self.visible, &mut self.durable] {
            match bytes.get_mut(offset) {
                Some(byte) => *byte ^= mask,
                None => return false,
            }
        }
        true
    }

    /// Power was lost: a part of the pending data is found.
    pub(super) fn settle(&mut self, keeps: &mut Keeps<'_>) {
        if self.visible.len() != self.durable.len() && keeps(&[()]) == 1 {
            self.durable.resize(self.visible.len(), 0);
        }
        for (sector, mut versions) in std::mem::take(&mut self.pending) {
            let kept = keeps(&vec![(); versions.len()]);
            let from = sector * SECTOR_BYTES;
            if kept > 0 && from < self.durable.len() {
                let version = versions.swap_remove(kept - 1);
                let to = self.durable.len().min(from + version.len());
                self.durable[from..to].copy_from_slice(&version[..to - from]);
            }
        }
        self.visible.clone_from(&self.durable);
    }
}

#[derive(Clone, Debug)]
enum Change {
    Link(String, u64),
    Unlink(String),
    Rename(String, String, u64),
}

/// The names of one directory.
#[derive(Clone, Debug, Default)]
pub(super) struct Directory {
    visible: BTreeMap<String, u64>,
    durable: BTreeMap<String, u64>,
    pending: Vec<Change>,
}

impl Directory {
    pub(super) fn find(&self, name: &str) -> Option<u64> {
        self.visible.get(name).copied()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = (&String, &u64)> {
        self.visible.iter()
    }

    /// The files that have a name now or may have one after a crash.
    pub(super) fn all_files(&self) -> Vec<u64> {
        let mut files: Vec<u64> = self
            .visible
            .values()
            .chain(self.durable.values())
            .copied()
            .collect();
        for change in &self.pending {
            if let Change::Link(_, file) | Change::Rename(_, _, file) = change {
                files.push(*file);
            }
        }
        files
    }

    fn change(&mut self, change: Change) {
        apply(&mut self.visible, &change);
        self.pending.push(change);
    }

    pub(super) fn link(&mut self, name: &str, file: u64) {
        self.change(Change::Link(name.to_owned(), file));
    }

    pub(super) fn unlink(&mut self, name: &str) {
        self.change(Change::Unlink(name.to_owned()));
    }

    pub(super) fn rename(&mut self, from: &str, to: &str, file: u64) {
        self.change(Change::Rename(from.to_owned(), to.to_owned(), file));
    }

    pub(super) fn sync(&mut self) {
        self.durable.clone_from(&self.visible);
        self.pending.clear();
    }

    /// Power was lost: a part of the changes is found.
    pub(super) fn settle(&mut self, keeps: &mut Keeps<'_>) {
        for change in std::mem::take(&mut self.pending) {
            if keeps(&[()]) == 1 {
                apply(&mut self.durable, &change);
            }
        }
        self.visible.clone_from(&self.durable);
    }
}

fn apply(names: &mut BTreeMap<String, u64>, change: &Change) {
    match change {
        Change::Link(name, file) => {
            names.insert(name.clone(), *file);
        }
        Change::Unlink(name) => {
            names.remove(name);
        }
        Change::Rename(from, to, file) => {
            // Without the change that gave the file its old name, only the new one is found.
            if names.get(from) == Some(file) {
                names.remove(from);
            }
            names.insert(to.clone(), *file);
        }
    }
}
