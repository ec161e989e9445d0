//! Returns to the system what the program's allocator keeps free.
//!
//! Values above the pools' classes come from `malloc`. When their lengths change, it keeps memory
//! that was freed in lengths nobody asks for any more: free and resident, but not counted by
//! [`used_bytes`](crate::used_bytes). It returns free memory at the end of its heap itself, and the
//! rest on request (`malloc_trim`). That costs about a system call per free piece, under the heap's
//! lock. So [`Heap`] asks only when much resident memory is unused, and for a bounded share of the
//! time; a smaller share where asking gains little.
//!
//! Finding out how much is resident costs some 100 µs in the kernel, during which a worker on the
//! same core waits. So these checks also have a share of the time, too small to show in any 99.9th
//! percentile.
//!
//! Deliberately absent: allocators other than the GNU C library's, which are left alone.

use std::time::{Duration, Instant};

use crate::used_bytes;

/// Resident bytes beyond those in use that are tolerated, in addition to a share of those in use:
/// idle pool memory within the allowance, and stacks.
const SLACK_BYTES: u64 = 4 << 20;
const SLACK_SHARE: u64 = 16;

/// For how many times the duration of a request the heap is left alone: after one that gained
/// something, and after one that did not.
const REST: u32 = 32;
const REST_IN_VAIN: u32 = 256;

/// For at least how long it is left alone after a request in vain.
const REST_IN_VAIN_MIN: Duration = Duration::from_secs(1);

/// For how many times the duration of a check the next one is delayed, if there was no excess.
const REST_LOOK: u32 = 4096;

/// For at most how long: a check may have been interrupted.
const REST_LOOK_MAX: Duration = Duration::from_secs(1);

/// Resident memory in excess of use and tolerance.
fn excess_bytes(resident_bytes: u64, used_bytes: u64) -> u64 {
    let slack = SLACK_BYTES + used_bytes / SLACK_SHARE;
    resident_bytes.saturating_sub(used_bytes + slack)
}

/// State between two checks of the heap.
#[derive(Debug, Default)]
pub struct Heap {
    rests_until: Option<Instant>,
}

impl Heap {
    /// To be called now and then. `resident_bytes` returns the process's memory that belongs to no
    /// file. Returns whether memory was requested back. O(1), or O(free pieces).
    pub fn tend(&mut self, resident_bytes: impl Fn() -> u64) -> bool {
        let begun = Instant::now();
        if self.rests_until.is_some_and(|until| begun < until) {
            return false;
        }
        let before = excess_bytes(resident_bytes(), used_bytes() as u64);
        if before == 0 {
            self.rests_until = Some(Instant::now() + rest_of_look(begun.elapsed()));
            return false;
        }
        trim();
        let ended = Instant::now();
        let after = excess_bytes(resident_bytes(), used_bytes() as u64);
        self.rests_until = Some(ended + rest(ended - begun, before, after));
        true
    }
}

/// How long the heap is left alone after a request that took this long and changed the excess so.
fn rest(took: Duration, before: u64, after: u64) -> Duration {
    if after < before - before / 4 {
        took * REST
    } else {
        (took * REST_IN_VAIN).max(REST_IN_VAIN_MIN)
    }
}

/// How long the next check is delayed after one that took this long and found no excess.
fn rest_of_look(took: Duration) -> Duration {
    (took * REST_LOOK).min(REST_LOOK_MAX)
}

#[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
fn trim() {
    unsafe extern "C" {
        fn malloc_trim(pad: usize) -> i32;
    }
    // SAFETY: it may be called at any time, by any thread, and moves nothing.
    unsafe { malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu", not(miri))))]
fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_that_nobody_uses_is_let_be_up_to_a_share() {
        let used = 64 << 20;
        assert_eq!(excess_bytes(used, used), 0);
        assert_eq!(excess_bytes(used + (8 << 20), used), 0);
        assert_eq!(excess_bytes(used + (9 << 20), used), 1 << 20);
        assert_eq!(excess_bytes(0, used), 0);
    }

    #[test]
    fn asking_takes_a_bounded_share_of_the_time() {
        let took = Duration::from_millis(10);
        assert_eq!(rest(took, 100, 10), took * REST);
        assert_eq!(rest(took, 100, 90), took * REST_IN_VAIN);
        assert_eq!(rest(Duration::ZERO, 100, 100), REST_IN_VAIN_MIN);
        let mut heap = Heap::default();
        let resident = || used_bytes() as u64 + (1 << 40);
        assert!(heap.tend(resident));
        // It gained nothing: do not ask again at once, on however slow a machine.
        heap.rests_until = Some(Instant::now() + Duration::from_secs(1000));
        assert!(!heap.tend(resident));
    }

    /// A worker on the same core waits meanwhile.
    #[test]
    fn looking_takes_less_than_a_thousandth_of_the_time() {
        let took = Duration::from_micros(100);
        assert!(rest_of_look(took) > took * 1000);
        assert_eq!(rest_of_look(Duration::from_secs(10)), REST_LOOK_MAX);
        let mut heap = Heap::default();
        let looks = std::cell::Cell::new(0);
        let resident = || {
            looks.set(looks.get() + 1);
            0
        };
        assert!(!heap.tend(resident));
        assert!(heap.rests_until.is_some(), "the next look is put off");
        heap.rests_until = Some(Instant::now() + Duration::from_secs(1000));
        assert!(!heap.tend(resident));
        assert_eq!(looks.get(), 1);
    }
}
