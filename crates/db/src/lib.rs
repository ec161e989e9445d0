//! db
#![forbid(unsafe_code)]
