//! Number literals: sign, digits, suffix and range, as in TVM.

use crate::{
    ParseMode,
    ast::{FloatWidth, IntWidth, Scalar},
};

/// Parses a finite number token. Floats keep double precision: TVM rounds constants to their width, but not
/// attributes.
///
/// # Errors
/// The predicate of a message whose subject is the number, such as "does not fit int16".
pub(crate) fn number(text: &str, mode: ParseMode) -> Result<Scalar, String> {
    let body = text.trim_start_matches('-');
    let negative = (text.len() - body.len()) % 2 == 1;
    match body.find(['i', 'f']) {
        Some(at) if body.as_bytes()[at] == b'f' => float(&body[..at], negative, float_width(&body[at + 1..])?, mode),
        Some(at) => integer(&body[..at], negative, Some(int_width(&body[at + 1..])?)),
        None if body.bytes().all(|b| b.is_ascii_digit()) => integer(body, negative, None),
        None if mode == ParseMode::Tolerant => float(body, negative, FloatWidth::F32, mode),
        None => Err("is not an integer, and a float needs the suffix `f`".to_string()),
    }
}

/// Parses a non-finite number token, such as `inff`, `-inff64` or `nanf`.
///
/// # Errors
/// As [`number`].
pub(crate) fn not_finite(text: &str, mode: ParseMode) -> Result<Scalar, String> {
    let body = text.trim_start_matches('-');
    let negative = (text.len() - body.len()) % 2 == 1;
    if mode == ParseMode::Strict && body != "inff" {
        return Err("cannot be read by TVM; write `inff`, or leave strict mode".to_string());
    }
    let value = if body.starts_with("nan") { f64::NAN } else { f64::INFINITY };
    Ok(Scalar::Float(if negative { -value } else { value }, float_width(&body[4..])?))
}

fn int_width(width: &str) -> Result<IntWidth, String> {
    match width {
        "" | "32" => Ok(IntWidth::I32),
        "16" => Ok(IntWidth::I16),
        "64" => Ok(IntWidth::I64),
        _ => Err("has no known width: expected i16, i32 or i64".to_string()),
    }
}

fn float_width(width: &str) -> Result<FloatWidth, String> {
    match width {
        "" | "32" => Ok(FloatWidth::F32),
        "16" => Ok(FloatWidth::F16),
        "64" => Ok(FloatWidth::F64),
        _ => Err("has no known width: expected f16, f32 or f64".to_string()),
    }
}

fn integer(digits: &str, negative: bool, width: Option<IntWidth>) -> Result<Scalar, String> {
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err("is not an integer; put spaces around an operator".to_string());
    }
    let magnitude: i64 = digits.parse().map_err(|_| "does not fit int64".to_string())?;
    let value = if negative { -magnitude } else { magnitude };
    let fits32 = i32::try_from(value).is_ok();
    let width = match width {
        None if fits32 => IntWidth::I32,
        None => IntWidth::I64,
        Some(IntWidth::I16) if i16::try_from(value).is_err() => return Err("does not fit int16".to_string()),
        Some(IntWidth::I32) if !fits32 => return Err("does not fit int32".to_string()),
        Some(width) => width,
    };
    Ok(Scalar::Int(value, width))
}

fn float(digits: &str, negative: bool, width: FloatWidth, mode: ParseMode) -> Result<Scalar, String> {
    let value: f64 = digits.parse().map_err(|_| "is malformed; put spaces around an operator".to_string())?;
    let (limit, name) = match width {
        FloatWidth::F16 => (65504.0, "float16"),
        FloatWidth::F32 => (f64::from(f32::MAX), "float32"),
        FloatWidth::F64 => (f64::MAX, "float64"),
    };
    // The shortest decimal that rounds to the largest float32 is larger as a double; TVM rejects it.
    let rounds_down = mode == ParseMode::Tolerant && width == FloatWidth::F32 && (value as f32).is_finite();
    if value > limit && !rounds_down {
        return Err(format!("exceeds the largest {name}"));
    }
    Ok(Scalar::Float(if negative { -value } else { value }, width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_and_ranges() {
        let int = |n, w| Ok(Scalar::Int(n, w));
        let float = |x, w| Ok(Scalar::Float(x, w));
        for (text, want) in [
            ("42", int(42, IntWidth::I32)),
            ("-05", int(-5, IntWidth::I32)),
            ("---10", int(-10, IntWidth::I32)),
            ("2147483648", int(2147483648, IntWidth::I64)),
            ("-2147483648", int(-2147483648, IntWidth::I32)),
            ("7i16", int(7, IntWidth::I16)),
            ("1e-1f", float(0.1, FloatWidth::F32)),
            ("3f64", float(3.0, FloatWidth::F64)),
            ("-3.40282e+38f", float(-3.40282e38, FloatWidth::F32)),
        ] {
            assert_eq!(number(text, ParseMode::Strict), want, "{text}");
        }
        for text in ["32768i16", "2147483648i32", "3i8", "3f8", "65505f16", "3.40283e+38f32", "1-1", "1.0", "5e3"] {
            assert!(number(text, ParseMode::Strict).is_err(), "{text}");
        }
        assert_eq!(number("5e3", ParseMode::Tolerant), float(5000.0, FloatWidth::F32));
        assert_eq!(number("3.4028235e+38f", ParseMode::Tolerant), float(3.4028235e38, FloatWidth::F32));
        for text in ["-9223372036854775808", "3.40283e+38f", "1e309f64", "65505f16"] {
            assert!(number(text, ParseMode::Tolerant).is_err(), "{text}");
        }
        assert!(number("3.4028235e+38f", ParseMode::Strict).is_err());
        assert_eq!(not_finite("-inff64", ParseMode::Tolerant), float(f64::NEG_INFINITY, FloatWidth::F64));
        assert!(not_finite("nanf", ParseMode::Strict).is_err());
    }
}
