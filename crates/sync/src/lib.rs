//! sync
#![forbid(unsafe_code)]
