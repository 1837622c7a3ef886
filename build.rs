//! Tells tests whether the conformance data lies next to the checkout: `cfg(shared)`. Without it, what needs the data is
//! listed as ignored. Tests that need an NVIDIA GPU are ignored unless EDGECUT_REQUIRE_GPU is set, which sets `cfg(gpu)`.
//! `cfg(gpu_driver)` is set where NVIDIA's driver is loaded: tests that want a machine without it are then ignored.

use std::path::Path;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(shared)");
    println!("cargo::rustc-check-cfg=cfg(gpu)");
    println!("cargo::rustc-check-cfg=cfg(gpu_driver)");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=EDGECUT_REQUIRE_GPU");
    println!("cargo::rerun-if-env-changed=EDGECUT_REQUIRE_SHARED");
    if std::env::var_os("EDGECUT_REQUIRE_GPU").is_some() {
        println!("cargo::rustc-cfg=gpu");
    }
    if Path::new("/proc/driver/nvidia/version").exists() {
        println!("cargo::rustc-cfg=gpu_driver");
    }
    if Path::new("../shared/relay").exists() {
        println!("cargo::rustc-cfg=shared");
    }
}
