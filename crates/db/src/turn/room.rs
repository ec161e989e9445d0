//! Room for a command that needs memory.

use pando_engine::Point;

use super::Turn;
use crate::eviction::evict;
use crate::limits;

impl Turn<'_> {
    /// Whether a command that needs memory may run: there is room, or keys could be evicted to make
    /// some. Bounded work (EV1); between its rounds the turn lets go of its gate and pin, so that
    /// what was evicted comes back.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        self.database.has_room() || self.make_room()
    }

    #[cold]
    fn make_room(&mut self) -> bool {
        let database = self.database;
        if !database.evicts() {
            return !database.is_out_of_memory();
        }
        for _ in 0..limits::EVICT_ROUNDS_MAX {
            self.hold_own();
            let evicted = evict(database, self.session);
            if !database.is_out_of_memory() {
                return true;
            }
            if evicted.exhausted {
                return false;
            }
            self.let_go();
            {
                let _gate = database.gates.enter(self.session.gate);
                self.session.store.maintain(limits::MAINTAIN_STEPS_MAX);
            }
            if evicted.keys == 0 {
                // Others may hold back what is on its way: they are pinned for a batch at most.
                std::thread::yield_now();
            }
            if !database.is_out_of_memory() {
                break;
            }
        }
        self.hold_own();
        !database.is_beyond_ceiling()
    }
}
