//! Work on several threads at once, and how long it takes.

use std::ops::Range;
use std::sync::Barrier;
use std::thread::ScopedJoinHandle;
use std::time::Instant;

/// What work on several threads took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ran {
    /// From the first start to the last end.
    pub(crate) seconds: f64,
    /// On processors, of all threads together: what a busy machine leaves comparable.
    pub(crate) cpu_seconds: f64,
    /// Of what the threads return.
    pub(crate) sum: u64,
    threads: usize,
}

impl Ran {
    /// Prints the rate in millions per second, and what it would have been had no thread waited
    /// for a processor.
    pub(super) fn print(self, name: &str, operations: usize) {
        print_rate(name, operations, self.seconds);
        if self.cpu_seconds > 0.0 {
            let seconds = self.cpu_seconds / self.threads as f64;
            print_rate(&format!("{name}{BY_CPU}"), operations, seconds);
        }
    }
}

/// What the names of figures by processor time end in.
pub(super) const BY_CPU: &str = ", by processor time";

/// What this thread has run, in seconds; 0 where the kernel does not tell. Of the scheduler's own
/// account, not of the clock of threads: rustix looks that up in the vDSO, which is not there under
/// callgrind, and `guard` counts instructions there.
pub(crate) fn thread_seconds() -> f64 {
    // The account is brought up to date when a thread gives way.
    std::thread::yield_now();
    let account = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ran_ns = account.split(' ').next().and_then(|word| word.parse().ok());
    ran_ns.unwrap_or(0.0) / 1e9
}

/// As [`run_threads`]: seconds and the sum.
pub(super) fn on_threads<W>(
    threads: usize,
    worker: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, usize) -> u64 + Sync,
) -> (f64, u64) {
    let ran = run_threads(threads, worker, work);
    (ran.seconds, ran.sum)
}

/// Runs `work` on all threads at once, each with a worker of its own. The threads read the clock
/// themselves: on busy cores a thread that waits for them may run again only when they are done.
pub(crate) fn run_threads<W>(
    threads: usize,
    worker: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, usize) -> u64 + Sync,
) -> Ran {
    let barrier = Barrier::new(threads);
    let parts: Vec<(Instant, Instant, f64, u64)> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|thread| {
                let (barrier, worker, work) = (&barrier, &worker, &work);
                scope.spawn(move || {
                    let mut worker = worker();
                    barrier.wait();
                    let cpu_start = thread_seconds();
                    let start = Instant::now();
                    let sum = work(&mut worker, thread);
                    (start, Instant::now(), thread_seconds() - cpu_start, sum)
                })
            })
            .collect();
        let join = |handle: ScopedJoinHandle<'_, _>| handle.join().expect("a worker panicked");
        handles.into_iter().map(join).collect()
    });
    let start = parts.iter().map(|part| part.0).min();
    let end = parts.iter().map(|part| part.1).max();
    let seconds = start
        .zip(end)
        .map_or(0.0, |(start, end)| (end - start).as_secs_f64());
    Ran {
        seconds,
        cpu_seconds: parts.iter().map(|part| part.2).sum(),
        sum: parts.iter().map(|part| part.3).fold(0, u64::wrapping_add),
        threads,
    }
}

/// The part of `count` that belongs to one thread.
pub(super) fn share(count: usize, threads: usize, thread: usize) -> Range<usize> {
    count * thread / threads..count * (thread + 1) / threads
}

/// Prints a figure in millions per second.
pub(super) fn print_rate(name: &str, operations: usize, seconds: f64) {
    println!("{name} {}", operations as f64 / seconds / 1e6);
}
