//! `nn.fifo_buffer`: appends new data to a buffer and drops the oldest elements.

use crate::{AttrDef, AttrKind, OpDef};

pub(crate) static OPS: &[OpDef] = &[OpDef::new("nn.fifo_buffer", &["data", "buffer"], |call| {
    let (data, buffer) = (call.tensor(0)?, call.tensor(1)?);
    call.same_dtype(data, buffer)?;
    call.axis("axis", 0, &buffer.shape)?;
    Ok(buffer.clone().into())
})
.attrs("relay.attrs.FIFOBufferAttrs", &[AttrDef::new("axis", AttrKind::Int, "0")])
.wire(kernel!(fifo))];

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
