//! Element types of tensors.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The type of a tensor's elements.
///
/// Kernels exist for the thirteen named ones. [`DType::Exotic`] represents every other type that Relay text can name
/// (`int4`, `float32x4`, `e4m3_float8`, `handle`): models with such tensors are read and planned, but not executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    Bf16,
    F32,
    F64,
    Exotic(Exotic),
}

/// A DLPack type (code, bits, lanes) without kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Exotic {
    /// DLPack code: 0 int, 1 uint, 2 float, 3 handle, 4 bfloat; floats of 8 bits and fewer: 6 e4m3 and 7 e5m2 as TVM has them,
    /// 11 e4m3fnuz, 13 e5m2fnuz, 14 e8m0fnu, 17 e2m1fn.
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

impl Exotic {
    pub const I4: Exotic = Exotic::scalar(0, 4);
    pub const U4: Exotic = Exotic::scalar(1, 4);
    /// ONNX's float8e4m3fn.
    pub const E4M3: Exotic = Exotic::scalar(6, 8);
    pub const E5M2: Exotic = Exotic::scalar(7, 8);
    pub const E4M3_FNUZ: Exotic = Exotic::scalar(11, 8);
    pub const E5M2_FNUZ: Exotic = Exotic::scalar(13, 8);
    pub const E8M0: Exotic = Exotic::scalar(14, 8);
    pub const E2M1: Exotic = Exotic::scalar(17, 4);

    const fn scalar(code: u8, bits: u8) -> Exotic {
        Exotic { code, bits, lanes: 1 }
    }
}

/// Error: a name is not a dtype.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a dtype: expected a name such as float32, int8, uint8 or bool")]
pub struct DTypeError(pub String);

const NAMED: &[(DType, &str, u8, u8)] = &[
    (DType::Bool, "bool", 1, 1),
    (DType::I8, "int8", 0, 8),
    (DType::I16, "int16", 0, 16),
    (DType::I32, "int32", 0, 32),
    (DType::I64, "int64", 0, 64),
    (DType::U8, "uint8", 1, 8),
    (DType::U16, "uint16", 1, 16),
    (DType::U32, "uint32", 1, 32),
    (DType::U64, "uint64", 1, 64),
    (DType::F16, "float16", 2, 16),
    (DType::Bf16, "bfloat16", 4, 16),
    (DType::F32, "float32", 2, 32),
    (DType::F64, "float64", 2, 64),
];

const FAMILIES: &[(&str, u8, u8)] = &[
    ("int", 0, 32),
    ("uint", 1, 32),
    ("float", 2, 32),
    ("handle", 3, 64),
    ("bfloat", 4, 16),
    ("e4m3_float", 6, 8),
    ("e5m2_float", 7, 8),
    ("e4m3fnuz_float", 11, 8),
    ("e5m2fnuz_float", 13, 8),
    ("e8m0fnu_float", 14, 8),
    ("e2m1fn_float", 17, 4),
];

impl DType {
    /// The dtype of a DLPack triple, as in metadata and `.params` files.
    pub fn from_dlpack(code: u8, bits: u8, lanes: u16) -> DType {
        NAMED
            .iter()
            .find(|named| lanes == 1 && (named.2, named.3) == (code, bits))
            .map_or(DType::Exotic(Exotic { code, bits, lanes }), |named| named.0)
    }

    /// The DLPack triple (code, bits, lanes).
    pub fn dlpack(self) -> (u8, u8, u16) {
        match self {
            DType::Exotic(e) => (e.code, e.bits, e.lanes),
            named => NAMED.iter().find(|n| n.0 == named).map_or((0, 0, 1), |n| (n.2, n.3, 1)),
        }
    }

    /// Bytes of one element: bits rounded up to whole bytes, times the lanes.
    pub fn size(self) -> u64 {
        let (_, bits, lanes) = self.dlpack();
        u64::from(bits).div_ceil(8) * u64::from(lanes)
    }

    pub fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::Bf16 | DType::F32 | DType::F64)
    }

    pub fn is_integer(self) -> bool {
        matches!(self.dlpack(), (0 | 1, 2.., 1))
    }

    pub fn is_signed(self) -> bool {
        self.dlpack().0 == 0
    }
}

impl FromStr for DType {
    type Err = DTypeError;
    fn from_str(name: &str) -> Result<DType, DTypeError> {
        if let Some(named) = NAMED.iter().find(|n| n.1 == name) {
            return Ok(named.0);
        }
        let error = || DTypeError(name.to_string());
        let (family, code, default_bits) = FAMILIES
            .iter()
            .filter(|f| name.starts_with(f.0))
            .max_by_key(|f| f.0.len())
            .copied()
            .or_else(|| name.starts_with("bool").then_some(("bool", 1, 1)))
            .ok_or_else(error)?;
        let (bits, lanes) = match name[family.len()..].split_once('x') {
            Some((bits, lanes)) => (bits, lanes.parse().map_err(|_| error())?),
            None => (&name[family.len()..], 1),
        };
        let bits = if bits.is_empty() { default_bits } else { bits.parse().map_err(|_| error())? };
        if bits == 0 || lanes == 0 {
            return Err(error());
        }
        Ok(DType::from_dlpack(code, bits, lanes))
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(named) = NAMED.iter().find(|n| n.0 == *self) {
            return f.pad(named.1);
        }
        let (code, bits, lanes) = self.dlpack();
        let name = FAMILIES.iter().find(|x| x.1 == code).map_or("custom", |x| x.0);
        let family = if code == 3 && bits == 64 { name.to_string() } else { format!("{name}{bits}") };
        f.pad(&if lanes == 1 { family } else { format!("{family}x{lanes}") })
    }
}

impl Serialize for DType {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DType {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<DType, D::Error> {
        let name = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for name in ["float32", "bool", "int4", "float32x4", "bfloat16", "handle", "e4m3_float8", "boolx4", "uint1x8"] {
            let dtype: DType = name.parse().unwrap();
            assert_eq!(dtype.to_string().parse::<DType>(), Ok(dtype), "{name}");
        }
        assert_eq!("float".parse(), Ok(DType::F32));
        assert_eq!("int".parse(), Ok(DType::I32));
        for bad in ["", "floaty", "int0", "int8x0", "tensor", "int8x", "int999"] {
            assert!(bad.parse::<DType>().is_err(), "{bad}");
        }
    }
}
