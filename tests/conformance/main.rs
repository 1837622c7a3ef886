//! Conformance data, one test a case: operators, models and the operator registry of TVM, ONNX models and rules, and generated
//! problems with known optima.
//!
//! Relay data is read from `../shared/relay` where it lies next to the checkout, else from the sample in `tests/data`; what the
//! sample lacks is then one ignored test. `cargo test --test conformance pool` runs the cases whose name contains `pool`.

#[path = "../cases/mod.rs"]
mod cases;
mod composite_splits;
mod models;
mod onnx;
mod onnx_rules;
#[cfg(feature = "onnxruntime")]
mod onnxruntime;
mod operators;
mod problems;
mod registry;
mod splits;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

/// A test that passes unless `check` returns an error or panics.
fn trial(name: String, check: impl FnOnce() -> Result<(), String> + Send + 'static) -> Trial {
    Trial::test(name, move || check().map_err(Failed::from))
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    trials.extend(operators::trials());
    trials.extend(splits::trials());
    trials.extend(models::trials());
    trials.extend(onnx::trials());
    trials.extend(onnx_rules::trials());
    trials.extend(composite_splits::trials());
    #[cfg(feature = "onnxruntime")]
    trials.extend(onnxruntime::trials());
    trials.extend(registry::trials());
    trials.extend(problems::trials());
    trials.push(
        Trial::test("shared/relay: the cases and models that tests/data does not have", || Ok(()))
            .with_ignored_flag(!cfg!(shared)),
    );
    libtest_mimic::run(&arguments, trials).exit_code()
}
