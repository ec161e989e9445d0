//! The pando binary.

#![forbid(unsafe_code)]

fn main() {}
