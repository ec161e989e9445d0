//! Dynamic transactions: what a program has read and will write, and what it still lacks.
//!
//! Follows §2.2 and §3. A program reads and writes slots; nothing reaches a memnode before the
//! commit, which compares what was read and writes what was written (`job`).
//!
//! Departs from the paper in how a program waits: it does not. What is not here is noted as wanted,
//! the run ends with [`Stop::Away`], all that was wanted is fetched in one wave, and the program
//! runs again from its start on what is here by then. So a program is a plain function, it must not
//! change anything but the transaction, and a wave serves as many reads as the program could name.
//!
//! | set | what it holds | over runs of an attempt |
//! |---|---|---|
//! | `reads` | slots whose sequences the commit compares | kept |
//! | `dirty`, `fresh` | slots of dirty reads: the cache may lose them before the next run | kept |
//! | `replicas` | replicated slots, compared by content at each participant | kept |
//! | `dirty_replicas` | replicated slots that are compared by nobody | kept |
//! | `writes`, `replica_writes` | what the commit writes | cleared |
//! | `held` | free slots; those up to `taken` are allocated | kept, `taken` cleared |
//!
//! A dirty read (§3) is compared only if its slot is written later: it is then moved to `reads`.
//!
//! An attempt that fails leaves the next one what it has read, less what is known to be stale
//! ([`Sets::begin_attempt`]).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use pando_memnode::{Address, Bytes, CoordinatorId, MemnodeId, Sequence, Slot, SlotState};

use crate::catalog::Directory;
use crate::error::{Error, Stop};
use crate::fault::{Fault, planted};
use crate::limits::{Config, TOUCHED_MAX};
use crate::lineage::Lineage;
use crate::live::Live;
use crate::page::PageEdit;
use crate::proxy::Proxy;

/// What a run lacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Want {
    /// A slot, to be compared at the commit.
    Read(Address),
    /// A slot, as it is at some time.
    Dirty(Address),
    /// A replicated slot, to be compared at the commit.
    Replica(Slot),
    /// A replicated slot, as it is at some time.
    DirtyReplica(Slot),
    /// Free slots.
    Free(MemnodeId),
    /// The slots in use, from this one.
    List(MemnodeId, Slot),
}

/// Slots in use at a memnode, with the headers of their pages.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) slots: Vec<(Slot, SlotState)>,
    pub(crate) next: Option<Slot>,
}

/// A sequence of an inner node, as every memnode has it.
pub(crate) fn encode_sequence(sequence: Sequence) -> Bytes {
    Bytes::from(sequence.0.to_le_bytes().as_slice())
}

/// When something was last known to be so: in this wave, at this memnode.
pub(crate) type Confirmed = (u32, MemnodeId);

#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) state: SlotState,
    pub(crate) confirmed: Option<Confirmed>,
}

#[derive(Clone, Debug)]
pub(crate) struct Replica {
    pub(crate) bytes: Bytes,
    pub(crate) confirmed: Option<Confirmed>,
}

/// What the commit does to a slot.
#[derive(Clone, Debug)]
pub(crate) enum Written {
    Page(PageEdit),
    /// A slot that holds no page.
    Bytes(Bytes),
    Free,
}

/// Something that the commit compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    Slot(Address),
    Replica(Slot),
}

/// What a transaction has read and written.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    pub(crate) reads: BTreeMap<Address, Read>,
    pub(crate) dirty: BTreeMap<Address, SlotState>,
    /// Those of `dirty` that memnodes gave since the attempt began.
    pub(crate) fresh: BTreeSet<Address>,
    pub(crate) replicas: BTreeMap<Slot, Replica>,
    pub(crate) dirty_replicas: BTreeMap<Slot, Bytes>,
    /// What is seen, as the last run found out from what the commit compares.
    pub(crate) live: Option<Arc<Live>>,
    pub(crate) writes: BTreeMap<Address, Written>,
    pub(crate) replica_writes: BTreeMap<Slot, Bytes>,
    pub(crate) wants: BTreeSet<Want>,
    pub(crate) lists: BTreeMap<(MemnodeId, Slot), Listed>,
    /// What was found not to be so any more.
    pub(crate) stale: Vec<Compared>,
    held: BTreeMap<MemnodeId, Vec<Address>>,
    taken: BTreeMap<MemnodeId, usize>,
}

impl Sets {
    /// Prepares for another run of the same attempt.
    pub(crate) fn begin_run(&mut self) {
        self.writes.clear();
        self.replica_writes.clear();
        self.wants.clear();
        self.stale.clear();
        self.taken.clear();
    }

    /// The attempt failed. What is known to be stale is forgotten, here and by the proxy, and the
    /// next attempt goes on with the rest: many that copy nodes below one parent after a snapshot
    /// overtake each other there alone, and what they have read of leaves stands. It is compared
    /// again by whatever commits. If nothing is known to be stale, or that has not helped, all that
    /// was read is forgotten.
    pub(crate) fn begin_attempt(&mut self, proxy: &mut Proxy, forgets_all: bool) {
        let stale = std::mem::take(&mut self.stale);
        if forgets_all || stale.is_empty() {
            let read = self
                .reads
                .iter()
                .map(|(address, read)| (address, &read.state));
            for (address, state) in read.chain(&self.dirty) {
                proxy.uncache_up_to(*address, state.sequence);
            }
            for slot in self.replicas.keys().chain(self.dirty_replicas.keys()) {
                proxy.forget_replica(*slot);
            }
            self.forget_all();
        }
        for stale in stale {
            match stale {
                Compared::Slot(address) => self.forget(proxy, address),
                Compared::Replica(slot) => {
                    proxy.forget_replica(slot);
                    self.replicas.remove(&slot);
                    self.dirty_replicas.remove(&slot);
                    let told = proxy.config.address_of_sequence(slot);
                    let read = self.dirty.keys().chain(self.reads.keys());
                    let is_told = |at: &&Address| told == Some((at.memnode, at.slot));
                    let told: Vec<_> = read.filter(is_told).copied().collect();
                    for at in told {
                        self.forget(proxy, at);
                    }
                }
            }
        }
        self.begin_run();
        self.fresh.clear();
        self.live = None;
        self.lists.clear();
    }

    pub(crate) fn forget_all(&mut self) {
        self.reads.clear();
        self.dirty.clear();
        self.replicas.clear();
        self.dirty_replicas.clear();
    }

    fn forget(&mut self, proxy: &mut Proxy, address: Address) {
        let read = self.reads.remove(&address).map(|read| read.state);
        match self.dirty.remove(&address).or(read) {
            Some(state) => proxy.uncache_up_to(address, state.sequence),
            None => proxy.uncache(address),
        }
    }

    /// The slots that the last run allocated.
    pub(crate) fn allocated(&self) -> impl Iterator<Item = Address> + '_ {
        let taken = |memnode| self.taken.get(memnode).copied().unwrap_or(0);
        let held = self.held.iter();
        held.flat_map(move |(memnode, held)| held[..taken(memnode)].iter().copied())
    }

    /// The transaction is over, or its allocation failed: hints that were used are spent, the
    /// others go back.
    pub(crate) fn spend_held(&mut self, proxy: &mut Proxy) {
        for (memnode, held) in std::mem::take(&mut self.held) {
            let taken = self.taken.get(&memnode).copied().unwrap_or(0);
            for address in held.into_iter().skip(taken).rev() {
                proxy.give_back(address);
            }
        }
        self.taken.clear();
    }

    /// All hints go back: none was used.
    pub(crate) fn return_held(&mut self, proxy: &mut Proxy) {
        self.taken.clear();
        self.spend_held(proxy);
    }

    /// Whether everything that was read was so at one moment, at one memnode, and no hint is to be
    /// compared.
    pub(crate) fn is_confirmed_at_once(&self) -> bool {
        if self.allocated().next().is_some() {
            return false;
        }
        let reads = self.reads.values().map(|read| read.confirmed);
        let mut all = reads.chain(self.replicas.values().map(|replica| replica.confirmed));
        let Some(first) = all.next() else {
            return true;
        };
        first.is_some() && all.all(|confirmed| confirmed == first)
    }

    /// Whether a slot is allocated by an old hint, and written under its present address.
    pub(crate) fn writes_one_slot_twice(&self) -> bool {
        let slots = self
            .writes
            .keys()
            .map(|address| (address.memnode, address.slot));
        slots
            .clone()
            .zip(slots.skip(1))
            .any(|(one, next)| one == next)
    }

    pub(crate) fn writes_nothing(&self) -> bool {
        self.writes.is_empty() && self.replica_writes.is_empty()
    }

    /// The sequences that inner nodes will have, which all memnodes are to learn
    /// ([`crate::InnerNodes`]).
    pub(crate) fn sequence_writes(&self, config: &Config) -> Result<Vec<(Slot, Bytes)>, Error> {
        if !config.compares_inner_nodes() {
            return Ok(Vec::new());
        }
        let is_inner = |(_, written): &(&Address, &Written)| match written {
            Written::Page(page) => page.page().is_inner(),
            Written::Bytes(_) | Written::Free => false,
        };
        let inner = self.writes.iter().filter(is_inner);
        let told = inner.map(|(address, _)| {
            let slot = config.sequence_slot(*address).ok_or(Error::Full)?;
            let read = self.reads.get(address);
            let before = read.map_or(address.generation, |read| read.state.sequence);
            Ok((slot, encode_sequence(Sequence(before.0 + 1))))
        });
        told.collect()
    }

    fn touched(&self) -> usize {
        self.reads.len() + self.dirty.len() + self.writes.len()
    }
}

/// A transaction, as its program sees it in one run.
#[derive(Debug)]
pub struct Transaction<'a> {
    proxy: &'a mut Proxy,
    sets: &'a mut Sets,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(proxy: &'a mut Proxy, sets: &'a mut Sets) -> Self {
        Self { proxy, sets }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.proxy.config
    }

    fn want<T>(&mut self, want: Want) -> Result<T, Stop> {
        if self.sets.touched() > TOUCHED_MAX {
            return Err(Error::TooLarge.into());
        }
        self.sets.wants.insert(want);
        Err(Stop::Away)
    }

    /// What this transaction made of a slot.
    fn written(&self, address: Address) -> Option<Result<Bytes, Stop>> {
        Some(match self.sets.writes.get(&address)? {
            Written::Page(page) => Ok(page.bytes().clone()),
            Written::Bytes(bytes) => Ok(bytes.clone()),
            // Nobody follows an address to what this transaction freed, unless it is confused.
            Written::Free => Err(Stop::Conflict),
        })
    }

    /// Reads a slot; the commit compares it.
    pub(crate) fn read(&mut self, address: Address) -> Result<Bytes, Stop> {
        if let Some(written) = self.written(address) {
            return written;
        }
        match self.sets.reads.get(&address) {
            Some(read) => Ok(read.state.bytes.clone()),
            None => self.want(Want::Read(address)),
        }
    }

    /// Reads a slot as it is at some time, possibly long ago.
    pub(crate) fn dirty_read(&mut self, address: Address) -> Result<Bytes, Stop> {
        if let Some(written) = self.written(address) {
            return written;
        }
        // Of what an earlier run freed unread (`free_unchanged`) there are no bytes.
        let read = self.sets.reads.get(&address);
        if let Some(read) = read.filter(|read| !read.state.bytes.is_empty()) {
            return Ok(read.state.bytes.clone());
        }
        if let Some(state) = self.sets.dirty.get(&address) {
            return Ok(state.bytes.clone());
        }
        let Some(state) = self.proxy.cached(address).cloned() else {
            return self.want(Want::Dirty(address));
        };
        let bytes = state.bytes.clone();
        self.sets.dirty.insert(address, state);
        Ok(bytes)
    }

    /// Reads an inner node on the way from a tip to a leaf: dirty, or compared at each participant
    /// by its sequence ([`crate::InnerNodes`]).
    pub(crate) fn path_read(&mut self, address: Address) -> Result<Bytes, Stop> {
        let bytes = self.dirty_read(address)?;
        if !self.config().compares_inner_nodes() {
            return Ok(bytes);
        }
        // No inner node is beyond those that there is room for: the way was wrong.
        let slot = self.config().sequence_slot(address).ok_or(Stop::Conflict)?;
        let sets = &mut *self.sets;
        let read = sets.reads.get(&address).map(|read| &read.state);
        // What this transaction has made was not read.
        if let Some(state) = read.or_else(|| sets.dirty.get(&address))
            && !planted(Fault::PathUnseen)
        {
            let replica = Replica {
                bytes: encode_sequence(state.sequence),
                confirmed: None,
            };
            sets.replicas.entry(slot).or_insert(replica);
        }
        Ok(bytes)
    }

    /// Reads a slot as it was at some time since the transaction began, whatever is cached.
    pub(crate) fn fresh_read(&mut self, address: Address) -> Result<Bytes, Stop> {
        if planted(Fault::DiffCached) || self.sets.fresh.contains(&address) {
            self.dirty_read(address)
        } else {
            self.want(Want::Dirty(address))
        }
    }

    /// The way by these nodes is wrong: one of them, or what led to the first, is stale.
    pub(crate) fn suspect(&mut self, nodes: impl Iterator<Item = Address>) {
        self.sets.stale.extend(nodes.map(Compared::Slot));
    }

    /// Keeps a node that was read dirty for other transactions.
    pub(crate) fn keep_cached(&mut self, address: Address) {
        if let Some(state) = self.sets.dirty.get(&address)
            && (self.proxy.cached(address)).is_none_or(|cached| cached.sequence < state.sequence)
        {
            self.proxy.cache(address, state.clone());
        }
    }

    /// Makes what was read dirty something that the commit compares.
    fn compare_later(&mut self, address: Address) {
        let sets = &mut *self.sets;
        if !sets.reads.contains_key(&address) {
            let state = sets
                .dirty
                .remove(&address)
                .or_else(|| self.proxy.cached(address).cloned());
            let state = state.expect("what is written was read");
            sets.reads.insert(
                address,
                Read {
                    state,
                    confirmed: None,
                },
            );
        }
    }

    /// Takes a page to change it; `put_page` gives it back.
    pub(crate) fn take_page(&mut self, address: Address, page: crate::page::Page) -> PageEdit {
        match self.sets.writes.remove(&address) {
            Some(Written::Page(edit)) => edit,
            Some(Written::Bytes(_)) => unreachable!("a page is no other slot"),
            Some(Written::Free) => unreachable!("a freed page is not read"),
            None => {
                self.compare_later(address);
                PageEdit::of(page)
            }
        }
    }

    /// The page of an address that this transaction has read.
    pub(crate) fn page_that_was_read(&self, address: Address) -> Option<crate::page::Page> {
        let sets = &self.sets;
        if let Some(written) = sets.writes.get(&address) {
            return match written {
                Written::Page(edit) => Some(edit.page().clone()),
                Written::Bytes(_) | Written::Free => None,
            };
        }
        let read = sets.reads.get(&address).map(|read| &read.state);
        let state = read.or_else(|| sets.dirty.get(&address))?;
        crate::page::header(&state.bytes)
    }

    /// Writes a page that was taken, or allocated.
    pub(crate) fn put_page(&mut self, address: Address, page: PageEdit) {
        self.sets.writes.insert(address, Written::Page(page));
    }

    /// Writes a slot that holds no page. It must have been read.
    pub(crate) fn write_bytes(&mut self, address: Address, bytes: Bytes) {
        debug_assert!(
            self.sets.reads.contains_key(&address),
            "what is written was read"
        );
        self.sets.writes.insert(address, Written::Bytes(bytes));
    }

    /// Writes a slot that was allocated and will hold no page.
    pub(crate) fn put_bytes(&mut self, address: Address, bytes: Bytes) {
        debug_assert!(self.is_allocated(address));
        self.sets.writes.insert(address, Written::Bytes(bytes));
    }

    /// Frees a slot that was written once, when it was allocated.
    pub(crate) fn free_unchanged(&mut self, address: Address) {
        if self.is_allocated(address) {
            self.sets.writes.remove(&address);
            return;
        }
        let state = SlotState {
            sequence: Sequence(address.generation.0 + 1),
            bytes: Bytes::default(),
        };
        self.free_listed(address, state);
    }

    /// The slots in use at a memnode among some from `from`, each as it is at some time.
    pub(crate) fn list(&mut self, memnode: MemnodeId, from: Slot) -> Result<Listed, Stop> {
        match self.sets.lists.get(&(memnode, from)) {
            Some(listed) => Ok(listed.clone()),
            None => self.want(Want::List(memnode, from)),
        }
    }

    /// Frees a slot that was listed, if it is still in that state.
    pub(crate) fn free_listed(&mut self, address: Address, state: SlotState) {
        let confirmed = None;
        self.sets.reads.insert(address, Read { state, confirmed });
        self.sets.writes.insert(address, Written::Free);
    }

    /// Frees a slot that was read or allocated.
    pub(crate) fn free(&mut self, address: Address) {
        if self.is_allocated(address) {
            self.sets.writes.remove(&address);
            return;
        }
        if !self.sets.writes.contains_key(&address) {
            self.compare_later(address);
        }
        self.sets.writes.insert(address, Written::Free);
    }

    fn is_allocated(&self, address: Address) -> bool {
        self.sets.allocated().any(|allocated| allocated == address)
    }

    /// The memnode where a coordinator has its own affairs.
    pub(crate) fn home(&self, coordinator: CoordinatorId) -> MemnodeId {
        let memnodes = u32::from(self.proxy.config.memnodes);
        MemnodeId((coordinator.host() % memnodes) as u16)
    }

    /// A memnode for something new.
    pub(crate) fn place(&mut self) -> MemnodeId {
        self.proxy.place()
    }

    /// Allocates a slot at a memnode.
    pub(crate) fn allocate(&mut self, memnode: MemnodeId) -> Result<Address, Stop> {
        let sets = &mut *self.sets;
        let taken = sets.taken.get(&memnode).copied().unwrap_or(0);
        let held = sets.held.entry(memnode).or_default();
        // A memnode that restarted hands out again what it had handed out before. So a hint may be
        // held already, or be the address of what was read here. The commit would fail; but until
        // then one address must not mean two things.
        let is_read = |address: &Address| {
            sets.reads.contains_key(address) || sets.dirty.contains_key(address)
        };
        while held.get(taken).is_some_and(is_read) {
            held.remove(taken);
        }
        while held.len() == taken {
            match self.proxy.take_free(memnode) {
                Some(address) if held.contains(&address) || is_read(&address) => {}
                Some(address) => held.push(address),
                None => return self.want(Want::Free(memnode)),
            }
        }
        let address = held[taken];
        self.sets.taken.insert(memnode, taken + 1);
        Ok(address)
    }

    /// Reads a replicated slot; each participant of the commit compares it. Empty if it is free.
    pub(crate) fn replica(&mut self, slot: Slot) -> Result<Bytes, Stop> {
        if let Some(bytes) = self.sets.replica_writes.get(&slot) {
            return Ok(bytes.clone());
        }
        if let Some(replica) = self.sets.replicas.get(&slot) {
            return Ok(replica.bytes.clone());
        }
        let dirty = self.sets.dirty_replicas.get(&slot);
        let Some(bytes) = dirty.or_else(|| self.proxy.replica(slot)).cloned() else {
            return self.want(Want::Replica(slot));
        };
        let replica = Replica {
            bytes: bytes.clone(),
            confirmed: None,
        };
        self.sets.replicas.insert(slot, replica);
        Ok(bytes)
    }

    /// Reads a replicated slot as it is at some time, possibly long ago.
    pub(crate) fn dirty_replica(&mut self, slot: Slot) -> Result<Bytes, Stop> {
        if let Some(bytes) = self.sets.replica_writes.get(&slot) {
            return Ok(bytes.clone());
        }
        if let Some(replica) = self.sets.replicas.get(&slot) {
            return Ok(replica.bytes.clone());
        }
        if let Some(bytes) = self.sets.dirty_replicas.get(&slot) {
            return Ok(bytes.clone());
        }
        let Some(bytes) = self.proxy.replica(slot).cloned() else {
            return self.want(Want::DirtyReplica(slot));
        };
        self.sets.dirty_replicas.insert(slot, bytes.clone());
        Ok(bytes)
    }

    /// The root of the catalog taken apart, if these are the bytes that the proxy did so with last.
    pub(crate) fn known_directory(&self, bytes: &Bytes) -> Option<Arc<Directory>> {
        let (of, directory) = self.proxy.directory.as_ref()?;
        of.is_same(bytes).then(|| directory.clone())
    }

    pub(crate) fn know_directory(&mut self, of: Bytes, directory: Directory) -> Arc<Directory> {
        let directory = Arc::new(directory);
        self.proxy.directory = Some((of, directory.clone()));
        directory
    }

    /// The lineage of the first line.
    pub(crate) fn first_lineage(&self) -> Arc<Lineage> {
        self.proxy.first_lineage.clone()
    }

    pub(crate) fn known_lineage(&self, line: u32) -> Option<Arc<Lineage>> {
        self.proxy.lineages.get(&line).cloned()
    }

    /// Remembers how a line came to be, which never changes; but a line that this transaction
    /// begins may never be.
    pub(crate) fn know_lineage(&mut self, line: u32, lineage: Lineage) -> Arc<Lineage> {
        let lineage = Arc::new(lineage);
        if self.sets.replica_writes.is_empty() {
            self.proxy.know_lineage(line, lineage.clone());
        }
        lineage
    }

    /// What the proxy knows to be seen, if it was found out from the same.
    pub(crate) fn known_live(&self) -> Option<Arc<Live>> {
        self.sets.live.clone().or_else(|| self.proxy.live.clone())
    }

    /// Remembers what is seen, if the transaction commits.
    pub(crate) fn know_live(&mut self, live: &Arc<Live>) {
        self.sets.live = Some(live.clone());
    }

    /// The nodes that this round of the collection leaves, as far as it has found out.
    pub(crate) fn needed(&mut self) -> &mut HashSet<Address> {
        &mut self.proxy.needed
    }

    /// Writes a replicated slot, at all memnodes. It must have been read.
    pub(crate) fn write_replica(&mut self, slot: Slot, bytes: Bytes) {
        debug_assert!(
            self.sets.replicas.contains_key(&slot),
            "what is written was read"
        );
        self.sets.replica_writes.insert(slot, bytes);
    }
}
