//! Host kernels: a function on whole tensors as one opaque tract operator.

use edgecut_graph::{Attrs, Type};
use tract_core::internal::*;

use crate::{
    def::{Call, HostFn, OpDef, Typed},
    kernel::{custom::CustomOp, facts::fact, recipe::Recipe},
};

/// What `op` computes, if it is a host or custom kernel with a recipe.
pub fn recipe(op: &dyn TypedOp) -> Option<Recipe> {
    if let Some(custom) = op.downcast_ref::<CustomOp>() {
        return custom.recipe();
    }
    let host = op.downcast_ref::<HostOp>()?;
    (host.def.recipe?)(&host.call())
}

/// A call of an operator, computed by a [`HostFn`].
#[derive(Clone)]
pub(crate) struct HostOp {
    def: &'static OpDef,
    attrs: Attrs,
    args: Vec<Type>,
    out: Type,
    function: HostFn,
}

impl HostOp {
    pub(crate) fn new(call: &Typed<'_>, function: HostFn) -> HostOp {
        let (attrs, args) = (call.attrs.clone(), call.args.to_vec());
        HostOp { def: call.def, attrs, args, out: call.out.clone(), function }
    }

    fn call(&self) -> Typed<'_> {
        let call = Call { def: self.def, attrs: &self.attrs, args: &self.args, values: &[] };
        Typed { call, out: &self.out }
    }
}

impl std::fmt::Debug for HostOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostOp({})", self.def.name)
    }
}

impl PartialEq for HostOp {
    fn eq(&self, other: &HostOp) -> bool {
        std::ptr::fn_addr_eq(self.function, other.function)
            && (self.def.name, &self.attrs, &self.args, &self.out)
                == (other.def.name, &other.attrs, &other.args, &other.out)
    }
}

impl Eq for HostOp {}

impl Op for HostOp {
    fn name(&self) -> StaticName {
        self.def.name.into()
    }

    op_as_typed_op!();
}

impl EvalOp for HostOp {
    op_out_of_plan!();

    fn eval(&self, _ctx: &EvalContext, inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        let outputs = (self.function)(&self.call(), &inputs)?;
        Ok(outputs.into_iter().map(Tensor::into_tvalue).collect())
    }
}

impl TypedOp for HostOp {
    fn output_facts(&self, _inputs: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        self.out.tensors().into_iter().map(fact).collect()
    }

    as_op!();
}
