//! Log records and the values in them. The oracle is `pando_db::fuzz::records`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pando_db::fuzz::records(data));
