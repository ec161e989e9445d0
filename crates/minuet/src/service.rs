//! The snapshot service: who wants a snapshot, and which snapshot they may share.
//!
//! Follows §4.3 and Figure 7. Snapshots are made one at a time. A request may borrow one that
//! others asked for, if its making began after the request came: the snapshot then shows a moment
//! within the request, and strict serializability stands. It may also take an older one, up to the
//! staleness that it allows.
//!
//! Departs from Figure 7, where threads wait for a mutex and compare a counter of snapshots: here
//! nothing waits. Requests that come while one is made are served by the next, all at once. The
//! host runs [`crate::create_snapshot`] when it is told to, and brings the times.

use crate::snapshot::View;

/// Requests of type `R` for snapshots; see the module's header.
#[derive(Clone, Debug)]
pub struct SnapshotService<R> {
    /// Served by the snapshot that is being made.
    serving: Vec<R>,
    /// They came since its making began.
    waiting: Vec<R>,
    /// When the making of the one under way began.
    making: Option<u64>,
    /// The last one, and when its making began.
    last: Option<(u64, View)>,
}

impl<R> Default for SnapshotService<R> {
    fn default() -> Self {
        Self {
            serving: Vec::new(),
            waiting: Vec::new(),
            making: None,
            last: None,
        }
    }
}

impl<R> SnapshotService<R> {
    /// A request comes at the time `now`. It gets a snapshot at once if one is at most `staleness`
    /// old; 0 asks for the present, and is never served so. Otherwise it waits.
    pub fn request(&mut self, request: R, now: u64, staleness: u64) -> Option<(R, View)> {
        match self.last {
            Some((began, view)) if now.saturating_sub(began) < staleness => Some((request, view)),
            _ => {
                self.waiting.push(request);
                None
            }
        }
    }

    /// Whether the host is to make a snapshot now. It then tells `made` of its end.
    pub fn begin(&mut self, now: u64) -> bool {
        if self.making.is_some() || self.waiting.is_empty() {
            return false;
        }
        self.making = Some(now);
        self.serving = std::mem::take(&mut self.waiting);
        true
    }

    /// The snapshot is made, or failed: whom it serves. After a failure they are to be told so.
    pub fn made(&mut self, view: Option<View>) -> Vec<R> {
        let began = self.making.take().expect("a snapshot that is being made");
        if let Some(view) = view {
            self.last = Some((began, view));
        }
        std::mem::take(&mut self.serving)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SnapshotId;

    fn view(snapshot: u64) -> View {
        View {
            snapshot: SnapshotId(snapshot),
            root: pando_memnode::Address::default(),
            kind: crate::snapshot::Kind::Snapshot,
        }
    }

    #[test]
    fn nobody_borrows_a_snapshot_that_began_before_the_request() {
        let mut service = SnapshotService::default();
        assert!(!service.begin(0));
        assert_eq!(service.request('a', 1, 0), None);
        assert!(service.begin(1));
        // These come while the first is made: they share the next.
        assert_eq!(service.request('b', 2, 0), None);
        assert_eq!(service.request('c', 3, 0), None);
        assert!(!service.begin(3));
        assert_eq!(service.made(Some(view(1))), ['a']);
        assert!(service.begin(4));
        assert_eq!(service.made(None), ['b', 'c']);
    }

    #[test]
    fn who_allows_staleness_gets_the_last_one() {
        let mut service = SnapshotService::default();
        service.request('a', 10, 5);
        assert!(service.begin(10));
        service.made(Some(view(1)));
        assert_eq!(service.request('b', 14, 5), Some(('b', view(1))));
        assert_eq!(service.request('c', 15, 5), None);
        assert_eq!(service.request('d', 10, 0), None);
    }
}
