//! Bounds of a memnode.

/// Bytes of one slot, at most: offsets in it have 32 bits.
pub const SLOT_BYTES_MAX: usize = u32::MAX as usize;

/// Items of one minitransaction at one memnode, at most.
pub const ITEMS_MAX: usize = 1 << 16;

/// Participants of one minitransaction, at most.
pub const PARTICIPANTS_MAX: usize = 1 << 10;

/// Slots that one request may reserve.
pub const RESERVED_MAX: u32 = 1 << 10;

/// Slots that one request may look at, to list those in use.
pub const LISTED_MAX: u32 = 1 << 10;

/// What a memnode may hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Slots below this one are never allocated: they have fixed meanings. 0 to `slots_max`.
    pub slots_fixed: u64,
    /// Slots, at most. 1 and up.
    pub slots_max: u64,
    /// Reservations that are remembered. Past it the oldest is forgotten, and its slot may be
    /// handed out again; that costs one of the two a retry. 1 and up.
    pub reservations_max: usize,
    /// Minitransactions that may wait for locks. 0 and up.
    pub waiting_max: usize,
    /// Outcomes remembered for one coordinator: how far its numbers may be above what it settled.
    /// Requests beyond are dropped, as if they were lost. 1 and up.
    pub outcomes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            slots_fixed: 1 << 16,
            slots_max: 1 << 40,
            reservations_max: 1 << 16,
            waiting_max: 64,
            outcomes_max: 1 << 12,
        }
    }
}
