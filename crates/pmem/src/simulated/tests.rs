//! The simulation shows what a crash may leave, all of it and nothing else.

use std::collections::BTreeSet;

use super::*;

const WORD: u64 = WORD_BYTES;

fn at(line: u64, word: u64) -> Offset {
    Offset::new(line * LINE_BYTES + word * WORD)
}

fn recording(lines: usize) -> Simulated {
    Simulated::recording(vec![0; lines * 8])
}

/// The values of some words in every image of every crash, by crash.
fn seen(trace: &Trace, platform: Platform, places: &[Offset]) -> Vec<BTreeSet<Vec<u64>>> {
    let mut all = Vec::new();
    trace.crashes(platform, |crash| {
        let images = crash.images(Sampling::default());
        let values = images.map(|image| {
            let memory = image.memory();
            places.iter().map(|at| memory.load(*at)).collect()
        });
        all.push(values.collect());
    });
    all
}

fn set<const N: usize>(values: impl IntoIterator<Item = [u64; N]>) -> BTreeSet<Vec<u64>> {
    values.into_iter().map(|value| value.to_vec()).collect()
}

#[test]
fn words_and_bytes_are_where_they_were_put() {
    let memory = Simulated::new(1000);
    assert_eq!(memory.bytes(), 1024);
    let at = Offset::new(64);
    memory.store(at, 0x0102);
    assert_eq!(memory.load(at), 0x0102);
    assert_eq!(memory.compare_exchange(at, 3, 4), Err(0x0102));
    assert_eq!(memory.compare_exchange(at, 0x0102, 4), Ok(0x0102));
    memory.store(at.plus(16), u64::MAX);
    memory.write(at.plus(8), b"eleven byte");
    // SAFETY: nobody writes.
    let read = unsafe { memory.read(at, 24) };
    assert_eq!(read, b"\x04\0\0\0\0\0\0\0eleven byte\0\0\0\0\0");
    // SAFETY: nobody writes.
    assert_eq!(unsafe { memory.read(Offset::new(73), 3) }, b"lev");
}

#[test]
#[should_panic(expected = "8 bytes at 0x3f9 of 1024")]
fn what_lies_outside_is_refused() {
    let memory = Simulated::new(1024);
    // SAFETY: nobody writes.
    let _ = unsafe { memory.read(Offset::new(1017), 8) };
}

#[test]
#[should_panic(expected = "a word begins at 0x4")]
fn a_word_has_its_place() {
    Simulated::new(1024).load(Offset::new(4));
}

#[test]
fn a_line_holds_any_prefix_of_its_stores_and_lines_know_no_order() {
    let memory = recording(2);
    memory.store(at(0, 0), 1);
    memory.store(at(0, 1), 1);
    memory.store(at(1, 0), 1);
    memory.store(at(0, 0), 2);
    let found = seen(
        &memory.trace(),
        Platform::Lines,
        &[at(0, 0), at(0, 1), at(1, 0)],
    );
    let firsts = [[0, 0], [1, 0], [1, 1], [2, 1]];
    let all = firsts.iter().flat_map(|[a, b]| [[*a, *b, 0], [*a, *b, 1]]);
    assert_eq!(found, [set(all)]);
}

#[test]
fn words_know_no_order_where_only_they_are_whole() {
    let memory = recording(1);
    memory.store(at(0, 0), 1);
    memory.store(at(0, 1), 1);
    let found = seen(&memory.trace(), Platform::Words, &[at(0, 0), at(0, 1)]);
    assert_eq!(found, [set([[0, 0], [0, 1], [1, 0], [1, 1]])]);
}

#[test]
fn the_words_of_one_write_arrive_in_either_order() {
    let memory = recording(1);
    memory.write(at(0, 0), &[1; 16]);
    let one = u64::from_le_bytes([1; 8]);
    let found = seen(&memory.trace(), Platform::Lines, &[at(0, 0), at(0, 1)]);
    assert_eq!(found, [set([[0, 0], [one, 0], [0, one], [one, one]])]);
}

#[test]
fn a_fence_makes_durable_what_was_flushed_before_it_and_nothing_else() {
    let memory = recording(2);
    memory.store(at(0, 0), 1);
    memory.flush(at(0, 0), 8);
    memory.store(at(0, 0), 2);
    memory.store(at(1, 0), 1);
    memory.fence();
    let found = seen(&memory.trace(), Platform::Lines, &[at(0, 0), at(1, 0)]);
    assert_eq!(
        found[0],
        set([[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1]])
    );
    assert_eq!(found[1], set([[1, 0], [2, 0], [1, 1], [2, 1]]));
}

#[test]
fn a_fence_orders_the_flushes_of_its_own_thread() {
    let memory = recording(1);
    memory.store(at(0, 0), 1);
    thread::scope(|scope| {
        scope.spawn(|| memory.flush(at(0, 0), 8));
    });
    memory.fence();
    let found = seen(&memory.trace(), Platform::Lines, &[at(0, 0)]);
    assert_eq!(found[1], set([[0], [1]]));
}

#[test]
fn a_commit_is_never_seen_before_what_it_covers() {
    for platform in [Platform::Lines, Platform::Words, Platform::Commits] {
        let memory = recording(2);
        memory.store(at(0, 0), 1);
        memory.flush(at(0, 0), 8);
        memory.commit(at(1, 0), 1).unwrap();
        memory.store(at(0, 0), 2);
        let found = seen(&memory.trace(), platform, &[at(0, 0), at(1, 0)]);
        assert!(
            found.iter().flatten().all(|seen| *seen != [0, 1]),
            "{platform:?}"
        );
        let last = if platform == Platform::Commits {
            set([[1, 1]])
        } else {
            set([[1, 1], [2, 1]])
        };
        assert_eq!(found.last(), Some(&last), "{platform:?}");
    }
}

/// The commonest protocol: a record, then a word that says that it is there.
fn publish(memory: &Simulated) {
    memory.store(at(1, 0), 7);
    memory.mark(Mark("record: flush"));
    memory.flush(at(1, 0), 8);
    memory.mark(Mark("record: fence"));
    memory.fence();
    memory.store(at(0, 0), 1);
    memory.mark(Mark("word: flush"));
    memory.flush(at(0, 0), 8);
    memory.mark(Mark("word: fence"));
    memory.fence();
    memory.note(1);
}

/// Whether every image shows the record where it shows the word, and the word once it was noted.
fn is_sound(trace: &Trace, sampling: Sampling) -> bool {
    let mut sound = true;
    trace.crashes(Platform::Lines, |crash| {
        for image in crash.images(sampling) {
            let memory = image.memory();
            let (word, record) = (memory.load(at(0, 0)), memory.load(at(1, 0)));
            sound &= word == 0 || record == 7;
            sound &= word == 1 || crash.noted().is_empty();
        }
    });
    sound
}

#[test]
fn canary_each_flush_and_fence_left_out_is_found() {
    let memory = recording(2);
    publish(&memory);
    let trace = memory.trace();
    let few = Sampling {
        exhaustive_max: 1,
        samples: 0,
        seed: 0,
    };
    for sampling in [Sampling::default(), few] {
        assert!(is_sound(&trace, sampling));
        let marks = trace.marks();
        assert_eq!(marks.len(), 4);
        for counted in marks {
            assert_eq!(counted.flushes + counted.fences, 1);
            let mark = counted.mark.expect("all are named");
            assert!(!is_sound(&trace.without(mark, None), sampling), "{mark:?}");
            assert!(
                !is_sound(&trace.without(mark, Some(0)), sampling),
                "{mark:?}"
            );
            assert!(
                is_sound(&trace.without(mark, Some(1)), sampling),
                "{mark:?}"
            );
        }
    }
}

#[test]
fn canary_each_flush_and_fence_of_a_commit_is_needed() {
    let memory = recording(2);
    memory.store(at(1, 0), 7);
    memory.flush(at(1, 0), 8);
    memory.commit(at(0, 0), 1).unwrap();
    memory.note(1);
    let trace = memory.trace();
    assert!(is_sound(&trace, Sampling::default()));
    for mark in [COMMIT_BEFORE, COMMIT_FLUSH, COMMIT_AFTER] {
        assert!(
            !is_sound(&trace.without(mark, None), Sampling::default()),
            "{mark:?}"
        );
    }
}

#[test]
fn too_many_images_are_sampled_and_the_extremes_are_among_them() {
    let memory = recording(40);
    for line in 0..40 {
        memory.store(at(line, 0), 1);
    }
    let sampling = Sampling {
        exhaustive_max: 100,
        samples: 10,
        seed: 1,
    };
    memory.trace().crashes(Platform::Lines, |crash| {
        assert_eq!(crash.image_count(), 1 << 40);
        let sums: Vec<u64> = crash
            .images(sampling)
            .map(|image| image.words().iter().sum())
            .collect();
        // In the order of the run: 41; one line new, one line old: 40 each; and the samples.
        assert_eq!(sums.len(), 41 + 40 + 40 + 10);
        assert_eq!(sums[..41], (0..=40).collect::<Vec<_>>());
        assert_eq!(sums[41..81], [1; 40]);
        assert_eq!(sums[81..121], [39; 40]);
        let again: Vec<u64> = crash
            .images(sampling)
            .map(|image| image.words().iter().sum())
            .collect();
        assert_eq!(sums, again);
    });
}

#[test]
fn a_crash_in_a_recovery_is_a_crash_of_its_image() {
    let memory = recording(2);
    publish(&memory);
    let mut images = 0;
    memory.trace().crashes(Platform::Lines, |crash| {
        for image in crash.images(Sampling::default()) {
            let again = image.recording();
            publish(&again);
            assert!(is_sound_after(&again.trace()));
            images += 1;
        }
    });
    assert_eq!(images, 2 + 2 + 1);
}

/// As `is_sound`, where the word may stand there from before.
fn is_sound_after(trace: &Trace) -> bool {
    let mut sound = true;
    trace.crashes(Platform::Lines, |crash| {
        for image in crash.images(Sampling::default()) {
            let memory = image.memory();
            sound &= memory.load(at(0, 0)) == 0 || memory.load(at(1, 0)) == 7;
        }
    });
    sound
}

#[test]
fn threads_leave_a_trace_in_the_order_of_their_stores() {
    let memory = recording(1);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let mut seen = memory.load(at(0, 0));
                    while let Err(now) = memory.compare_exchange(at(0, 0), seen, seen + 1) {
                        seen = now;
                    }
                }
            });
        }
    });
    memory.flush(at(0, 0), 8);
    memory.fence();
    let found = seen(&memory.trace(), Platform::Lines, &[at(0, 0)]);
    assert_eq!(found[0].len(), 401);
    assert_eq!(found[1], set([[400]]));
}
