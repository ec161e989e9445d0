//! Stray writes (the paper, §3.4): the pool can be written to only while somebody means to.
//!
//! | protection | the pool is writable | cost of a window |
//! |---|---|---|
//! | [`Protection::None`] | always | none |
//! | [`Protection::Pages`] | for every thread, while any thread has a window open | two system calls for the first and last of them |
//! | [`Protection::Keys`] | for the thread that has a window open | two instructions of a processor with protection keys |
//!
//! A window is opened and closed by [`crate::Writes`]. A store outside of one faults.
//!
//! With keys the file is mapped twice: everybody reads where nobody can store, and stores go where
//! nobody has access outside of windows. In one mapping a thread that never opened a window could
//! not even read: threads begin without any access.

use std::io;
use std::sync::Mutex;

use pando_sync::lock;

use super::key::ProtectionKey;
use super::mapping::Mapping;
use crate::PoolError;

/// How a pool is kept from stray writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protection {
    /// Not at all.
    #[default]
    None,
    /// By the rights of its pages.
    Pages,
    /// By protection keys of the processor, which must have them.
    Keys,
    /// By keys where the processor and the system have them, which costs little, else not at all.
    Auto,
}

impl Protection {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Auto, Self::None, Self::Pages, Self::Keys];

    /// Its name in settings and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "off",
            Self::Pages => "pages",
            Self::Keys => "keys",
            Self::Auto => "auto",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|protection| protection.name() == name)
    }

    /// What it is here: `Auto` is another one.
    #[must_use]
    pub fn in_force(self) -> Self {
        match self {
            Self::Auto if ProtectionKey::allocate().is_ok() => Self::Keys,
            Self::Auto => Self::None,
            chosen => chosen,
        }
    }
}

/// Keeps a mapping from stray writes.
#[derive(Debug)]
pub(super) enum Protector {
    None,
    /// Windows that are open.
    Pages(Mutex<usize>),
    /// Where stores go. The mapping goes before its key does.
    Keys(Mapping, ProtectionKey),
}

impl Protector {
    /// `map` makes another mapping of the same bytes.
    pub(super) fn new(
        protection: Protection,
        mapping: &Mapping,
        map: impl FnOnce() -> io::Result<Mapping>,
    ) -> Result<Self, PoolError> {
        match protection.in_force() {
            Protection::None | Protection::Auto => Ok(Self::None),
            Protection::Pages => {
                mapping.set_writable(false)?;
                Ok(Self::Pages(Mutex::new(0)))
            }
            Protection::Keys => {
                let key = ProtectionKey::allocate().map_err(PoolError::NoProtectionKeys)?;
                let stores = map().map_err(PoolError::NotMappable)?;
                key.give(&stores).map_err(PoolError::NoProtectionKeys)?;
                mapping.set_writable(false)?;
                Ok(Self::Keys(stores, key))
            }
        }
    }

    pub(super) fn protection(&self) -> Protection {
        match self {
            Self::None => Protection::None,
            Self::Pages(_) => Protection::Pages,
            Self::Keys(..) => Protection::Keys,
        }
    }

    /// Where stores go.
    pub(super) fn writable<'m>(&'m self, mapping: &'m Mapping) -> &'m Mapping {
        match self {
            Self::None | Self::Pages(_) => mapping,
            Self::Keys(stores, _) => stores,
        }
    }

    /// Whether readers may store, outside of every window.
    #[inline]
    pub(super) fn lets_readers_write(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Opens a window; whether its thread could store already.
    #[inline]
    pub(super) fn begin(&self, mapping: &Mapping) -> bool {
        match self {
            Self::None => true,
            Self::Pages(windows) => {
                let mut windows = lock(windows);
                if *windows == 0 {
                    mapping.set_writable(true).expect("the rights of a mapping");
                }
                *windows += 1;
                *windows > 1
            }
            Self::Keys(_, key) => key.open(),
        }
    }

    #[inline]
    pub(super) fn end(&self, mapping: &Mapping, could_store: bool) {
        match self {
            Self::None => {}
            Self::Pages(windows) => {
                let mut windows = lock(windows);
                *windows -= 1;
                if *windows == 0 {
                    mapping
                        .set_writable(false)
                        .expect("the rights of a mapping");
                }
            }
            Self::Keys(_, key) => {
                if !could_store {
                    key.close();
                }
            }
        }
    }
}
