//! The real binary: flags in, tables, files and exit codes out.

#[path = "../common/mod.rs"]
mod common;

mod bindings;
mod calibration;
mod certificates;
mod cluster_processes;
mod command_line;
mod compare;
mod configuration;
mod costs;
mod decoder;
mod deployment;
mod dilation;
mod discovery;
mod documented_flags;
mod documents;
mod energy;
mod export;
mod failover;
mod hostile_clients;
mod hostile_files;
mod hostile_inputs;
mod idle_connections;
mod inspect;
mod interrupted_plan;
mod llama_cpp;
mod memory;
mod model_flags;
mod monitoring;
mod onnx_inputs;
mod open_models;
mod ort;
mod ort_provider;
mod perfetto;
mod plan_advice;
mod plan_energy;
mod report;
mod results;
mod run_results;
mod sharding;
mod simultaneous_profiles;
mod stable_ids;
mod supervisor;
mod threads;
mod transfer_format;
