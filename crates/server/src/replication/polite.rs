//! Work that gives way to threads that serve clients: a full copy, on both sides.

use pando_io::lower_priority;

/// By how much its priority is lower: it gets a third of what others get where there are too few
/// processors, and none of them waits for it. Not less: it holds a gate for a slice.
const NICE: i32 = 5;

/// Does work on a thread of lower priority, and waits for it. A thread cannot raise its own again.
pub(super) fn politely<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    let mut work = Some(work);
    let mut take = || work.take().expect("it is done once")();
    let done = std::thread::scope(|scope| {
        let lowered = || {
            lower_priority(NICE);
            take()
        };
        let name = std::thread::current().name().unwrap_or("copy").to_owned();
        let thread = std::thread::Builder::new().name(name);
        let started = thread.spawn_scoped(scope, lowered).ok()?;
        Some(
            started
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        )
    });
    // No thread could be started.
    done.unwrap_or_else(|| work.take().expect("it was not done")())
}
