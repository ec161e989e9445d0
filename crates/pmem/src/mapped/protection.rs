//! Stray writes (the paper, §3.4): the pool can be written to only while somebody means to.
//!
//! | protection | the pool is writable | cost of a window |
//! |---|---|---|
//! | [`Protection::None`] | always | none |
//! | [`Protection::Pages`] | for every thread, while any thread has a window open | two system calls for the first and last of them |
//! | [`Protection::Keys`] | for the thread that has a window open | two instructions of a processor with protection keys; refused so far |
//!
//! A window is opened and closed by [`crate::Writes`]. A store outside of one faults.

use std::sync::Mutex;

use pando_sync::lock;

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
    /// By protection keys: [`PoolError::NoProtectionKeys`], so far on every machine.
    Keys,
}

/// Keeps a mapping from stray writes.
#[derive(Debug)]
pub(super) enum Protector {
    None,
    /// Windows that are open.
    Pages(Mutex<usize>),
}

impl Protector {
    pub(super) fn new(protection: Protection, mapping: &Mapping) -> Result<Self, PoolError> {
        match protection {
            Protection::None => Ok(Self::None),
            Protection::Pages => {
                mapping.set_writable(false)?;
                Ok(Self::Pages(Mutex::new(0)))
            }
            Protection::Keys => Err(PoolError::NoProtectionKeys),
        }
    }

    /// Whether readers may store, outside of every window.
    #[inline]
    pub(super) fn lets_readers_write(&self) -> bool {
        matches!(self, Self::None)
    }

    #[inline]
    pub(super) fn begin(&self, mapping: &Mapping) {
        if let Self::Pages(windows) = self {
            let mut windows = lock(windows);
            if *windows == 0 {
                mapping.set_writable(true).expect("the rights of a mapping");
            }
            *windows += 1;
        }
    }

    #[inline]
    pub(super) fn end(&self, mapping: &Mapping) {
        if let Self::Pages(windows) = self {
            let mut windows = lock(windows);
            *windows -= 1;
            if *windows == 0 {
                mapping
                    .set_writable(false)
                    .expect("the rights of a mapping");
            }
        }
    }
}

/// Whether the processor has protection keys for user pages and the system uses them.
#[must_use]
pub fn has_protection_keys() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        const OSPKE: u32 = 1 << 4;
        __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ecx & OSPKE != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}
