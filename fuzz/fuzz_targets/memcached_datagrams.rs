//! Datagrams of memcached's UDP protocol hold what they say.
//! The oracle is `pando_protocol::fuzz::memcached_datagrams`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pando_protocol::fuzz::memcached_datagrams(data));
