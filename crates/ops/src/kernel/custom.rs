//! Custom kernels: a closure over whole tensors as one tract operator, with its attributes captured.

use std::{fmt, sync::Arc};

use tract_core::internal::*;

use crate::kernel::{recipe::Recipe, wiring::Wiring};

impl Wiring<'_> {
    /// Adds `function` as one operator with outputs of the types `outputs`; `name` is for display.
    pub(crate) fn custom(
        &mut self,
        name: &'static str,
        outputs: TVec<TypedFact>,
        inputs: &[OutletId],
        function: impl Fn(&[TValue]) -> TractResult<TVec<Tensor>> + Send + Sync + 'static,
    ) -> TractResult<TVec<OutletId>> {
        self.with_recipe(name, None, outputs, inputs, function)
    }

    /// As [`Wiring::custom`], with a recipe from which other engines compute the same.
    pub(crate) fn with_recipe(
        &mut self,
        name: &'static str,
        recipe: Option<Recipe>,
        outputs: TVec<TypedFact>,
        inputs: &[OutletId],
        function: impl Fn(&[TValue]) -> TractResult<TVec<Tensor>> + Send + Sync + 'static,
    ) -> TractResult<TVec<OutletId>> {
        let op = CustomOp { name, recipe: recipe.map(Arc::new), outputs, function: Arc::new(function) };
        self.wire(Box::new(op) as Box<dyn TypedOp>, inputs)
    }
}

/// All elements in double precision, for operators whose speed does not matter.
pub(crate) fn numbers(tensor: &Tensor) -> TractResult<Vec<f64>> {
    Ok(tensor.cast_to::<f64>()?.try_as_plain_ram()?.as_slice::<f64>()?.to_vec())
}

/// A tensor of these elements, converted to `dtype`: rounded to floats, truncated to integers.
pub(crate) fn tensor_of(numbers: &[f64], shape: &[usize], dtype: DatumType) -> TractResult<Tensor> {
    Ok(Tensor::from_shape(shape, numbers)?.cast_to_dt(dtype)?.into_owned())
}

/// A function on whole tensors.
type Function = dyn Fn(&[TValue]) -> TractResult<TVec<Tensor>> + Send + Sync;

/// A [`Function`] as an operator.
#[derive(Clone)]
pub(crate) struct CustomOp {
    name: &'static str,
    recipe: Option<Arc<Recipe>>,
    outputs: TVec<TypedFact>,
    function: Arc<Function>,
}

impl CustomOp {
    pub(crate) fn recipe(&self) -> Option<Recipe> {
        self.recipe.as_deref().cloned()
    }
}

impl fmt::Debug for CustomOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CustomOp({})", self.name)
    }
}

/// Equal only to its own clones: the captures of a closure cannot be compared.
impl PartialEq for CustomOp {
    fn eq(&self, other: &CustomOp) -> bool {
        Arc::ptr_eq(&self.function, &other.function) && self.outputs == other.outputs
    }
}

impl Eq for CustomOp {}

impl Op for CustomOp {
    fn name(&self) -> StaticName {
        self.name.into()
    }

    op_as_typed_op!();
}

impl EvalOp for CustomOp {
    op_out_of_plan!();

    fn eval(&self, _ctx: &EvalContext, inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        let outputs = (self.function)(&inputs)?;
        Ok(outputs.into_iter().map(Tensor::into_tvalue).collect())
    }
}

impl TypedOp for CustomOp {
    fn output_facts(&self, _inputs: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        Ok(self.outputs.clone())
    }

    as_op!();
}
