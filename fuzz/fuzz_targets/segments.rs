//! Segments of the log, marks and groups. The oracle is `pando_durability::log::fuzz::segment`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pando_durability::log::fuzz::segment(data));
