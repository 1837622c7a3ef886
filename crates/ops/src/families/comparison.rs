//! Comparisons with numpy broadcasting. Results are bool; every comparison with NaN is false.

use crate::def::WireFn;
use crate::rules::{compare_type, per_output};
use crate::split::elementwise;
use crate::{FusionClass, OpDef};

macro_rules! comparison {
    ($name:literal, $op:tt) => {
        comparison!($name, |a, b| a $op b)
    };
    ($name:literal, |$a:ident, $b:ident| $holds:expr) => {
        comparison($name, kernel!(|w, c, i| {
            wire(w, c, i, |out, a, b| for_dtype!(a.datum_type(), T in any => pairs(out, a, b, |$a: T, $b: T| $holds)))
        }))
    };
}

pub(crate) static OPS: &[OpDef] = &[
    comparison!("equal", ==),
    // Not `!=`: TVM uses LLVM's ordered comparison, which is false for NaN.
    comparison(
        "not_equal",
        kernel!(|w, c, i| match c.is_onnx() {
            true => {
                let inputs = w.same_rank(i)?;
                let differs: ZipFn =
                    |out, a, b| for_dtype!(a.datum_type(), T in any => pairs(out, a, b, |a: T, b: T| a != b));
                w.wire(zip_to_bool("not_equal_or_nan", differs), &inputs)
            }
            false => wire(w, c, i, |out, a, b| {
                for_dtype!(a.datum_type(), T in any => {
                    pairs(out, a, b, |a: T, b: T| a.partial_cmp(&b).is_some_and(Ordering::is_ne))
                })
            }),
        }),
    )
    .onnx(),
    comparison!("less", <),
    comparison!("less_equal", <=),
    comparison!("greater", >),
    comparison!("greater_equal", >=),
];

const fn comparison(name: &'static str, wire: WireFn) -> OpDef {
    OpDef::new(name, &["lhs", "rhs"], compare_type)
        .class(FusionClass::Broadcast)
        .flops(per_output::<1>)
        .split(elementwise)
        .wire(wire)
}

#[cfg(feature = "kernels")]
mod kernel {
    use tract_core::internal::*;

    use crate::Typed;
    use crate::kernel::Wiring;
    pub(super) use crate::kernel::{
        element::for_dtype,
        pointwise::{ZipFn, pairs, zip_to_bool},
    };
    pub(super) use std::cmp::Ordering;

    pub(super) fn wire(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
        function: ZipFn,
    ) -> TractResult<TVec<OutletId>> {
        let inputs = wiring.same_rank(inputs)?;
        wiring.wire(zip_to_bool(call.def.name, function), &inputs)
    }
}
