//! The file of a placement is read or refused.
//! The oracle is `pando_ring::fuzz`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pando_ring::fuzz(data));
