//! Types of tensors as PyTorch annotates them: `f32[2, 8]`, then strides and the device in newer versions.

/// Element sizes in bytes, by PyTorch's abbreviations of element types (`torch.utils._dtype_abbrs`).
const SIZES: &[(&str, u64)] = &[
    ("f64", 8),
    ("f32", 4),
    ("f16", 2),
    ("bf16", 2),
    ("i64", 8),
    ("i32", 4),
    ("i16", 2),
    ("i8", 1),
    ("u8", 1),
    ("b8", 1),
    ("u16", 2),
    ("u32", 4),
    ("u64", 8),
    ("f8e4m3fn", 1),
    ("f8e4m3fnuz", 1),
    ("f8e5m2", 1),
    ("f8e5m2fnuz", 1),
    ("f8e8m0fnu", 1),
    ("f4e2m1fnx2", 1),
    ("c32", 4),
    ("c64", 8),
    ("c128", 16),
];

/// Whether a type is that of a number which the host computes, such as `Sym(s0)`: a dynamic dimension has no storage.
pub(super) fn is_host(ty: &str) -> bool {
    ty.starts_with("Sym(")
}

/// The bytes of a type, and its element type and dimensions without what stands behind them.
pub(super) fn parse(name: &str, ty: &str) -> Result<(u64, String), String> {
    let bad = || format!("`{name}` has no type such as \"f32[2, 8]\", but `{ty}`");
    let (element, rest) = ty.split_once('[').ok_or_else(bad)?;
    let (dims, _) = rest.split_once(']').ok_or_else(bad)?;
    let mut bytes = SIZES.iter().find(|(dtype, _)| *dtype == element.trim()).ok_or_else(bad)?.1;
    for dim in dims.split(',').map(str::trim).filter(|dim| !dim.is_empty()) {
        let known: u64 = dim.parse().map_err(|_| {
            format!(
                "`{name}` has the dynamic dimension `{dim}`: trace with `dynamic=False`, only fixed sizes are counted"
            )
        })?;
        bytes = bytes.checked_mul(known).ok_or_else(bad)?;
    }
    Ok((bytes, format!("{element}[{dims}]")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_and_devices_are_no_dimensions() {
        assert_eq!(parse("a", "f32[2, 8][8, 1]cuda:0"), Ok((64, "f32[2, 8]".to_string())));
        assert_eq!(parse("a", "i64[]"), Ok((8, "i64[]".to_string())));
        assert_eq!(parse("a", "bf16[0, 4]cpu"), Ok((0, "bf16[0, 4]".to_string())));
        assert!(parse("a", "f32[s0, 8]").unwrap_err().contains("dynamic dimension `s0`"));
        assert!(parse("a", "q9[4]").unwrap_err().contains("has no type"));
        assert!(parse("a", "").is_err() && parse("a", "f32[4").is_err());
    }
}
