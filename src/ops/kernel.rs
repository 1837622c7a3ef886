//! The meeting point of operator kernels and tract: what a kernel is given and what it gives back.
//!
//! A *wired* kernel adds tract operators to a model under construction, so that tract optimises them with
//! their surroundings; a *host* kernel is a function on whole tensors, wrapped as one tract operator.

use std::sync::Arc;

use tract_core::internal::*;

use super::{
    Kernel, Typed, bfloat,
    own::Own,
    recipe::{self, Recipe},
};
use crate::graph::{self, Attrs, DType};

/// Adds the operators of one call to `wiring` and returns one outlet for each output tensor.
/// `inputs` are the flattened operands. Never sees bfloat16: the call it is given is in single precision, whatever
/// its attributes say, so dtypes are read from [`Typed::out`].
pub type WireFn = fn(&mut Wiring<'_>, &Typed<'_>, &[OutletId]) -> TractResult<TVec<OutletId>>;

/// Computes the output tensors of one call from the flattened operands.
pub type HostFn = fn(&Typed<'_>, &[TValue]) -> TractResult<TVec<Tensor>>;

/// A tract model under construction, seen by one operator's kernel: names are made unique here.
pub struct Wiring<'a> {
    model: &'a mut TypedModel,
    name: String,
    count: usize,
}

impl<'a> Wiring<'a> {
    /// A wiring whose tract operators are all named after `name`.
    pub fn new(model: &'a mut TypedModel, name: impl Into<String>) -> Wiring<'a> {
        Wiring { model, name: name.into(), count: 0 }
    }

    /// Adds one call by its operator's kernel and returns one outlet for each of its output tensors.
    ///
    /// # Errors
    /// If the operator has no kernel, or its kernel cannot compute this call.
    pub fn call(&mut self, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        match bfloat::concerns(call) {
            true => bfloat::widened(self, call, inputs),
            false => self.kernel(call, inputs),
        }
    }

    pub(super) fn kernel(&mut self, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        match call.def.kernel {
            Kernel::Wire(wire) => wire(self, call, inputs),
            Kernel::Host(host) => self.host(call, host, inputs),
            Kernel::None(reason) => bail!("{reason}"),
        }
    }

    fn next_name(&mut self) -> String {
        self.count += 1;
        match self.count {
            1 => self.name.clone(),
            n => format!("{}#{n}", self.name),
        }
    }

    /// Adds one tract operator and returns all its outlets.
    pub fn wire(&mut self, op: impl Into<Box<dyn TypedOp>>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let name = self.next_name();
        self.model.wire_node(name, op, inputs)
    }

    /// Adds one tract operator and returns its only outlet.
    pub fn one(&mut self, op: impl Into<Box<dyn TypedOp>>, inputs: &[OutletId]) -> TractResult<OutletId> {
        Ok(self.wire(op, inputs)?[0])
    }

    pub fn constant(&mut self, tensor: impl IntoArcTensor) -> TractResult<OutletId> {
        let name = self.next_name();
        self.model.add_const(name, tensor)
    }

    pub fn fact(&self, outlet: OutletId) -> TractResult<&TypedFact> {
        self.model.outlet_fact(outlet)
    }

    /// Puts axes of 1 in front of the operands of lower rank until all ranks are equal.
    pub fn same_rank(&mut self, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let ranks = inputs.iter().map(|i| Ok(self.fact(*i)?.rank())).collect::<TractResult<TVec<usize>>>()?;
        let rank = ranks.iter().copied().max().unwrap_or(0);
        let mut outlets: TVec<OutletId> = inputs.into();
        for (outlet, have) in outlets.iter_mut().zip(ranks) {
            for _ in have..rank {
                *outlet = self.one(AxisOp::Add(0), &[*outlet])?;
            }
        }
        Ok(outlets)
    }

    /// The same elements under another shape, which must have as many.
    pub fn reshape(&mut self, outlet: OutletId, shape: &[usize]) -> TractResult<OutletId> {
        let from = self.fact(outlet)?.shape.to_tvec();
        let to: TVec<TDim> = shape.iter().map(|d| d.to_dim()).collect();
        match from == to {
            true => Ok(outlet),
            false => self.one(AxisOp::Reshape(0, from, to), &[outlet]),
        }
    }

    /// The value of `outlet` if it is a constant of the model.
    pub fn known(&self, outlet: OutletId) -> Option<Arc<Tensor>> {
        self.model.outlet_fact(outlet).ok()?.konst.clone()
    }

    /// Adds `function` as one opaque operator.
    pub fn host(&mut self, call: &Typed<'_>, function: HostFn, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let op = HostOp {
            name: call.def.name,
            def: call.def,
            attrs: call.attrs.clone(),
            args: call.args.to_vec(),
            out: call.out.clone(),
            function,
        };
        self.wire(Box::new(op) as Box<dyn TypedOp>, inputs)
    }
}

impl Typed<'_> {
    /// The dimensions of the only result, as tract counts.
    pub fn dims(&self) -> TractResult<TVec<usize>> {
        let shape = self.result()?.shape.fixed().context("the shape of the result is not known")?;
        Ok(shape.iter().map(|d| *d as usize).collect())
    }
}

/// What `op` computes, if it is one of our own operators and described.
pub fn recipe(op: &dyn TypedOp) -> Option<Recipe> {
    if let Some(own) = op.downcast_ref::<Own>() {
        return own.recipe.as_deref().cloned();
    }
    let host = op.downcast_ref::<HostOp>()?;
    let call = super::Call { def: host.def, attrs: &host.attrs, args: &host.args, values: &[] };
    recipe::of_call(&Typed { call, out: &host.out })
}

/// tract's name of a dtype; `None` where tract has none. bfloat16 travels as its bits in `u16`.
pub fn datum_type(dtype: DType) -> Option<DatumType> {
    Some(match dtype {
        DType::Bool => DatumType::Bool,
        DType::I8 => DatumType::I8,
        DType::I16 => DatumType::I16,
        DType::I32 => DatumType::I32,
        DType::I64 => DatumType::I64,
        DType::U8 => DatumType::U8,
        DType::U16 => DatumType::U16,
        DType::U32 => DatumType::U32,
        DType::U64 => DatumType::U64,
        DType::F16 => DatumType::F16,
        DType::F32 => DatumType::F32,
        DType::F64 => DatumType::F64,
        DType::Bf16 => DatumType::U16,
        DType::Exotic(_) => return None,
    })
}

/// A tensor type as a tract fact; fails where the shape or the dtype is not concrete.
pub fn fact(ty: &graph::TensorType) -> TractResult<TypedFact> {
    let dtype = datum_type(ty.dtype).with_context(|| format!("{} has no counterpart in tract", ty.dtype))?;
    let dims = ty.shape.fixed().with_context(|| format!("{ty} has unknown dimensions"))?;
    Ok(dtype.fact(dims.iter().map(|d| *d as usize).collect::<TVec<usize>>()))
}

/// A host kernel as a tract operator.
#[derive(Clone)]
struct HostOp {
    name: &'static str,
    def: &'static super::OpDef,
    attrs: Attrs,
    args: Vec<graph::Type>,
    out: graph::Type,
    function: HostFn,
}

impl std::fmt::Debug for HostOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostOp({})", self.name)
    }
}

impl PartialEq for HostOp {
    fn eq(&self, other: &HostOp) -> bool {
        std::ptr::fn_addr_eq(self.function, other.function)
            && (self.name, &self.attrs, &self.args, &self.out) == (other.name, &other.attrs, &other.args, &other.out)
    }
}

impl Eq for HostOp {}

impl Op for HostOp {
    fn name(&self) -> StaticName {
        self.name.into()
    }

    op_as_typed_op!();
}

impl EvalOp for HostOp {
    op_out_of_plan!();

    fn eval(&self, _ctx: &EvalContext, inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        let call = super::Call { def: self.def, attrs: &self.attrs, args: &self.args, values: &[] };
        let outputs = (self.function)(&Typed { call, out: &self.out }, &inputs)?;
        Ok(outputs.into_iter().map(Tensor::into_tvalue).collect())
    }
}

impl TypedOp for HostOp {
    fn output_facts(&self, _inputs: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        self.out.tensors().into_iter().map(fact).collect()
    }

    as_op!();
}
