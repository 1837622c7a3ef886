//! edgecut profiles neural networks operator by operator on the servers of an edge cluster, and plans how to
//! place and split the operators over the cluster's CPUs and GPUs so that memory and latency targets hold.
//!
//! This library gathers the workspace's crates under one name; the binary of this package is the command line.
//!
//! | module | crate | what it does |
//! |---|---|---|
//! | [`graph`], [`units`] | `edgecut-graph` | operators and tensors in single-assignment form, parts, fusion, queries; bytes and microseconds |
//! | [`values`], [`files`] | `edgecut-values` | contents of tensors: generated from names, `.npz` files; atomic files |
//! | [`ops`] | `edgecut-ops` | operator definitions: type rule, cost, split axes, kernel; graph passes |
//! | [`relay`] | `edgecut-relay` | Relay text, metadata and `.params` files, read into the graph and printed from it |
//! | [`onnx`] | `edgecut-onnx` | ONNX models, read into the graph |
//! | [`engine`], [`statistics`] | `edgecut-engine` | executes graphs on devices and measures them |
//! | [`profile`] | `edgecut-profile` | signatures, sampling, the CSV table, the cost model |
//! | [`memory`] | `edgecut-memory` | liveness, order, rematerialisation, tiling, arena, bounds, checkers |
//! | [`plan`] | `edgecut-plan` | strategies, simulator, searches, bounds, checker, the plan file |
//! | [`interop`] | `edgecut-interop` | formats of other tools, with their own searches and checkers |
//! | [`agent`] | `edgecut-agent` | the cluster file, agents with their protocol and client, what runs measured |
//! | [`report`] | `edgecut-report` | figures, pages and traces |
//! | [`session`] | `edgecut-session` | from a model to a run: the verbs as functions, with structs of options |
//!
//! Programs begin with [`session`]: `examples/quickstart.rs` profiles a model, plans it and runs the plan.

pub use edgecut_agent as agent;
pub use edgecut_engine::{self as engine, statistics};
pub use edgecut_graph::{self as graph, units};
pub use edgecut_interop as interop;
pub use edgecut_memory as memory;
pub use edgecut_onnx as onnx;
pub use edgecut_ops as ops;
pub use edgecut_plan as plan;
pub use edgecut_profile as profile;
pub use edgecut_relay as relay;
pub use edgecut_report as report;
pub use edgecut_session as session;
pub use edgecut_values::{self as values, files};
