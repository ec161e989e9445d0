//! Loggers, preparer, epoch thread and sessions at once, on both disks.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, RwLock, Weak};
use std::time::{Duration, Instant};

use pando_sync::{LogEpoch, Milliseconds};

use super::harness::*;
use crate::disk::{Access, Disk, DiskFile, RealDisk, Room, SimulatedDisk};
use crate::log::{Due, Log, LogOptions, LogScan, LogState, ScanOptions};

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_mins(2);

/// Groups that each session writes.
const GROUPS: u64 = 400;

/// What the sessions share: gates, the clock, and where they wait.
struct World {
    log: Arc<Log>,
    gates: RwLock<()>,
    clock: AtomicU64,
    woken: (Mutex<u64>, Condvar),
}

impl World {
    /// Ends the current epoch and writes it, if nobody else is at work.
    fn write_himself(&self) {
        if self.log.is_quick()
            && let Ok(all) = self.gates.try_write()
        {
            let epoch = self.clock.fetch_add(1, Ordering::Relaxed);
            let sealed = self.log.seal(LogEpoch(epoch), Milliseconds(1));
            drop(all);
            sealed.flush();
        }
    }

    /// Waits until an epoch is durable. `false`: it will never be.
    fn wait(&self, epoch: u64) -> bool {
        if self.log.want(LogEpoch(epoch)) {
            return true;
        }
        let state = self.woken.0.lock().unwrap();
        let waits = |_: &mut u64| {
            let failed = matches!(self.log.state(), LogState::Failed { .. });
            self.log.durable() < LogEpoch(epoch) && !failed
        };
        let waited = self
            .woken
            .1
            .wait_timeout_while(state, PATIENCE, waits)
            .unwrap();
        assert!(
            !waited.1.timed_out(),
            "epoch {epoch} was forgotten: {:?}",
            self.log.statistics()
        );
        drop(waited);
        self.log.durable() >= LogEpoch(epoch)
    }

    /// The epoch thread.
    fn tick(&self) {
        let mut rng = fastrand::Rng::with_seed(9);
        while self.log.wait_until_due(Duration::from_millis(3)) != Due::Stopped {
            let all = self.gates.write().unwrap();
            let epoch = self.clock.fetch_add(1, Ordering::Relaxed);
            if rng.bool() {
                self.log.close_epoch(LogEpoch(epoch), Milliseconds(1));
                drop(all);
            } else {
                let sealed = self.log.seal(LogEpoch(epoch), Milliseconds(1));
                drop(all);
                sealed.flush();
            }
        }
    }

    /// A session: what it wrote, and the newest epoch that was acknowledged.
    fn work(&self, index: u64, cut: impl Fn(u64)) -> (Vec<(u64, u64, u64)>, u64) {
        let mut rng = fastrand::Rng::with_seed(index);
        let mut session = self.log.session(index as usize);
        let (mut wrote, mut acknowledged) = (Vec::new(), 0);
        for round in 0..GROUPS {
            session.wait_for_room();
            let gate = self.gates.read().unwrap();
            let epoch = self.clock.load(Ordering::Relaxed);
            let (group, records) = (index * GROUPS + round, rng.u64(1..4));
            let bytes = if rng.u8(..50) == 0 {
                9000
            } else {
                rng.usize(..100)
            };
            write_group(&mut session, group, 0..records, records, bytes);
            session.end_group(LogEpoch(epoch));
            session.hand_over();
            wrote.push((epoch, group, records));
            drop(gate);
            if rng.u8(..4) == 0 {
                if rng.bool() {
                    self.write_himself();
                }
                if !self.wait(epoch) {
                    break;
                }
                acknowledged = epoch;
            }
            cut(round);
        }
        (wrote, acknowledged)
    }
}

/// Runs four sessions to the end, or until `cut` ends the power; checks what is found then.
fn stress(
    disk: &Arc<dyn Disk>,
    options: LogOptions,
    cut: &(dyn Fn(u64) + Sync),
    found_on: impl Fn() -> Arc<dyn Disk>,
) {
    let threads = ScanOptions {
        threads: 2,
        sync: true,
    };
    let directories = options.directories.clone();
    let scan = LogScan::read(disk, &directories, threads).unwrap();
    let log = Log::open(
        options,
        Arc::clone(disk),
        &scan.cut(LogEpoch(0), LogEpoch(0)).unwrap(),
    )
    .unwrap();
    let world = Arc::new(World {
        clock: AtomicU64::new(log.durable().next().0),
        log: Arc::clone(&log),
        gates: RwLock::new(()),
        woken: (Mutex::new(0), Condvar::new()),
    });
    let weak = Arc::downgrade(&world);
    log.on_durable(Box::new(move |epoch| {
        if let Some(world) = weak.upgrade() {
            *world.woken.0.lock().unwrap() = epoch.0;
            world.woken.1.notify_all();
        }
    }));
    let mut model = Model::default();
    std::thread::scope(|scope| {
        let ticker = scope.spawn(|| world.tick());
        let world = &world;
        let sessions: Vec<_> = (0..4)
            .map(|index| scope.spawn(move || world.work(index, cut)))
            .collect();
        for session in sessions {
            let (wrote, acknowledged) = session.join().unwrap();
            for (epoch, group, records) in wrote {
                model
                    .epochs
                    .entry(epoch)
                    .or_default()
                    .insert(group, records);
            }
            model.acknowledged = model.acknowledged.max(acknowledged);
        }
        if matches!(log.state(), LogState::Failed { .. }) {
            log.close().unwrap_err();
        } else {
            let last = world.clock.load(Ordering::Relaxed);
            assert!(world.wait(last));
            model.acknowledged = last;
            log.close().unwrap();
        }
        ticker.join().unwrap();
    });
    assert!(model.acknowledged > 0);
    let scan = LogScan::read(&found_on(), &directories, threads).unwrap();
    let found = read(scan.cut(LogEpoch(0), LogEpoch(0)).unwrap(), 0).unwrap();
    model.verdict(&found).unwrap();
}

fn threaded(directories: Vec<PathBuf>) -> LogOptions {
    LogOptions {
        directories,
        segment_bytes: 64 * 1024,
        pending_bytes_max: 8 * 1024,
        threads: true,
        ..options(3)
    }
}

#[test]
fn sessions_that_wait_are_all_woken_and_everything_is_found() {
    for through in [true, false] {
        let disk = disk();
        disk.set_writes_through(through);
        stress(&as_disk(&disk), threaded(directories()), &|_| {}, || {
            as_disk(&disk.crash(0))
        });
    }
    let directory = std::env::temp_dir().join(format!("pando-log-{}", std::process::id()));
    RealDisk.create_directory(&directory).unwrap();
    let real: Arc<dyn Disk> = Arc::new(RealDisk);
    stress(&real, threaded(vec![directory.clone()]), &|_| {}, || {
        Arc::clone(&real)
    });
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn what_found_no_room_is_tried_again_although_nobody_writes() {
    for inline in [true, false] {
        let disk = disk();
        disk.set_capacity(Some(1000));
        let options = LogOptions {
            logs: 1,
            ..threaded(directories())
        };
        let found = recover(&as_disk(&disk), &Model::default()).unwrap();
        let log = Log::open(options, as_disk(&disk), &found.cut).unwrap();
        let woken = Arc::new((Mutex::new(()), Condvar::new()));
        let wake = Arc::clone(&woken);
        log.on_durable(Box::new(move |_| {
            drop(wake.0.lock().unwrap());
            wake.1.notify_all();
        }));
        let wait = |until: &dyn Fn() -> bool| {
            let guard = woken.0.lock().unwrap();
            let waits = |(): &mut ()| !until();
            let waited = woken.1.wait_timeout_while(guard, PATIENCE, waits).unwrap();
            assert!(
                !waited.1.timed_out(),
                "inline {inline}: {:?}",
                log.statistics()
            );
        };
        let mut session = log.session(0);
        write_group(&mut session, 1, 0..3, 3, 100);
        session.end_group(LogEpoch(1));
        session.hand_over();
        assert!(!log.want(LogEpoch(1)));
        let sealed = log.seal(LogEpoch(1), Milliseconds(1));
        if inline {
            sealed.flush();
        } else {
            drop(sealed);
        }
        wait(&|| matches!(log.state(), LogState::Full { .. }));
        assert_eq!(log.durable(), LogEpoch(0));
        disk.set_capacity(None);
        wait(&|| log.durable() == LogEpoch(1) && log.is_open());
        log.close().unwrap();
    }
}

#[test]
fn the_power_may_end_while_all_are_at_work() {
    for round in 0..10 {
        let disk: SimulatedDisk = disk();
        disk.set_writes_through(round % 2 == 0);
        let cut = |at: u64| {
            if at == 100 + 20 * round {
                disk.end_power();
            }
        };
        let options = threaded(directories());
        stress(&as_disk(&disk), options, &cut, || {
            as_disk(&disk.crash(round))
        });
    }
}

#[test]
fn threads_wait_for_room_and_go_on() {
    let disk = disk();
    disk.set_capacity(Some(5 * 64 * 1024));
    // When the disk is full, somebody makes room: as much as is needed, after a while.
    let full = |_: u64| {
        if disk.used() > 4 * 64 * 1024 {
            disk.set_capacity(None);
        }
    };
    stress(&as_disk(&disk), threaded(directories()), &full, || {
        as_disk(&disk.crash(0))
    });
}

/// A disk on which a segment begins only after the file for the next one was tried twice.
#[derive(Debug)]
struct SlowBeginnings {
    disk: SimulatedDisk,
    /// Files begun since the disk became slow; before that, nothing.
    created: Mutex<Option<usize>>,
    changed: Condvar,
    log: OnceLock<Weak<Log>>,
    /// Whether the log took writes while a segment began.
    was_open: Mutex<Vec<bool>>,
}

impl Disk for SlowBeginnings {
    fn create(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        if let Some(created) = &mut *self.created.lock().unwrap() {
            *created += 1;
            self.changed.notify_all();
        }
        self.disk.create(path, access)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let created = self.created.lock().unwrap();
        if created.is_some() {
            let few = |created: &mut Option<usize>| created.is_some_and(|it| it < 2);
            let waited = self.changed.wait_timeout_while(created, PATIENCE, few);
            assert!(!waited.unwrap().1.timed_out(), "no file was tried");
            let log = self.log.get().and_then(Weak::upgrade).expect("a log");
            self.was_open.lock().unwrap().push(log.is_open());
        }
        self.disk.rename(from, to)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open(path, access)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.disk.list(directory)
    }

    fn create_directory(&self, directory: &Path) -> io::Result<()> {
        self.disk.create_directory(directory)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.disk.sync_directory(directory)
    }

    fn room(&self, directory: &Path) -> io::Result<Room> {
        self.disk.room(directory)
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskFile>>> {
        self.disk.try_lock(path)
    }
}

/// The last file that was made ahead is taken, and there is no room for another one: that one is
/// the room, although nothing is in it yet.
#[test]
fn a_segment_that_begins_is_room() {
    let disk = Arc::new(SlowBeginnings {
        disk: disk(),
        created: Mutex::new(None),
        changed: Condvar::new(),
        log: OnceLock::new(),
        was_open: Mutex::default(),
    });
    let options = LogOptions {
        logs: 1,
        ..threaded(directories())
    };
    let as_disk: Arc<dyn Disk> = Arc::<SlowBeginnings>::clone(&disk);
    let found = recover(&as_disk, &Model::default()).unwrap();
    let log = Arc::new(Log::open(options, as_disk, &found.cut).unwrap());
    disk.log.set(Arc::downgrade(&log)).unwrap();
    let mut session = log.session(0);
    for epoch in 1.. {
        write_group(&mut session, epoch, 0..3, 3, 1000);
        session.end_group(LogEpoch(epoch));
        session.hand_over();
        log.seal(LogEpoch(epoch), Milliseconds(1)).flush();
        assert!(
            log.is_open() && log.durable() == LogEpoch(epoch),
            "epoch {epoch}"
        );
        if epoch == 1 {
            let deadline = Instant::now() + PATIENCE;
            while log.statistics().free_files == 0 {
                assert!(Instant::now() < deadline, "no file is made ahead");
                std::thread::yield_now();
            }
            disk.disk.set_capacity(Some(disk.disk.used()));
            *disk.created.lock().unwrap() = Some(0);
        }
        if !disk.was_open.lock().unwrap().is_empty() {
            break;
        }
    }
    assert_eq!(*disk.was_open.lock().unwrap(), [true]);
    drop(session);
    log.close().unwrap();
}

/// LT1 acknowledged-fits with sessions that acknowledge at once: whatever was handed over when the
/// disk turns out to be full, and was not said to wait, is written to the room that is left.
#[test]
fn what_sessions_hand_over_to_a_full_disk_is_written() {
    const SEGMENT_BYTES: u64 = 256 * 1024;
    for round in 2..6 {
        let disk = disk();
        disk.set_capacity(Some(round * SEGMENT_BYTES));
        let options = LogOptions {
            segment_bytes: SEGMENT_BYTES,
            pending_bytes_max: 64 << 20,
            logs: 1,
            ..threaded(directories())
        };
        let found = recover(&as_disk(&disk), &Model::default()).unwrap();
        let log = Log::open(options, as_disk(&disk), &found.cut).unwrap();
        let world = World {
            clock: AtomicU64::new(log.durable().next().0),
            log: Arc::clone(&log),
            gates: RwLock::new(()),
            woken: (Mutex::new(0), Condvar::new()),
        };
        let deadline = Instant::now() + PATIENCE;
        while log.statistics().free_files == 0 {
            assert!(Instant::now() < deadline, "no file is made ahead");
            std::thread::yield_now();
        }
        // The newest epoch of what did not have to wait.
        let answered = AtomicU64::new(0);
        let work = &|index: u64| {
            let mut session = log.session(0);
            for group in 0.. {
                session.wait_for_room();
                let gate = world.gates.read().unwrap();
                if !log.is_open() {
                    return;
                }
                let epoch = world.clock.load(Ordering::Relaxed);
                write_group(&mut session, index << 32 | group, 0..2, 2, 1000);
                session.end_group(LogEpoch(epoch));
                let waits = session.is_beyond_room();
                if !waits {
                    answered.fetch_max(epoch, Ordering::Relaxed);
                }
                session.hand_over();
                drop(gate);
                if waits {
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            let ticker = scope.spawn(|| world.tick());
            let sessions: Vec<_> = (0..4)
                .map(|index| scope.spawn(move || work(index)))
                .collect();
            for session in sessions {
                session.join().unwrap();
            }
            let epoch = answered.load(Ordering::Relaxed);
            assert!(epoch > 0, "round {round}: everything had to wait");
            let deadline = Instant::now() + PATIENCE;
            while log.durable() < LogEpoch(epoch) && Instant::now() < deadline {
                std::thread::yield_now();
            }
            let (durable, at_the_end) = (log.durable(), log.statistics());
            // What had to wait may wait for ever.
            let _ = log.close();
            ticker.join().unwrap();
            assert!(
                durable >= LogEpoch(epoch),
                "round {round}: epoch {epoch}, {at_the_end:?}"
            );
        });
    }
}
