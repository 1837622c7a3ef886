//! Numbers, strings and names as Relay text.

use std::collections::HashMap;

use super::super::ast::{FloatWidth, IntWidth, Scalar};

/// A constant in line.
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

/// A float with as many digits as reading it back needs, in the layout of C++'s streams.
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

/// The fewest digits that `x` is read back from; those of the largest float are rounded up, to what TVM refuses as larger.
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

/// Names of variables, each given once, all such that TVM can read them.
#[derive(Default)]
pub(super) struct Names {
    taken: HashMap<String, u32>,
}

const KEYWORDS: [&str; 12] =
    ["let", "fn", "def", "if", "else", "type", "match", "extern", "free_var", "ref", "ref_read", "ref_write"];

impl Names {
    /// A name after `hint`: its illegal characters replaced, a number appended if it is taken.
    pub fn give(&mut self, hint: &str) -> String {
        let mut name: String =
            hint.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '/' { c } else { '_' }).collect();
        // A trailing slash would run into a following token, and `//` begins a comment elsewhere.
        while name.ends_with('/') || name.contains("//") {
            name = name.trim_end_matches('/').replace("//", "/_");
        }
        let unreadable = !name.starts_with(|c: char| c.is_ascii_alphabetic())
            || KEYWORDS.contains(&name.as_str())
            || name.starts_with("inff")
            || name.starts_with("nanf");
        if unreadable {
            name.insert(0, 'v');
        }
        let mut unique = name.clone();
        if let Some(&count) = self.taken.get(&name) {
            let mut count = count;
            while self.taken.contains_key(&unique) {
                count += 1;
                unique = format!("{name}{count}");
            }
            self.taken.insert(name, count);
        }
        self.taken.insert(unique.clone(), 0);
        unique
    }
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

    #[test]
    fn names_are_legal_and_unique() {
        let mut names = Names::default();
        for (hint, name) in [
            ("x", "x"),
            ("x", "x1"),
            ("x", "x2"),
            ("p0", "p0"),
            ("p0", "p01"),
            ("", "v"),
            ("_", "v_"),
            ("1", "v1"),
            ("aten::conv.weight", "aten__conv_weight"),
            ("type", "vtype"),
            ("a//b/", "a/_b"),
        ] {
            assert_eq!(names.give(hint), name, "{hint}");
        }
    }
}
