#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| edgecut_fuzz::external(bytes));
