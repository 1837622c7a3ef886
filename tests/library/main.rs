//! Behaviour of the library through its public items, one file an area.

#[path = "../common/mod.rs"]
mod common;

mod aligned_shards;
mod eop;
mod memory_fit;
mod memory_model;
mod memory_reports;
mod operators_by_hand;
mod partial_sums;
mod placement;
mod plan;
mod recurrent;
mod relay_cases;
mod relay_errors;
mod relay_printer;
mod relay_versions;
mod split_models;
mod split_plan;
mod two_device;
