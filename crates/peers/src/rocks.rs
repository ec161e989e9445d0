//! `RocksDB`: Debian's `librocksdb7.8`, loaded when it is measured, through its C interface.
//!
//! Durable: its log is synced at each operation, on the same tmpfs. Without durability: no log.
//! Two background jobs, buffers of 256 MiB, no compression, ten Bloom bits a key. Files are read
//! through a map, without their checksums, so that no block is copied or read as a whole.

use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;

use libloading::Library;

use crate::store::{Outcome, Store, StoreError};

const LIBRARY: &str = "librocksdb.so.7.8";

type Handle = *mut c_void;
type Make = unsafe extern "C" fn() -> Handle;
type Drop1 = unsafe extern "C" fn(Handle);
type SetByte = unsafe extern "C" fn(Handle, c_uchar);
type SetSize = unsafe extern "C" fn(Handle, usize);
type SetInt = unsafe extern "C" fn(Handle, c_int);
type Put = unsafe extern "C" fn(
    Handle,
    Handle,
    *const c_char,
    usize,
    *const c_char,
    usize,
    *mut *mut c_char,
);
type Open = unsafe extern "C" fn(Handle, *const c_char, *mut *mut c_char) -> Handle;
type OnKey<T> = unsafe extern "C" fn(Handle, Handle, *const c_char, usize, *mut *mut c_char) -> T;

/// The functions that every operation calls.
struct Calls {
    put: Put,
    get: OnKey<Handle>,
    pinned_value: unsafe extern "C" fn(Handle, *mut usize) -> *const c_char,
    pinned_drop: Drop1,
    delete: OnKey<()>,
    close: Drop1,
    free: unsafe extern "C" fn(*mut c_void),
}

pub(crate) struct Rocks {
    calls: Calls,
    db: Handle,
    reads: Handle,
    writes: Handle,
    /// What the calls lie in.
    _library: Library,
}

/// A function of the library.
///
/// # Safety
/// It has the type `T`, in version 7.8.
unsafe fn call<T: Copy>(library: &Library, name: &str) -> Outcome<T> {
    // SAFETY: the caller promises the type.
    let found = unsafe { library.get::<T>(name) };
    found.map(|symbol| *symbol).map_err(absent)
}

fn absent(error: libloading::Error) -> StoreError {
    StoreError::Absent {
        library: LIBRARY,
        package: "librocksdb7.8",
        error,
    }
}

impl Rocks {
    pub(crate) fn create(directory: &Path, durable: bool) -> Outcome<Self> {
        // SAFETY: loading it runs nothing that matters to this process.
        let library = unsafe { Library::new(LIBRARY) }.map_err(absent)?;
        let settings = Settings { library: &library };
        let options = settings.make("rocksdb_options_create")?;
        settings.byte("rocksdb_options_set_create_if_missing", options, 1)?;
        settings.byte("rocksdb_options_set_allow_mmap_reads", options, 1)?;
        settings.int("rocksdb_options_set_compression", options, 0)?;
        settings.int("rocksdb_options_set_max_background_jobs", options, 2)?;
        settings.int("rocksdb_options_set_max_write_buffer_number", options, 4)?;
        settings.size("rocksdb_options_set_write_buffer_size", options, 256 << 20)?;
        settings.size(
            "rocksdb_options_set_target_file_size_base",
            options,
            256 << 20,
        )?;
        settings.size(
            "rocksdb_options_set_max_bytes_for_level_base",
            options,
            4 << 30,
        )?;
        settings.bloom(options)?;
        let writes = settings.make("rocksdb_writeoptions_create")?;
        if durable {
            settings.byte("rocksdb_writeoptions_set_sync", writes, 1)?;
        } else {
            settings.int("rocksdb_writeoptions_disable_WAL", writes, 1)?;
        }
        let reads = settings.make("rocksdb_readoptions_create")?;
        settings.byte("rocksdb_readoptions_set_verify_checksums", reads, 0)?;
        // SAFETY: these are their types, in `rocksdb/c.h` of 7.8.
        let calls = unsafe { Calls::of(&library) }?;
        // SAFETY: as above.
        let open: Open = unsafe { call(&library, "rocksdb_open") }?;
        let path = CString::new(directory.as_os_str().as_bytes()).expect("a path has no zeros");
        let mut error = null_mut();
        // SAFETY: the options are made, the path ends with a zero.
        let db = unsafe { open(options, path.as_ptr(), &raw mut error) };
        calls.check(error)?;
        Ok(Self {
            calls,
            db,
            reads,
            writes,
            _library: library,
        })
    }
}

/// Makes and sets options.
struct Settings<'l> {
    library: &'l Library,
}

impl Settings<'_> {
    fn make(&self, name: &str) -> Outcome<Handle> {
        // SAFETY: all that are called so make an object of nothing.
        let make: Make = unsafe { call(self.library, name) }?;
        // SAFETY: as above.
        Ok(unsafe { make() })
    }

    fn byte(&self, name: &str, options: Handle, value: u8) -> Outcome<()> {
        // SAFETY: all that are called so take an object and a byte.
        let set: SetByte = unsafe { call(self.library, name) }?;
        // SAFETY: the object is one of theirs.
        unsafe { set(options, value) };
        Ok(())
    }

    fn int(&self, name: &str, options: Handle, value: c_int) -> Outcome<()> {
        // SAFETY: all that are called so take an object and a number.
        let set: SetInt = unsafe { call(self.library, name) }?;
        // SAFETY: the object is one of theirs.
        unsafe { set(options, value) };
        Ok(())
    }

    fn size(&self, name: &str, options: Handle, value: usize) -> Outcome<()> {
        // SAFETY: all that are called so take an object and a size.
        // Some take 64 bits, which is what a size has here.
        let set: SetSize = unsafe { call(self.library, name) }?;
        // SAFETY: the object is one of theirs.
        unsafe { set(options, value) };
        Ok(())
    }

    fn bloom(&self, options: Handle) -> Outcome<()> {
        type Filter = unsafe extern "C" fn(f64) -> Handle;
        type Give = unsafe extern "C" fn(Handle, Handle);
        // SAFETY: its type in `rocksdb/c.h`; so for the two below.
        let filter: Filter =
            unsafe { call(self.library, "rocksdb_filterpolicy_create_bloom_full") }?;
        let table = self.make("rocksdb_block_based_options_create")?;
        let name = "rocksdb_block_based_options_set_filter_policy";
        // SAFETY: as above.
        let set_filter: Give = unsafe { call(self.library, name) }?;
        let name = "rocksdb_options_set_block_based_table_factory";
        // SAFETY: as above.
        let set_table: Give = unsafe { call(self.library, name) }?;
        // SAFETY: it makes an object.
        let filter = unsafe { filter(10.0) };
        // SAFETY: both are theirs; the first takes the second over.
        unsafe { set_filter(table, filter) };
        // SAFETY: as above.
        unsafe { set_table(options, table) };
        Ok(())
    }
}

impl Calls {
    /// Finds every function.
    ///
    /// # Safety
    /// The library is `RocksDB` 7.8.
    unsafe fn of(library: &Library) -> Outcome<Self> {
        macro_rules! call {
            ($name:literal) => {
                // SAFETY: its type in `rocksdb/c.h`.
                unsafe { call(library, $name) }?
            };
        }
        Ok(Self {
            put: call!("rocksdb_put"),
            get: call!("rocksdb_get_pinned"),
            pinned_value: call!("rocksdb_pinnableslice_value"),
            pinned_drop: call!("rocksdb_pinnableslice_destroy"),
            delete: call!("rocksdb_delete"),
            close: call!("rocksdb_close"),
            free: call!("rocksdb_free"),
        })
    }

    /// Whether a call has left a message.
    fn check(&self, error: *mut c_char) -> Outcome<()> {
        if error.is_null() {
            return Ok(());
        }
        // SAFETY: a call has left a text there that ends with a zero.
        let text = unsafe { CStr::from_ptr(error) };
        let text = text.to_string_lossy().into_owned();
        // SAFETY: it is ours to free, and read.
        unsafe { (self.free)(error.cast()) };
        Err(StoreError::Rocks(text))
    }
}

impl Store for Rocks {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        let mut error = null_mut();
        let (k, v) = (key.as_ptr().cast(), value.as_ptr().cast());
        // SAFETY: the database is open; it reads both.
        unsafe {
            (self.calls.put)(
                self.db,
                self.writes,
                k,
                key.len(),
                v,
                value.len(),
                &raw mut error,
            );
        }
        self.calls.check(error)
    }

    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> Outcome<bool> {
        let mut error = null_mut();
        let k = key.as_ptr().cast();
        // SAFETY: the database is open; it reads the key.
        let pinned = unsafe { (self.calls.get)(self.db, self.reads, k, key.len(), &raw mut error) };
        self.calls.check(error)?;
        if pinned.is_null() {
            return Ok(false);
        }
        let mut length = 0;
        // SAFETY: what was got is pinned, and tells its length.
        let value = unsafe { (self.calls.pinned_value)(pinned, &raw mut length) };
        // SAFETY: so many bytes lie there until it is unpinned.
        let value = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), length) };
        into.extend_from_slice(value);
        // SAFETY: nobody uses it any more.
        unsafe { (self.calls.pinned_drop)(pinned) };
        Ok(true)
    }

    fn delete(&mut self, key: &[u8]) -> Outcome<()> {
        let mut error = null_mut();
        let k = key.as_ptr().cast();
        // SAFETY: the database is open; it reads the key.
        unsafe { (self.calls.delete)(self.db, self.writes, k, key.len(), &raw mut error) };
        self.calls.check(error)
    }
}

impl Drop for Rocks {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and this is its last use. The options go with the process.
        unsafe { (self.calls.close)(self.db) };
    }
}
