//! Entries and cursors of KDUMP. The oracle is `pando_db::fuzz::entries`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pando_db::fuzz::entries(data));
