//! `where`: selects elements by a condition.

use crate::rules::per_output;
use crate::split::elementwise;
use crate::{Call, FusionClass, OpDef, TypeError};
use edgecut_graph::{TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[OpDef::new("where", &["condition", "x", "y"], where_type)
    .class(FusionClass::Broadcast)
    .flops(per_output::<1>)
    .split(elementwise)
    .wire(kernel!(choose))];

fn where_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (condition, x, y) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    call.same_dtype(x, y)?;
    let shape = call.broadcast(&call.broadcast(&condition.shape, &x.shape)?, &y.shape)?;
    Ok(TensorType::new(x.dtype, shape).into())
}

#[cfg(feature = "kernels")]
mod kernel {
    use tract_core::internal::*;
    use tract_core::ops::logic::Iff;

    use crate::Typed;
    use crate::families::cast::kernel::cast_to;
    use crate::kernel::Wiring;

    /// A condition that is not bool is true where it is nonzero.
    pub(super) fn choose(
        wiring: &mut Wiring<'_>,
        _call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let mut inputs = wiring.same_rank(inputs)?;
        inputs[0] = cast_to(wiring, DatumType::Bool, inputs[0])?;
        wiring.wire(Iff, &inputs)
    }
}
