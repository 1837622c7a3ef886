//! Convolutions over one, two and three axes in all layouts, their block-layout relatives, transposed
//! convolutions, and the gradient by the weight.

mod backward;
pub(super) mod deformable;
pub(super) mod forward;
pub(super) mod geometry;
pub(super) mod packed;
mod shards;
mod transpose;

use self::{
    backward::{backward_flops, backward_kernel, backward_type},
    forward::conv_kernel,
    geometry::{conv_flops, conv_operands, conv_type},
    packed::unchecked_type,
    shards::{conv_axes, transposed_axes},
    transpose::{transposed_flops, transposed_kernel, transposed_operands, transposed_type},
};
use super::{
    AttrDef, FusionClass, OpDef,
    def::AttrKind::{DType, Int, Ints, OptionalInt, OptionalInts, Str},
    def::InferFn,
};

pub(super) const OPS: &[OpDef] = &[
    OpDef::new("nn.conv1d", OPERANDS, conv_type::<1>)
        .attrs("relay.attrs.Conv1DAttrs", CONV1D)
        .operand_types(conv_operands::<1>)
        .flops(conv_flops::<1>)
        .class(FusionClass::OutFusable)
        .split(conv_axes::<1>)
        .wire(conv_kernel::<1>),
    conv2d("nn.conv2d", conv_type::<2>),
    conv2d("nn.contrib_conv2d_NCHWc", unchecked_type::<2>),
    conv2d("nn.contrib_depthwise_conv2d_NCHWc", conv_type::<2>),
    OpDef::new("nn.conv3d", OPERANDS, conv_type::<3>)
        .attrs("relay.attrs.Conv3DAttrs", CONV3D)
        .operand_types(conv_operands::<3>)
        .flops(conv_flops::<3>)
        .class(FusionClass::OutFusable)
        .split(conv_axes::<3>)
        .wire(conv_kernel::<3>),
    OpDef::new("nn.conv2d_backward_weight", &["grad", "data"], backward_type)
        .attrs("relay.attrs.Conv2DAttrs", CONV2D)
        .flops(backward_flops)
        .class(FusionClass::OutFusable)
        .wire(backward_kernel),
    OpDef::new("nn.conv1d_transpose", OPERANDS, transposed_type::<1>)
        .attrs("relay.attrs.Conv1DTransposeAttrs", TRANSPOSED1D)
        .operand_types(transposed_operands::<1>)
        .flops(transposed_flops::<1>)
        .class(FusionClass::OutFusable)
        .split(transposed_axes::<1>)
        .wire(transposed_kernel::<1>),
    OpDef::new("nn.conv2d_transpose", OPERANDS, transposed_type::<2>)
        .attrs("relay.attrs.Conv2DTransposeAttrs", TRANSPOSED2D)
        .operand_types(transposed_operands::<2>)
        .flops(transposed_flops::<2>)
        .class(FusionClass::OutFusable)
        .split(transposed_axes::<2>)
        .wire(transposed_kernel::<2>),
    OpDef::new("nn.conv3d_transpose", OPERANDS, transposed_type::<3>)
        .attrs("relay.attrs.Conv3DTransposeAttrs", TRANSPOSED3D)
        .operand_types(transposed_operands::<3>)
        .flops(transposed_flops::<3>)
        .class(FusionClass::OutFusable)
        .split(transposed_axes::<3>)
        .wire(transposed_kernel::<3>),
];

const OPERANDS: &[&str] = &["data", "weight"];

const fn conv2d(name: &'static str, infer: InferFn) -> OpDef {
    OpDef::new(name, OPERANDS, infer)
        .attrs("relay.attrs.Conv2DAttrs", CONV2D)
        .operand_types(conv_operands::<2>)
        .flops(conv_flops::<2>)
        .class(FusionClass::OutFusable)
        .split(conv_axes::<2>)
        .wire(conv_kernel::<2>)
}

const CONV1D: &[AttrDef] = &attrs("[1]", "[0, 0]", "\"NCW\"", "\"OIW\"");
pub(super) const CONV2D: &[AttrDef] = &attrs("[1, 1]", "[0, 0]", "\"NCHW\"", "\"OIHW\"");
const CONV3D: &[AttrDef] = &attrs("[1, 1, 1]", "[0, 0, 0]", "\"NCDHW\"", "\"OIDHW\"");

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

const TRANSPOSED1D: &[AttrDef] = &transposed_attrs("[1]", "[0]", "\"NCW\"", "\"IOW\"");
pub(super) const TRANSPOSED2D: &[AttrDef] = &transposed_attrs("[1, 1]", "[0, 0]", "\"NCHW\"", "\"IOHW\"");
const TRANSPOSED3D: &[AttrDef] = &transposed_attrs("[1, 1, 1]", "[0, 0, 0]", "\"NCDHW\"", "\"IODHW\"");

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
