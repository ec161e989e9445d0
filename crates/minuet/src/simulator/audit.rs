//! Looks at all slots of all memnodes, past every protocol, when nothing is under way: is each
//! version a tree, and is every slot in use part of one?

use std::collections::BTreeMap;

use pando_memnode::{Address, Bytes, Memnode, Slot};

use crate::page::Page;
use crate::retention::{self, KEPT, Kept};
use crate::snapshot::{FIXED_SLOTS, TIP, View};
use crate::tree::DATA;

/// What is wrong.
pub(crate) type Finding = String;

/// Every entry of a version, by its key as pages have it.
pub(crate) type Contents = BTreeMap<Vec<u8>, (u64, Vec<u8>)>;

struct Walk<'m> {
    memnodes: &'m [Memnode],
    view: View,
    reached: Vec<Address>,
    contents: Contents,
}

impl Walk<'_> {
    fn node(
        &mut self,
        address: Address,
        height: Option<u8>,
        low: &[u8],
        high: Option<&[u8]>,
    ) -> Result<(), Finding> {
        let memnode = self.memnodes.get(usize::from(address.memnode.0));
        let state = memnode
            .ok_or_else(|| format!("{address:?}: no memnode"))?
            .slot(address.slot);
        let page = Page::parse(&state.bytes, address, DATA)
            .ok_or_else(|| format!("{address:?} is no page of its address"))?;
        if height.is_some_and(|height| page.height() != height) {
            return Err(format!(
                "{address:?}: height {}, not {height:?}",
                page.height()
            ));
        }
        if page.low() != low || page.high() != high {
            return Err(format!("{address:?}: fences do not nest (MB1)"));
        }
        if !self.view.contains(&page) {
            return Err(format!("{address:?} is not of {:?}", self.view.snapshot()));
        }
        self.reached.push(address);
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
                self.contents.insert(key.clone(), (version, value.to_vec()));
            }
        }
        Ok(())
    }
}

/// What a version holds, and the nodes that it consists of.
pub(crate) fn walk(memnodes: &[Memnode], view: View) -> Result<(Contents, Vec<Address>), Finding> {
    let (reached, contents) = (Vec::new(), Contents::new());
    let mut walk = Walk {
        memnodes,
        view,
        reached,
        contents,
    };
    walk.node(view.root, None, &[], None)?;
    Ok((walk.contents, walk.reached))
}

/// What a replicated slot holds, which must be the same on every memnode.
fn replicated(memnodes: &[Memnode], slot: Slot) -> Result<Bytes, Finding> {
    let held = |memnode: &Memnode| memnode.slot(slot).bytes;
    let first = held(&memnodes[0]);
    let same = memnodes.iter().all(|memnode| held(memnode) == first);
    same.then_some(first)
        .ok_or_else(|| format!("{slot:?} differs between memnodes"))
}

/// The tip.
pub(crate) fn tip(memnodes: &[Memnode]) -> Result<View, Finding> {
    let tip = View::decode(&replicated(memnodes, TIP)?);
    tip.ok_or_else(|| "there is no tip".to_owned())
}

/// The snapshots that are kept.
pub(crate) fn kept(memnodes: &[Memnode]) -> Result<Vec<Kept>, Finding> {
    Ok(retention::decode(&replicated(memnodes, KEPT)?))
}

/// Whether the versions `views` are sound, and no slot is in use that none of them has. Returns
/// what they hold.
pub(crate) fn audit(
    memnodes: &[Memnode],
    views: &[View],
    leaks_nothing: bool,
) -> Result<Vec<Contents>, Finding> {
    let mut all = Vec::new();
    let mut contents = Vec::new();
    for view in views {
        let (held, reached) = walk(memnodes, *view)?;
        contents.push(held);
        all.extend(reached);
    }
    all.sort_unstable();
    all.dedup();
    let used: usize = memnodes
        .iter()
        .map(|memnode| {
            let pages = memnode
                .used_slots()
                .filter(|(slot, _)| slot.0 >= FIXED_SLOTS);
            pages.count()
        })
        .sum();
    let expected = all.len();
    if leaks_nothing && used != expected {
        return Err(format!(
            "{used} slots are in use, and {expected} are reachable"
        ));
    }
    Ok(contents)
}
