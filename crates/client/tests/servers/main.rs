//! Clients of real servers, and of ones that fail in every way.

#[cfg(feature = "async")]
mod asynchronous;
mod failing;
mod harness;
mod moving;
mod sharing;
