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
}

macro_rules! integers {
    ($($t:ident)*) => {$(
        impl Number for $t {
            const ONE: $t = 1;
            const LOWEST: $t = $t::MIN;
            const HIGHEST: $t = $t::MAX;
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
                self.wrapping_pow(u32::try_from(other).unwrap_or(u32::MAX))
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
    }

    #[test]
    fn unordered_gives_the_second_operand() {
        assert!(1.0.larger(f32::NAN).is_nan());
        assert_eq!(f32::NAN.larger(1.0), 1.0);
    }
}
