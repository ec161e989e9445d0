//! Dump files of Redis. The oracle is `pando_db::fuzz::dump_file`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pando_db::fuzz::dump_file(data));
