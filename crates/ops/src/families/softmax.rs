//! `nn.softmax`, `nn.fast_softmax` and `nn.log_softmax`.

use crate::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, rules::per_output, split::off};
use edgecut_graph::Type;

pub(crate) static OPS: &[OpDef] = &[
    define("nn.softmax", kernel!(|wiring, call, inputs| softmax(wiring, call, inputs, SoftmaxKind::Softmax))),
    define("nn.fast_softmax", kernel!(|wiring, call, inputs| softmax(wiring, call, inputs, SoftmaxKind::Softmax))),
    define("nn.log_softmax", kernel!(|wiring, call, inputs| softmax(wiring, call, inputs, SoftmaxKind::LogSoftmax))),
];

const AXIS: &[AttrDef] = &[AttrDef::new("axis", AttrKind::Int, "-1")];

const fn define(name: &'static str, kernel: crate::def::WireFn) -> OpDef {
    OpDef::new(name, &["data"], softmax_type)
        .attrs("relay.attrs.SoftmaxAttrs", AXIS)
        .class(FusionClass::OutFusable)
        .flops(per_output::<5>)
        .split(|call| off(call, &[call.axis("axis", -1, &call.tensor(0)?.shape)?]))
        .wire(kernel)
}

fn softmax_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    call.axis("axis", -1, &data.shape)?;
    Ok(data.clone().into())
}

#[cfg(feature = "kernels")]
mod kernel {
    use tract_core::internal::*;

    use crate::{Typed, kernel::Wiring};
    pub(super) use tract_core::ops::nn::{Softmax, SoftmaxKind};

    /// Subtracts the maximum first, as TVM does. TVM's fast variant is computed exactly.
    pub(super) fn softmax(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
        kind: SoftmaxKind,
    ) -> TractResult<TVec<OutletId>> {
        if wiring.concrete(inputs[0])?.contains(&0) {
            return Ok(tvec![inputs[0]]);
        }
        let axis = call.axis("axis", -1, &call.tensor(0)?.shape)?;
        wiring.wire(Softmax { axes: tvec![axis], quant_output_dt: None, kind }, inputs)
    }
}
