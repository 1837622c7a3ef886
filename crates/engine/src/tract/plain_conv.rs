//! The convolutions that this project's rewrites apply to.

use tract_core::{
    internal::*,
    ops::{
        cnn::{Conv, KernelFormat},
        nn::DataFormat,
    },
};

/// Whether `conv` of `data` is in single precision, with channels before the spatial axes and weights (O, I, spatial…).
pub(super) fn is_plain_conv(conv: &Conv, data: &TypedFact) -> bool {
    data.datum_type == DatumType::F32
        && conv.q_params.is_none()
        && conv.kernel_fmt == KernelFormat::OIHW
        && matches!(conv.pool_spec.data_format, DataFormat::NCHW | DataFormat::CHW)
}
