//! Several sessions on one database: what they see of each other's commands.
//!
//! | file | what holds |
//! |---|---|
//! | `transactions.rs`, `watch.rs` | MULTI, EXEC and WATCH, step by step |
//! | `expiry.rs` | keys go when they are due; the index names exactly those with a deadline |
//! | `gates.rs` | commands on several keys are seen whole |
//! | `linearizability.rs` | commands on one key take effect one after the other |
//! | `slices.rs` | long commands keep their promise beside writers |
//! | `pause.rs` | CLIENT PAUSE holds back what it should |
//!
//! Step-by-step tests are scripts (`script.rs`); the others draw their operations from a seed,
//! which they print. Time is the test's own, and maintenance runs when the test says so: nothing
//! waits for a thread that it has not started.

mod connection;
mod expiry;
mod gates;
mod history;
mod linearizability;
mod pause;
mod script;
mod slices;
mod transactions;
mod unordered;
mod watch;
