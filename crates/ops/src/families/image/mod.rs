//! Images and volumes: resizing, cropping, grid sampling, morphology.

pub(crate) mod crop;
pub(crate) mod dilation;
pub(crate) mod grid;
mod interpolate;
pub(crate) mod resize;

/// Axes, and default layouts, of images with 1, 2 and 3 spatial axes.
const AXES: [&str; 4] = ["NC", "NCW", "NCHW", "NCDHW"];
