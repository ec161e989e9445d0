//! memory
#![forbid(unsafe_code)]
