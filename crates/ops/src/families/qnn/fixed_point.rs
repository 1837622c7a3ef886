//! Fixed-point multiplication, as in TVM's `q_multiply_shift`.

use crate::rules::{per_output, same_type};
use crate::{Alias, AttrDef, AttrKind, FusionClass, OpDef};

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("fixed_point_multiply", &["data"], same_type)
        .attrs(
            "relay.attrs.FixedPointMultiplyAttrs",
            &[AttrDef::required("multiplier", AttrKind::Int), AttrDef::required("shift", AttrKind::Int)],
        )
        .class(FusionClass::Elementwise)
        .alias(Alias::InPlace)
        .flops(per_output::<4>)
        .split(crate::split::elementwise)
        .host(kernel!(multiply)),
    OpDef::new("fixed_point_multiply_per_axis", &["data", "fp_multiplier", "left_shift", "right_shift"], same_type)
        .attrs(
            "relay.attrs.FixedPointMultiplyPerAxisAttrs",
            &[
                AttrDef::new("is_lshift_required", AttrKind::Bool, "False"),
                AttrDef::new("is_rshift_required", AttrKind::Bool, "False"),
                AttrDef::required("axes", AttrKind::Ints),
            ],
        )
        .class(FusionClass::Broadcast)
        .alias(Alias::InPlace)
        .flops(per_output::<4>)
        .host(kernel!(multiply_per_axis)),
];

/// Rounding of ties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ties {
    /// Toward positive infinity (`UPWARD`).
    Up,
    /// Away from zero (`TONEAREST`).
    AwayFromZero,
}

/// The number multiplier · 2^(shift - 31).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedPoint {
    pub multiplier: i64,
    pub shift: i64,
}

impl FixedPoint {
    /// The nearest to `value` with a 31-bit multiplier, as in `GetFixedPointMultiplierShift`.
    pub fn of(value: f64) -> FixedPoint {
        if value == 0.0 || !value.is_finite() {
            return FixedPoint { multiplier: 0, shift: 0 };
        }
        let (significand, exponent) = libm::frexp(value);
        let multiplier = (significand * f64::from(1u32 << 31)).round() as i64;
        match multiplier.abs() == 1 << 31 {
            true => FixedPoint { multiplier: multiplier / 2, shift: i64::from(exponent) + 1 },
            false => FixedPoint { multiplier, shift: i64::from(exponent) },
        }
    }
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;

    use crate::Typed;
    use crate::kernel::indexing::{integers, strides};

    impl FixedPoint {
        /// `x` times this number, rounded.
        pub fn times(self, x: i64, ties: Ties) -> i64 {
            let (left, right) = (self.shift.clamp(0, 62), (-self.shift).clamp(0, 62) + 31);
            let product = (i128::from(x) * i128::from(self.multiplier)) << left;
            let half = 1i128 << (right - 1);
            let half = if ties == Ties::AwayFromZero && product < 0 { half - 1 } else { half };
            ((product + half) >> right) as i64
        }
    }

    pub(super) fn multiply(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let number = FixedPoint { multiplier: call.int("multiplier", 0)?, shift: call.int("shift", 0)? };
        let values: Vec<i64> = integers(&inputs[0])?.into_iter().map(|x| number.times(x, Ties::Up)).collect();
        Ok(tvec!(Tensor::from_shape(inputs[0].shape(), &values)?.cast_to_dt(inputs[0].datum_type())?.into_owned()))
    }

    /// One multiplier and one pair of shifts per index along `axes`, whose dimensions the operands have.
    pub(super) fn multiply_per_axis(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let axes = call.ints("axes")?.unwrap_or_default();
        let axes = axes.into_iter().map(|axis| Ok(call.axis_in(axis, &call.tensor(0)?.shape)?));
        let axes = axes.collect::<TractResult<TVec<usize>>>()?;
        let dims = inputs[0].shape();
        let channel_dims: TVec<usize> = axes.iter().map(|axis| dims[*axis]).collect();
        let (multipliers, left, right) = (integers(&inputs[1])?, integers(&inputs[2])?, integers(&inputs[3])?);
        let channels: usize = channel_dims.iter().product();
        ensure!([&multipliers, &left, &right].iter().all(|v| v.len() == channels), "expected {channels} multipliers");
        let (is_left, is_right) = (call.flag("is_lshift_required", false)?, call.flag("is_rshift_required", false)?);
        let (element_strides, channel_strides) = (strides(dims), strides(&channel_dims));
        let scaled = |(i, x): (usize, i64)| {
            let along =
                axes.iter().zip(&channel_strides).map(|(axis, step)| i / element_strides[*axis] % dims[*axis] * step);
            let channel: usize = along.sum();
            let x = if is_left { x << left[channel].clamp(0, 31) } else { x };
            let shift = if is_right { -right[channel] } else { 0 };
            FixedPoint { multiplier: multipliers[channel], shift }.times(x, Ties::Up)
        };
        let values: Vec<i64> = integers(&inputs[0])?.into_iter().enumerate().map(scaled).collect();
        Ok(tvec!(Tensor::from_shape(dims, &values)?.cast_to_dt(inputs[0].datum_type())?.into_owned()))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn numbers_are_approximated_and_ties_round_as_specified() {
            assert_eq!(FixedPoint::of(0.5), FixedPoint { multiplier: 1 << 30, shift: 0 });
            assert_eq!(FixedPoint::of(1.0), FixedPoint { multiplier: 1 << 30, shift: 1 });
            let half = FixedPoint::of(0.5);
            for (x, up, away) in [(3, 2, 2), (-3, -1, -2), (1, 1, 1), (-1, 0, -1), (4, 2, 2)] {
                assert_eq!((half.times(x, Ties::Up), half.times(x, Ties::AwayFromZero)), (up, away), "{x} / 2");
            }
            for value in [0.001, 0.3, 0.999999, 1.7, 300.0] {
                for x in [-1000i64, -7, 0, 1, 123456] {
                    let got = FixedPoint::of(value).times(x, Ties::Up) as f64;
                    assert!((got - value * x as f64).abs() <= 0.51, "{value} * {x} gave {got}");
                }
            }
        }
    }
}
