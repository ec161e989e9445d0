//! Pools with changed words. The oracle is `pando_pmem::fuzz::pool`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pando_pmem::fuzz::pool(data));
