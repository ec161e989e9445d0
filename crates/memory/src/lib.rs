//! Memory: per-session pools on 2 MiB chunks, with accounting.

pub mod pool;
