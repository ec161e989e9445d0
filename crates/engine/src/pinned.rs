//! A pin that ends with its scope.

use std::ops::{Deref, DerefMut};

use crate::Point;

/// A session that is pinned while this guard lives, even if a closure of its caller panics; see
/// [`Point::pinned`].
#[derive(Debug)]
pub struct Pinned<'s, S: Point>(&'s mut S);

impl<'s, S: Point> Pinned<'s, S> {
    pub(crate) fn new(session: &'s mut S) -> Self {
        session.pin();
        Self(session)
    }
}

impl<S: Point> Deref for Pinned<'_, S> {
    type Target = S;

    fn deref(&self) -> &S {
        self.0
    }
}

impl<S: Point> DerefMut for Pinned<'_, S> {
    fn deref_mut(&mut self) -> &mut S {
        self.0
    }
}

impl<S: Point> Drop for Pinned<'_, S> {
    fn drop(&mut self) {
        self.0.unpin();
    }
}
