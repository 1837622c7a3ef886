//! Pooling: sliding, global and adaptive windows over one to three spatial axes, and gradients.

mod adaptive;
mod axes;
mod gradient;
pub(crate) mod schema;
mod sliding;

use self::{
    adaptive::{adaptive, global},
    axes::{AVERAGE, MAX},
    gradient::gradient,
    schema::{AVERAGE2D, counting, sized, window_attrs},
    sliding::sliding,
};
use crate::OpDef;

pub(crate) static OPS: &[OpDef] = &[
    sliding::<1, MAX>("nn.max_pool1d", "relay.attrs.MaxPool1DAttrs", &window_attrs("[1]", "[0]", "\"NCW\"")),
    sliding::<2, MAX>("nn.max_pool2d", "relay.attrs.MaxPool2DAttrs", &window_attrs("[1, 1]", "[0, 0]", "\"NCHW\"")),
    sliding::<3, MAX>(
        "nn.max_pool3d",
        "relay.attrs.MaxPool3DAttrs",
        &window_attrs("[1, 1, 1]", "[0, 0, 0]", "\"NCDHW\""),
    ),
    sliding::<1, AVERAGE>("nn.avg_pool1d", "relay.attrs.AvgPool1DAttrs", &counting("[1]", "[0]", "\"NCW\"")),
    sliding::<2, AVERAGE>("nn.avg_pool2d", "relay.attrs.AvgPool2DAttrs", AVERAGE2D),
    sliding::<3, AVERAGE>(
        "nn.avg_pool3d",
        "relay.attrs.AvgPool3DAttrs",
        &counting("[1, 1, 1]", "[0, 0, 0]", "\"NCDHW\""),
    ),
    gradient::<MAX>("nn.max_pool2d_grad", "relay.attrs.MaxPool2DAttrs", &window_attrs("[1, 1]", "[0, 0]", "\"NCHW\"")),
    gradient::<AVERAGE>("nn.avg_pool2d_grad", "relay.attrs.AvgPool2DAttrs", AVERAGE2D).attrs_in_metadata(),
    global::<MAX>("nn.global_max_pool2d"),
    global::<AVERAGE>("nn.global_avg_pool2d"),
    adaptive::<1, MAX>("nn.adaptive_max_pool1d", "relay.attrs.AdaptivePool1DAttrs", &sized("\"NCW\"")),
    adaptive::<2, MAX>("nn.adaptive_max_pool2d", "relay.attrs.AdaptivePool2DAttrs", &sized("\"NCHW\"")),
    adaptive::<3, MAX>("nn.adaptive_max_pool3d", "relay.attrs.AdaptivePool3DAttrs", &sized("\"NCDHW\"")),
    adaptive::<1, AVERAGE>("nn.adaptive_avg_pool1d", "relay.attrs.AdaptivePool1DAttrs", &sized("\"NCW\"")),
    adaptive::<2, AVERAGE>("nn.adaptive_avg_pool2d", "relay.attrs.AdaptivePool2DAttrs", &sized("\"NCHW\"")),
    adaptive::<3, AVERAGE>("nn.adaptive_avg_pool3d", "relay.attrs.AdaptivePool3DAttrs", &sized("\"NCDHW\"")),
];
