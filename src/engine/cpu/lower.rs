//! From a graph to one tract model: operators become what their kernels wire, parameters become constants.

use std::{collections::HashMap, sync::Arc};

use tract_core::internal::*;

use super::optimise::optimised;

use crate::{
    engine::{EngineError, contain::contain},
    graph::{Arg, Graph, Operator, OperatorId, Origin, TensorData, TensorId},
    ops::{self, Call, Kernel, OpDef, Typed, Unsupported, kernel},
};

/// Gives the content of a parameter or constant of the graph.
pub(in crate::engine) type Contents<'a> = dyn FnMut(TensorId) -> Result<Arc<Tensor>, EngineError> + 'a;

/// The definition of an operator that this engine can compute.
pub(in crate::engine) fn supported(operator: &Operator) -> Result<&'static OpDef, Unsupported> {
    let unsupported = |reason: &str| Unsupported { op: operator.name.clone(), reason: reason.to_string() };
    let def = ops::lookup(&operator.name).ok_or_else(|| unsupported("its meaning is not known"))?;
    match def.kernel {
        Kernel::None(reason) => Err(unsupported(reason)),
        Kernel::Wire(_) | Kernel::Host(_) => Ok(def),
    }
}

/// An error that names the operator and its place in the text.
pub(in crate::engine) fn operator_error(operator: &Operator, what: impl Into<String>) -> EngineError {
    let place = operator.place.map(|p| format!(" (line {}, column {})", p.line, p.column));
    EngineError::Operator { operator: format!("{}{}", operator.name, place.unwrap_or_default()), what: what.into() }
}

/// Builds and optimises the model of `graph`: what [`wired`] gives, with the kernels of this machine's processor.
pub(super) fn lower(graph: &Graph, contents: &mut Contents<'_>) -> Result<TypedModel, EngineError> {
    let model = wired(graph, contents)?;
    contain(|| optimised(model))
        .map_err(EngineError::Other)?
        .map_err(|e| EngineError::Other(format!("the model could not be optimised: {e:#}")))
}

/// The model of `graph`, whose shapes must all be known, as the operators' kernels wire it. Its sources are the graph's
/// inputs in order, its outputs the graph's outputs in order.
///
/// The name of everything that an operator's kernel wires begins with its id and a colon.
pub(in crate::engine) fn wired(graph: &Graph, contents: &mut Contents<'_>) -> Result<TypedModel, EngineError> {
    let mut model = TypedModel::default();
    let mut outlets: HashMap<TensorId, OutletId> = HashMap::new();
    for id in graph.inputs() {
        let tensor = graph.tensor(id);
        let error = |e: TractError| EngineError::Tensor { name: tensor.name.to_string(), what: format!("{e:#}") };
        let fact = kernel::fact(&tensor.ty).map_err(error)?;
        outlets.insert(id, model.add_source(format!("input {}", id.0), fact).map_err(error)?);
    }
    let mut known = |model: &mut TypedModel, outlets: &mut HashMap<TensorId, OutletId>, id: TensorId| {
        if let Some(outlet) = outlets.get(&id) {
            return Ok(*outlet);
        }
        let tensor = graph.tensor(id);
        let error = |e: TractError| EngineError::Tensor { name: tensor.name.to_string(), what: format!("{e:#}") };
        let outlet = model.add_const(format!("constant {}", id.0), contents(id)?).map_err(error)?;
        outlets.insert(id, outlet);
        Ok::<_, EngineError>(outlet)
    };
    for (id, operator) in graph.operators() {
        let operands =
            operator.operands().map(|t| known(&mut model, &mut outlets, t)).collect::<Result<Vec<_>, _>>()?;
        let made = wire(&mut model, graph, id, operator, &operands)?;
        outlets.extend(operator.outputs.iter().copied().zip(made));
    }
    let outputs = graph.outputs.iter().map(|t| known(&mut model, &mut outlets, *t)).collect::<Result<Vec<_>, _>>()?;
    model.select_output_outlets(&outputs).map_err(|e| EngineError::Other(format!("{e:#}")))?;
    Ok(model)
}

/// Adds one operator and checks that what its kernel makes has the types that the graph gives.
fn wire(
    model: &mut TypedModel,
    graph: &Graph,
    id: OperatorId,
    operator: &Operator,
    operands: &[OutletId],
) -> Result<TVec<OutletId>, EngineError> {
    let def = supported(operator)?;
    let args = graph.arg_types(operator);
    let out = graph.result_type(operator);
    let values: Vec<Option<&TensorData>> = operator.args.iter().map(|arg| constant(graph, arg)).collect();
    let call = Call { def, attrs: &operator.attrs, args: &args, values: &values };
    let typed = Typed { call, out: &out };
    let mut wiring = kernel::Wiring::new(model, format!("{}:{}", id.0, operator.name));
    let made = contain(|| wiring.call(&typed, operands))
        .map_err(|what| operator_error(operator, what))?
        .map_err(|e| operator_error(operator, format!("{e:#}")))?;
    check(model, graph, operator, &made).map_err(|what| operator_error(operator, what))?;
    Ok(made)
}

/// The value of an operand that stands in the graph.
pub(super) fn constant<'g>(graph: &'g Graph, arg: &Arg) -> Option<&'g TensorData> {
    match arg {
        Arg::Tensor(id) => match &graph.tensor(*id).origin {
            Origin::Constant(data) => Some(data),
            _ => None,
        },
        Arg::Tuple(_) => None,
    }
}

fn check(model: &TypedModel, graph: &Graph, operator: &Operator, made: &[OutletId]) -> Result<(), String> {
    if made.len() != operator.outputs.len() {
        return Err(format!("its kernel gives {} tensors, its type has {}", made.len(), operator.outputs.len()));
    }
    for (outlet, output) in made.iter().zip(&operator.outputs) {
        let want = &graph.tensor(*output).ty;
        let wanted = kernel::fact(want).map_err(|e| format!("{e:#}"))?;
        let found = model.outlet_fact(*outlet).map_err(|e| format!("{e:#}"))?;
        if (found.datum_type, &found.shape) != (wanted.datum_type, &wanted.shape) {
            return Err(format!("its kernel gives {found:?}, its type is {want}"));
        }
    }
    Ok(())
}
