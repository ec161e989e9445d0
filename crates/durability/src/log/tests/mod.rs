//! The log under power loss, failing calls, full disks, flipped bits and threads.
//!
//! `harness` writes numbered groups and says what recovery may find; the other modules choose what
//! goes wrong. Longer variants: `PANDO_CRASH_SEEDS` (seeds per crash point).

mod basics;
mod crashes;
mod harness;
