//! Glob patterns. The oracle is `pando_protocol::fuzz::patterns`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pando_protocol::fuzz::patterns(data));
