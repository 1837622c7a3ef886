//! Own kernels inside a wiring: a function on whole tensors as one tract operator, with attributes already read.

use std::{fmt, sync::Arc};

use tract_core::{internal::*, ops::cast::cast};

use super::{kernel::Wiring, recipe::Recipe};

impl Wiring<'_> {
    /// Adds `function` as one operator that makes tensors of the types `outputs`; `name` is for people.
    pub(super) fn own(
        &mut self,
        name: &'static str,
        outputs: TVec<TypedFact>,
        inputs: &[OutletId],
        function: impl Fn(&[TValue]) -> TractResult<TVec<Tensor>> + Send + Sync + 'static,
    ) -> TractResult<TVec<OutletId>> {
        self.described(name, None, outputs, inputs, function)
    }

    /// As [`Wiring::own`], for what other engines can compute by its description.
    pub(super) fn described(
        &mut self,
        name: &'static str,
        recipe: Option<Recipe>,
        outputs: TVec<TypedFact>,
        inputs: &[OutletId],
        function: impl Fn(&[TValue]) -> TractResult<TVec<Tensor>> + Send + Sync + 'static,
    ) -> TractResult<TVec<OutletId>> {
        let own = Own { name, recipe: recipe.map(Arc::new), outputs, function: Arc::new(function) };
        self.wire(Box::new(own) as Box<dyn TypedOp>, inputs)
    }

    /// The shape of `outlet`, which must be known.
    pub(super) fn concrete(&self, outlet: OutletId) -> TractResult<Vec<usize>> {
        let fact = self.fact(outlet)?;
        Ok(fact.shape.as_concrete().with_context(|| format!("{fact:?} has unknown dimensions"))?.to_vec())
    }

    /// Wires a transposition: axis `i` of the result is axis `order[i]` of `outlet`.
    pub(super) fn permute(&mut self, outlet: OutletId, order: &[usize]) -> TractResult<OutletId> {
        let mut at = outlet;
        let mut now: Vec<usize> = (0..order.len()).collect();
        for (to, axis) in order.iter().enumerate() {
            let from = now.iter().position(|a| a == axis).context("an order names every axis once")?;
            if from != to {
                at = self.one(AxisOp::Move(from, to), &[at])?;
                let moved = now.remove(from);
                now.insert(to, moved);
            }
        }
        Ok(at)
    }

    /// Wires a conversion to `dtype`, which costs nothing if `outlet` has it already.
    pub(super) fn cast(&mut self, outlet: OutletId, dtype: DatumType) -> TractResult<OutletId> {
        if self.fact(outlet)?.datum_type == dtype { Ok(outlet) } else { self.one(cast(dtype), &[outlet]) }
    }
}

/// All elements in double precision, for operators that are rare enough to be computed in it.
pub(super) fn numbers(tensor: &Tensor) -> TractResult<Vec<f64>> {
    Ok(tensor.cast_to::<f64>()?.try_as_plain_ram()?.as_slice::<f64>()?.to_vec())
}

/// A tensor of these elements, converted to `dtype`: rounded for floats, truncated for integers.
pub(super) fn tensor_of(numbers: &[f64], shape: &[usize], dtype: DatumType) -> TractResult<Tensor> {
    Ok(Tensor::from_shape(shape, numbers)?.cast_to_dt(dtype)?.into_owned())
}

/// A function on whole tensors, which may keep what it was made from.
type Function = dyn Fn(&[TValue]) -> TractResult<TVec<Tensor>> + Send + Sync;

/// A [`Function`] as an operator.
#[derive(Clone)]
pub(super) struct Own {
    name: &'static str,
    pub(super) recipe: Option<Arc<Recipe>>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_is_the_one_of_numpy() {
        let mut model = TypedModel::default();
        let numbers: Vec<i32> = (0..24).collect();
        let source = model.add_const("x", Tensor::from_shape(&[2, 3, 4], &numbers).unwrap()).unwrap();
        let made = Wiring::new(&mut model, "made").permute(source, &[2, 0, 1]).unwrap();
        model.select_output_outlets(&[made]).unwrap();
        let made = model.into_runnable().unwrap().run(tvec![]).unwrap();
        let at = |index: [usize; 3]| made[0].to_plain_array_view::<i32>().unwrap()[index];
        assert_eq!(made[0].shape(), [4, 2, 3]);
        assert_eq!((at([3, 1, 2]), at([1, 0, 2])), (12 + 2 * 4 + 3, 2 * 4 + 1));
    }
}
