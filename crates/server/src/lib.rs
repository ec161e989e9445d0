//! The `pando` server: configuration, workers, connections, administration.

#![forbid(unsafe_code)]

mod admin;
pub mod config;
mod histogram;
mod host;
mod latency;
pub mod limits;
mod monitor;
mod recorder;
mod registry;
mod sampler;
mod settings;
mod shared;
mod slowlog;
mod statistics;

pub use config::{Config, ConfigError};
pub use host::{SliceTrace, WorkerHost};
pub use recorder::WorkerRecorder;
pub use registry::{
    BufferSizes, ClientFlag, ClientNames, ClientOrigin, ClientRecord, Registry, WorkerMailbox,
};
pub use settings::Settings;
pub use shared::{Listening, Shared};
pub use statistics::{CommandIndex, Counter, Statistics, WorkerStatistics};
