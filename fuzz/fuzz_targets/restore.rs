//! Payloads of RESTORE. The oracle is `pando_db::fuzz::restore`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pando_db::fuzz::restore(data));
