//! The `pando` server: configuration, workers, connections, administration.

#![forbid(unsafe_code)]

mod acceptor;
mod admin;
mod banner;
pub mod config;
mod histogram;
mod host;
mod invocation;
mod keeper;
mod latency;
pub mod limits;
mod logging;
mod manager;
mod metrics;
mod migration;
mod monitor;
mod offline;
mod peer;
mod pid_file;
mod placings;
mod process;
mod progress;
mod protection;
mod recorder;
mod registry;
mod replication;
mod reshard;
mod running;
mod sampler;
mod server;
mod settings;
mod shared;
mod shedding;
mod signals;
mod slowlog;
mod statistics;
#[cfg(test)]
mod testing;
mod worker;

pub use banner::{banner, sync_cost};
pub use config::{Config, ConfigError};
pub use host::{SliceTrace, WorkerHost};
pub use invocation::Invocation;
pub use logging::LogControl;
pub use manager::ServiceManager;
pub use metrics::Metrics;
pub use offline::{Offline, OfflineError};
pub use pid_file::PidFile;
pub use protection::exposure;
pub use recorder::WorkerRecorder;
pub use registry::{
    BufferSizes, ClientFlag, ClientNames, ClientOrigin, ClientRecord, Registry, WireProtocol,
    WorkerMailbox,
};
pub use reshard::{Reshard, ReshardError};
pub use running::{Running, RunningError};
pub use server::{Server, StartError};
pub use settings::Settings;
pub use shared::{Listening, Shared};
pub use signals::StopSignals;
pub use statistics::{CommandIndex, Counter, Statistics, WorkerStatistics};
