//! Persistent memory: a pool of bytes that outlives the process, or the machine, and is changed in
//! place.
//!
//! Follows Venkataraman et al., "Consistent and Durable Data Structures for Non-Volatile
//! Byte-Addressable Memory" (FAST 2011), §3.1: stores reach memory line by line in any order, until
//! they are flushed and a fence has passed. [`Pmem`] is that contract; a backend says which failure
//! its bytes outlive. [`Simulated`] is memory whose every crash can be tried.
//!
//! ```
//! use pando_pmem::{Offset, Pmem, Simulated};
//!
//! let memory = Simulated::new(4096);
//! let at = Offset::new(64);
//! memory.write(at, b"durable");
//! memory.flush(at, 7);
//! memory.commit(Offset::new(8), 1).unwrap();
//! assert_eq!(memory.load(Offset::new(8)), 1);
//! ```
//!
//! Deliberately absent: trees, values, versions of keys. What the bytes mean is the engine's.

mod allocator;
pub mod checksum;
mod contract;
mod error;
mod filed;
pub mod fuzz;
pub mod limits;
mod mapped;
mod memory;
mod offset;
mod pool;
mod region;
mod simulated;

pub use allocator::{Allocator, BlockState, Purpose, Side, Tally};
pub use contract::{LINE_BYTES, Mark, Pmem, WORD_BYTES, Wear, WordGroup, Words, Writes};
pub use error::{Full, PoolError};
pub use filed::Filed;
pub use mapped::{Flush, Mapped, Medium, Protection};
pub use memory::Memory;
pub use offset::Offset;
#[cfg(feature = "simulated-memory")]
pub use pando_durability::disk::{Fault as DiskFault, SimulatedDisk};
pub use pool::{FORMAT, Pool, Shape, VoidRange, check_size, epoch_bits, sealed, unsealed};
pub use simulated::{Choice, Crash, Image, MarkCount, Platform, Sampling, Simulated, Trace};
