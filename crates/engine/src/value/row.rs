//! Small hashes: all fields and values in one block.

/// A small hash in its stored form.
#[derive(Debug)]
pub struct PackedRow(pub(super) Vec<u8>);

impl PackedRow {
    /// The stored form.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
