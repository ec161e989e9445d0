//! A value on its own cache lines, so that its writers disturb no neighbour.

use std::ops::{Deref, DerefMut};

/// Aligned to 128 bytes: two lines, since adjacent lines are fetched in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Padded<T>(pub T);

impl<T> Deref for Padded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Padded<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
