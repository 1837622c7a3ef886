//! Scalar arithmetic with TVM's semantics for every dtype, and dispatch from datum types to Rust types.
//!
//! Integers wrap and never panic: division by zero is zero, and shift counts are taken modulo the width. Half floats are
//! computed in single precision and rounded.

use half::f16;
use tract_core::internal::Datum;

/// Evaluates `$body` with `$T` bound to the Rust type of a datum type, for one class of types.
macro_rules! for_dtype {
    ($dt:expr, $T:ident in number => $body:expr) => {
        for_dtype!(@match $dt, $T => $body; F32 f32, F16 f16, F64 f64, I8 i8, I16 i16, I32 i32, I64 i64, U8 u8,
            U16 u16, U32 u32, U64 u64)
    };
    ($dt:expr, $T:ident in any => $body:expr) => {
        for_dtype!(@match $dt, $T => $body; F32 f32, F16 f16, F64 f64, I8 i8, I16 i16, I32 i32, I64 i64, U8 u8,
            U16 u16, U32 u32, U64 u64, Bool bool)
    };
    ($dt:expr, $T:ident in integer => $body:expr) => {
        for_dtype!(@match $dt, $T => $body; I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64)
    };
    ($dt:expr, $T:ident in float => $body:expr) => {
        for_dtype!(@match $dt, $T => $body; F32 f32, F16 f16, F64 f64)
    };
    (@match $dt:expr, $T:ident => $body:expr; $($Dt:ident $t:ident),*) => {{
        #[allow(unused_imports)]
        use half::f16;
        match $dt {
            $(tract_core::internal::DatumType::$Dt => {
                type $T = $t;
                $body
            })*
            other => tract_core::internal::bail!("no kernel for dtype {other:?}"),
        }
    }};
}
pub(crate) use for_dtype;

/// A number with TVM's arithmetic.
pub(crate) trait Number: Datum + Copy + PartialOrd + Default {
    const ONE: Self;
    /// The least finite value: the initial value of a maximum.
    const LOWEST: Self;
    const HIGHEST: Self;
    /// −∞, or the least integer.
    const LEAST: Self;
    /// ∞, or the greatest integer.
    const GREATEST: Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// Truncates on integers.
    fn div(self, other: Self) -> Self;
    fn trunc_div(self, other: Self) -> Self;
    fn floor_div(self, other: Self) -> Self;
    /// Remainder with the dividend's sign.
    fn trunc_mod(self, other: Self) -> Self;
    /// Remainder with the divisor's sign.
    fn floor_mod(self, other: Self) -> Self;
    fn power(self, other: Self) -> Self;
    fn absolute(self) -> Self;
    fn negated(self) -> Self;
    /// Truncates toward zero and saturates.
    fn of_f64(value: f64) -> Self;
    fn to_f64(self) -> f64;
    /// Wraps.
    fn of_i64(value: i64) -> Self;
    /// Truncates toward zero and saturates.
    fn to_i64(self) -> i64;

    /// -1, 0 or 1; 0 for NaN.
    fn sign(self) -> Self {
        let zero = Self::default();
        if self > zero {
            Self::ONE
        } else if self < zero {
            Self::ONE.negated()
        } else {
            zero
        }
    }

    fn is_nan(self) -> bool {
        self.partial_cmp(&self).is_none()
    }

    /// As [`Number::sign`], but NaN for NaN, as in ONNX.
    fn sign_or_nan(self) -> Self {
        if self.is_nan() { self } else { self.sign() }
    }

    /// The maximum; NaN if either operand is NaN, as in ONNX.
    fn max_or_nan(self, other: Self) -> Self {
        if self > other || self.is_nan() { self } else { other }
    }

    /// The minimum; NaN if either operand is NaN, as in ONNX.
    fn min_or_nan(self, other: Self) -> Self {
        if self < other || self.is_nan() { self } else { other }
    }

    /// `a > b ? a : b`: the second operand if they are unordered.
    fn larger(self, other: Self) -> Self {
        if self > other { self } else { other }
    }

    /// `a < b ? a : b`: the second operand if they are unordered.
    fn smaller(self, other: Self) -> Self {
        if self < other { self } else { other }
    }
}

/// An integer.
pub(crate) trait Integer: Number {
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn not(self) -> Self;
    fn shift_left(self, other: Self) -> Self;
    /// Arithmetic for signed, logical for unsigned types.
    fn shift_right(self, other: Self) -> Self;
    /// As [`Integer::shift_left`], but 0 if `other` is the width or more, as in ONNX.
    fn shift_out_left(self, other: Self) -> Self;
    fn shift_out_right(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($t:ident)*) => {$(
        impl Number for $t {
            const ONE: $t = 1;
            const LOWEST: $t = $t::MIN;
            const HIGHEST: $t = $t::MAX;
            const LEAST: $t = $t::MIN;
            const GREATEST: $t = $t::MAX;
            fn add(self, other: $t) -> $t {
                self.wrapping_add(other)
            }
            fn sub(self, other: $t) -> $t {
                self.wrapping_sub(other)
            }
            fn mul(self, other: $t) -> $t {
                self.wrapping_mul(other)
            }
            fn div(self, other: $t) -> $t {
                if other == 0 { 0 } else { self.wrapping_div(other) }
            }
            fn trunc_div(self, other: $t) -> $t {
                Number::div(self, other)
            }
            fn floor_div(self, other: $t) -> $t {
                let quotient = Number::div(self, other);
                let rest = self.trunc_mod(other);
                if rest != 0 && ((rest < 0 as $t) != (other < 0 as $t)) { quotient.wrapping_sub(1) } else { quotient }
            }
            fn trunc_mod(self, other: $t) -> $t {
                if other == 0 { 0 } else { self.wrapping_rem(other) }
            }
            fn floor_mod(self, other: $t) -> $t {
                let rest = self.trunc_mod(other);
                if rest != 0 && ((rest < 0 as $t) != (other < 0 as $t)) { rest.wrapping_add(other) } else { rest }
            }
            fn power(self, other: $t) -> $t {
                if other < 0 as $t {
                    return $t::of_f64(self.to_f64().powf(other.to_f64()));
                }
                let (mut base, mut rest, mut made) = (self, other, 1 as $t);
                while rest > 0 as $t {
                    if rest & 1 == 1 {
                        made = made.wrapping_mul(base);
                    }
                    base = base.wrapping_mul(base);
                    rest >>= 1;
                }
                made
            }
            #[allow(unused_comparisons)]
            fn absolute(self) -> $t {
                if self < 0 { self.negated() } else { self }
            }
            fn negated(self) -> $t {
                self.wrapping_neg()
            }
            fn of_f64(value: f64) -> $t {
                value as $t
            }
            fn to_f64(self) -> f64 {
                self as f64
            }
            fn of_i64(value: i64) -> $t {
                value as $t
            }
            fn to_i64(self) -> i64 {
                self as i64
            }
        }
        impl Integer for $t {
            fn and(self, other: $t) -> $t {
                self & other
            }
            fn or(self, other: $t) -> $t {
                self | other
            }
            fn xor(self, other: $t) -> $t {
                self ^ other
            }
            fn not(self) -> $t {
                !self
            }
            fn shift_left(self, other: $t) -> $t {
                self.wrapping_shl(other as u32)
            }
            fn shift_right(self, other: $t) -> $t {
                self.wrapping_shr(other as u32)
            }
            fn shift_out_left(self, other: $t) -> $t {
                u32::try_from(other).ok().and_then(|count| self.checked_shl(count)).unwrap_or(0)
            }
            fn shift_out_right(self, other: $t) -> $t {
                u32::try_from(other).ok().and_then(|count| self.checked_shr(count)).unwrap_or(0)
            }
        }
    )*};
}

integers!(i8 i16 i32 i64 u8 u16 u32 u64);

macro_rules! floats {
    ($($t:ident)*) => {$(
        impl Number for $t {
            const ONE: $t = 1.0;
            const LOWEST: $t = $t::MIN;
            const HIGHEST: $t = $t::MAX;
            const LEAST: $t = $t::NEG_INFINITY;
            const GREATEST: $t = $t::INFINITY;
            fn add(self, other: $t) -> $t {
                self + other
            }
            fn sub(self, other: $t) -> $t {
                self - other
            }
            fn mul(self, other: $t) -> $t {
                self * other
            }
            fn div(self, other: $t) -> $t {
                self / other
            }
            fn trunc_div(self, other: $t) -> $t {
                (self / other).trunc()
            }
            fn floor_div(self, other: $t) -> $t {
                (self / other).floor()
            }
            fn trunc_mod(self, other: $t) -> $t {
                self % other
            }
            fn floor_mod(self, other: $t) -> $t {
                self - (self / other).floor() * other
            }
            fn power(self, other: $t) -> $t {
                self.powf(other)
            }
            fn absolute(self) -> $t {
                self.abs()
            }
            fn negated(self) -> $t {
                -self
            }
            fn of_f64(value: f64) -> $t {
                value as $t
            }
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            fn of_i64(value: i64) -> $t {
                value as $t
            }
            fn to_i64(self) -> i64 {
                self as i64
            }
        }
    )*};
}

floats!(f32 f64);

impl Number for f16 {
    const ONE: f16 = f16::ONE;
    const LOWEST: f16 = f16::MIN;
    const HIGHEST: f16 = f16::MAX;
    const LEAST: f16 = f16::NEG_INFINITY;
    const GREATEST: f16 = f16::INFINITY;
    fn add(self, other: f16) -> f16 {
        f16::from_f32(self.to_f32() + other.to_f32())
    }
    fn sub(self, other: f16) -> f16 {
        f16::from_f32(self.to_f32() - other.to_f32())
    }
    fn mul(self, other: f16) -> f16 {
        f16::from_f32(self.to_f32() * other.to_f32())
    }
    fn div(self, other: f16) -> f16 {
        f16::from_f32(self.to_f32() / other.to_f32())
    }
    fn trunc_div(self, other: f16) -> f16 {
        f16::from_f32(self.div(other).to_f32().trunc())
    }
    fn floor_div(self, other: f16) -> f16 {
        f16::from_f32(self.div(other).to_f32().floor())
    }
    fn trunc_mod(self, other: f16) -> f16 {
        f16::from_f32(self.to_f32() % other.to_f32())
    }
    fn floor_mod(self, other: f16) -> f16 {
        self.sub(self.floor_div(other).mul(other))
    }
    fn power(self, other: f16) -> f16 {
        f16::from_f32(self.to_f32().powf(other.to_f32()))
    }
    fn absolute(self) -> f16 {
        f16::from_f32(self.to_f32().abs())
    }
    fn negated(self) -> f16 {
        -self
    }
    fn of_f64(value: f64) -> f16 {
        f16::from_f64(value)
    }
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
    fn of_i64(value: i64) -> f16 {
        f16::from_f64(value as f64)
    }
    fn to_i64(self) -> i64 {
        self.to_f32() as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_arithmetic_wraps_and_never_panics() {
        assert_eq!(Number::add(i8::MAX, 1), i8::MIN);
        assert_eq!(Number::div(i32::MIN, -1), i32::MIN);
        assert_eq!(Number::div(5i32, 0), 0);
        assert_eq!((-7i32).floor_div(2), -4);
        assert_eq!((-7i32).floor_mod(2), 1);
        assert_eq!(7i32.floor_mod(-2), -1);
        assert_eq!((-7i32).trunc_mod(2), -1);
        assert_eq!(200u8.floor_div(7), 28);
        assert_eq!(1i8.shift_left(9), 2);
        assert_eq!((-3i64).power((1 << 40) + 1), (0..40).fold(-3i64, |x, _| x.wrapping_mul(x)).wrapping_mul(-3));
        assert_eq!((3i64.power(39), (-2i8).power(7)), (4_052_555_153_018_976_267, i8::MIN));
    }

    #[test]
    fn a_shift_by_the_width_or_more_moves_all_bits_out() {
        assert_eq!((255u8.shift_out_left(7), 255u8.shift_out_left(8), 255u8.shift_out_right(200)), (128, 0, 0));
        assert_eq!((1u64.shift_out_left(63), 1u64.shift_out_left(64), u64::MAX.shift_out_right(64)), (1 << 63, 0, 0));
    }

    #[test]
    fn onnx_keeps_nan() {
        for (a, b) in [(1.0, f32::NAN), (f32::NAN, 1.0), (f32::NAN, f32::INFINITY)] {
            assert!(Number::max_or_nan(a, b).is_nan() && Number::min_or_nan(a, b).is_nan());
        }
        assert_eq!((Number::max_or_nan(-1.0, 2.0f32), Number::min_or_nan(-1i8, 2)), (2.0, -1));
        assert!(f64::NAN.sign_or_nan().is_nan() && f64::NAN.sign() == 0.0);
    }

    #[test]
    fn unordered_gives_the_second_operand() {
        assert!(1.0.larger(f32::NAN).is_nan());
        assert_eq!(f32::NAN.larger(1.0), 1.0);
    }
}
