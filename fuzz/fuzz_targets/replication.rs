//! What a primary sends is a message or refused.
//! The oracle is `pando_db::fuzz::replication`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pando_db::fuzz::replication(data));
