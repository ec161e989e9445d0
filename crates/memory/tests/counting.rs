//! What is counted, in a process of its own: other tests' bytes would be counted too.

use std::alloc::System;

use pando_memory::{
    Counting, THREAD_BYTES_MAX, count_elsewhere, peak_bytes, reset_peak, used_bytes,
};

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting::new(System);

/// What the threads of the test harness may hold uncounted, and allocate meanwhile.
const NOISE_BYTES: usize = 16 * THREAD_BYTES_MAX;

fn assert_near(got: usize, expected: usize) {
    assert!(
        got.abs_diff(expected) <= NOISE_BYTES,
        "{got} bytes are counted, {expected} expected"
    );
}

/// One test, since two at a time would count each other's bytes.
#[test]
fn mc1_the_sum_follows_what_is_allocated_moved_and_freed() {
    const BYTES: usize = 64 * 1024 * 1024;
    let before = used_bytes();
    let mut buffer: Vec<u8> = Vec::with_capacity(BYTES);
    assert_near(used_bytes(), before + BYTES);
    buffer.reserve_exact(2 * BYTES);
    assert_near(used_bytes(), before + 2 * BYTES);
    buffer.shrink_to(BYTES / 2);
    assert_near(used_bytes(), before + BYTES / 2);
    drop(buffer);
    let zeroed = vec![0_u8; BYTES];
    assert_near(used_bytes(), before + BYTES);
    drop(zeroed);
    assert_near(used_bytes(), before);
    assert!(peak_bytes() >= before + 2 * BYTES - NOISE_BYTES);
    reset_peak();
    assert_near(peak_bytes(), before);

    // Small pieces, each below the bound, counted by threads that end: nothing is lost.
    let pieces: Vec<Box<[u8]>> = (0..256)
        .map(|_| {
            let thread = std::thread::spawn(|| vec![0; THREAD_BYTES_MAX / 2].into_boxed_slice());
            thread.join().unwrap()
        })
        .collect();
    assert_near(used_bytes(), before + 256 * THREAD_BYTES_MAX / 2);
    drop(pieces);
    assert_near(used_bytes(), before);

    // Short ones take more than was asked for: 9 bytes take 32, 40 take 48.
    for (bytes, taken) in [(9, 32), (24, 32), (25, 48), (40, 48)] {
        let mut pieces: Vec<Box<[u8]>> = Vec::with_capacity(BYTES / 64);
        let before = used_bytes();
        pieces.extend((0..BYTES / 64).map(|_| vec![0; bytes].into_boxed_slice()));
        assert_near(used_bytes(), before + BYTES / 64 * taken);
    }
    assert_near(used_bytes(), before);

    count_elsewhere(BYTES as isize);
    assert_near(used_bytes(), before + BYTES);
    count_elsewhere(-(BYTES as isize));
    assert_near(used_bytes(), before);
}
