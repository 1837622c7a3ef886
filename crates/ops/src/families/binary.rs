//! Binary arithmetic with numpy broadcasting: add, multiply, divide, power, bit operations, shifts.

use crate::def::WireFn;
use crate::rules::{FUNCTION_COST, broadcast_type, per_output};
use crate::split::{Linearity, elementwise};
use crate::{Alias, FusionClass, OpDef};

pub(crate) static OPS: &[OpDef] = &[
    binary("add", kernel!(|w, c, i| by_tract(w, c, i, math::add, numbers!(add)))).linearity(Linearity::Offset(&[0, 1])),
    binary("subtract", kernel!(|w, c, i| by_tract(w, c, i, math::sub, numbers!(sub))))
        .linearity(Linearity::Offset(&[0])),
    binary("multiply", kernel!(|w, c, i| by_tract(w, c, i, math::mul, numbers!(mul))))
        .linearity(Linearity::Linear(&[0, 1])),
    binary("divide", kernel!(|w, c, i| by_kernel(w, c, i, numbers!(div)))).flops(per_output::<FUNCTION_COST>),
    binary("trunc_divide", kernel!(|w, c, i| by_kernel(w, c, i, numbers!(trunc_div))))
        .flops(per_output::<FUNCTION_COST>),
    binary("floor_divide", kernel!(|w, c, i| by_kernel(w, c, i, numbers!(floor_div))))
        .flops(per_output::<FUNCTION_COST>),
    binary("mod", kernel!(|w, c, i| by_kernel(w, c, i, numbers!(trunc_mod)))).flops(per_output::<FUNCTION_COST>),
    binary("trunc_mod", kernel!(|w, c, i| by_kernel(w, c, i, truncated_remainder))).flops(per_output::<FUNCTION_COST>),
    binary("floor_mod", kernel!(|w, c, i| by_kernel(w, c, i, numbers!(floor_mod)))).flops(per_output::<FUNCTION_COST>),
    binary("power", kernel!(power)).flops(per_output::<FUNCTION_COST>),
    binary("maximum", kernel!(|w, c, i| extreme(w, c, i, maximum, numbers!(larger)))).onnx(),
    binary("minimum", kernel!(|w, c, i| extreme(w, c, i, minimum, numbers!(smaller)))).onnx(),
    binary("bitwise_and", kernel!(|w, c, i| by_kernel(w, c, i, integers!(and, |a, b| a & b)))),
    binary("bitwise_or", kernel!(|w, c, i| by_kernel(w, c, i, integers!(or, |a, b| a | b)))),
    binary("bitwise_xor", kernel!(|w, c, i| by_kernel(w, c, i, integers!(xor, |a, b| a ^ b)))),
    binary(
        "left_shift",
        kernel!(|w, c, i| match c.is_onnx() {
            true => by_kernel(w, c, i, integers!(shift_out_left, |a, b| a & !b)),
            false => by_kernel(w, c, i, integers!(shift_left, |a, b| a & !b)),
        }),
    )
    .onnx(),
    binary(
        "right_shift",
        kernel!(|w, c, i| match c.is_onnx() {
            true => by_kernel(w, c, i, integers!(shift_out_right, |a, b| a & !b)),
            false => by_kernel(w, c, i, integers!(shift_right, |a, b| a & !b)),
        }),
    )
    .onnx(),
    binary("logical_and", kernel!(|w, c, i| by_kernel(w, c, i, integers!(and, |a, b| a & b)))),
    binary("logical_or", kernel!(|w, c, i| by_kernel(w, c, i, integers!(or, |a, b| a | b)))),
    binary("logical_xor", kernel!(|w, c, i| by_kernel(w, c, i, integers!(xor, |a, b| a ^ b)))),
];

const fn binary(name: &'static str, wire: WireFn) -> OpDef {
    OpDef::new(name, &["lhs", "rhs"], broadcast_type)
        .class(FusionClass::Broadcast)
        .alias(Alias::InPlace)
        .flops(per_output::<1>)
        .split(elementwise)
        .wire(wire)
}

#[cfg(feature = "kernels")]
mod kernel {
    pub(super) use tract_core::internal::*;
    use tract_core::ops::binary::TypedBinOp;

    use crate::Typed;
    use crate::kernel::Wiring;
    use crate::kernel::pointwise::{ZipFn, zip};
    pub(super) use crate::kernel::{
        element::{Integer, Number, for_dtype},
        pointwise::{maximum, minimum, pairs},
    };
    pub(super) use tract_core::ops::math;

    /// A [`ZipFn`] on numbers of any dtype.
    macro_rules! numbers {
    ($method:ident) => {
        |out, a, b| for_dtype!(a.datum_type(), T in number => pairs(out, a, b, <T as Number>::$method))
    };
}
    pub(super) use numbers;

    /// A [`ZipFn`] on integers of any dtype, and on bools.
    macro_rules! integers {
    ($method:ident, $bool:expr) => {
        |out, a, b| match a.datum_type() {
            DatumType::Bool => pairs::<bool, bool>(out, a, b, $bool),
            dt => for_dtype!(dt, T in integer => pairs(out, a, b, <T as Integer>::$method)),
        }
    };
}
    pub(super) use integers;

    /// Wires tract's operator for floats, which is vectorised and fused; `function`, which wraps, for integers.
    pub(super) fn by_tract(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
        tract: fn() -> TypedBinOp,
        function: ZipFn,
    ) -> TractResult<TVec<OutletId>> {
        if !wiring.fact(inputs[0])?.datum_type.is_float() {
            return by_kernel(wiring, call, inputs, function);
        }
        let inputs = wiring.same_rank(inputs)?;
        wiring.wire(tract(), &inputs)
    }

    /// The maximum or minimum: `or_nan` in ONNX, else `function`.
    pub(super) fn extreme(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
        or_nan: fn() -> TypedBinOp,
        function: ZipFn,
    ) -> TractResult<TVec<OutletId>> {
        if !call.is_onnx() || !wiring.fact(inputs[0])?.datum_type.is_float() {
            return by_kernel(wiring, call, inputs, function);
        }
        let inputs = wiring.same_rank(inputs)?;
        wiring.wire(or_nan(), &inputs)
    }

    pub(super) fn by_kernel(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
        function: ZipFn,
    ) -> TractResult<TVec<OutletId>> {
        let inputs = wiring.same_rank(inputs)?;
        wiring.wire(zip(call.def.name, function), &inputs)
    }

    /// Squares and cubes of single precision as products, which are vectorised, unlike `powf`.
    pub(super) fn power(wiring: &mut Wiring<'_>, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let base = wiring.fact(inputs[0])?;
        let has_shape_of_base = base.datum_type == DatumType::F32 && wiring.fact(inputs[1])?.rank() <= base.rank();
        let exponent = wiring.known(inputs[1]).filter(|exponent| has_shape_of_base && exponent.len() == 1);
        let exponent = exponent.map(|exponent| exponent.cast_to_scalar::<f32>()).transpose()?;
        match exponent {
            Some(2.0) => wiring.wire(math::mul(), &[inputs[0], inputs[0]]),
            Some(3.0) => {
                let square = wiring.one(math::mul(), &[inputs[0], inputs[0]])?;
                wiring.wire(math::mul(), &[square, inputs[0]])
            }
            _ => by_tract(wiring, call, inputs, math::pow, numbers!(power)),
        }
    }

    /// `a − trunc(a / b) · b` (`topi/broadcast.h`): the remainder of integers; of floats with intermediate rounding, and NaN
    /// for an infinite quotient or divisor.
    pub(super) fn truncated_remainder(out: &mut Tensor, a: &Tensor, b: &Tensor) -> TractResult<()> {
        for_dtype!(a.datum_type(), T in number => pairs(out, a, b, |a: T, b: T| a.sub(a.trunc_div(b).mul(b))))
    }
}
