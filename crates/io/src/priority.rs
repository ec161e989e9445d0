//! The scheduler's priority of a thread, and how long it waits for a processor.

use std::time::Duration;

/// Lowers the priority of this thread by so many steps of `nice`, for good: it cannot be raised
/// again. Does nothing where the system has no priorities of threads, or refuses.
#[cfg_attr(not(target_os = "linux"), allow(unused_variables))]
pub fn lower_priority(steps: i32) {
    // Of this thread alone; on other systems that is the process.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, steps);
}

/// Lets this thread run when nothing else wants its processor (`SCHED_IDLE`), for good; `false`:
/// the system has no such class, or refuses. Threads that wake take the processor from it at once.
/// Where none ever sleeps it gets a third of a percent.
#[must_use]
pub fn run_when_idle() -> bool {
    #[cfg(target_os = "linux")]
    {
        use thread_priority::{
            NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
            set_thread_priority_and_policy, thread_native_id,
        };
        let class = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
        set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, class).is_ok()
    }
    #[cfg(not(target_os = "linux"))]
    false
}

/// How long this thread was ready to run and had no processor, since its start; `None`: the system
/// does not count it. Reads a file of `/proc`: microseconds.
#[must_use]
pub fn waited_for_processor() -> Option<Duration> {
    let counts = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let waited_ns = counts.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(waited_ns))
}
