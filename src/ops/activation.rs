//! Activations: element-wise functions that networks put between their layers.

use tract_core::internal::*;
use tract_core::ops::math;

use super::{Alias, Call, FusionClass, OpDef, TypeError, Typed, kernel::Wiring};
use crate::graph::Type;

pub(super) const OPS: &[OpDef] = &[OpDef::new("nn.relu", &["data"], same_type)
    .class(FusionClass::Elementwise)
    .alias(Alias::InPlace)
    .flops(one_per_element)
    .wire(relu)];

fn same_type(call: &Call<'_>) -> Result<Type, TypeError> {
    Ok(call.tensor(0)?.clone().into())
}

fn one_per_element(call: &Typed<'_>) -> u64 {
    call.out.tensors().iter().filter_map(|t| t.shape.elements()).sum()
}

fn relu(wiring: &mut Wiring<'_>, _call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
    let fact = wiring.fact(inputs[0])?;
    let (rank, dtype) = (fact.rank(), fact.datum_type);
    let zero = Tensor::zero_dt(dtype, &vec![1; rank])?;
    let zero = wiring.constant(zero)?;
    wiring.wire(math::max(), &[inputs[0], zero])
}
