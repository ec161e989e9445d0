//! The faults that tests plant; empty outside tests.

pando_chassis::canary! {
    /// A writer that has waited for a bucket does not check *hasmoved* (HR2 marked-when-moved).
    IgnoreMoved,
    /// A reader does not check *hasmoved* (HB3 control-first).
    ReadWithoutCheck,
    /// A replaced entry is reclaimed at once (VB1 immutable-block).
    FreeEarly,
    /// A walk steps by plain addition instead of from the highest bit of the mask down
    /// (HW1 step-shows-range).
    PlainCursor,
    /// A walk shows a bucket that has moved from where it was (HW2 moved-from-next).
    WalkWithoutMoved,
    /// A bucket is marked as moved before its entries are in the next table
    /// (HR2 marked-when-moved).
    MarkEarly,
    /// A table is freed at once when it ceases to be current (HR4 old-table-outlives-pins).
    FreeTableEarly,
    /// Slots of a smaller table get other growth bits than their keys' (HR5 shared-locks).
    WrongGrowthBits,
}
