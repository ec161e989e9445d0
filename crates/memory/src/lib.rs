//! Memory: how much the process uses, and per-session pools on 2 MiB chunks.
//!
//! [`Counting`] wraps a global allocator and counts the bytes that pass through it. The server
//! compares [`used_bytes`] with its `maxmemory` on every write, so reading costs one load, and
//! allocating writes no cache line that another thread uses. [`count_elsewhere`] counts memory from
//! other sources. [`Heap`] returns free memory of the allocator to the system.
//!
//! ```
//! use pando_memory::{Counting, used_bytes};
//!
//! #[global_allocator]
//! static ALLOCATOR: Counting<std::alloc::System> = Counting::new(std::alloc::System);
//!
//! let before = used_bytes();
//! let large = vec![0_u8; 1 << 20];
//! assert!(used_bytes() >= before + (1 << 20));
//! # drop(large);
//! ```

mod counting;
mod heap;
pub mod pool;
mod shared;
mod zeroed;

pub use counting::{
    Counting, THREAD_BYTES_MAX, count_elsewhere, peak_bytes, reset_peak, used_bytes,
};
pub use heap::Heap;
pub use shared::SharedBytes;
pub use zeroed::Zeroed;
