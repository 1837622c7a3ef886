//! `nn.fifo_buffer`: appends new data to a buffer and drops the oldest elements.

use super::concat::axes_where;
use crate::{AttrDef, AttrKind, Call, OpDef, TypeError, rules::unify};
use edgecut_graph::{TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[OpDef::new("nn.fifo_buffer", &["data", "buffer"], fifo_type)
    .attrs("relay.attrs.FIFOBufferAttrs", &[AttrDef::new("axis", AttrKind::Int, "0")])
    .split(|call| {
        let buffer_axis = call.axis("axis", 0, &call.result()?.shape)?;
        Ok(axes_where(call, |axis| (axis != buffer_axis).then_some(axis)))
    })
    .wire(kernel!(fifo))];

fn fifo_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (data, buffer) = (call.tensor(0)?, call.tensor(1)?);
    call.same_dtype(data, buffer)?;
    let buffer_axis = call.axis("axis", 0, &buffer.shape)?;
    let mismatch = || {
        let expected = format!("equal rank, and equal sizes except along axis {buffer_axis}");
        call.error(format!("data {data} and buffer {buffer} differ: expected {expected}"))
    };
    if data.shape.rank() != buffer.shape.rank() {
        return Err(mismatch());
    }
    let mut shape = buffer.shape.clone();
    for (axis, dim) in data.shape.iter().enumerate().filter(|(axis, _)| *axis != buffer_axis) {
        shape[axis] = unify(shape[axis], *dim).ok_or_else(mismatch)?;
    }
    Ok(TensorType::new(buffer.dtype, shape).into())
}

#[cfg(feature = "kernels")]
mod kernel {
    use tract_core::internal::*;
    use tract_core::ops::array::{Slice, TypedConcat};

    use crate::{Typed, kernel::Wiring};

    /// The newest elements of the buffer followed by the data.
    pub(super) fn fifo(wiring: &mut Wiring<'_>, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let axis = call.axis("axis", 0, &call.tensor(1)?.shape)?;
        let (new, kept) = (wiring.concrete(inputs[0])?[axis], wiring.concrete(inputs[1])?[axis]);
        if new >= kept {
            return wiring.wire(Slice::new(axis, new - kept, new), &inputs[..1]);
        }
        let old = wiring.one(Slice::new(axis, new, kept), &[inputs[1]])?;
        wiring.wire(TypedConcat::new(axis), &[old, inputs[0]])
    }
}
