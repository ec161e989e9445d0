//! What the engine's user notes under a name: it comes back with the epoch in which it was written,
//! of which the pool says whether that happened.

use pando_pmem::{Memory, Pool};
use pando_sync::LogEpoch;

use super::{Cdds, OWN, place_of};
use crate::Error;

impl Cdds {
    /// What was noted under a name.
    pub fn note(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let state = self.write();
        let noted = state.tree.get(&place_of(OWN, name.as_bytes()))?;
        Ok(noted.map(<[u8]>::to_vec))
    }

    /// Forgets what was noted under a name, likewise. Needs no room.
    pub fn forget_note(&self, name: &str) -> Result<(), Error> {
        let mut state = self.write();
        state.tree.advance(self.clock.current())?;
        self.note_written();
        state.tree.remove(&place_of(OWN, name.as_bytes()))?;
        state.tree.fence();
        Ok(())
    }

    /// Notes something under a name, in the epoch of the clock: it comes back with what was written
    /// in it, or not at all.
    ///
    /// # Panics
    /// When the name has four bytes, as numbers of trees do.
    pub fn set_note(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        assert_ne!(name.len(), 4, "a name that is no number");
        let mut state = self.write();
        state.tree.advance(self.clock.current())?;
        self.note_written();
        let place = place_of(OWN, name.as_bytes());
        state.tree.put_in_reserve(&place, bytes)?;
        state.tree.fence();
        Ok(())
    }
}

/// The newest committed epoch that is not void.
pub(super) fn newest_seen(pool: &Pool<Memory>) -> LogEpoch {
    let voids = pool.voids().into_iter().rev();
    voids.fold(pool.committed(), |newest, void| {
        let is_void = void.first <= newest && newest <= void.last;
        if is_void {
            void.first.previous()
        } else {
            newest
        }
    })
}
