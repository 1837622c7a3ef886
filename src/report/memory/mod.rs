//! Figures of memory: where every tensor lies and when, how much is in use, and what lies idle.
//!
//! | module | makes |
//! |---|---|
//! | [`layout`] | what all figures show, from a graph and its placement |
//! | [`map`] | the arena as SVG: address over steps, with the load as a curve |
//! | [`charts`] | consumption, idle periods, size against idle time as SVG, after G10's figures |
//! | [`page`] | one HTML page of all of it, with nothing to fetch |
//! | `png` | any of them as pixels; with the feature `png` |
//! | [`text`] | the arena in 80 columns |
//! | [`perfetto`] | counters for Perfetto and Chrome |
//! | [`aidge`] | Aidge's `memory_info.txt` |

pub mod aidge;
pub mod charts;
pub mod layout;
pub mod map;
pub mod page;
pub mod perfetto;
#[cfg(feature = "png")]
pub mod png;
mod svg;
pub mod text;
