//! An operator with data-dependent shapes: typed, and if necessary compiled, when its operands are known.

use std::{collections::HashMap, sync::Arc};

use tract_core::internal::*;

use super::{
    context::TractContext,
    lower::{self, operator_error, supported},
    plan::compile,
    tensor::from_tract,
};
use crate::{EngineError, panics::catch_panic, room::has_room};
use edgecut_graph::{DType, Graph, Operator, Origin, TensorData, TensorId, TensorType, Type, units::Bytes};
use edgecut_ops::{Call, Kernel, OpDef, Typed};

/// Integer operands up to this size are passed to the type rule and the kernel by value: shapes, axes, bounds.
const INTEGER_VALUE_LIMIT: Bytes = Bytes(4096);

/// The same for floats: ends of ranges, factors, regions. Smaller, because a changed value requires another compilation.
const FLOAT_VALUE_LIMIT: Bytes = Bytes(64);

/// An operator that is typed at each run from its operands, and compiled unless its kernel runs on the host.
pub(super) struct DynamicShapeOp {
    /// The operator alone, with the statically known types.
    graph: Graph,
    operator: Operator,
    def: &'static OpDef,
    contents: HashMap<TensorId, Arc<Tensor>>,
    /// The graph of the last compiled call, and its plan.
    compiled: Option<(Graph, TypedSimpleState)>,
}

impl DynamicShapeOp {
    /// `graph` holds one operator, `contents` its parameters and constants.
    pub(super) fn new(graph: &Graph, contents: HashMap<TensorId, Arc<Tensor>>) -> Result<DynamicShapeOp, EngineError> {
        let (_, operator) =
            graph.operators().next().ok_or_else(|| EngineError::Other("the graph has no operators".to_string()))?;
        let def = supported(operator)?;
        Ok(DynamicShapeOp { graph: graph.clone(), operator: operator.clone(), def, contents, compiled: None })
    }

    /// Computes those outputs of the operator that the graph returns; `operands` in the order of the graph's inputs.
    pub(super) fn run(&mut self, context: &TractContext, operands: &[TValue]) -> Result<TVec<TValue>, EngineError> {
        let inputs = self.graph.inputs().zip(operands.iter().cloned());
        let constants = self.contents.iter().map(|(id, tensor)| (*id, Arc::clone(tensor).into_tvalue()));
        let table: HashMap<TensorId, TValue> = inputs.chain(constants).collect();
        let actual = self.actual_graph(&table)?;
        let operator = self.operator.clone();
        let args = actual.arg_types(&operator);
        let values: Vec<Option<&TensorData>> = operator.args.iter().map(|a| lower::constant(&actual, a)).collect();
        let call = Call { def: self.def, attrs: &operator.attrs, args: &args, values: &values };
        let error = |what: String| operator_error(&operator, what);
        let out = catch_panic(|| (self.def.infer)(&call)).map_err(error)?.map_err(|e| error(e.what))?;
        let types: Vec<TensorType> = out.tensors().into_iter().cloned().collect();
        let bytes: Bytes = types.iter().filter_map(TensorType::bytes).sum();
        if !has_room(bytes) {
            return Err(error(format!("its results take {bytes} of memory, which this process cannot get")));
        }
        let outputs = match self.def.kernel {
            Kernel::Host(host) if !has_bfloat(&args, &out) => {
                let operands: TVec<TValue> = operator.operands().filter_map(|t| table.get(&t).cloned()).collect();
                let outputs = catch_panic(|| host(&Typed { call, out: &out }, &operands)).map_err(error)?;
                outputs.map_err(|e| error(format!("{e:#}")))?.into_iter().map(Tensor::into_tvalue).collect()
            }
            _ => self.run_compiled(context, actual.clone(), &types, &table)?,
        };
        let returned = self.graph.outputs.iter().map(|id| {
            let position = operator.outputs.iter().position(|output| output == id);
            position
                .and_then(|p| outputs.get(p).cloned())
                .ok_or_else(|| error("its kernel returned too few tensors".to_string()))
        });
        returned.collect()
    }

    /// A graph of the operands with their actual types; small operands are constants, so that type rules can use them.
    fn actual_graph(&self, table: &HashMap<TensorId, TValue>) -> Result<Graph, EngineError> {
        let mut actual = Graph::new();
        for (id, tensor) in self.graph.tensors() {
            let Some(value) = table.get(&id) else { break };
            let shape: Vec<u64> = value.shape().iter().map(|d| *d as u64).collect();
            let ty = TensorType::of(tensor.ty.dtype, &shape);
            let limit = if ty.dtype.is_float() { FLOAT_VALUE_LIMIT } else { INTEGER_VALUE_LIMIT };
            let origin = match ty.bytes().is_some_and(|bytes| bytes <= limit) {
                true => Origin::Constant(from_tract(&tensor.name, value, &ty)?),
                false if self.contents.contains_key(&id) => Origin::Parameter,
                false => Origin::Input,
            };
            actual.add_tensor(tensor.name.clone(), ty, origin);
        }
        Ok(actual)
    }

    /// Computes the operator's outputs with a tract plan, which is reused while the graph of the call stays equal.
    fn run_compiled(
        &mut self,
        context: &TractContext,
        mut actual: Graph,
        types: &[TensorType],
        table: &HashMap<TensorId, TValue>,
    ) -> Result<TVec<TValue>, EngineError> {
        let id = actual.add_operator(self.operator.clone(), types);
        actual.outputs = actual.operator(id).outputs.clone();
        if self.compiled.as_ref().is_none_or(|(graph, _)| *graph != actual) {
            let missing = |id: TensorId| EngineError::Other(format!("tensor {} has no content", id.0));
            let mut contents = |id| Ok(table.get(&id).ok_or_else(|| missing(id))?.clone().into_arc_tensor());
            let model = lower::lower(&actual, &mut contents)?;
            self.compiled = Some((actual, compile(&context.options(), &self.operator.name, model)?));
        }
        let Some((actual, state)) = self.compiled.as_mut() else { return Ok(tvec!()) };
        let inputs: TVec<TValue> = actual.inputs().filter_map(|id| table.get(&id).cloned()).collect();
        let outputs = catch_panic(|| state.run(inputs)).map_err(|what| operator_error(&self.operator, what))?;
        outputs.map_err(|e| operator_error(&self.operator, format!("{e:#}")))
    }
}

fn has_bfloat(args: &[Type], out: &Type) -> bool {
    args.iter().chain([out]).flat_map(Type::tensors).any(|t| t.dtype == DType::Bf16)
}
