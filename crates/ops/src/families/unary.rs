//! Elementwise functions of one operand: rounding, signs, exponentials, trigonometry, tests for NaN, copies.

use crate::def::WireFn;
use crate::rules::{FUNCTION_COST, per_output, same_type};
use crate::split::elementwise;
use crate::{Alias, Call, FusionClass, OpDef, TypeError};
use edgecut_graph::{DType, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[
    cheap("abs", kernel!(|w, c, i| own(w, c, i, numbers!(absolute)))),
    cheap("negative", kernel!(|w, c, i| own(w, c, i, numbers!(negated)))),
    cheap(
        "sign",
        kernel!(|w, c, i| match c.is_onnx() {
            true => w.wire(map("sign_or_nan", numbers!(sign_or_nan)), i),
            false => own(w, c, i, numbers!(sign)),
        }),
    )
    .onnx(),
    cheap("ceil", kernel!(|w, c, i| own(w, c, i, rounding!(|x| x.ceil())))),
    cheap("floor", kernel!(|w, c, i| own(w, c, i, rounding!(|x| x.floor())))),
    // In ONNX halves are rounded to even numbers, in Relay away from zero.
    cheap(
        "round",
        kernel!(|w, c, i| match c.is_onnx() {
            true => w.wire(map("round_half_even", rounding!(|x| x.round_ties_even())), i),
            false => own(w, c, i, rounding!(|x| x.round())),
        }),
    )
    .onnx(),
    cheap("trunc", kernel!(|w, c, i| own(w, c, i, rounding!(|x| x.trunc())))),
    cheap("bitwise_not", kernel!(|w, c, i| own(w, c, i, not))),
    cheap("logical_not", kernel!(|w, c, i| own(w, c, i, not))),
    cheap("copy", kernel!(|w, _, i| w.wire(Identity, i))).flops(|_| 0),
    costly("exp", kernel!(|w, c, i| by_tract(w, c, i, math::exp, floats!(|x| x.exp())))),
    costly("fast_exp", kernel!(|w, c, i| by_tract(w, c, i, math::exp, floats!(|x| x.exp())))),
    costly("erf", kernel!(|w, c, i| by_tract(w, c, i, math::erf, libm!(erff, erf)))),
    costly("fast_erf", kernel!(|w, c, i| by_tract(w, c, i, math::erf, libm!(erff, erf)))),
    costly("tanh", kernel!(|w, c, i| own(w, c, i, tanh))),
    costly("fast_tanh", kernel!(|w, c, i| own(w, c, i, tanh))),
    costly("sigmoid", kernel!(|w, c, i| own(w, c, i, sigmoid))),
    costly("sqrt", kernel!(|w, c, i| by_tract(w, c, i, math::sqrt, floats!(|x| x.sqrt())))),
    costly("rsqrt", kernel!(|w, c, i| by_tract(w, c, i, math::rsqrt, floats!(|x| x.sqrt().recip())))),
    costly("log", kernel!(|w, c, i| own(w, c, i, floats!(|x| x.ln())))),
    costly("log2", kernel!(|w, c, i| own(w, c, i, floats!(|x| x.log2())))),
    costly("log10", kernel!(|w, c, i| own(w, c, i, floats!(|x| x.log10())))),
    costly("sin", kernel!(|w, c, i| own(w, c, i, floats!(|x| x.sin())))),
    costly("cos", kernel!(|w, c, i| own(w, c, i, floats!(|x| x.cos())))),
    costly("tan", kernel!(|w, c, i| own(w, c, i, floats!(|x| x.tan())))),
    costly("asin", kernel!(|w, c, i| own(w, c, i, floats!(|x| x.asin())))),
    costly("acos", kernel!(|w, c, i| own(w, c, i, floats!(|x| x.acos())))),
    costly("atan", kernel!(|w, c, i| own(w, c, i, floats!(|x| x.atan())))),
    costly("sinh", kernel!(|w, c, i| own(w, c, i, floats!(|x| x.sinh())))),
    costly("cosh", kernel!(|w, c, i| own(w, c, i, floats!(|x| x.cosh())))),
    costly("asinh", kernel!(|w, c, i| own(w, c, i, libm!(asinhf, asinh)))),
    costly("acosh", kernel!(|w, c, i| own(w, c, i, acosh))),
    costly("atanh", kernel!(|w, c, i| own(w, c, i, floats!(|x| x.atanh())))),
    test("isnan", kernel!(|w, c, i| tested(w, c, i, test!(is_nan, false)))),
    test("isinf", kernel!(|w, c, i| tested(w, c, i, test!(is_infinite, false)))),
    test("isfinite", kernel!(|w, c, i| tested(w, c, i, test!(is_finite, true)))),
];

const fn cheap(name: &'static str, wire: WireFn) -> OpDef {
    OpDef::new(name, &["data"], same_type)
        .class(FusionClass::Elementwise)
        .alias(Alias::InPlace)
        .flops(per_output::<1>)
        .split(elementwise)
        .wire(wire)
}

const fn costly(name: &'static str, wire: WireFn) -> OpDef {
    cheap(name, wire).flops(per_output::<FUNCTION_COST>)
}

const fn test(name: &'static str, wire: WireFn) -> OpDef {
    OpDef::new(name, &["data"], bool_type)
        .class(FusionClass::Elementwise)
        .flops(per_output::<1>)
        .split(elementwise)
        .wire(wire)
}

fn bool_type(call: &Call<'_>) -> Result<Type, TypeError> {
    Ok(TensorType::new(DType::Bool, call.tensor(0)?.shape.clone()).into())
}

#[cfg(feature = "kernels")]
mod kernel {
    pub(super) use tract_core::internal::*;
    use tract_core::ops::element_wise::ElementWiseOp;
    use tract_linalg::routines::Func;

    use crate::Typed;
    use crate::kernel::Wiring;
    use crate::kernel::element::Integer;
    use crate::kernel::pointwise::{ConvertFn, convert};
    use crate::kernel::routine::run_keeping_nan;
    pub(super) use crate::kernel::{
        element::{Number, for_dtype},
        pointwise::{MapFn, each, each_into, map},
    };
    pub(super) use tract_core::ops::{identity::Identity, math};

    /// A [`MapFn`] on floats: half precision computes in single precision.
    macro_rules! floats {
        (|$x:ident| $body:expr) => {
            |tensor| match tensor.datum_type() {
                DatumType::F32 => each::<f32>(tensor, |$x| $body),
                DatumType::F64 => each::<f64>(tensor, |$x| $body),
                DatumType::F16 => each::<half::f16>(tensor, |half| {
                    let $x = half.to_f32();
                    half::f16::from_f32($body)
                }),
                other => bail!("no kernel for dtype {other:?}"),
            }
        };
    }
    pub(super) use floats;

    /// A [`MapFn`] on floats by libm's functions of single and double precision.
    macro_rules! libm {
        ($single:ident, $double:ident) => {
            |tensor| match tensor.datum_type() {
                DatumType::F64 => each::<f64>(tensor, libm::$double),
                DatumType::F32 => each::<f32>(tensor, libm::$single),
                _ => each::<half::f16>(tensor, |x| half::f16::from_f32(libm::$single(x.to_f32()))),
            }
        };
    }
    pub(super) use libm;

    /// As `floats!`; integers are unchanged.
    macro_rules! rounding {
        (|$x:ident| $body:expr) => {
            |tensor| match tensor.datum_type().is_float() {
                true => {
                    let function: MapFn = floats!(|$x| $body);
                    function(tensor)
                }
                false => Ok(()),
            }
        };
    }
    pub(super) use rounding;

    /// A [`MapFn`] on numbers.
    macro_rules! numbers {
    ($method:ident) => {
        |tensor| for_dtype!(tensor.datum_type(), T in number => each::<T>(tensor, <T as Number>::$method))
    };
}
    pub(super) use numbers;

    /// A [`ConvertFn`] that tests every element; integers are finite.
    macro_rules! test {
    ($method:ident, $integers:literal) => {
        |tensor, _| match tensor.datum_type().is_float() {
            true => for_dtype!(tensor.datum_type(), T in float => each_into(tensor, |x: T| x.$method())),
            false => for_dtype!(tensor.datum_type(), T in any => each_into(tensor, |_: T| $integers)),
        }
    };
}
    pub(super) use test;

    /// Single precision by tract's operator, which is vectorised; other dtypes by a kernel of this crate.
    pub(super) fn by_tract(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
        tract: fn() -> ElementWiseOp,
        function: MapFn,
    ) -> TractResult<TVec<OutletId>> {
        match wiring.fact(inputs[0])?.datum_type {
            DatumType::F32 => wiring.wire(tract(), inputs),
            _ => own(wiring, call, inputs, function),
        }
    }

    pub(super) fn own(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
        function: MapFn,
    ) -> TractResult<TVec<OutletId>> {
        wiring.wire(map(call.def.name, function), inputs)
    }

    pub(super) fn tested(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
        function: ConvertFn,
    ) -> TractResult<TVec<OutletId>> {
        wiring.wire(convert(call.def.name, DatumType::Bool, function), inputs)
    }

    pub(super) fn tanh(tensor: &mut Tensor) -> TractResult<()> {
        let exact: MapFn = floats!(|x| x.tanh());
        by_routine(tensor, Func::Tanh, exact)
    }

    /// NaN below 1, where libm's `acosh` may return a number.
    pub(super) fn acosh(tensor: &mut Tensor) -> TractResult<()> {
        let bounded: MapFn = floats!(|x| if x < 1.0 { (x - 1.0).sqrt() } else { x });
        bounded(tensor)?;
        let area: MapFn = libm!(acoshf, acosh);
        area(tensor)
    }

    pub(super) fn sigmoid(tensor: &mut Tensor) -> TractResult<()> {
        let exact: MapFn = floats!(|x| 1.0 / (1.0 + (-x).exp()));
        by_routine(tensor, Func::Sigmoid, exact)
    }

    /// Single precision by tract's vectorised routine.
    fn by_routine(tensor: &mut Tensor, routine: Func, exact: MapFn) -> TractResult<()> {
        if tensor.datum_type() != DatumType::F32 {
            return exact(tensor);
        }
        run_keeping_nan(&*routine.ew_f32()?, tensor.try_as_plain_ram_mut()?.as_slice_mut::<f32>()?)
    }

    pub(super) fn not(tensor: &mut Tensor) -> TractResult<()> {
        match tensor.datum_type() {
            DatumType::Bool => each::<bool>(tensor, |x| !x),
            dt => for_dtype!(dt, T in integer => each::<T>(tensor, Integer::not)),
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn inverse_hyperbolic_functions_of_large_numbers_are_finite() {
            let area = |function: MapFn, x: f32| {
                let mut tensor = tensor0(x);
                function(&mut tensor).unwrap();
                tensor.cast_to_scalar::<f32>().unwrap()
            };
            let log = f32::MAX.ln() + std::f32::consts::LN_2;
            assert_eq!(area(libm!(asinhf, asinh), f32::MAX), log);
            assert_eq!(area(libm!(asinhf, asinh), -f32::MAX), -log);
            assert_eq!(area(acosh, f32::MAX), log);
            assert!(area(acosh, 0.5).is_nan() && area(acosh, -100.0).is_nan());
        }
    }
}
