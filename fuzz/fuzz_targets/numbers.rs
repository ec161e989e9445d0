//! Numbers are read and printed alike. The oracle is `pando_protocol::fuzz::numbers`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pando_protocol::fuzz::numbers(data));
