//! Own kernels inside a wiring: a function on whole tensors as one tract operator, with attributes already read.

use std::{fmt, sync::Arc};

use tract_core::{internal::*, ops::cast::cast};

use super::kernel::Wiring;

impl Wiring<'_> {
    /// Adds `function` as one operator that makes tensors of the types `outputs`; `name` is for people.
    pub(super) fn own(
        &mut self,
        name: &'static str,
        outputs: TVec<TypedFact>,
        inputs: &[OutletId],
        function: impl Fn(&[TValue]) -> TractResult<TVec<Tensor>> + Send + Sync + 'static,
    ) -> TractResult<TVec<OutletId>> {
        self.wire(Box::new(Own { name, outputs, function: Arc::new(function) }) as Box<dyn TypedOp>, inputs)
    }

    /// The shape of `outlet`, which must be known.
    pub(super) fn concrete(&self, outlet: OutletId) -> TractResult<Vec<usize>> {
        let fact = self.fact(outlet)?;
        Ok(fact.shape.as_concrete().with_context(|| format!("{fact:?} has unknown dimensions"))?.to_vec())
    }

    /// Wires a conversion to `dtype`, which costs nothing if `outlet` has it already.
    pub(super) fn cast(&mut self, outlet: OutletId, dtype: DatumType) -> TractResult<OutletId> {
        if self.fact(outlet)?.datum_type == dtype { Ok(outlet) } else { self.one(cast(dtype), &[outlet]) }
    }
}

/// A function on whole tensors, which may keep what it was made from.
type Function = dyn Fn(&[TValue]) -> TractResult<TVec<Tensor>> + Send + Sync;

/// A [`Function`] as an operator.
#[derive(Clone)]
struct Own {
    name: &'static str,
    outputs: TVec<TypedFact>,
    function: Arc<Function>,
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Own({})", self.name)
    }
}

/// Two are the same only if they are copies of one: what a function holds cannot be compared.
impl PartialEq for Own {
    fn eq(&self, other: &Own) -> bool {
        Arc::ptr_eq(&self.function, &other.function) && self.outputs == other.outputs
    }
}

impl Eq for Own {}

impl Op for Own {
    fn name(&self) -> StaticName {
        self.name.into()
    }

    op_as_typed_op!();
}

impl EvalOp for Own {
    op_out_of_plan!();

    fn eval(&self, _ctx: &EvalContext, inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        let outputs = (self.function)(&inputs)?;
        Ok(outputs.into_iter().map(Tensor::into_tvalue).collect())
    }
}

impl TypedOp for Own {
    fn output_facts(&self, _inputs: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        Ok(self.outputs.clone())
    }

    as_op!();
}
