//! Looks at all slots of all memnodes, past every protocol, when nothing is under way: is each
//! version a tree, and is every slot in use part of one that can be seen?

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use pando_memnode::{Address, Bytes, Memnode, Slot};

use crate::branch::{BranchId, decode_entry};
use crate::catalog::{self, Leaf};
use crate::limits::{Config, DESCENDANTS_MAX};
use crate::line::{LINES, Line, decode_fork};
use crate::lineage::{Ancestry, Lineage};
use crate::page::{self, Page};
use crate::retention::{self, KEPT, Kept};
use crate::simulator::script::{LARGE, decode_large, large_body};
use crate::snapshot::{FIXED_SLOTS, Kind, SnapshotId, TIP, View};
use crate::transaction::encode_sequence;
use crate::tree::{DATA, Route, route};

/// What is wrong.
pub(crate) type Finding = String;

/// Every entry of a version, by its key as pages have it.
pub(crate) type Contents = BTreeMap<Vec<u8>, (u64, Vec<u8>)>;

/// What a version holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    pub(crate) contents: Contents,
    /// Where each leaf begins, and its floor.
    pub(crate) floors: BTreeMap<Vec<u8>, u64>,
}

impl Held {
    /// The floor of the leaf that is responsible for a key, as pages have it.
    pub(crate) fn floor(&self, key: &[u8]) -> u64 {
        let upto = (Bound::Unbounded, Bound::Included(key));
        let leaf = self.floors.range::<[u8], _>(upto).next_back();
        *leaf.expect("a leaf for each key").1
    }
}

/// Where lines begin.
pub(crate) type Lines = BTreeMap<u32, Line>;

/// How a version came to be.
pub(crate) fn ancestry(lines: &Lines, version: SnapshotId) -> Result<Ancestry, Finding> {
    let mut above = Vec::new();
    let mut line = version.line();
    while line > 0 {
        let record = lines.get(&line);
        let record = record.ok_or_else(|| format!("{version:?}: there is no line {line} (MV1)"))?;
        above.insert(0, record.parent);
        line = record.parent.line();
    }
    let descendants_max = 0;
    let lineage = Arc::new(Lineage {
        above,
        descendants_max,
    });
    Ok(Ancestry { version, lineage })
}

struct Walk<'m> {
    memnodes: &'m [Memnode],
    ancestry: Ancestry,
    reached: Vec<Address>,
    held: Held,
}

impl Walk<'_> {
    fn page(&self, address: Address) -> Result<Page, Finding> {
        let memnode = self.memnodes.get(usize::from(address.memnode.0));
        let state = memnode
            .ok_or_else(|| format!("{address:?}: no memnode"))?
            .slot(address.slot);
        Page::parse(&state.bytes, address, DATA)
            .ok_or_else(|| format!("{address:?} is no page of its address"))
    }

    /// Where the version has the node that a parent points to.
    fn arrive(&mut self, entry: Address) -> Result<(Address, Page), Finding> {
        let (mut address, mut at) = (entry, None);
        loop {
            let page = self.page(address)?;
            self.reached.push(address);
            // By the notes one after the other; a note of a later copy must lead to the same.
            let copied = page.copies().find(|copied| self.ancestry.has(copied.at));
            let Some(copied) = copied else {
                let by_route = self.route_from(entry)?;
                if route(&page, &self.ancestry) != Route::Here || by_route != address {
                    let version = self.ancestry.version;
                    return Err(format!("{address:?} is not of {version:?} ({at:?})"));
                }
                return Ok((address, page));
            };
            at = Some(copied.at);
            let (slot, generation) = copied.to.ok_or_else(|| {
                let version = self.ancestry.version;
                format!("{address:?} was copied above {version:?}, which leads there (MF2)")
            })?;
            address = Address {
                slot,
                generation,
                ..address
            };
        }
    }

    /// A large value of an entry: its head is the version's, and its body is what was written.
    fn large(&mut self, entry: &[u8]) -> Result<(), Finding> {
        let (head, number) = decode_large(entry);
        let (address, page) = self.arrive(head)?;
        let body = page
            .body()
            .ok_or_else(|| format!("{address:?} is no head"))?;
        let memnode = &self.memnodes[usize::from(body.memnode.0)];
        if memnode.slot(body.slot).bytes != large_body(number) {
            return Err(format!("{body:?} is not what {address:?} is of"));
        }
        self.reached.push(body);
        Ok(())
    }

    fn route_from(&self, entry: Address) -> Result<Address, Finding> {
        let mut address = entry;
        while let Route::There(copied) = route(&self.page(address)?, &self.ancestry) {
            let (slot, generation) = copied.to.expect("a copy to go to");
            address = Address {
                slot,
                generation,
                ..address
            };
        }
        Ok(address)
    }

    fn node(
        &mut self,
        entry: Address,
        height: Option<u8>,
        low: &[u8],
        high: Option<&[u8]>,
    ) -> Result<(), Finding> {
        let (address, page) = self.arrive(entry)?;
        if height.is_some_and(|height| page.height() != height) {
            return Err(format!(
                "{address:?}: height {}, not {height:?}",
                page.height()
            ));
        }
        if page.low() != low || page.high() != high {
            return Err(format!("{address:?}: fences do not nest (MB1)"));
        }
        if page.is_root() != height.is_none() {
            return Err(format!("{address:?} is a root below another"));
        }
        let keys: Vec<_> = (0..page.count()).map(|index| page.key(index)).collect();
        let sorted = keys.windows(2).all(|pair| pair[0] < pair[1]);
        if !sorted || !keys.iter().all(|key| page.covers(key)) {
            return Err(format!("{address:?}: keys are out of order or range"));
        }
        for (index, key) in keys.iter().enumerate() {
            if page.height() > 0 {
                let next = keys.get(index + 1).map(Vec::as_slice).or(high);
                self.node(page.child(index), Some(page.height() - 1), key, next)?;
            } else {
                let (version, value) = page.entry(index);
                if key.starts_with(&LARGE.0.to_be_bytes()) {
                    self.large(value)?;
                }
                let entry = (version, value.to_vec());
                self.held.contents.insert(key.clone(), entry);
            }
        }
        if page.height() == 0 {
            self.held.floors.insert(low.to_vec(), page.floor());
        }
        Ok(())
    }
}

/// What a version holds, and the nodes that it consists of, or that lead to them.
pub(crate) fn walk(
    memnodes: &[Memnode],
    lines: &Lines,
    view: View,
) -> Result<(Held, Vec<Address>), Finding> {
    let mut walk = Walk {
        memnodes,
        ancestry: ancestry(lines, view.snapshot)?,
        reached: Vec::new(),
        held: Held::default(),
    };
    walk.node(view.root, None, &[], None)?;
    Ok((walk.held, walk.reached))
}

/// What a replicated slot holds, which must be the same on every memnode.
fn replicated(memnodes: &[Memnode], slot: Slot) -> Result<Bytes, Finding> {
    let held = |memnode: &Memnode| memnode.slot(slot).bytes;
    let first = held(&memnodes[0]);
    let same = memnodes.iter().all(|memnode| held(memnode) == first);
    same.then_some(first)
        .ok_or_else(|| format!("{slot:?} differs between memnodes"))
}

/// The tip of the first branch.
pub(crate) fn tip(memnodes: &[Memnode]) -> Result<View, Finding> {
    let tip = View::decode(&replicated(memnodes, TIP)?, Kind::Tip(BranchId::FIRST));
    tip.ok_or_else(|| "there is no tip".to_owned())
}

/// The snapshots that are kept.
pub(crate) fn kept(memnodes: &[Memnode]) -> Result<Vec<Kept>, Finding> {
    Ok(retention::decode(&replicated(memnodes, KEPT)?))
}

/// What the catalog says.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    pub(crate) lines: Lines,
    pub(crate) tips: BTreeMap<BranchId, View>,
    /// Snapshots, and where on their forks the next branches will be.
    forks: BTreeMap<SnapshotId, SnapshotId>,
}

/// Reads the catalog, whose leaves must cover all keys (MK1 leaves-cover).
pub(crate) fn catalog(memnodes: &[Memnode]) -> Result<Catalog, Finding> {
    let mut leaves = BTreeMap::new();
    for slot in (catalog::HEAD.0 + 1..FIXED_SLOTS).map(Slot) {
        if let Some(leaf) = Leaf::decode(&replicated(memnodes, slot)?) {
            leaves.insert(leaf.low.clone(), leaf);
        }
    }
    let (mut catalog, mut low) = (Catalog::default(), Some(Vec::new()));
    for leaf in leaves.values() {
        if low.as_ref() != Some(&leaf.low) {
            return Err(format!(
                "a leaf of the catalog begins at {:?} (MK1)",
                leaf.low
            ));
        }
        low.clone_from(&leaf.high);
        for (key, value) in &leaf.entries {
            if let Some((line, record)) = decode_line(key, value) {
                catalog.lines.insert(line, record);
            }
            catalog.forks.extend(decode_fork(key, value));
            if let Some(tip) = decode_entry(key, value) {
                let branch = tip.branch().expect("a tip's view");
                catalog.tips.insert(branch, tip);
            }
        }
    }
    if let Some(first) = catalog.tips.get_mut(&BranchId::FIRST) {
        *first = tip(memnodes)?;
    }
    low.map_or(Ok(catalog), |low| {
        Err(format!("the catalog ends at {low:?} (MK1)"))
    })
}

/// The line of an entry of the catalog, if it is a line's.
pub(crate) fn decode_line(key: &[u8], value: &[u8]) -> Option<(u32, Line)> {
    let line = key.strip_prefix(LINES)?.try_into().ok()?;
    Some((u32::from_be_bytes(line), Line::decode(value)?))
}

/// Where each two of `views` part, as far as that is none of them: found from each pair by itself.
fn partings(lines: &Lines, views: &[View]) -> Result<Vec<View>, Finding> {
    let ways: Result<Vec<_>, _> = views
        .iter()
        .map(|view| ancestry(lines, view.snapshot))
        .collect();
    let ways = ways?;
    let is_view = |at| views.iter().any(|view| view.snapshot == at);
    let mut found = BTreeMap::new();
    for (index, one) in ways.iter().enumerate() {
        for other in &ways[index + 1..] {
            let at = one.common(other);
            let left = [one, other].into_iter().find_map(|way| way.left_at(at));
            let at = match lines.get(&at.line()) {
                Some(fork) if fork.is_fork => fork.parent,
                _ => at,
            };
            if !is_view(at) {
                let line = lines[&left.ok_or("a version parts from itself")?];
                let view = View {
                    snapshot: at,
                    root: line.root,
                    kind: Kind::Parting,
                };
                found.insert(at, view);
            }
        }
    }
    Ok(found.into_values().collect())
}

/// Whether a page's descendant set is as it must be (MF1 copies-are-bounded).
pub(crate) fn is_bounded(page: &Page, lines: &Lines, first_max: u8) -> Result<(), Finding> {
    let line = page.created().line();
    let max = match lines.get(&line) {
        Some(line) => line.descendants_max,
        None if line == 0 => first_max,
        // The line is gone; its pages go.
        None => DESCENDANTS_MAX,
    };
    let copies: Vec<_> = page.copies().map(|copied| copied.at).collect();
    let apart = |at: &SnapshotId| {
        // What is gone may stay in a set.
        let Ok(way) = ancestry(lines, *at) else {
            return true;
        };
        let above = copies.iter().filter(|other| way.has(**other)).count();
        way.has(page.created()) && *at != page.created() && above == 1
    };
    if copies.len() > usize::from(max) || !copies.iter().all(apart) {
        return Err(format!(
            "{copies:?} of a page made at {:?} (MF1)",
            page.created()
        ));
    }
    Ok(())
}

/// Whether every memnode has an inner node's sequence, where these are compared.
fn is_told(memnodes: &[Memnode], config: &Config, address: Address) -> Result<(), Finding> {
    let state = memnodes[usize::from(address.memnode.0)].slot(address.slot);
    let is_inner = page::header(&state.bytes).is_some_and(|page| page.is_inner());
    if !is_inner || !config.compares_inner_nodes() {
        return Ok(());
    }
    let slot = config.sequence_slot(address);
    let told = replicated(memnodes, slot.ok_or("an inner node without a sequence")?)?;
    if told == encode_sequence(state.sequence) {
        Ok(())
    } else {
        Err(format!(
            "{address:?} is at {:?}, not {told:?}",
            state.sequence
        ))
    }
}

/// Whether all versions that are seen are sound, and no slot is in use that none of them has.
/// Returns what they hold: the kept snapshots, the tips, and where these part.
pub(crate) fn audit(
    memnodes: &[Memnode],
    config: &Config,
    leaks_nothing: bool,
) -> Result<BTreeMap<SnapshotId, Held>, Finding> {
    let catalog = catalog(memnodes)?;
    let kept = kept(memnodes)?.into_iter().map(|kept| kept.view);
    let kept: Vec<_> = kept.collect();
    let tips = catalog.tips.values().copied();
    let mut views: Vec<_> = kept.iter().copied().chain(tips).collect();
    views.extend(partings(&catalog.lines, &views)?);
    // From a snapshot that is kept, another branch may be made.
    views.extend(kept.into_iter().filter_map(|view| {
        let snapshot = *catalog.forks.get(&view.snapshot)?;
        Some(View { snapshot, ..view })
    }));
    let mut all = BTreeSet::new();
    let mut all_held = BTreeMap::new();
    for view in views {
        let (held, reached) = walk(memnodes, &catalog.lines, view)?;
        all_held.insert(view.snapshot, held);
        all.extend(reached);
    }
    let used = memnodes.iter().flat_map(Memnode::used_slots);
    let used = used.filter(|(slot, _)| slot.0 >= config.slots_fixed());
    let mut count = 0;
    for (_, seen) in used {
        count += 1;
        if let Some(page) = page::header(&seen.state().bytes) {
            is_bounded(&page, &catalog.lines, config.descendants_max)?;
        }
    }
    for address in &all {
        is_told(memnodes, config, *address)?;
    }
    let expected = all.len();
    if leaks_nothing && count != expected {
        return Err(format!(
            "{count} slots are in use, and {expected} are reachable"
        ));
    }
    Ok(all_held)
}
