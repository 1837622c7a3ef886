//! Attribute tables of the pooling operators.

use crate::def::{
    AttrDef,
    AttrKind::{Bool, Ints, OptionalInts, Str},
};

pub(crate) const AVERAGE2D: &[AttrDef] = &counting("[1, 1]", "[0, 0]", "\"NCHW\"");

pub(crate) const fn window_attrs(ones: &'static str, zeros: &'static str, layout: &'static str) -> [AttrDef; 7] {
    [
        AttrDef::required("pool_size", Ints),
        AttrDef::new("strides", Ints, ones),
        AttrDef::new("dilation", Ints, ones),
        AttrDef::new("padding", Ints, zeros),
        AttrDef::new("layout", Str, layout),
        AttrDef::new("out_layout", Str, "\"\""),
        AttrDef::new("ceil_mode", Bool, "False"),
    ]
}

pub(crate) const fn counting(ones: &'static str, zeros: &'static str, layout: &'static str) -> [AttrDef; 8] {
    let [size, strides, dilation, padding, layout, out_layout, ceil_mode] = window_attrs(ones, zeros, layout);
    let count = AttrDef::new("count_include_pad", Bool, "False");
    [size, strides, dilation, padding, layout, out_layout, ceil_mode, count]
}

pub(crate) const fn sized(layout: &'static str) -> [AttrDef; 3] {
    [
        AttrDef::new("output_size", OptionalInts, "[]"),
        AttrDef::new("layout", Str, layout),
        AttrDef::new("out_layout", Str, "\"\""),
    ]
}
