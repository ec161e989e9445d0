//! memcached requests are the same however their bytes arrive.
//! The oracle is `pando_protocol::fuzz::memcached_requests`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pando_protocol::fuzz::memcached_requests(data));
