//! where: choosing elements by a condition.

use tract_core::internal::*;
use tract_core::ops::logic::Iff;

use super::cast::cast_to;
use super::kernel::Wiring;
use super::rules::per_output;
use super::split::elementwise;
use super::{Call, FusionClass, OpDef, TypeError, Typed};
use crate::graph::{TensorType, Type};

pub(super) const OPS: &[OpDef] = &[OpDef::new("where", &["condition", "x", "y"], where_type)
    .class(FusionClass::Broadcast)
    .flops(per_output::<1>)
    .split(elementwise)
    .wire(choose)];

fn where_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (condition, x, y) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    call.same_dtype(x, y)?;
    let shape = call.broadcast(&call.broadcast(&condition.shape, &x.shape)?, &y.shape)?;
    Ok(TensorType::new(x.dtype, shape).into())
}

/// A condition that is not bool is true where it is not zero.
fn choose(wiring: &mut Wiring<'_>, _call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
    let mut inputs = wiring.same_rank(inputs)?;
    inputs[0] = cast_to(wiring, DatumType::Bool, inputs[0])?;
    wiring.wire(Iff, &inputs)
}
