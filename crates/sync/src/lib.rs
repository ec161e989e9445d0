//! Synchronisation: gates, padding, version locks and epochs.
//!
//! Deliberately absent: anything that knows keys, values or protocols.

pub mod epoch;
mod gate;
mod padded;
pub mod shim;
pub mod version_lock;

pub use gate::{AllGates, GateGuard, Gates};
pub use padded::Padded;
