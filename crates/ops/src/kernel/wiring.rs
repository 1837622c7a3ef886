//! A tract model under construction, as the kernels of operators see it.

use std::sync::Arc;

use tract_core::{internal::*, ops::cast::cast};

/// Size from which it is tried whether a tensor can be allocated.
const LARGE: usize = 1 << 30;

/// Whether there can be memory for a tensor. The system refuses what exceeds all that it has.
fn is_allocatable(fact: &TypedFact) -> bool {
    let Ok(count) = fact.shape.volume().to_usize() else { return true };
    let Some(bytes) = count.checked_mul(fact.datum_type.size_of()) else { return false };
    bytes < LARGE || Vec::<u8>::new().try_reserve_exact(bytes).is_ok()
}

/// Adds the tract operators of one call to a model, under unique names.
pub struct Wiring<'a> {
    model: &'a mut TypedModel,
    name: String,
    count: usize,
}

impl<'a> Wiring<'a> {
    /// A wiring whose tract operators are named `name`, `name#2`, `name#3`, …
    pub fn new(model: &'a mut TypedModel, name: impl Into<String>) -> Wiring<'a> {
        Wiring { model, name: name.into(), count: 0 }
    }

    fn next_name(&mut self) -> String {
        self.count += 1;
        match self.count {
            1 => self.name.clone(),
            n => format!("{}#{n}", self.name),
        }
    }

    /// Adds one tract operator and returns all its outlets.
    ///
    /// # Errors
    /// If an output does not fit into memory. The operator is computed at once where its operands are constants, and an
    /// allocation that fails then would end the process.
    pub(crate) fn wire(&mut self, op: impl Into<Box<dyn TypedOp>>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let op = op.into();
        self.check_outputs(&*op, inputs)?;
        let name = self.next_name();
        self.model.wire_node(name, op, inputs)
    }

    fn check_outputs(&self, op: &dyn TypedOp, inputs: &[OutletId]) -> TractResult<()> {
        let operands = inputs.iter().map(|input| self.model.outlet_fact(*input)).collect::<TractResult<TVec<_>>>()?;
        for output in op.output_facts(&operands)? {
            ensure!(is_allocatable(&output), "a tensor of {output:?} does not fit into memory");
        }
        Ok(())
    }

    /// Adds one tract operator and returns its only outlet.
    pub(crate) fn one(&mut self, op: impl Into<Box<dyn TypedOp>>, inputs: &[OutletId]) -> TractResult<OutletId> {
        Ok(self.wire(op, inputs)?[0])
    }

    /// Like [`Wiring::one`], but operators on constants are folded, for wirings that depend on the value.
    pub(crate) fn folded(&mut self, op: impl Into<Box<dyn TypedOp>>, inputs: &[OutletId]) -> TractResult<OutletId> {
        let op = op.into();
        let Some(known) = inputs.iter().map(|input| self.known(*input)).collect::<Option<TVec<_>>>() else {
            return self.one(op, inputs);
        };
        self.check_outputs(&*op, inputs)?;
        match op.eval_out_of_plan(known.into_iter().map(IntoTValue::into_tvalue).collect())? {
            Some(results) => self.constant(results[0].clone().into_tensor()),
            None => self.one(op, inputs),
        }
    }

    pub(crate) fn constant(&mut self, tensor: impl IntoArcTensor) -> TractResult<OutletId> {
        let name = self.next_name();
        self.model.add_const(name, tensor)
    }

    pub(crate) fn fact(&self, outlet: OutletId) -> TractResult<&TypedFact> {
        self.model.outlet_fact(outlet)
    }

    /// The value of `outlet` if it is a constant of the model.
    pub(crate) fn known(&self, outlet: OutletId) -> Option<Arc<Tensor>> {
        self.model.outlet_fact(outlet).ok()?.konst.clone()
    }

    /// The shape of `outlet`.
    ///
    /// # Errors
    /// If a dimension is symbolic.
    pub(crate) fn concrete(&self, outlet: OutletId) -> TractResult<Vec<usize>> {
        let fact = self.fact(outlet)?;
        Ok(fact.shape.as_concrete().with_context(|| format!("{fact:?} has unknown dimensions"))?.to_vec())
    }

    /// Prepends axes of length 1 to the outlets of lower rank until all ranks are equal.
    pub(crate) fn same_rank(&mut self, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
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

    /// The same elements in another shape of the same number of elements.
    pub(crate) fn reshape(&mut self, outlet: OutletId, shape: &[usize]) -> TractResult<OutletId> {
        let from = self.fact(outlet)?.shape.to_tvec();
        let to: TVec<TDim> = shape.iter().map(|d| d.to_dim()).collect();
        match from == to {
            true => Ok(outlet),
            false => self.one(AxisOp::Reshape(0, from, to), &[outlet]),
        }
    }

    /// A transposition: axis `i` of the result is axis `order[i]` of `outlet`.
    pub(crate) fn permute(&mut self, outlet: OutletId, order: &[usize]) -> TractResult<OutletId> {
        let mut at = outlet;
        let mut now: Vec<usize> = (0..order.len()).collect();
        for (to, axis) in order.iter().enumerate() {
            let from = now.iter().position(|a| a == axis).context("a permutation names every axis once")?;
            if from != to {
                at = self.one(AxisOp::Move(from, to), &[at])?;
                let moved = now.remove(from);
                now.insert(to, moved);
            }
        }
        Ok(at)
    }

    /// A conversion to `dtype`; `outlet` itself if it has this dtype.
    pub(crate) fn cast(&mut self, outlet: OutletId, dtype: DatumType) -> TractResult<OutletId> {
        if self.fact(outlet)?.datum_type == dtype { Ok(outlet) } else { self.one(cast(dtype), &[outlet]) }
    }
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
