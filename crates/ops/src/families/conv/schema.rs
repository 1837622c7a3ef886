//! Operand names and attribute tables of convolutions and transposed convolutions.

use crate::def::{
    AttrDef,
    AttrKind::{DType, Int, Ints, OptionalInt, OptionalInts, Str},
};

pub(crate) const OPERANDS: &[&str] = &["data", "weight"];

pub(crate) const CONV1D: &[AttrDef] = &attrs("[1]", "[0, 0]", "\"NCW\"", "\"OIW\"");

pub(crate) const CONV2D: &[AttrDef] = &attrs("[1, 1]", "[0, 0]", "\"NCHW\"", "\"OIHW\"");

pub(crate) const CONV3D: &[AttrDef] = &attrs("[1, 1, 1]", "[0, 0, 0]", "\"NCDHW\"", "\"OIDHW\"");

const fn attrs(ones: &'static str, zeros: &'static str, data: &'static str, kernel: &'static str) -> [AttrDef; 10] {
    [
        AttrDef::new("strides", Ints, ones),
        AttrDef::new("padding", Ints, zeros),
        AttrDef::new("dilation", Ints, ones),
        AttrDef::new("groups", Int, "1"),
        AttrDef::new("channels", OptionalInt, "None"),
        AttrDef::new("kernel_size", OptionalInts, "None"),
        AttrDef::new("data_layout", Str, data),
        AttrDef::new("kernel_layout", Str, kernel),
        AttrDef::new("out_layout", Str, "\"\""),
        AttrDef::new("out_dtype", DType, "\"\""),
    ]
}

pub(crate) const TRANSPOSED1D: &[AttrDef] = &transposed_attrs("[1]", "[0]", "\"NCW\"", "\"IOW\"");

pub(crate) const TRANSPOSED2D: &[AttrDef] = &transposed_attrs("[1, 1]", "[0, 0]", "\"NCHW\"", "\"IOHW\"");

pub(crate) const TRANSPOSED3D: &[AttrDef] = &transposed_attrs("[1, 1, 1]", "[0, 0, 0]", "\"NCDHW\"", "\"IODHW\"");

const fn transposed_attrs(
    ones: &'static str,
    zeros: &'static str,
    data: &'static str,
    kernel: &'static str,
) -> [AttrDef; 11] {
    [
        AttrDef::new("channels", OptionalInt, "None"),
        AttrDef::new("kernel_size", OptionalInts, "None"),
        AttrDef::new("strides", Ints, ones),
        AttrDef::new("output_padding", Ints, zeros),
        AttrDef::new("padding", Ints, zeros),
        AttrDef::new("dilation", Ints, ones),
        AttrDef::new("groups", Int, "1"),
        AttrDef::new("data_layout", Str, data),
        AttrDef::new("kernel_layout", Str, kernel),
        AttrDef::new("out_layout", Str, "\"\""),
        AttrDef::new("out_dtype", DType, "\"\""),
    ]
}
