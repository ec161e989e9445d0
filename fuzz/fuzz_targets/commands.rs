//! Requests are resolved or refused, and COMMAND answers.
//! The oracle is `pando_protocol::fuzz::commands`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pando_protocol::fuzz::commands(data));
