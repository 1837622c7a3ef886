//! Tells tests whether the conformance data lies next to the checkout: `cfg(shared)`. Without it, what needs the data is
//! listed as ignored. So is without `cfg(gpu)` what needs an NVIDIA GPU; EDGECUT_REQUIRE_GPU sets it.

use std::path::Path;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(shared)");
    println!("cargo::rustc-check-cfg=cfg(gpu)");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=EDGECUT_REQUIRE_GPU");
    println!("cargo::rerun-if-env-changed=EDGECUT_REQUIRE_SHARED");
    if std::env::var_os("EDGECUT_REQUIRE_GPU").is_some() {
        println!("cargo::rustc-cfg=gpu");
    }
    if Path::new("../shared/relay").exists() {
        println!("cargo::rustc-cfg=shared");
    }
}
