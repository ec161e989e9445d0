//! Berkeley DB 5.3: Debian's `libdb5.3`, loaded when it is measured.
//!
//! Its handles are structures whose methods are pointers inside them. The functions that these
//! point to are exported by name as well (`DB->put` is `__db_put_pp`), so no layout but that of a
//! key plays a part. The version is checked: names and flags are those of 5.3.28.
//!
//! Durable: an environment with transactions, a log in the same tmpfs that is synced at each
//! commit, and a cache that holds everything. Without durability: no transactions and no log. Its
//! pages have 16 KiB, so that a value of 2 KiB lies in a leaf. Checkpoints run between phases,
//! outside of their time.

use std::ffi::{CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut};

use libloading::Library;

use crate::store::{Outcome, Store, StoreError};

const LIBRARY: &str = "libdb-5.3.so";

const DB_CREATE: u32 = 0x1;
const DB_INIT_LOG: u32 = 0x200;
const DB_INIT_MPOOL: u32 = 0x400;
const DB_INIT_TXN: u32 = 0x2000;
const DB_PRIVATE: u32 = 0x10000;
const DB_AUTO_COMMIT: u32 = 0x100;
const DB_FORCE: u32 = 0x1;
const DB_ARCH_REMOVE: u32 = 0x8;
const DB_DBT_USERMEM: u32 = 0x800;
const DB_BTREE: c_int = 1;
const DB_NOTFOUND: c_int = -30988;

const PAGE_BYTES: u32 = 16 * 1024;

/// Largest value that is read back.
const VALUE_BYTES_MAX: usize = 64 * 1024;

/// A key or a value, in C's layout.
#[repr(C)]
struct Dbt {
    data: *mut c_void,
    size: u32,
    ulen: u32,
    dlen: u32,
    doff: u32,
    app_data: *mut c_void,
    flags: u32,
}

impl Dbt {
    fn of(bytes: &[u8]) -> Self {
        Self {
            data: bytes.as_ptr().cast_mut().cast(),
            size: bytes.len() as u32,
            ulen: bytes.len() as u32,
            dlen: 0,
            doff: 0,
            app_data: null_mut(),
            flags: DB_DBT_USERMEM,
        }
    }
}

type Env = *mut c_void;
type Db = *mut c_void;

/// The functions, which live as long as the library.
struct Calls {
    env_open: unsafe extern "C" fn(Env, *const c_char, u32, c_int) -> c_int,
    env_close: unsafe extern "C" fn(Env, u32) -> c_int,
    set_cache: unsafe extern "C" fn(Env, u32, u32, c_int) -> c_int,
    checkpoint: unsafe extern "C" fn(Env, u32, u32, u32) -> c_int,
    archive: unsafe extern "C" fn(Env, *mut *mut *mut c_char, u32) -> c_int,
    set_page: unsafe extern "C" fn(Db, u32) -> c_int,
    open: OpenCall,
    close: unsafe extern "C" fn(Db, u32) -> c_int,
    put: unsafe extern "C" fn(Db, *mut c_void, *mut Dbt, *mut Dbt, u32) -> c_int,
    get: unsafe extern "C" fn(Db, *mut c_void, *mut Dbt, *mut Dbt, u32) -> c_int,
    delete: unsafe extern "C" fn(Db, *mut c_void, *mut Dbt, u32) -> c_int,
    env_create: unsafe extern "C" fn(*mut Env, u32) -> c_int,
    create: unsafe extern "C" fn(*mut Db, Env, u32) -> c_int,
}

type Version = unsafe extern "C" fn(*mut c_int, *mut c_int, *mut c_int) -> *const c_char;

type OpenCall =
    unsafe extern "C" fn(Db, *mut c_void, *const c_char, *const c_char, c_int, u32, c_int) -> c_int;

impl Calls {
    /// Finds every function.
    ///
    /// # Safety
    /// The library is Berkeley DB 5.3.
    unsafe fn of(library: &Library) -> Result<Self, libloading::Error> {
        macro_rules! call {
            ($name:literal) => {
                // SAFETY: the function has this type in version 5.3, as the caller promises.
                *unsafe { library.get($name) }?
            };
        }
        Ok(Self {
            env_create: call!("db_env_create"),
            env_open: call!("__env_open_pp"),
            env_close: call!("__env_close_pp"),
            set_cache: call!("__memp_set_cachesize"),
            checkpoint: call!("__txn_checkpoint_pp"),
            archive: call!("__log_archive_pp"),
            create: call!("db_create"),
            set_page: call!("__db_set_pagesize"),
            open: call!("__db_open_pp"),
            close: call!("__db_close_pp"),
            put: call!("__db_put_pp"),
            get: call!("__db_get_pp"),
            delete: call!("__db_del_pp"),
        })
    }
}

pub(crate) struct Berkeley {
    calls: Calls,
    env: Env,
    db: Db,
    durable: bool,
    buffer: Vec<u8>,
    /// What the calls lie in.
    _library: Library,
}

impl Berkeley {
    pub(crate) fn create(directory: &Path, bytes: u64, durable: bool) -> Outcome<Self> {
        let (calls, library) = load()?;
        let (mut env, mut db) = (null_mut(), null_mut());
        // SAFETY: the call stores a handle there.
        let code = unsafe { (calls.env_create)(&raw mut env, 0) };
        check("db_env_create", code)?;
        let (gigabytes, rest) = ((bytes >> 30) as u32, (bytes & ((1 << 30) - 1)) as u32);
        // SAFETY: the environment's handle is new.
        let code = unsafe { (calls.set_cache)(env, gigabytes, rest, 1) };
        check("set_cachesize", code)?;
        let home = CString::new(directory.as_os_str().as_bytes()).expect("a path has no zeros");
        let logged = if durable {
            DB_INIT_LOG | DB_INIT_TXN
        } else {
            0
        };
        let flags = DB_CREATE | DB_PRIVATE | DB_INIT_MPOOL | logged;
        // SAFETY: the handle is new, the path ends with a zero.
        let code = unsafe { (calls.env_open)(env, home.as_ptr(), flags, 0o600) };
        check("DB_ENV->open", code)?;
        // SAFETY: the environment is open.
        let code = unsafe { (calls.create)(&raw mut db, env, 0) };
        check("db_create", code)?;
        // SAFETY: the handle is new.
        let code = unsafe { (calls.set_page)(db, PAGE_BYTES) };
        check("set_pagesize", code)?;
        let name = c"pairs".as_ptr();
        let flags = DB_CREATE | if durable { DB_AUTO_COMMIT } else { 0 };
        // SAFETY: the handle is new, the name ends with a zero.
        let code = unsafe { (calls.open)(db, null_mut(), name, null(), DB_BTREE, flags, 0o600) };
        check("DB->open", code)?;
        Ok(Self {
            calls,
            env,
            db,
            durable,
            buffer: vec![0; VALUE_BYTES_MAX],
            _library: library,
        })
    }
}

/// Loads the library and checks its version.
fn load() -> Outcome<(Calls, Library)> {
    let absent = |error| StoreError::Absent {
        library: LIBRARY,
        package: "libdb5.3",
        error,
    };
    // SAFETY: loading it runs nothing that matters to this process.
    let library = unsafe { Library::new(LIBRARY) }.map_err(absent)?;
    // SAFETY: the function has this type in every version.
    let version: libloading::Symbol<'_, Version> =
        unsafe { library.get("db_version") }.map_err(absent)?;
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: it stores three numbers.
    unsafe { version(&raw mut major, &raw mut minor, &raw mut patch) };
    if (major, minor, patch) != (5, 3, 28) {
        return Err(StoreError::Version {
            library: LIBRARY,
            got: format!("{major}.{minor}.{patch}"),
            expected: "5.3.28",
        });
    }
    // SAFETY: the version was checked.
    let calls = unsafe { Calls::of(&library) }.map_err(absent)?;
    Ok((calls, library))
}

fn check(call: &'static str, code: c_int) -> Outcome<()> {
    if code == 0 {
        Ok(())
    } else {
        Err(StoreError::Berkeley { call, code })
    }
}

impl Store for Berkeley {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        let (mut key, mut value) = (Dbt::of(key), Dbt::of(value));
        // SAFETY: the database is open; it reads both, and stores nothing there.
        let code =
            unsafe { (self.calls.put)(self.db, null_mut(), &raw mut key, &raw mut value, 0) };
        check("DB->put", code)
    }

    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> Outcome<bool> {
        let mut key = Dbt::of(key);
        let mut value = Dbt {
            data: self.buffer.as_mut_ptr().cast(),
            ..Dbt::of(&self.buffer)
        };
        // SAFETY: the database is open; it stores the value in the buffer, at most its length.
        let code =
            unsafe { (self.calls.get)(self.db, null_mut(), &raw mut key, &raw mut value, 0) };
        if code == DB_NOTFOUND {
            return Ok(false);
        }
        check("DB->get", code)?;
        into.extend_from_slice(&self.buffer[..value.size as usize]);
        Ok(true)
    }

    fn delete(&mut self, key: &[u8]) -> Outcome<()> {
        let mut key = Dbt::of(key);
        // SAFETY: the database is open; it reads the key.
        let code = unsafe { (self.calls.delete)(self.db, null_mut(), &raw mut key, 0) };
        check("DB->del", code)
    }

    fn pause(&mut self) -> Outcome<()> {
        if !self.durable {
            return Ok(());
        }
        // SAFETY: the environment is open and has transactions.
        let code = unsafe { (self.calls.checkpoint)(self.env, 0, 0, DB_FORCE) };
        check("DB_ENV->txn_checkpoint", code)?;
        // SAFETY: as above; it lists nothing.
        let code = unsafe { (self.calls.archive)(self.env, null_mut(), DB_ARCH_REMOVE) };
        check("DB_ENV->log_archive", code)
    }
}

impl Drop for Berkeley {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and this is its last use, whatever it returns.
        unsafe { (self.calls.close)(self.db, 0) };
        // SAFETY: as above.
        unsafe { (self.calls.env_close)(self.env, 0) };
    }
}
