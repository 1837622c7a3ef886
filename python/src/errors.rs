//! Failures as the package's exceptions, which are classes of `edgecut._errors`.

use edgecut_cli::Failure;
use pyo3::{call::PyCallArgs, exceptions::PyRuntimeError, prelude::*};

/// The exception for `failure`; of a model, with the place in its file.
pub fn exception(py: Python<'_>, failure: &Failure) -> PyErr {
    let text = failure.report().map_or_else(String::new, ToString::to_string);
    match (failure, failure.import_error()) {
        (Failure::Model(_), Some(error)) => {
            let place = error.spot.as_ref().map(|spot| (spot.line, spot.column));
            let (line, column) = place.unzip();
            let what = error.fault.to_string();
            raised(py, "ModelError", (text, &error.file, line, column, what))
        }
        (Failure::Model(_), None) => raised(py, "ModelError", (text,)),
        (Failure::BadInput(_), _) => raised(py, "InputError", (text,)),
        (Failure::Cluster(_), _) => raised(py, "ClusterError", (text,)),
        (Failure::Agent(_), _) => raised(py, "AgentError", (text,)),
        (Failure::NoPlan(_), _) => raised(py, "PlanError", (text,)),
        (Failure::Failed(_) | Failure::Stopped, _) => raised(py, "EdgecutError", (text,)),
    }
}

/// What cannot happen unless the package itself is wrong.
pub fn bug(what: impl std::fmt::Display) -> PyErr {
    PyRuntimeError::new_err(format!("edgecut failed, please report it: {what}"))
}

/// The exception `class(*arguments)`, or what prevents that.
fn raised<'py>(py: Python<'py>, class: &str, arguments: impl PyCallArgs<'py>) -> PyErr {
    let class = py.import("edgecut._errors").and_then(|module| module.getattr(class));
    match class.and_then(|class| class.call1(arguments)) {
        Ok(value) => PyErr::from_value(value),
        Err(error) => error,
    }
}
