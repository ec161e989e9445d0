//! The server as its clients see it: hostile ones, ordinary ones, and whoever starts and stops it.

mod applications;
mod blocked;
mod bounds;
mod checks;
mod damaged;
mod datagrams;
mod dumps;
mod eviction;
mod full;
mod harness;
mod hash;
mod held;
mod joined;
mod kept;
mod lasting;
mod malformed;
mod memcached;
mod migration;
mod pooled;
mod process;
mod replicated;
mod replication;
mod requests;
mod snapshots;
mod trees;
mod waiting;
