//! Compiled tract plans.

use tract_core::internal::*;

use crate::{EngineError, panics::catch_panic};

/// Compiles `model` to a plan; errors name the operator `name`.
pub(super) fn compile(options: &RunOptions, name: &str, model: TypedModel) -> Result<TypedSimpleState, EngineError> {
    let error = |what| EngineError::Operator { operator: name.to_string(), what };
    catch_panic(|| start(model, options)).map_err(error)?.map_err(|e| error(format!("{e:#}")))
}

/// A plan for `model`, ready to run.
pub(super) fn start(model: TypedModel, options: &RunOptions) -> TractResult<TypedSimpleState> {
    TypedSimplePlan::new_with_options(model, options)?.spawn()
}
