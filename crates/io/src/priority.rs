//! The scheduler's priority of a thread.

/// Lowers the priority of this thread by so many steps of `nice`, for good: it cannot be raised
/// again. Does nothing where the system has no priorities of threads, or refuses.
#[cfg_attr(not(target_os = "linux"), allow(unused_variables))]
pub fn lower_priority(steps: i32) {
    // Of this thread alone; on other systems that is the process.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, steps);
}
