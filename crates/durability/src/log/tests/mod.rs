//! The log under power loss, failing calls, full disks, flipped bits and threads.
//!
//! `harness` writes numbered groups and says what recovery may find; the other modules choose what
//! goes wrong. Longer variants: `PANDO_CRASH_SEEDS` (seeds per crash point),
//! `PANDO_FLIP_STRIDE=1` (every byte).

mod basics;
mod canaries;
mod crashes;
mod damage;
mod faults;
mod filed;
mod harness;
mod threads;
