//! The reference engine: `BTreeMap`s behind one lock. Provisional: one lock for all trees, no bounds.
use crate::{
    Attributes, Body, CommitHook, Decision, Direction, Engine, EpochClock, Gauge, Key, Ordered,
    Point, Probe, SessionLimit, TreeId, ValueRef, ValueVersion,
};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Mutex};

#[derive(Debug)]
struct Slot {
    version: ValueVersion,
    value: Option<(Attributes, Body<'static>)>,
}
impl Slot {
    fn view(&self) -> Option<ValueRef<'_>> {
        self.value.as_ref().map(|(a, b)| ValueRef {
            version: self.version,
            attributes: *a,
            body: b.as_ref(),
        })
    }
}
type Tree = BTreeMap<Vec<u8>, Slot>;
/// See the module.
#[derive(Debug)]
pub struct ReferenceEngine {
    clock: Arc<EpochClock>,
    trees: Mutex<BTreeMap<TreeId, Tree>>,
    next: std::sync::atomic::AtomicU32,
}
/// See the module.
#[derive(Debug)]
pub struct ReferenceSession(Arc<ReferenceEngine>);
impl Engine for ReferenceEngine {
    type Session = ReferenceSession;
    const NAME: &'static str = "reference";
    fn new(clock: Arc<EpochClock>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            trees: Mutex::default(),
            next: 0.into(),
        })
    }
    fn session(self: &Arc<Self>) -> Result<ReferenceSession, SessionLimit> {
        Ok(ReferenceSession(Arc::clone(self)))
    }
    fn create_tree(&self) -> TreeId {
        let id = TreeId(self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        self.trees.lock().unwrap().insert(id, Tree::new());
        id
    }
    fn drop_tree(&self, tree: TreeId) {
        self.trees.lock().unwrap().remove(&tree);
    }
    fn len(&self, tree: TreeId) -> u64 {
        self.trees.lock().unwrap().get(&tree).map_or(0, |t| {
            t.values().filter(|s| s.value.is_some()).count() as u64
        })
    }
    fn gauges(&self, _: &mut dyn FnMut(Gauge)) {}
}
impl Point for ReferenceSession {
    fn pin(&mut self) {}
    fn unpin(&mut self) {}
    fn get<R>(&mut self, key: Key<'_>, read: impl FnOnce(Option<ValueRef<'_>>) -> R) -> R {
        let t = self.0.trees.lock().unwrap();
        read(
            t.get(&key.tree)
                .and_then(|t| t.get(key.bytes))
                .and_then(Slot::view),
        )
    }
    fn warm(&mut self, _: &[Key<'_>]) {}
    fn probe(&mut self, key: Key<'_>) -> Probe {
        let t = self.0.trees.lock().unwrap();
        match t.get(&key.tree).and_then(|t| t.get(key.bytes)) {
            None => Probe::Absent,
            Some(s) => match s.view() {
                None => Probe::Removed(s.version),
                Some(v) => Probe::Present {
                    version: v.version,
                    deadline: v.attributes.deadline,
                },
            },
        }
    }
    fn update<'d, H: CommitHook>(
        &mut self,
        key: Key<'_>,
        hook: &mut H,
        mut decide: impl FnMut(Option<ValueRef<'_>>) -> Decision<'d>,
    ) -> Option<ValueVersion> {
        let mut t = self.0.trees.lock().unwrap();
        let t = t.get_mut(&key.tree)?;
        let old = t.get(key.bytes);
        let view = old.and_then(Slot::view);
        let value = match decide(view) {
            Decision::Keep => return None,
            Decision::Remove => {
                view?;
                None
            }
            Decision::Write(v) => Some((
                v.attributes,
                match v.body {
                    Body::Bytes(b) => Body::Owned(b.to_vec()),
                    Body::Owned(b) => Body::Owned(b),
                    Body::Chunked(c) => Body::Chunked(c),
                    Body::Packed(c) => Body::Packed(c),
                    Body::Wide(c) => Body::Wide(c),
                },
            )),
        };
        let version = ValueVersion::after(old.map(|s| s.version), self.0.clock.current());
        let slot = Slot { version, value };
        hook.committed(key, view, slot.view(), version);
        t.insert(key.bytes.to_vec(), slot);
        Some(version)
    }
    fn sample<R>(
        &mut self,
        tree: TreeId,
        random: u64,
        read: impl FnOnce(Option<(&[u8], ValueRef<'_>)>) -> R,
    ) -> R {
        let t = self.0.trees.lock().unwrap();
        let Some(t) = t.get(&tree) else {
            return read(None);
        };
        let live: Vec<_> = t
            .iter()
            .filter_map(|(k, s)| s.view().map(|v| (k, v)))
            .collect();
        if live.is_empty() {
            return read(None);
        }
        let (k, v) = live[random as usize % live.len()];
        read(Some((k, v)))
    }
    fn maintain(&mut self, _: usize) -> usize {
        let h = self.0.clock.horizon();
        for t in self.0.trees.lock().unwrap().values_mut() {
            t.retain(|_, s| s.value.is_some() || s.version.epoch() >= h);
        }
        0
    }
}
impl Ordered for ReferenceSession {
    fn scan(
        &mut self,
        tree: TreeId,
        from: Bound<&[u8]>,
        direction: Direction,
        mut visit: impl FnMut(&[u8], ValueRef<'_>) -> ControlFlow<()>,
    ) {
        let t = self.0.trees.lock().unwrap();
        let Some(t) = t.get(&tree) else { return };
        match direction {
            Direction::Forward => {
                for (k, s) in t.range::<[u8], _>((from, Bound::Unbounded)) {
                    if let Some(v) = s.view()
                        && visit(k, v).is_break()
                    {
                        return;
                    }
                }
            }
            Direction::Backward => {
                for (k, s) in t.range::<[u8], _>((Bound::Unbounded, from)).rev() {
                    if let Some(v) = s.view()
                        && visit(k, v).is_break()
                    {
                        return;
                    }
                }
            }
        }
    }
}
