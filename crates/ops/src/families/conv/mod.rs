//! Convolutions with one to three spatial axes in all layouts, transposed convolutions, and the weight gradient.
//!
//! | module | contents |
//! |---|---|
//! | `schema` | operand names and attribute tables |
//! | `geometry` | the typed view of a convolution: type rule and cost |
//! | `forward`, `transpose`, `backward` | kernels of convolutions, transposed convolutions, weight gradients |
//! | `shards` | split axes |
//! | `packed` | convolutions with transformed weights (Winograd, GEMM) |
//! | `deformable` | deformable convolution |

mod backward;
pub(crate) mod deformable;
#[cfg(feature = "kernels")]
pub(crate) mod forward;
pub(crate) mod geometry;
pub(crate) mod packed;
pub(crate) mod schema;
mod shards;
mod transpose;

use self::{
    backward::{backward_flops, backward_type},
    geometry::{conv_flops, conv_operands, conv_type, unchecked_type},
    schema::{CONV1D, CONV2D, CONV3D, OPERANDS, TRANSPOSED1D, TRANSPOSED2D, TRANSPOSED3D},
    shards::{conv_axes, transposed_axes},
    transpose::{transposed_flops, transposed_operands, transposed_type},
};
use crate::{FusionClass, OpDef, def::InferFn};

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("nn.conv1d", OPERANDS, conv_type::<1>)
        .attrs("relay.attrs.Conv1DAttrs", CONV1D)
        .operand_types(conv_operands::<1>)
        .flops(conv_flops::<1>)
        .class(FusionClass::OutFusable)
        .split(conv_axes::<1>)
        .wire(kernel!(conv_kernel::<1>)),
    conv2d("nn.conv2d", conv_type::<2>),
    conv2d("nn.contrib_conv2d_NCHWc", unchecked_type::<2>),
    conv2d("nn.contrib_depthwise_conv2d_NCHWc", conv_type::<2>),
    OpDef::new("nn.conv3d", OPERANDS, conv_type::<3>)
        .attrs("relay.attrs.Conv3DAttrs", CONV3D)
        .operand_types(conv_operands::<3>)
        .flops(conv_flops::<3>)
        .class(FusionClass::OutFusable)
        .split(conv_axes::<3>)
        .wire(kernel!(conv_kernel::<3>)),
    OpDef::new("nn.conv2d_backward_weight", &["grad", "data"], backward_type)
        .attrs("relay.attrs.Conv2DAttrs", CONV2D)
        .flops(backward_flops)
        .class(FusionClass::OutFusable)
        .wire(kernel!(backward_kernel)),
    OpDef::new("nn.conv1d_transpose", OPERANDS, transposed_type::<1>)
        .attrs("relay.attrs.Conv1DTransposeAttrs", TRANSPOSED1D)
        .operand_types(transposed_operands::<1>)
        .flops(transposed_flops::<1>)
        .class(FusionClass::OutFusable)
        .split(transposed_axes::<1>)
        .wire(kernel!(transposed_kernel::<1>)),
    OpDef::new("nn.conv2d_transpose", OPERANDS, transposed_type::<2>)
        .attrs("relay.attrs.Conv2DTransposeAttrs", TRANSPOSED2D)
        .operand_types(transposed_operands::<2>)
        .flops(transposed_flops::<2>)
        .class(FusionClass::OutFusable)
        .split(transposed_axes::<2>)
        .wire(kernel!(transposed_kernel::<2>)),
    OpDef::new("nn.conv3d_transpose", OPERANDS, transposed_type::<3>)
        .attrs("relay.attrs.Conv3DTransposeAttrs", TRANSPOSED3D)
        .operand_types(transposed_operands::<3>)
        .flops(transposed_flops::<3>)
        .class(FusionClass::OutFusable)
        .split(transposed_axes::<3>)
        .wire(kernel!(transposed_kernel::<3>)),
];

const fn conv2d(name: &'static str, infer: InferFn) -> OpDef {
    OpDef::new(name, OPERANDS, infer)
        .attrs("relay.attrs.Conv2DAttrs", CONV2D)
        .operand_types(conv_operands::<2>)
        .flops(conv_flops::<2>)
        .class(FusionClass::OutFusable)
        .split(conv_axes::<2>)
        .wire(kernel!(conv_kernel::<2>))
}

#[cfg(feature = "kernels")]
mod kernel {
    pub(super) use crate::families::conv::{
        backward::kernel::backward_kernel, forward::conv_kernel, transpose::kernel::transposed_kernel,
    };
}
