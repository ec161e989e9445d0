//! Mapped pools on a tmpfs: what they keep, what they refuse.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use pando_sync::LogEpoch;

use super::*;
use crate::limits::POOL_BYTES_MIN;
use crate::{Allocator, BlockState, Pool, Shape};

const SHAPE: Shape = Shape::with_nodes(512);
const BYTES: u64 = 1 << 20;

/// A file that goes when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self::below("/dev/shm", name)
    }

    fn below(directory: &str, name: &str) -> Self {
        let file = format!("pando-pmem-{}-{name}", std::process::id());
        Self(PathBuf::from(directory).join(file))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn create(scratch: &Scratch, protection: Protection) -> Mapped {
    Mapped::create(&scratch.0, BYTES, Medium::SharedMemory, protection).unwrap()
}

fn open(scratch: &Scratch) -> Result<Mapped, PoolError> {
    Mapped::open(&scratch.0, None, Medium::SharedMemory, Protection::None)
}

/// Opens a pool that nobody has any more. A process that another test makes has all files of this
/// one until it runs its own program.
fn reopen(open: impl Fn() -> Result<Mapped, PoolError>) -> Mapped {
    let start = std::time::Instant::now();
    loop {
        match open() {
            Err(PoolError::InUse) if start.elapsed().as_secs() < 10 => std::thread::yield_now(),
            opened => return opened.unwrap(),
        }
    }
}

#[test]
fn a_pool_is_there_after_it_was_dropped() {
    for protection in protections() {
        let scratch = Scratch::new(&format!("there-{protection:?}"));
        let at = {
            let pool = Pool::create(create(&scratch, protection), SHAPE).unwrap();
            let allocator = Allocator::new(Arc::new(pool)).unwrap();
            let (pool, epoch) = (allocator.pool(), allocator.pool().first_epoch());
            pool.begin(epoch).unwrap();
            let at = allocator.allocate(100, epoch).unwrap();
            {
                let _window = Writes::new(pool.memory());
                pool.memory().write(at, b"still here");
            }
            pool.memory().flush(at, 10);
            allocator.settle();
            pool.commit(epoch).unwrap();
            at
        };
        let pool = Pool::open(reopen(|| open(&scratch)), SHAPE.node_bytes).unwrap();
        // SAFETY: nobody writes.
        assert_eq!(unsafe { pool.memory().read(at, 10) }, b"still here");
        let allocator = Allocator::new(Arc::new(pool)).unwrap();
        assert_eq!(allocator.state(at).0, BlockState::Taken);
        assert!(allocator.pool().first_epoch() > LogEpoch(1));
    }
}

/// Memory that is flushed counts lines and bytes; shared memory takes none.
#[test]
fn what_is_flushed_is_counted() {
    for (medium, lines) in [(Medium::Rehearsal, 4), (Medium::SharedMemory, 0)] {
        let scratch = Scratch::new(&format!("wear-{medium:?}"));
        let memory = Mapped::create(&scratch.0, BYTES, medium, Protection::None).unwrap();
        memory.flush(Offset::new(120), 16);
        memory.flush(Offset::new(128), 64);
        memory.commit(Offset::new(64), 1).unwrap();
        let bytes = lines / 4 * (16 + 64 + 8);
        assert_eq!(memory.wear(), Wear { lines, bytes }, "{medium:?}");
    }
}

#[test]
fn a_pool_is_opened_once() {
    let scratch = Scratch::new("once");
    let first = create(&scratch, Protection::None);
    assert!(matches!(open(&scratch), Err(PoolError::InUse)));
    drop(first);
    reopen(|| open(&scratch));
}

/// The other process is this test, run once more.
#[test]
fn a_pool_is_opened_by_one_process() {
    const HELD: &str = "PANDO_POOL_HELD_BY_TEST";
    let by_path = |path: &Path| Mapped::open(path, None, Medium::SharedMemory, Protection::None);
    if let Some(path) = std::env::var_os(HELD) {
        let _held = by_path(Path::new(&path)).unwrap();
        println!("held");
        // Until the other one ends it, or is gone.
        let _ = std::io::stdin().read_line(&mut String::new());
        return;
    }
    let scratch = Scratch::new("processes");
    drop(create(&scratch, Protection::None));
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "--nocapture",
            "mapped::tests::a_pool_is_opened_by_one_process",
        ])
        .env(HELD, &scratch.0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let held = lines
        .map_while(Result::ok)
        .any(|line| line.contains("held"));
    assert!(held, "the other process has it");
    assert!(matches!(by_path(&scratch.0), Err(PoolError::InUse)));
    child.kill().unwrap();
    child.wait().unwrap();
    reopen(|| by_path(&scratch.0));
}

#[test]
fn what_is_no_mapping_is_refused() {
    use PoolError::*;
    let on = |medium, path: &str| Mapped::open(Path::new(path), None, medium, Protection::None);
    let shared = |path| on(Medium::SharedMemory, path).unwrap_err();
    let is = |error, kind| matches!(error, Io(error) if error.kind() == kind);
    let absent = shared("/dev/shm/pando-pmem-absent");
    assert!(is(absent, io::ErrorKind::NotFound));
    assert!(matches!(
        shared("/dev/null"),
        NoSize { bytes: 0, .. } | NotMappable(_)
    ));
    assert!(is(shared("/dev/shm"), io::ErrorKind::IsADirectory));

    let scratch = Scratch::new("sizes");
    for bytes in [0, 1, POOL_BYTES_MIN + 1, u64::MAX] {
        let error = Mapped::create(&scratch.0, bytes, Medium::SharedMemory, Protection::None);
        assert!(matches!(error, Err(NoSize { .. })), "{bytes}");
        assert!(!scratch.0.exists());
    }
    drop(create(&scratch, Protection::None));
    let again = Mapped::create(&scratch.0, BYTES, Medium::SharedMemory, Protection::None);
    assert!(is(again.unwrap_err(), io::ErrorKind::AlreadyExists));
    let wanted = 2 * BYTES;
    let larger = Mapped::open(
        &scratch.0,
        Some(wanted),
        Medium::SharedMemory,
        Protection::None,
    );
    assert!(matches!(larger, Err(OtherSize { pool: BYTES, wanted: found }) if found == wanted));
    fs::write(&scratch.0, b"short").unwrap();
    assert!(matches!(open(&scratch), Err(NoSize { bytes: 5, .. })));
}

#[test]
fn more_than_the_file_system_has_is_refused_and_leaves_nothing() {
    let scratch = Scratch::new("large");
    let bytes = crate::limits::POOL_BYTES_MAX;
    let error = Mapped::create(&scratch.0, bytes, Medium::SharedMemory, Protection::None);
    assert!(matches!(error, Err(PoolError::Io(_))), "{error:?}");
    assert!(!scratch.0.exists());
}

#[test]
fn direct_access_is_refused_where_the_mapping_cannot_keep_the_promise() {
    for directory in [
        "/dev/shm".to_owned(),
        std::env::temp_dir().display().to_string(),
    ] {
        for medium in [Medium::Dax, Medium::DaxOfWords, Medium::DaxWithCaches] {
            let scratch = Scratch::below(&directory, "dax");
            let error = Mapped::create(&scratch.0, BYTES, medium, Protection::None);
            assert!(
                matches!(error, Err(PoolError::NoDirectAccess(_))),
                "{directory}: {error:?}"
            );
            assert!(!scratch.0.exists());
        }
    }
}

/// Where there is direct access, which few machines have: a directory.
const DAX_DIRECTORY: &str = "PANDO_DAX_DIRECTORY";

/// With every flush that there is, and with none (eADR), under each protection.
#[test]
fn direct_access_keeps_what_it_is_given() {
    let Ok(directory) = std::env::var(DAX_DIRECTORY) else {
        return;
    };
    let found = Medium::of_directory(Path::new(&directory)).unwrap();
    assert_eq!(found, Some(Medium::Dax));
    let media = [
        (Medium::Dax, Flush::detect().unwrap()),
        (Medium::DaxWithCaches, Flush::Nothing),
    ];
    for ((medium, flush), protection) in media
        .into_iter()
        .flat_map(|medium| protections().map(move |protection| (medium, protection)))
    {
        let case = format!("dax-{medium:?}-{}", protection.name());
        let scratch = Scratch::below(&directory, &case);
        let mapped = Mapped::create(&scratch.0, BYTES, medium, protection).unwrap();
        assert_eq!((mapped.flushes_by(), mapped.medium()), (flush, medium));
        let allocator = Allocator::new(Arc::new(Pool::create(mapped, SHAPE).unwrap())).unwrap();
        let pool = allocator.pool();
        let epoch = pool.first_epoch();
        pool.begin(epoch).unwrap();
        let at = allocator.allocate(1000, epoch).unwrap();
        {
            let _window = Writes::new(pool.memory());
            pool.memory().expect_writes(at, 1000);
            pool.memory().write(at, &[7; 1000]);
        }
        pool.memory().flush(at, 1000);
        allocator.settle();
        pool.commit(epoch).unwrap();
        let wear = pool.memory().wear();
        assert!(wear.lines > 16 && wear.bytes > 1000, "{case}: {wear:?}");
        drop(allocator);
        let open = || Mapped::open(&scratch.0, Some(BYTES), medium, protection);
        let mapped = reopen(open);
        let pool = Pool::open(mapped, SHAPE.node_bytes).unwrap();
        assert_eq!(pool.committed(), epoch, "{case}");
        // SAFETY: nobody writes.
        assert_eq!(unsafe { pool.memory().read(at, 1000) }, [7; 1000], "{case}");
    }
}

#[test]
fn shared_memory_is_refused_on_a_disk() {
    let binary = std::env::current_exe().expect("this test has a file");
    let directory = binary.parent().expect("in a directory").display();
    let scratch = Scratch::below(&directory.to_string(), "disk");
    let error = Mapped::create(&scratch.0, BYTES, Medium::SharedMemory, Protection::None);
    // Unless what is built lies on a tmpfs.
    assert!(
        matches!(error, Err(PoolError::NotInMemory) | Ok(_)),
        "{error:?}"
    );
}

#[test]
fn every_flush_that_there_is_runs_over_any_range() {
    let [scratch, other] = ["flush", "never"].map(Scratch::new);
    let rehearsed = Mapped::create(&scratch.0, BYTES, Medium::Rehearsal, Protection::None);
    let mapped = rehearsed.unwrap();
    let detected = Flush::detect().expect("a processor of our time");
    assert_eq!(mapped.flushes_by(), detected);
    let shared = create(&other, Protection::None);
    assert_eq!(shared.flushes_by(), Flush::Never);
    let all = [
        Flush::WriteBack,
        Flush::Evict,
        Flush::EvictInOrder,
        Flush::Nothing,
        Flush::Never,
    ];
    let best = all.iter().position(|flush| *flush == detected).unwrap();
    for flush in &all[best..] {
        for (at, length) in [
            (0, 0),
            (63, 1),
            (63, 2),
            (8, 4096),
            (BYTES - 1, 1),
            (BYTES, 0),
        ] {
            let start = mapped.region.pointer(Offset::new(at), length);
            // SAFETY: the range is mapped; a processor that has one of them has those after it.
            unsafe { flush.lines(start, length) };
        }
        flush.fence();
    }
}

#[test]
#[should_panic(expected = "2 bytes at 0xfffff of 1048576")]
fn nothing_is_flushed_beyond_the_mapping() {
    let scratch = Scratch::new("beyond");
    create(&scratch, Protection::None).flush(Offset::new(BYTES - 1), 2);
}

/// Whether the processor has protection keys, as the system tells it.
fn has_keys() -> bool {
    fs::read_to_string("/proc/cpuinfo").is_ok_and(|told| told.contains(" ospke"))
}

#[test]
fn keys_are_refused_where_there_are_none() {
    let scratch = Scratch::new("keys");
    let mapped = Mapped::create(&scratch.0, BYTES, Medium::SharedMemory, Protection::Keys);
    match (has_keys(), mapped) {
        (true, mapped) => {
            assert_eq!(Protection::Auto.in_force(), Protection::Keys);
            assert_eq!(mapped.unwrap().protected_by(), Protection::Keys);
        }
        (false, mapped) => {
            assert_eq!(Protection::Auto.in_force(), Protection::None);
            assert!(
                matches!(mapped, Err(PoolError::NoProtectionKeys(_))),
                "{mapped:?}"
            );
            assert!(!scratch.0.exists());
        }
    }
}

/// The kinds of protection that there are here.
fn protections() -> impl Iterator<Item = Protection> {
    let keys = has_keys().then_some(Protection::Keys);
    [Protection::None, Protection::Pages]
        .into_iter()
        .chain(keys)
}

/// The rights of the mapping of a file, as the system tells them.
fn rights(scratch: &Scratch) -> String {
    let name = scratch.0.display().to_string();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.ends_with(&name)).unwrap();
    line.split_whitespace().nth(1).unwrap().to_owned()
}

#[test]
fn a_protected_pool_is_writable_in_windows_only() {
    let scratch = Scratch::new("windows");
    let mapped = create(&scratch, Protection::Pages);
    assert_eq!(rights(&scratch), "r--s");
    {
        let _outer = Writes::new(&mapped);
        assert_eq!(rights(&scratch), "rw-s");
        {
            let _inner = Writes::new(&mapped);
            mapped.store(Offset::new(64), 1);
        }
        assert_eq!(rights(&scratch), "rw-s");
        mapped.store(Offset::new(64), 2);
    }
    assert_eq!(rights(&scratch), "r--s");
    mapped.commit(Offset::new(128), 3).unwrap();
    assert_eq!(rights(&scratch), "r--s");
    assert_eq!(
        mapped.load(Offset::new(64)) + mapped.load(Offset::new(128)),
        5
    );
}

/// What the process does that makes a stray store: the protection's name, where it stores, a file.
const STRAY: &str = "PANDO_PMEM_STRAY";

/// Where the process of the test below stores without a window, and what.
const STRAY_AT: Offset = Offset::new(BYTES - 64);

/// The process of the test below, and nothing when tests run as they are.
#[test]
fn stray() {
    let Ok(told) = std::env::var(STRAY) else {
        return;
    };
    let [name, place, path] = told.splitn(3, ' ').collect::<Vec<_>>()[..] else {
        panic!("{told}");
    };
    let protection = protections().find(|protection| protection.name() == name);
    let medium = Medium::SharedMemory;
    let open = || Mapped::open(Path::new(path), None, medium, protection.unwrap());
    let mapped = reopen(open);
    let mapping = match place {
        "where-it-is-read" => &mapped.mapping,
        _ => mapped.protector.writable(&mapped.mapping),
    };
    // SAFETY: it lies in the mapping.
    let at = unsafe { mapping.start().add(STRAY_AT.get() as usize) };
    let at = at.addr().get();
    let store = move || {
        // SAFETY: none, which is the point.
        unsafe { (at as *mut u64).write_volatile(u64::MAX) };
    };
    {
        // It was open, and is closed again.
        let _window = Writes::new(&mapped);
        mapped.store(STRAY_AT.plus(8), 1);
    }
    if place == "beside-a-window" {
        let (opened, is_open) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let mapped = &mapped;
            scope.spawn(move || {
                let _window = Writes::new(mapped);
                mapped.store(STRAY_AT.plus(16), 1);
                opened.send(()).unwrap();
                std::thread::park();
            });
            is_open.recv().unwrap();
            store();
            // For the reports of a protection that failed: nobody waits for the other thread.
            std::process::exit(0);
        });
    }
    store();
}

/// A stray store ends the process where the pool is protected, and leaves the pool as it was; it
/// gets through where it is not.
#[test]
fn a_stray_store_ends_its_process() {
    use std::os::unix::process::ExitStatusExt;
    const SIGSEGV: i32 = 11;
    let places = |protection| match protection {
        Protection::Keys => &["where-it-is-read", "where-it-is-stored", "beside-a-window"][..],
        _ => &["where-it-is-read"],
    };
    for protection in protections() {
        for place in places(protection) {
            let case = format!("{}-{place}", protection.name());
            let scratch = Scratch::new(&format!("stray-{case}"));
            let pool = Pool::create(create(&scratch, Protection::None), SHAPE).unwrap();
            pool.begin(LogEpoch(1)).unwrap();
            pool.commit(LogEpoch(1)).unwrap();
            drop(pool);
            let path = scratch.0.display();
            let status = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "mapped::tests::stray", "--nocapture"])
                .env(STRAY, format!("{} {place} {path}", protection.name()))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .unwrap();
            let is_protected = protection != Protection::None;
            assert_eq!(status.signal(), is_protected.then_some(SIGSEGV), "{case}");
            let pool = Pool::open(reopen(|| open(&scratch)), SHAPE.node_bytes).unwrap();
            assert_eq!(pool.committed(), LogEpoch(1), "{case}");
            let word = |at| pool.memory().load(at);
            let expected = if is_protected { 0 } else { u64::MAX };
            assert_eq!(word(STRAY_AT), expected, "{case}");
            assert_eq!(word(STRAY_AT.plus(8)), 1, "{case}: in a window it may");
        }
    }
}

/// What one address has stored the other one loads, and threads that had no window read.
#[test]
fn a_pool_that_is_protected_is_read_by_everybody() {
    for protection in protections() {
        let scratch = Scratch::new(&format!("read-{}", protection.name()));
        let mapped = create(&scratch, protection);
        assert_eq!(mapped.protected_by(), protection);
        std::thread::scope(|scope| {
            let (stored, is_stored) = std::sync::mpsc::channel();
            let mapped = &mapped;
            let reader = scope.spawn(move || {
                is_stored.recv().unwrap();
                mapped.load(Offset::new(64)) + mapped.row(Offset::new(72), 1).load(0)
            });
            let _window = Writes::new(mapped);
            mapped.store(Offset::new(64), 1);
            assert_eq!(mapped.compare_exchange(Offset::new(64), 1, 2), Ok(1));
            mapped.write(Offset::new(72), &5_u64.to_le_bytes());
            mapped.expect_writes(Offset::new(8192), 8192);
            mapped.store(Offset::new(8192), 3);
            stored.send(()).unwrap();
            assert_eq!(reader.join().unwrap(), 7);
        });
        // SAFETY: nobody writes.
        assert_eq!(unsafe { mapped.read(Offset::new(8192), 1) }, [3]);
        // The window has ended, and another one may begin.
        mapped.commit(Offset::new(128), 3).unwrap();
    }
}

#[test]
fn every_promise_names_both_failures() {
    for medium in [Medium::Dax, Medium::DaxWithCaches, Medium::SharedMemory] {
        let promise = medium.promise();
        assert!(promise.contains("crash of the process"), "{promise}");
        assert!(promise.contains("loss of power"), "{promise}");
    }
}

/// Where the process that is to be killed finds its pool.
const VICTIM: &str = "PANDO_PMEM_VICTIM";

/// How many blocks an epoch leaves.
const KEPT: u64 = 3;

/// The process of the test below, and nothing when tests run as they are.
#[test]
fn victim() {
    let Ok(path) = std::env::var(VICTIM) else {
        return;
    };
    let medium = Medium::SharedMemory;
    let mapped = Mapped::create(Path::new(&path), BYTES, medium, Protection::None).unwrap();
    let allocator = Allocator::new(Arc::new(Pool::create(mapped, SHAPE).unwrap())).unwrap();
    let pool = allocator.pool();
    let mut held = std::collections::VecDeque::new();
    for epoch in (pool.first_epoch().0..).map(LogEpoch) {
        pool.begin(epoch).unwrap();
        let at = allocator.allocate(200, epoch).unwrap();
        pool.memory().store(at, epoch.0);
        pool.memory().flush(at, 8);
        held.push_back(at);
        if held.len() as u64 > KEPT {
            allocator.free(held.pop_front().unwrap(), epoch);
        }
        allocator.settle();
        pool.commit(epoch).unwrap();
        allocator.set_horizon(epoch);
        println!("committed {epoch}");
    }
}

#[test]
fn a_killed_process_leaves_what_it_committed() {
    use std::io::BufRead;
    use std::process::{Command, Stdio};
    for lines in [1, 40, 400] {
        let scratch = Scratch::new(&format!("killed-{lines}"));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "mapped::tests::victim", "--nocapture"])
            .env(VICTIM, &scratch.0)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let told = io::BufReader::new(child.stdout.take().unwrap()).lines();
        let told = told.map_while(Result::ok);
        let epochs = told.filter_map(|line| line.strip_prefix("committed ")?.parse::<u64>().ok());
        let acknowledged = epochs.take(lines).last().expect("it commits");
        child.kill().unwrap();
        child.wait().unwrap();

        let pool = Pool::open(reopen(|| open(&scratch)), SHAPE.node_bytes).unwrap();
        let committed = pool.committed().0;
        assert!(committed >= acknowledged, "{committed} of {acknowledged}");
        let allocator = Allocator::new(Arc::new(pool)).unwrap();
        let mut held = Vec::new();
        allocator.blocks(|at, _, state| {
            if state == BlockState::Taken {
                held.push(allocator.pool().memory().load(at));
            }
        });
        held.sort_unstable();
        let first = committed.saturating_sub(KEPT - 1).max(1);
        assert_eq!(held, (first..=committed).collect::<Vec<_>>());
    }
}

#[test]
fn pages_that_are_expected_hold_what_they_held() {
    const HUGE: u64 = 2 << 20;
    let scratch = Scratch::new("expected");
    let medium = Medium::SharedMemory;
    let memory = Mapped::create(&scratch.0, 4 * HUGE, medium, Protection::None).unwrap();
    let blocks = fs::metadata(&scratch.0).unwrap().blocks();
    assert_eq!(512 * blocks, 4 * HUGE, "PX3 room-first");
    let words = [HUGE - 8, HUGE, HUGE + 4096, 2 * HUGE - 8, 2 * HUGE].map(Offset::new);
    for at in words {
        memory.store(at, at.get());
    }
    // Of one that begins, one that ends, and one that would go beyond the pool.
    for from in [HUGE - 4096, 2 * HUGE - 4096, 4 * HUGE - 4096] {
        memory.expect_writes(Offset::new(from), (HUGE / 32).min(4 * HUGE - from) as usize);
    }
    assert!(words.iter().all(|at| memory.load(*at) == at.get()));
    assert_eq!(memory.load(Offset::new(HUGE + 8)), 0);
}
