//! What leaves edgecut for other tools and for people: one exporter a file.
//!
//! Exporters turn graphs, plans and profiles into text; they open no files and print nothing.

pub mod dot;
pub mod memory;
pub mod modules;
