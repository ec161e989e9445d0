//! One attempt to bring up a database: a checkpoint, or none, and the log on top of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use pando_durability::checkpoint::{self, Chunk, Manifest};
use pando_engine::{LogEpoch, TreeId};

use super::grove::{Planting, read_chunk, refused};
use super::load::Loader;
use super::recover::{Candidate, RecoveryError};
use super::replay::{Restorer, Trees, replay};
use crate::durable::Recovery;
use crate::durable::catalog::Forest;
use crate::durable::options::{DurabilityOptions, Stage};
use crate::expiry::ExpiryIndex;
use crate::grove::Grove;
use crate::store::Store;

/// One attempt to bring up a database, in its own engine.
pub(super) struct Attempt<'a> {
    pub(super) store: Store,
    pub(super) expiry: ExpiryIndex,
    pub(super) durability: &'a DurabilityOptions,
    pub(super) files: &'a checkpoint::Directories,
}

impl Attempt<'_> {
    /// Brings it up from a candidate.
    pub(super) fn run(
        &self,
        candidate: &Candidate,
        databases: usize,
        recovery: &mut Recovery,
    ) -> Result<Trees, RecoveryError> {
        let mut trees = Trees::new(Grove::new(&self.store));
        let mut fuzzy_until = LogEpoch::NONE;
        let started = std::time::Instant::now();
        if let Some((manifest, about)) = &candidate.manifest {
            trees.map(&self.store, about.changes, about.trees.clone());
            trees.stand(about.standing.clone());
            fuzzy_until = manifest.end;
            trees.grove.checkpoint = manifest.start;
            self.load_all(manifest, about.forest.as_ref(), &mut trees)?;
            recovery.checkpoint = Some(manifest.start);
            recovery.checkpoint_wall_ms = Some(manifest.wall_ms);
            recovery.loaded = manifest.entries();
            recovery.loaded_bytes = manifest.bytes();
        }
        recovery.load_us = started.elapsed().as_micros() as u64;
        let started = std::time::Instant::now();
        let replayed = replay(
            &self.store,
            &self.expiry,
            self.durability,
            &candidate.cut,
            fuzzy_until,
            &mut trees,
        )?;
        recovery.replayed = replayed;
        recovery.replayed_bytes = candidate.cut.bytes();
        recovery.replay_us = started.elapsed().as_micros() as u64;
        trees.settle(&self.store, &self.expiry, databases);
        Ok(trees)
    }

    /// Loads a checkpoint, with its branches and snapshots.
    fn load_all(
        &self,
        manifest: &Manifest,
        forest: Option<&Forest>,
        trees: &mut Trees,
    ) -> Result<(), RecoveryError> {
        let of_tree = |chunk: &Chunk| {
            let tree = TreeId(chunk.tree);
            self.store.restore_tree(tree);
            Ok(Some(tree))
        };
        let Some(forest) = forest else {
            return self.load(manifest, of_tree);
        };
        if forest.nodes.is_empty() {
            trees.grove.take_alone(forest);
            return self.load(manifest, of_tree);
        }
        let engine = self.store.branching().map(Arc::clone);
        let engine = engine.ok_or(RecoveryError::Branches)?;
        let planting = Planting::new(forest.clone(), engine, trees.mapped());
        let mut planting = planting.map_err(refused)?;
        self.load(manifest, |chunk| planting.of_root(chunk).map_err(refused))?;
        let mut loader = Loader::new(Restorer::new(&self.store, &self.expiry)?);
        let on_disk = (&*self.durability.disk, self.files);
        let mut chunks = planting.chunks(manifest);
        while let Some(node) = planting.node() {
            for (base, chunk) in chunks.remove(&node).unwrap_or_default() {
                let tree = planting.tree(base);
                read_chunk(on_disk, &mut loader, manifest, chunk, tree)?;
            }
            planting.go_on().map_err(refused)?;
        }
        let (forest, grown) = planting.finish().map_err(refused)?;
        trees.grove.take(&forest, grown);
        Ok(())
    }

    /// Loads chunks into the trees that `tree` says; they are spread over threads that take another
    /// when they are done.
    fn load(
        &self,
        manifest: &Manifest,
        tree: impl Fn(&Chunk) -> Result<Option<TreeId>, RecoveryError> + Sync,
    ) -> Result<(), RecoveryError> {
        let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
        let threads = self.durability.recovery_threads;
        let threads = threads.clamp(1, manifest.chunks.len().max(1));
        let work = || -> Result<(), RecoveryError> {
            let mut loader = Loader::new(Restorer::new(&self.store, &self.expiry)?);
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(chunk) = manifest.chunks.get(index) else {
                    return Ok(());
                };
                if let Some(tree) = tree(chunk)? {
                    let on_disk = (&*self.durability.disk, self.files);
                    read_chunk(on_disk, &mut loader, manifest, chunk, tree)?;
                }
                let done = done.fetch_add(chunk.bytes, Ordering::Relaxed) + chunk.bytes;
                self.durability.tell(Stage::Load, done, manifest.bytes());
            }
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mut result = work();
            for other in others {
                let ended = other.join().expect("a loading thread does not panic");
                result = result.and(ended);
            }
            result
        })
    }
}
