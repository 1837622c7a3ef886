//! The program of one step: a plan compiled when loading, or an operator compiled at each run.

use std::collections::HashMap;

use tract_core::internal::*;

use super::{
    context::TractContext,
    dynamic_shape::DynamicShapeOp,
    lower,
    plan::compile,
    single_precision::{SinglePrecision, in_single_precision},
};
use crate::{EngineError, panics::catch_panic};
use edgecut_graph::{Graph, TensorId};

/// Computes the graph of one step.
pub(super) enum TractProgram {
    /// All shapes are known: optimised as a whole.
    Planned { name: String, state: Box<TypedSimpleState> },
    /// One operator with data-dependent shapes.
    Dynamic(Box<DynamicShapeOp>),
}

impl TractProgram {
    /// Compiles `graph`. If its shapes are not all known, it must hold a single operator.
    pub(super) fn new(
        context: &TractContext,
        graph: &Graph,
        contents: &mut lower::ContentSource<'_>,
    ) -> Result<TractProgram, EngineError> {
        if has_fixed_shapes(graph) {
            let model = match in_single_precision(graph) {
                Some(SinglePrecision { graph, original }) => {
                    lower::lower(&graph, &mut |id| contents(original[id.0 as usize]))?
                }
                None => lower::lower(graph, contents)?,
            };
            let name = graph.operators().next().map_or(String::new(), |(_, o)| o.name.to_string());
            return Ok(TractProgram::Planned { state: Box::new(compile(&context.options(), &name, model)?), name });
        }
        let known = graph.parameters().map(|id| Ok((id, contents(id)?)));
        let known = known.collect::<Result<HashMap<TensorId, _>, EngineError>>()?;
        Ok(TractProgram::Dynamic(Box::new(DynamicShapeOp::new(graph, known)?)))
    }

    /// Computes the graph's outputs; `operands` in the order of its inputs.
    pub(super) fn run(&mut self, context: &TractContext, operands: TVec<TValue>) -> Result<TVec<TValue>, EngineError> {
        match self {
            TractProgram::Planned { name, state } => {
                let error = |what| EngineError::Operator { operator: name.clone(), what };
                catch_panic(|| state.run(operands)).map_err(error)?.map_err(|e| error(format!("{e:#}")))
            }
            TractProgram::Dynamic(operator) => operator.run(context, &operands),
        }
    }
}

/// Whether all shapes are known before the graph runs.
pub(super) fn has_fixed_shapes(graph: &Graph) -> bool {
    graph.tensors().all(|(_, tensor)| tensor.ty.shape.fixed().is_some())
}
