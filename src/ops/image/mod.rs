//! Images and volumes: resizing, cropping, sampling along a grid, morphology.

pub(super) mod crop;
pub(super) mod dilation;
pub(super) mod grid;
mod interpolate;
pub(super) mod resize;

pub use interpolate::Taps;

/// Axes of images over 1, 2 and 3 spatial axes, which is also their default layout.
const AXES: [&str; 4] = ["NC", "NCW", "NCHW", "NCDHW"];
