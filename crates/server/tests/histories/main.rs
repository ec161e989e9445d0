//! What concurrent clients see of each other, through sockets and several workers of the real
//! server, with every engine.
//!
//! | file | what holds |
//! |---|---|
//! | `keys.rs` | commands on one key are linearizable (`register.rs` checks their histories) |
//! | `transfers.rs` | transactions, optimistic ones too, neither lose nor invent money |
//! | `whole.rs` | MSET, RENAME, COPY, SWAPDB and FLUSHDB are seen whole |
//! | `ranges.rs` | a walk beside writers is sorted and meets every key that stays |
//! | `snapshots.rs` | a snapshot shows one moment, whatever is written, flushed or evicted |
//!
//! What clients do follows from a seed, which is printed; how their requests meet is the machine's.
//! `PANDO_HISTORIES_SEED` repeats a seed, and `PANDO_HISTORIES_EFFORT` multiplies the rounds. Every
//! check has a canary: something planted that it must refuse.

mod keys;
mod ranges;
mod register;
mod server;
mod snapshots;
mod transfers;
mod whole;

use std::sync::atomic::{AtomicBool, Ordering};

/// A number from the environment.
fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    Some(parsed.unwrap_or_else(|error| panic!("{name} {text:?}: {error}")))
}

/// So many rounds, or more where more effort is asked for.
fn rounds(usual: usize) -> usize {
    usual * setting("PANDO_HISTORIES_EFFORT").unwrap_or(1) as usize
}

/// The seed of a test, which is printed.
fn seed() -> u64 {
    let seed = setting("PANDO_HISTORIES_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("PANDO_HISTORIES_SEED={seed:#x}");
    seed
}

/// Tells others that a thread is over, be it by a panic.
struct Ending<'f>(&'f AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `write` in a thread, and each of `readers` again and again in another one, at least once
/// and until `write` has returned.
fn beside(write: impl FnOnce() + Send, readers: Vec<Box<dyn FnMut() + Send + '_>>) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for mut read in readers {
            let over = &over;
            scope.spawn(move || {
                read();
                while !over.load(Ordering::Relaxed) {
                    read();
                }
            });
        }
        let _ending = Ending(&over);
        write();
    });
}
