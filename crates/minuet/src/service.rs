//! The snapshot service: who wants a snapshot, and which snapshot they may share.
//!
//! Follows §4.3 and Figure 7. Snapshots of a branch are made one at a time. A request may borrow
//! one that others asked for, if its making began after the request came: the snapshot then shows a
//! moment within the request, and strict serializability stands. It may also take an older one, up
//! to the staleness that it allows. Branches have snapshots of their own, so nothing is borrowed
//! for a new branch, which is written.
//!
//! Departs from Figure 7, where threads wait for a mutex and compare a counter of snapshots: here
//! nothing waits. Requests that come while one is made are served by the next, all at once. The
//! host runs [`crate::create_snapshot_of`] when it is told to, and brings the times. A host whose
//! requests come before they are asked for says after how many makings each came
//! ([`SnapshotService::begun`]), as the counter of Figure 7 does.
//!
//! - **MW1 within-the-request** Who allows no staleness gets a snapshot whose making began after
//!   its request came.

use std::collections::BTreeMap;

use crate::branch::BranchId;
use crate::fault::{Fault, planted};
use crate::snapshot::View;

/// Requests of type `R` for snapshots, which are shown as a `V`; see the module's header.
#[derive(Clone, Debug)]
pub struct SnapshotService<R, V = View> {
    branches: BTreeMap<BranchId, Of<R, V>>,
    /// How many makings have begun, of all branches.
    begun: u64,
}

/// The requests for snapshots of one branch.
#[derive(Clone, Debug)]
struct Of<R, V> {
    /// Served by the snapshot that is being made.
    serving: Vec<R>,
    /// They came since its making began.
    waiting: Vec<R>,
    /// The making that is under way.
    making: Option<Making>,
    /// The last one, and its making.
    last: Option<(Making, V)>,
}

/// When the making of a snapshot began.
#[derive(Clone, Copy, Debug)]
struct Making {
    /// Among all makings, from 1.
    number: u64,
    /// By the host's clock.
    began: u64,
}

/// How recent a snapshot is to be.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// How many makings had begun when the request came ([`SnapshotService::begun`]).
    pub came: u64,
    /// What time it is.
    pub now: u64,
    /// How old a snapshot may be; 0 asks for the present.
    pub staleness: u64,
}

impl Wanted {
    /// Whether a snapshot will do (MW1 within-the-request). A clock that was set back tells no age.
    fn takes(&self, made: Making) -> bool {
        let age = self.now.checked_sub(made.began);
        let is_later = made.number > self.came || planted(Fault::BorrowLast);
        is_later || age.is_some_and(|age| age < self.staleness)
    }
}

impl<R, V> Default for SnapshotService<R, V> {
    fn default() -> Self {
        Self {
            branches: BTreeMap::new(),
            begun: 0,
        }
    }
}

impl<R, V> Default for Of<R, V> {
    fn default() -> Self {
        Self {
            serving: Vec::new(),
            waiting: Vec::new(),
            making: None,
            last: None,
        }
    }
}

impl<R, V: Copy + PartialEq> SnapshotService<R, V> {
    /// How many makings have begun.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// A snapshot of the branch that may be borrowed at once, if there is one.
    pub fn lend(&self, branch: BranchId, wanted: Wanted) -> Option<V> {
        let last = self.branches.get(&branch)?.last;
        let last = last.filter(|(made, _)| wanted.takes(*made));
        last.map(|(_, view)| view)
    }

    /// A request comes. It gets a snapshot at once if one may be borrowed; otherwise it waits.
    pub fn request(&mut self, branch: BranchId, request: R, wanted: Wanted) -> Option<(R, V)> {
        if let Some(view) = self.lend(branch, wanted) {
            return Some((request, view));
        }
        let of = self.branches.entry(branch).or_default();
        if planted(Fault::BorrowEarly) && of.making.is_some() {
            of.serving.push(request);
        } else {
            of.waiting.push(request);
        }
        None
    }

    /// Whether the host is to make a snapshot of the branch now. It then tells `made` of its end.
    pub fn begin(&mut self, branch: BranchId, now: u64) -> bool {
        let Some(of) = self.branches.get_mut(&branch) else {
            return false;
        };
        if of.making.is_some() || of.waiting.is_empty() {
            return false;
        }
        self.begun += 1;
        of.making = Some(Making {
            number: self.begun,
            began: now,
        });
        of.serving = std::mem::take(&mut of.waiting);
        true
    }

    /// The snapshot is made, or failed: whom it serves. After a failure they are to be told so.
    pub fn made(&mut self, branch: BranchId, view: Option<V>) -> Vec<R> {
        let of = self.branches.get_mut(&branch).expect("it was begun");
        let made = of.making.take().expect("a snapshot that is being made");
        if let Some(view) = view {
            of.last = Some((made, view));
        }
        std::mem::take(&mut of.serving)
    }

    /// A snapshot that goes is not lent any more.
    pub fn forget(&mut self, view: &V) {
        self.branches.retain(|_, of| {
            of.last.take_if(|(_, last)| last == view);
            of.last.is_some() || of.making.is_some() || !of.waiting.is_empty()
        });
    }

    /// Whether the last snapshot of a branch, which `view` is, may be lent to whoever allows this
    /// staleness and comes now.
    pub fn may_lend(&self, view: &V, now: u64, staleness: u64) -> bool {
        let wanted = Wanted {
            came: self.begun,
            now,
            staleness,
        };
        let mut all = self.branches.values();
        all.any(|of| matches!(&of.last, Some((made, last)) if last == view && wanted.takes(*made)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: BranchId = BranchId::FIRST;

    fn wanted(came: u64, now: u64, staleness: u64) -> Wanted {
        Wanted {
            came,
            now,
            staleness,
        }
    }

    #[test]
    fn nobody_borrows_a_snapshot_that_began_before_the_request() {
        let mut service = SnapshotService::default();
        assert!(!service.begin(FIRST, 0));
        assert_eq!(service.request(FIRST, 'a', wanted(0, 1, 0)), None);
        assert!(service.begin(FIRST, 1));
        // These come while the first is made: they share the next.
        assert_eq!(service.request(FIRST, 'b', wanted(1, 2, 0)), None);
        assert_eq!(service.request(FIRST, 'c', wanted(1, 3, 0)), None);
        assert!(!service.begin(FIRST, 3));
        assert_eq!(service.made(FIRST, Some(1)), ['a']);
        assert!(service.begin(FIRST, 4));
        assert_eq!(service.made(FIRST, None), ['b', 'c']);
    }

    #[test]
    fn who_came_before_a_making_borrows_what_it_made() {
        let mut service = SnapshotService::default();
        let came = service.begun();
        assert_eq!(service.request(FIRST, 'a', wanted(came, 1, 0)), None);
        assert!(service.begin(FIRST, 1));
        assert_eq!(service.made(FIRST, Some(7)), ['a']);
        assert_eq!(service.lend(FIRST, wanted(came, 1, 0)), Some(7));
        assert_eq!(service.lend(FIRST, wanted(service.begun(), 1, 0)), None);
    }

    #[test]
    fn who_allows_staleness_gets_the_last_one() {
        let mut service = SnapshotService::default();
        service.request(FIRST, 'a', wanted(0, 10, 5));
        assert!(service.begin(FIRST, 10));
        service.made(FIRST, Some(1));
        let mut ask = |now, staleness| {
            let served = service.request(FIRST, 'b', wanted(1, now, staleness));
            served.map(|(_, view)| view)
        };
        assert_eq!(ask(14, 5), Some(1));
        assert_eq!(ask(15, 5), None);
        assert_eq!(ask(10, 0), None);
        assert_eq!(ask(9, 5), None, "the clock was set back");
    }

    #[test]
    fn branches_have_snapshots_of_their_own() {
        let (mut service, other) = (SnapshotService::default(), BranchId(3));
        service.request(FIRST, 'a', wanted(0, 1, 0));
        service.request(other, 'b', wanted(0, 1, 0));
        assert!(service.begin(FIRST, 1) && service.begin(other, 1));
        assert_eq!(service.made(other, Some(2)), ['b']);
        assert_eq!(service.made(FIRST, Some(1)), ['a']);
        assert_eq!(service.lend(other, wanted(0, 1, 0)), Some(2));
        assert!(service.may_lend(&1, 2, 5) && !service.may_lend(&1, 6, 5));
        service.forget(&1);
        assert_eq!(service.lend(FIRST, wanted(0, 1, 0)), None);
    }
}
