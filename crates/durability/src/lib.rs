//! Everything that Pando keeps on disk: the disk itself, the log, checkpoints. Bytes and log epochs
//! only.
//!
//! | module | what it is |
//! |---|---|
//! | `disk` | the disk behind a trait: the real one, and a simulated one that fails as disks do |
//! | `log` | what sessions write, durable in epoch order, and what recovery finds of it |
//! | `checkpoint` | part files of entries, and the manifest that makes them count |
//! | `limits` | bounds |
//!
//! Deliberately absent: trees, keys, values, commands; the writer of a record defines its meaning.

#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod disk;
pub mod limits;
pub mod log;
