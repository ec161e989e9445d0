//! Synchronisation: gates, padding, version locks, epochs of memory and of the log, waiting lines,
//! and other tools that engines share: directories of trees, prefetching, searches of whole lines,
//! word tags, units of time.
//!
//! ```
//! use pando_sync::Gates;
//!
//! // Each session enters its own gate; whoever enters all of them is alone.
//! let gates = Gates::new(2);
//! gates.open(0);
//! let inside = gates.enter(0);
//! assert!(gates.try_enter_all_free().is_none());
//! drop(inside);
//! assert!(gates.try_enter_all_free().is_some());
//! ```
//!
//! Deliberately absent: anything that knows keys, values or protocols.

mod directory;
pub mod epoch;
mod gate;
mod gated;
pub mod lanes;
mod limbo;
mod lock;
mod log_epoch;
mod padded;
pub mod prefetch;
pub mod sharing;
pub mod shim;
mod striped;
pub mod tags;
mod time;
pub mod version_lock;
mod waiting;

pub use directory::Directory;
pub use gate::{AllGates, GateGuard, Gates};
pub use gated::{Alone, Entrance, Gated, Inside};
pub use lock::lock;
pub use log_epoch::LogEpoch;
pub use padded::Padded;
pub use striped::Striped;
pub use time::{Microseconds, Milliseconds};
pub use waiting::{Ticket, WaitingLines};
