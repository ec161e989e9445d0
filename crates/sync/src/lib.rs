//! Synchronisation: gates, padding and (with the engines) epochs and version locks.
//!
//! Deliberately absent: anything that knows keys, values or protocols.

mod gate;
mod padded;

pub use gate::{AllGates, GateGuard, Gates};
pub use padded::Padded;
