//! Exporters for other tools and for people: graphs, plans and memory layouts as text and figures.
//!
//! Exporters are pure functions: they open no files and print nothing.
//!
//! | module | output |
//! |---|---|
//! | [`comparison`] | two profiles, plans or runs row by row, with the significance of what differs |
//! | [`dot`] | a graph for Graphviz |
//! | [`page`] | profiles, plans, fronts and runs as one HTML page |
//! | `html` | what pages have in common: skeleton, colours, escaping |
//! | [`class`] | classes of operators, which have the colours |
//! | [`memory`] | memory layouts as SVG, HTML, PNG, text and Perfetto traces |
//! | [`timeline`] | what ran when, as Chrome and Perfetto traces |
//! | [`modules`] | a plan as Relay modules, one per stage |
//! | [`onnx_parts`] | a plan as ONNX models, one per stage |
//! | [`subject`] | what pages show and comparisons compare |
//! | [`ray_serve`], [`triton`] | what serves these models |

pub mod class;
pub mod comparison;
pub mod dot;
mod html;
pub mod memory;
pub mod modules;
pub mod onnx_parts;
pub mod page;
pub mod ray_serve;
pub mod subject;
pub mod timeline;
pub mod triton;
