//! Counts what path copying copies; in tests only.

/// Counts one shared node or chunk of `bytes` bytes that was copied.
#[inline]
pub(super) fn copied(bytes: usize) {
    #[cfg(test)]
    counters::add(bytes);
    #[cfg(not(test))]
    let _ = bytes;
}

#[cfg(test)]
pub(super) use counters::{Cost, of};

#[cfg(test)]
mod counters {
    use std::cell::Cell;

    /// What was copied.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(in crate::value) struct Cost {
        pub(in crate::value) nodes: usize,
        pub(in crate::value) bytes: usize,
    }

    thread_local! {
        static COST: Cell<Cost> = const { Cell::new(Cost { nodes: 0, bytes: 0 }) };
    }

    pub(super) fn add(bytes: usize) {
        let cost = COST.get();
        COST.set(Cost {
            nodes: cost.nodes + 1,
            bytes: cost.bytes + bytes,
        });
    }

    /// What `run` copied on this thread.
    pub(in crate::value) fn of<R>(run: impl FnOnce() -> R) -> (R, Cost) {
        COST.set(Cost::default());
        let result = run();
        (result, COST.get())
    }
}
