//! edgecut profiles neural networks operator by operator on the servers of an edge cluster, and plans how to
//! place and split the operators over the cluster's CPUs and GPUs so that memory and latency targets hold.
//!
//! The way of the data, and where to look:
//!
//! | module | what it does |
//! |---|---|
//! | [`units`] | bytes and microseconds as types |
//! | [`statistics`] | median, scatter and percentiles of samples |
//! | [`files`] | files that appear whole or not at all |
//! | [`values`] | contents of tensors: generated from their names, `.npz` files |
//! | [`graph`] | operators and tensors in single-assignment form; parts cut out of it |
//! | [`ops`] | what each Relay operator means: type rule, cost, kernel; one file a family |
//! | [`relay`] | Relay text, metadata and `.params` files: read into the graph, printed from it |
//! | [`engine`] | executes a graph on a device and measures it |
//! | [`memory`] | who lives when, where it lies in the arena, and how to make it fit |
//! | [`profile`] | measures what operators cost: signatures, samples, the CSV table |
//! | [`plan`] | which device computes what, in which order, and what that costs |
//! | [`cluster`] | servers, devices and links: the cluster file, what servers report, link costs |
//! | [`agent`] | what runs on every server, and how it is spoken to |
//! | [`run`] | a plan executed on the agents: measured against predicted |
//! | [`report`] | graphs and plans for other tools: one exporter a file |
//! | [`cli`] | one file a verb: flags in, calls to the above, tables out |
//! | [`fuzz`] | what must hold for files of strangers: bodies for fuzzers |
//!
//! Arrows point down only: `graph` knows neither text nor operators; `plan` and `memory` are pure functions on
//! tables and graphs and never see an engine, a socket or a file; `cli` parses flags, calls the library and prints.

pub mod agent;
pub mod cli;
pub mod cluster;
pub mod engine;
pub mod files;
pub mod fuzz;
pub mod graph;
pub mod memory;
pub mod ops;
pub mod plan;
pub mod profile;
pub mod relay;
pub mod report;
pub mod run;
pub mod statistics;
pub mod units;
pub mod values;
