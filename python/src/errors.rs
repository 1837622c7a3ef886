//! Failures as the package's exceptions, which are classes of `edgecut._errors`.

use edgecut_session::Error;
use pyo3::{call::PyCallArgs, exceptions::PyRuntimeError, prelude::*};

/// The exception for `error`; of a model, with the place in its file.
pub fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let text = error.message().map_or_else(String::new, ToString::to_string);
    match (error, error.import_error()) {
        (Error::Model(_), Some(cause)) => {
            let place = cause.spot.as_ref().map(|spot| (spot.line, spot.column));
            let (line, column) = place.unzip();
            let what = cause.fault.to_string();
            raised(py, "ModelError", (text, &cause.file, line, column, what))
        }
        (Error::Model(_), None) => raised(py, "ModelError", (text,)),
        (Error::BadInput(_), _) => raised(py, "InputError", (text,)),
        (Error::Cluster(_), _) => raised(py, "ClusterError", (text,)),
        (Error::Agent(_), _) => raised(py, "AgentError", (text,)),
        (Error::NoPlan(_), _) => raised(py, "PlanError", (text,)),
        (Error::Failed(_) | Error::Cancelled, _) => raised(py, "EdgecutError", (text,)),
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
