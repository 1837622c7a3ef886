//! Every operator case that TVM computed, on the CPU engine, against TVM's outputs.
//!
//! `EDGECUT_CASES=pool cargo test --test operator_cases` runs the families or cases whose name contains `pool`.

mod cases;

use std::panic::{AssertUnwindSafe, catch_unwind};

use edgecut::engine::CpuEngine;

#[test]
fn operators_compute_what_tvm_computes() {
    let Some(cases) = cases::all() else { return };
    let wanted = std::env::var("EDGECUT_CASES").unwrap_or_default();
    let engine = CpuEngine::new(1).unwrap();
    let (mut ran, mut wrong) = (0, Vec::new());
    for case in cases {
        let name = format!("{}/{}", case.family, case.name);
        if !name.contains(&wanted) {
            continue;
        }
        ran += 1;
        match catch_unwind(AssertUnwindSafe(|| case.run(&engine))) {
            Ok(Ok(())) => {}
            Ok(Err(why)) => wrong.push(format!("{name}: {why}")),
            Err(_) => wrong.push(format!("{name}: panicked")),
        }
    }
    assert!(wrong.is_empty(), "{} of {ran} cases differ:\n{}", wrong.len(), wrong.join("\n"));
}
