//! How one step is computed: by a plan that tract made beforehand, or typed late.

use std::collections::HashMap;

use tract_core::internal::*;

use super::{Core, late::Late, lower};
use crate::{
    engine::{EngineError, contain::contain},
    graph::{Graph, TensorId},
};

/// What computes the graph of one step.
pub(super) enum Program {
    /// All shapes are known: optimised as a whole.
    Planned {
        name: String,
        state: Box<TypedSimpleState>,
    },
    Late(Box<Late>),
}

impl Program {
    /// Makes `graph` ready. One whose shapes are not all known must hold a single operator.
    pub(super) fn new(core: &Core, graph: &Graph, contents: &mut lower::Contents<'_>) -> Result<Program, EngineError> {
        if is_fixed(graph) {
            let model = lower::lower(graph, contents)?;
            let name = graph.operators().next().map_or(String::new(), |(_, o)| o.name.to_string());
            return Ok(Program::Planned { state: Box::new(compile(core, &name, model)?), name });
        }
        let known = graph.parameters().map(|id| Ok((id, contents(id)?)));
        let known = known.collect::<Result<HashMap<TensorId, _>, EngineError>>()?;
        Ok(Program::Late(Box::new(Late::new(graph, known)?)))
    }

    /// Computes the graph's outputs; `operands` in the order of its inputs.
    pub(super) fn run(&mut self, core: &Core, operands: TVec<TValue>) -> Result<TVec<TValue>, EngineError> {
        match self {
            Program::Planned { name, state } => {
                let error = |what| EngineError::Operator { operator: name.clone(), what };
                contain(|| state.run(operands)).map_err(error)?.map_err(|e| error(format!("{e:#}")))
            }
            Program::Late(late) => late.run(core, &operands),
        }
    }
}

/// Whether every shape is known before the graph runs.
pub(super) fn is_fixed(graph: &Graph) -> bool {
    graph.tensors().all(|(_, tensor)| tensor.ty.shape.fixed().is_some())
}

/// A plan for `model`, ready to run; `name` is for messages.
pub(super) fn compile(core: &Core, name: &str, model: TypedModel) -> Result<TypedSimpleState, EngineError> {
    let error = |what| EngineError::Operator { operator: name.to_string(), what };
    contain(|| start(model, &core.options())).map_err(error)?.map_err(|e| error(format!("{e:#}")))
}

/// A plan for `model`, ready to run.
pub(super) fn start(model: TypedModel, options: &RunOptions) -> TractResult<TypedSimpleState> {
    TypedSimplePlan::new_with_options(model, options)?.spawn()
}
