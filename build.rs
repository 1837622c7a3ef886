//! Tells tests whether the conformance data lies next to the checkout: `cfg(shared)`. Without it, what needs the data is
//! listed as ignored. `cfg(gpu)` tells whether a driver for NVIDIA GPUs is loaded.

use std::path::Path;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(shared)");
    println!("cargo::rustc-check-cfg=cfg(gpu)");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=EDGECUT_REQUIRE_GPU");
    println!("cargo::rerun-if-env-changed=EDGECUT_REQUIRE_SHARED");
    let required = std::env::var_os("EDGECUT_REQUIRE_GPU").is_some();
    if required || Path::new("/proc/driver/nvidia/version").exists() {
        println!("cargo::rustc-cfg=gpu");
    }
    if Path::new("../shared/relay").exists() {
        println!("cargo::rustc-cfg=shared");
    }
}
