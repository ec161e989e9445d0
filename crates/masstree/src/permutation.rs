//! The permutation word of a border node (§4.6.2): key order and key count in one atomic word.
//!
//! | bits | field |
//! |---|---|
//! | 0–3 | count of live keys, 0 to 15 |
//! | 4+4i … 7+4i | the slot of the i-th key in order; from `count` on, the free slots |
//!
//! Invariants:
//! - **MP1** The fifteen slot fields are always a permutation of 0 to 14.
//! - **MP2** In a node of width w the first w fields are a permutation of 0 to w − 1, since a free
//!   slot is always taken from position `count` < w.

/// Most keys that a permutation orders.
pub(crate) const SLOTS_MAX: usize = 15;

const FIELD_BITS: u32 = 4;
const FIELD_MASK: u64 = 0xf;

/// A value of the permutation word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permutation(u64);

impl Permutation {
    /// No keys; the free slots in ascending order.
    pub(crate) const EMPTY: Self = Self(0xedcb_a987_6543_2100);

    /// The first `count` slots in ascending order.
    pub(crate) const fn ascending(count: usize) -> Self {
        Self(Self::EMPTY.0 | count as u64)
    }

    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) const fn to_bits(self) -> u64 {
        self.0
    }

    /// Live keys.
    #[inline]
    pub(crate) const fn count(self) -> usize {
        (self.0 & FIELD_MASK) as usize
    }

    /// The slot at `position`; live below [`Self::count`], free from there on.
    #[inline]
    pub(crate) const fn slot(self, position: usize) -> usize {
        (self.0 >> Self::shift(position) & FIELD_MASK) as usize
    }

    /// The live slots in order.
    #[inline]
    pub(crate) fn slots(self) -> impl Iterator<Item = usize> {
        let mut fields = self.0;
        (0..self.count()).map(move |_| {
            let slot = (fields >> FIELD_BITS & FIELD_MASK) as usize;
            // Rotated, not shifted, so that an entry's offset is one mask away from the word.
            fields = fields.rotate_right(FIELD_BITS);
            slot
        })
    }

    /// The position of `slot`: live below [`Self::count`], free from there on.
    #[inline]
    pub(crate) const fn position_of(self, slot: usize) -> usize {
        const ONES: u64 = 0x1111_1111_1111_1111;
        debug_assert!(slot < SLOTS_MAX);
        let fields = (self.0 >> FIELD_BITS) ^ (slot as u64 * ONES);
        // The highest bit of each field that is zero, and perhaps of fields above the first such.
        let zeros = fields.wrapping_sub(ONES) & !fields & ONES << (FIELD_BITS - 1);
        (zeros.trailing_zeros() / FIELD_BITS) as usize
    }

    /// Whether there is one key, in slot 0.
    #[inline]
    pub(crate) const fn lists_slot_0_only(self) -> bool {
        self.0 & (FIELD_MASK << FIELD_BITS | FIELD_MASK) == 1
    }

    /// Moves the first free slot to `position`, adding a key. Also returns that slot.
    #[inline]
    pub(crate) const fn insert(self, position: usize) -> (Self, usize) {
        debug_assert!(position <= self.count() && self.count() < SLOTS_MAX);
        let slot = self.slot(self.count());
        let without = self.cut(self.count());
        (Self(without.paste(position, slot).0 + 1), slot)
    }

    /// Makes the slot at `position` the first free one, removing a key.
    #[inline]
    pub(crate) const fn remove(self, position: usize) -> Self {
        debug_assert!(position < self.count());
        let slot = self.slot(position);
        let last = self.count() - 1;
        Self(self.cut(position).paste(last, slot).0 - 1)
    }

    /// Keeps the first `count` keys in order and frees the others.
    pub(crate) const fn truncate(self, count: usize) -> Self {
        debug_assert!(count <= self.count());
        Self(self.0 & !FIELD_MASK | count as u64)
    }

    const fn shift(position: usize) -> u32 {
        FIELD_BITS + FIELD_BITS * position as u32
    }

    /// Takes out the field at `position`; those after it move down, and the last one becomes 0.
    const fn cut(self, position: usize) -> Self {
        let below = (1 << Self::shift(position)) - 1;
        Self(self.0 & below | self.0 >> FIELD_BITS & !below)
    }

    /// Inserts `slot` at `position`; those from it on move up.
    const fn paste(self, position: usize, slot: usize) -> Self {
        let shift = Self::shift(position);
        let below = (1 << shift) - 1;
        let above = self.0 & !below;
        Self(self.0 & below | (slot as u64) << shift | above << FIELD_BITS)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn check(permutation: Permutation, order: &[usize]) {
        assert_eq!(permutation.count(), order.len());
        let slots: Vec<_> = (0..SLOTS_MAX).map(|i| permutation.slot(i)).collect();
        assert_eq!(&slots[..order.len()], order);
        for (position, slot) in slots.iter().enumerate() {
            assert_eq!(permutation.position_of(*slot), position);
        }
        let mut sorted = slots;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..SLOTS_MAX).collect::<Vec<_>>(), "MP1");
    }

    #[test]
    fn random_inserts_and_removes_keep_a_permutation() {
        for seed in 0..64 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut permutation, mut order) = (Permutation::EMPTY, Vec::new());
            for _ in 0..200 {
                if order.len() < SLOTS_MAX && (order.is_empty() || random.bool()) {
                    let position = random.usize(..=order.len());
                    let (next, slot) = permutation.insert(position);
                    assert!(
                        !order.contains(&slot),
                        "seed {seed}: a live slot was given out"
                    );
                    order.insert(position, slot);
                    permutation = next;
                } else {
                    let position = random.usize(..order.len());
                    permutation = permutation.remove(position);
                    let slot = order.remove(position);
                    assert_eq!(permutation.slot(order.len()), slot, "reused first");
                }
                check(permutation, &order);
            }
        }
    }

    #[test]
    fn a_narrow_node_stays_within_its_slots() {
        let mut permutation = Permutation::EMPTY;
        for position in [0, 0, 1, 2] {
            let (next, slot) = permutation.insert(position);
            assert!(slot < 4, "MP2");
            permutation = next;
        }
        let (again, slot) = permutation.remove(2).insert(0);
        assert!(slot < 4 && again.count() == 4, "MP2");
        check(
            Permutation::ascending(15).truncate(7),
            &[0, 1, 2, 3, 4, 5, 6],
        );
    }
}
