//! Numbers and strings as Relay text.

use crate::ast::{FloatWidth, IntWidth, Scalar};

/// The first line of every module.
pub(super) const HEADER: &str = "#[version = \"0.0.5\"]\n";

/// An inline constant.
pub(super) fn scalar(scalar: Scalar) -> String {
    match scalar {
        Scalar::Bool(true) => "True".to_string(),
        Scalar::Bool(false) => "False".to_string(),
        Scalar::Int(n, width) => format!("{n}{}", int_suffix(width)),
        Scalar::Float(x, width) => float(x, width),
    }
}

fn int_suffix(width: IntWidth) -> &'static str {
    match width {
        IntWidth::I16 => "i16",
        IntWidth::I32 => "",
        IntWidth::I64 => "i64",
    }
}

/// A float with the digits needed for a lossless round trip, in the format of C++ streams.
pub(super) fn float(x: f64, width: FloatWidth) -> String {
    let suffix = match width {
        FloatWidth::F16 => "f16",
        FloatWidth::F32 => "f",
        FloatWidth::F64 => "f64",
    };
    if !x.is_finite() {
        let name = if x.is_nan() { "nan" } else { "inf" };
        return format!("{}{name}{suffix}", if x.is_sign_negative() { "-" } else { "" });
    }
    let shortest = match width {
        FloatWidth::F64 => format!("{x:e}"),
        FloatWidth::F32 | FloatWidth::F16 => short(x as f32),
    };
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let sign = if mantissa.starts_with('-') { "-" } else { "" };
    let precision = digits.len().max(6) as i32;
    let body = if (-4..precision).contains(&exponent) {
        fixed(&digits, exponent)
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", mantissa.trim_start_matches('-'), exponent.abs())
    };
    format!("{sign}{body}{suffix}")
}

/// The shortest digits that round-trip, unless they round up beyond the largest float, which TVM rejects.
fn short(x: f32) -> String {
    let text = format!("{x:e}");
    let larger = text.parse().is_ok_and(|read: f64| read.abs() > f64::from(f32::MAX));
    if larger { format!("{:e}", f64::from(x)) } else { text }
}

/// `digits` with the decimal point after the first and moved by `exponent`.
fn fixed(digits: &str, exponent: i32) -> String {
    let point = exponent + 1;
    if point <= 0 {
        return format!("0.{}{digits}", "0".repeat(point.unsigned_abs() as usize));
    }
    let point = point as usize;
    if digits.len() <= point {
        return format!("{digits}{}", "0".repeat(point - digits.len()));
    }
    format!("{}.{}", &digits[..point], &digits[point..])
}

/// The text between quotes, with the printer's escapes.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'"' => escaped.push_str("\\\""),
            b'\\' => escaped.push_str("\\\\"),
            b'\n' => escaped.push_str("\\n"),
            b'\r' => escaped.push_str("\\r"),
            b'\t' => escaped.push_str("\\t"),
            0x20..=0x7e => escaped.push(char::from(byte)),
            other => escaped.push_str(&format!("\\x{other:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_read_back_and_look_like_those_of_tvm() {
        for (x, text) in [
            (5000.0, "5000f"),
            (1e-5, "1e-05f"),
            (0.1, "0.1f"),
            (6.0, "6f"),
            (-0.5, "-0.5f"),
            (f64::from(f32::MAX), "3.4028234663852886e+38f"),
            (f64::NEG_INFINITY, "-inff"),
            (0.0001, "0.0001f"),
            (16777217.0, "16777216f"),
            (1e6, "1e+06f"),
            (123456.0, "123456f"),
            (0.0, "0f"),
        ] {
            assert_eq!(float(x, FloatWidth::F32), text);
        }
        assert_eq!(float(1.0 / 3.0, FloatWidth::F64), "0.3333333333333333f64");
    }
}
