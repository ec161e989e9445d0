//! Large hashes.
use std::collections::BTreeMap;

/// A large hash.
#[derive(Debug)]
pub struct WideRow(pub(super) BTreeMap<Vec<u8>, Vec<u8>>);
