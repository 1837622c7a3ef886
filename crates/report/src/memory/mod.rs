//! Memory figures: the arena layout, memory in use over time, and idle tensors.
//!
//! | module | output |
//! |---|---|
//! | [`layout`] | the data of all figures, from a graph and its arena |
//! | [`map`] | the arena as SVG: addresses over steps, with the load curve |
//! | [`charts`] | memory in use, idle periods, size over idle time as SVG, after G10's figures |
//! | [`page`] | one self-contained HTML page with all figures |
//! | [`files`] | all figures as files of one folder |
//! | `png` | a figure as PNG (feature `png`) |
//! | [`text`] | the arena in 80 columns |

pub mod charts;
pub mod files;
pub mod layout;
pub mod map;
pub mod page;
#[cfg(feature = "png")]
pub mod png;
mod svg;
pub mod text;
