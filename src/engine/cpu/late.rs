//! One operator whose types are only known when its operands are there: shapes that depend on values.

use std::{collections::HashMap, sync::Arc};

use tract_core::internal::*;

use super::{
    Core,
    lower::{self, operator_error, supported},
    program::compile,
    tensor::from_tract,
};
use crate::{
    engine::{EngineError, contain::contain},
    graph::{DType, Graph, Operator, Origin, TensorData, TensorId, TensorType, Type},
    ops::{Call, Kernel, OpDef, Typed},
    units::Bytes,
};

/// Integer operands up to this size are shown to the type rule and to the kernel as values: shapes, axes, bounds.
const VALUE_LIMIT: Bytes = Bytes(4096);

/// The same for floats: ends of ranges, factors, regions. Less, as a plan is made anew when a value changes.
const FLOAT_LIMIT: Bytes = Bytes(64);

/// An operator that is typed, and if need be compiled, at each run by the operands it gets.
pub(super) struct Late {
    /// The operator alone, with the types that are known before.
    graph: Graph,
    operator: Operator,
    def: &'static OpDef,
    contents: HashMap<TensorId, Arc<Tensor>>,
    /// What the last call that had to be compiled looked like, and its plan.
    last: Option<(Graph, TypedSimpleState)>,
}

impl Late {
    /// `graph` holds one operator, `contents` its parameters and constants.
    pub(super) fn new(graph: &Graph, contents: HashMap<TensorId, Arc<Tensor>>) -> Result<Late, EngineError> {
        let (_, operator) = graph
            .operators()
            .next()
            .ok_or_else(|| EngineError::Other("a graph without operators has nothing to compute".to_string()))?;
        let def = supported(operator)?;
        Ok(Late { graph: graph.clone(), operator: operator.clone(), def, contents, last: None })
    }

    /// Computes the operator's outputs that the graph returns; `operands` in the order of the graph's inputs.
    pub(super) fn run(&mut self, core: &Core, operands: &[TValue]) -> Result<TVec<TValue>, EngineError> {
        let inputs = self.graph.inputs().zip(operands.iter().cloned());
        let constants = self.contents.iter().map(|(id, tensor)| (*id, Arc::clone(tensor).into_tvalue()));
        let table: HashMap<TensorId, TValue> = inputs.chain(constants).collect();
        let actual = self.actual(&table)?;
        let operator = self.operator.clone();
        let args = actual.arg_types(&operator);
        let values: Vec<Option<&TensorData>> = operator.args.iter().map(|a| lower::constant(&actual, a)).collect();
        let call = Call { def: self.def, attrs: &operator.attrs, args: &args, values: &values };
        let error = |what: String| operator_error(&operator, what);
        let out = contain(|| (self.def.infer)(&call)).map_err(error)?.map_err(|e| error(e.what))?;
        let types: Vec<TensorType> = out.tensors().into_iter().cloned().collect();
        let made = match self.def.kernel {
            Kernel::Host(host) if !has_bfloat(&args, &out) => {
                let operands: TVec<TValue> = operator.operands().filter_map(|t| table.get(&t).cloned()).collect();
                let made = contain(|| host(&Typed { call, out: &out }, &operands)).map_err(error)?;
                made.map_err(|e| error(format!("{e:#}")))?.into_iter().map(Tensor::into_tvalue).collect()
            }
            _ => self.compiled(core, actual.clone(), &types, &table)?,
        };
        let returned = self.graph.outputs.iter().map(|id| {
            let place = operator.outputs.iter().position(|output| output == id);
            place
                .and_then(|p| made.get(p).cloned())
                .ok_or_else(|| error("its kernel gives too few tensors".to_string()))
        });
        returned.collect()
    }

    /// The operands' tensors with their real types; small ones as constants, so that their values are known.
    fn actual(&self, table: &HashMap<TensorId, TValue>) -> Result<Graph, EngineError> {
        let mut actual = Graph::new();
        for (id, tensor) in self.graph.tensors() {
            let Some(value) = table.get(&id) else { break };
            let shape: Vec<u64> = value.shape().iter().map(|d| *d as u64).collect();
            let ty = TensorType::of(tensor.ty.dtype, &shape);
            let limit = if ty.dtype.is_float() { FLOAT_LIMIT } else { VALUE_LIMIT };
            let origin = match ty.bytes().is_some_and(|bytes| bytes <= limit) {
                true => Origin::Constant(from_tract(&tensor.name, value, &ty)?),
                false if self.contents.contains_key(&id) => Origin::Parameter,
                false => Origin::Input,
            };
            actual.add_tensor(tensor.name.clone(), ty, origin);
        }
        Ok(actual)
    }

    /// The operator's outputs by a tract plan, which is kept for the next call if that looks the same.
    fn compiled(
        &mut self,
        core: &Core,
        mut actual: Graph,
        types: &[TensorType],
        table: &HashMap<TensorId, TValue>,
    ) -> Result<TVec<TValue>, EngineError> {
        let id = actual.add_operator(self.operator.clone(), types);
        actual.outputs = actual.operator(id).outputs.clone();
        if self.last.as_ref().is_none_or(|(graph, _)| *graph != actual) {
            let missing = |id: TensorId| EngineError::Other(format!("tensor {} has no content", id.0));
            let mut contents = |id| Ok(table.get(&id).ok_or_else(|| missing(id))?.clone().into_arc_tensor());
            let model = lower::lower(&actual, &mut contents)?;
            self.last = Some((actual, compile(core, &self.operator.name, model)?));
        }
        let Some((actual, state)) = self.last.as_mut() else { return Ok(tvec!()) };
        let inputs: TVec<TValue> = actual.inputs().filter_map(|id| table.get(&id).cloned()).collect();
        let made = contain(|| state.run(inputs)).map_err(|what| operator_error(&self.operator, what))?;
        made.map_err(|e| operator_error(&self.operator, format!("{e:#}")))
    }
}

fn has_bfloat(args: &[Type], out: &Type) -> bool {
    args.iter().chain([out]).flat_map(Type::tensors).any(|t| t.dtype == DType::Bf16)
}
