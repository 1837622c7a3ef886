//! Lowers a graph to one tract model: operators are wired by their kernels, parameters become constants.

use std::{collections::HashMap, sync::Arc};

use tract_core::internal::*;

use super::optimise::optimise;
use crate::{EngineError, panics::catch_panic, room::has_room};
use edgecut_graph::{Arg, Graph, Operator, OperatorId, Origin, TensorData, TensorId, units::Bytes};
use edgecut_ops as ops;
use edgecut_ops::{Call, Kernel, OpDef, Typed, Unsupported, composite_kernel, kernel};

/// Returns the content of a parameter or constant of the graph.
pub(crate) type ContentSource<'a> = dyn FnMut(TensorId) -> Result<Arc<Tensor>, EngineError> + 'a;

/// The definition of an operator that this engine can compute.
pub(crate) fn supported(operator: &Operator) -> Result<&'static OpDef, Unsupported> {
    let unsupported = |reason: &str| Unsupported { op: operator.name.clone(), reason: reason.to_string() };
    let unknown = || unsupported(operator.opaque_reason().unwrap_or("unknown operator"));
    let def = ops::lookup(&operator.name).ok_or_else(unknown)?;
    match def.kernel {
        Kernel::None(reason) => Err(unsupported(reason)),
        Kernel::Wire(_) | Kernel::Host(_) => Ok(def),
    }
}

/// Checks that this engine can compute an operator, a composite one by its decomposition.
pub(super) fn check_supported(operator: &Operator) -> Result<(), Unsupported> {
    match &operator.decomposition {
        Some(inner) => inner.operators().try_for_each(|(_, part)| supported(part).map(|_| ())),
        None => supported(operator).map(|_| ()),
    }
}

/// An error that names the operator and its source location.
pub(crate) fn operator_error(operator: &Operator, what: impl Into<String>) -> EngineError {
    let place = operator.location.map(|p| format!(" (line {}, column {})", p.line, p.column));
    EngineError::Operator { operator: format!("{}{}", operator.name, place.unwrap_or_default()), what: what.into() }
}

/// Builds the model of `graph` with [`wire_graph`] and optimises it for this CPU.
pub(super) fn lower(graph: &Graph, contents: &mut ContentSource<'_>) -> Result<TypedModel, EngineError> {
    let model = wire_graph(graph, contents)?;
    check_memory(&model)?;
    catch_panic(|| optimise(model))
        .map_err(EngineError::Other)?
        .map_err(|e| EngineError::Other(format!("the model could not be optimised: {e:#}")))
}

/// Checks that every operator of the model can be computed: its operands, its results, and as much again, since kernels
/// compute in wider types and on padded tensors of their own, and allocate without a way to fail.
fn check_memory(model: &TypedModel) -> Result<(), EngineError> {
    let size = |fact: &TypedFact| {
        let count = fact.shape.volume().to_usize().unwrap_or(0);
        Bytes(count.saturating_mul(fact.datum_type.size_of()) as u64)
    };
    for node in model.nodes() {
        let operands: Bytes = node.inputs.iter().filter_map(|input| model.outlet_fact(*input).ok()).map(size).sum();
        let results: Bytes = node.outputs.iter().map(|output| size(&output.fact)).sum();
        let need = operands + results + results;
        if !has_room(need) {
            let what = format!("it takes {need} of memory, which this process cannot get");
            return Err(EngineError::Operator { operator: node.op.name().to_string(), what });
        }
    }
    Ok(())
}

/// The model of `graph` as wired by the operators' kernels. All shapes must be known. Sources and outputs of the model
/// are those of the graph, in order.
///
/// Names of wired nodes start with the id of their operator and a colon.
pub(crate) fn wire_graph(graph: &Graph, contents: &mut ContentSource<'_>) -> Result<TypedModel, EngineError> {
    let mut model = TypedModel::default();
    let mut outlets: HashMap<TensorId, OutletId> = HashMap::new();
    for id in graph.inputs() {
        let tensor = graph.tensor(id);
        let error = |e: TractError| EngineError::Tensor { name: tensor.name.to_string(), what: format!("{e:#}") };
        let fact = kernel::fact(&tensor.ty).map_err(error)?;
        outlets.insert(id, model.add_source(format!("input {}", id.0), fact).map_err(error)?);
    }
    let mut outlet_of = |model: &mut TypedModel, outlets: &mut HashMap<TensorId, OutletId>, id: TensorId| {
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
            operator.operands().map(|t| outlet_of(&mut model, &mut outlets, t)).collect::<Result<Vec<_>, _>>()?;
        let results = wire_operator(&mut model, graph, id, operator, &operands)?;
        outlets.extend(operator.outputs.iter().copied().zip(results));
    }
    let outputs =
        graph.outputs.iter().map(|t| outlet_of(&mut model, &mut outlets, *t)).collect::<Result<Vec<_>, _>>()?;
    model.select_output_outlets(&outputs).map_err(|e| EngineError::Other(format!("{e:#}")))?;
    Ok(model)
}

/// Wires one operator and checks that its results have the types of the graph.
fn wire_operator(
    model: &mut TypedModel,
    graph: &Graph,
    id: OperatorId,
    operator: &Operator,
    operands: &[OutletId],
) -> Result<TVec<OutletId>, EngineError> {
    let def = composite_kernel(graph, operator).map_or_else(|| supported(operator), Ok)?;
    let args = graph.arg_types(operator);
    let out = graph.result_type(operator);
    let values: Vec<Option<&TensorData>> = operator.args.iter().map(|arg| constant(graph, arg)).collect();
    let call = Call { def, attrs: &operator.attrs, args: &args, values: &values };
    let typed = Typed { call, out: &out };
    let mut wiring = kernel::Wiring::new(model, format!("{}:{}", id.0, operator.name));
    let results = catch_panic(|| wiring.call(&typed, operands))
        .map_err(|what| operator_error(operator, what))?
        .map_err(|e| operator_error(operator, format!("{e:#}")))?;
    check_results(model, graph, operator, &results).map_err(|what| operator_error(operator, what))?;
    Ok(results)
}

/// The value of a constant operand.
pub(super) fn constant<'g>(graph: &'g Graph, arg: &Arg) -> Option<&'g TensorData> {
    match arg {
        Arg::Tensor(id) => match &graph.tensor(*id).origin {
            Origin::Constant(data) => Some(data),
            _ => None,
        },
        Arg::Tuple(_) => None,
    }
}

fn check_results(model: &TypedModel, graph: &Graph, operator: &Operator, results: &[OutletId]) -> Result<(), String> {
    if results.len() != operator.outputs.len() {
        return Err(format!("its kernel returns {} tensors, expected {}", results.len(), operator.outputs.len()));
    }
    for (outlet, output) in results.iter().zip(&operator.outputs) {
        let want = &graph.tensor(*output).ty;
        let wanted = kernel::fact(want).map_err(|e| format!("{e:#}"))?;
        let found = model.outlet_fact(*outlet).map_err(|e| format!("{e:#}"))?;
        if (found.datum_type, &found.shape) != (wanted.datum_type, &wanted.shape) {
            return Err(format!("its kernel returns {found:?}, expected {want}"));
        }
    }
    Ok(())
}
