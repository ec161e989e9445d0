//! What `Attributes::encoding` remembers of a value's history, for OBJECT ENCODING and HSCAN.
//!
//! Redis never converts a value back, so its present form alone does not tell the encoding. 0 says
//! that it does.

/// A hash that Redis would have converted from a listpack.
pub(crate) const HASHTABLE: u8 = 2;

/// Redis' `hash-max-listpack-entries`: with more fields a hash is converted.
pub(crate) const LISTPACK_ENTRIES_MAX: usize = 512;

/// Redis' `hash-max-listpack-value`: with a longer name or value, in bytes, a hash is converted.
pub(crate) const LISTPACK_ITEM_BYTES_MAX: usize = 64;

/// Whether a field converts its hash, whatever the number of fields.
pub(crate) fn is_long(field: &[u8], value: &[u8]) -> bool {
    field.len() > LISTPACK_ITEM_BYTES_MAX || value.len() > LISTPACK_ITEM_BYTES_MAX
}
