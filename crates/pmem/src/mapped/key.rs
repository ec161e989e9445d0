//! Protection keys: what each thread may do with pages is a register of its own.
//!
//! The register has two bits for each key, "no access" and "no store". A process begins with "no
//! access" for all keys but the first, and a thread with what its maker has (PX4 closed-at-rest).

use std::io;

use super::mapping::Mapping;

/// A key, of which the system has few.
#[derive(Debug)]
pub(super) struct ProtectionKey {
    number: u32,
}

#[cfg(target_arch = "x86_64")]
mod system {
    use std::arch::asm;
    use std::ffi::c_long;
    use std::io;

    // Not in `rustix`, and not in every C library.
    unsafe extern "C" {
        fn syscall(number: c_long, ...) -> c_long;
    }

    const PKEY_MPROTECT: c_long = 329;
    const PKEY_ALLOC: c_long = 330;
    const PKEY_FREE: c_long = 331;

    /// What a thread may not do: nothing with the pages.
    const NO_ACCESS: c_long = 1;

    const PROT_READ_WRITE: c_long = 1 | 2;

    fn result(returned: c_long) -> io::Result<c_long> {
        if returned < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(returned)
    }

    pub(super) fn allocate() -> io::Result<u32> {
        let flags: c_long = 0;
        // SAFETY: it takes a key that nobody has.
        let number = result(unsafe { syscall(PKEY_ALLOC, flags, NO_ACCESS) })?;
        Ok(u32::try_from(number).expect("a key's number is small"))
    }

    pub(super) fn free(number: u32) {
        // SAFETY: no page has it any more. An error leaves it taken.
        let _ = unsafe { syscall(PKEY_FREE, c_long::from(number)) };
    }

    /// # Safety
    /// Whoever uses the pages expects that they can be accessed in windows only.
    pub(super) unsafe fn give(number: u32, start: *mut u8, bytes: usize) -> io::Result<()> {
        let key = c_long::from(number);
        // SAFETY: what the pages hold stays; the caller promises the rest.
        let given = unsafe { syscall(PKEY_MPROTECT, start, bytes, PROT_READ_WRITE, key) };
        result(given).map(|_| ())
    }

    /// The register of this thread.
    #[inline]
    pub(super) fn rights() -> u32 {
        let rights: u32;
        // No `nomem`: it is not moved over `set_rights`.
        // SAFETY: whoever has a key has a processor and a system with the instruction.
        unsafe {
            asm!("rdpkru", in("ecx") 0, out("eax") rights, out("edx") _,
                options(nostack, preserves_flags));
        }
        rights
    }

    #[inline]
    pub(super) fn set_rights(rights: u32) {
        // No `nomem`: stores stay on their side of it. The processor waits with accesses behind it.
        // SAFETY: as above. Bits of other keys stay as they are.
        unsafe {
            asm!("wrpkru", in("eax") rights, in("ecx") 0, in("edx") 0,
                options(nostack, preserves_flags));
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod system {
    use std::io;

    pub(super) fn allocate() -> io::Result<u32> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn free(_number: u32) {}

    pub(super) unsafe fn give(_number: u32, _start: *mut u8, _bytes: usize) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn rights() -> u32 {
        0
    }

    pub(super) fn set_rights(_rights: u32) {}
}

/// The two bits of a key.
#[inline]
const fn bits(number: u32) -> u32 {
    0b11 << (2 * number)
}

impl ProtectionKey {
    /// One that nobody has; closed.
    pub(super) fn allocate() -> io::Result<Self> {
        let number = system::allocate()?;
        Ok(Self { number })
    }

    /// Lets pages be accessed in windows only.
    pub(super) fn give(&self, mapping: &Mapping) -> io::Result<()> {
        let start = mapping.start().as_ptr();
        // SAFETY: the pages are this mapping's, which is for windows.
        unsafe { system::give(self.number, start, mapping.bytes()) }
    }

    /// Opens it for this thread; whether it was open.
    #[inline]
    pub(super) fn open(&self) -> bool {
        let rights = system::rights();
        let was_open = rights & bits(self.number) == 0;
        if !was_open {
            system::set_rights(rights & !bits(self.number));
        }
        was_open
    }

    /// Closes it for this thread (PX4 closed-at-rest).
    #[inline]
    pub(super) fn close(&self) {
        system::set_rights(system::rights() | bits(self.number));
    }
}

impl Drop for ProtectionKey {
    fn drop(&mut self) {
        system::free(self.number);
    }
}
