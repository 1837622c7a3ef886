//! What the servers of a run must do, as plain data. Plans are turned into deployments by `edgecut-session`.

use edgecut_graph::TensorId;

use crate::protocol::setup::Setup;

/// The servers that take part in a plan, each with its setup.
#[derive(Debug, Clone, PartialEq)]
pub struct Deployment {
    /// In the order of the cluster.
    pub setups: Vec<Setup>,
    pub terminals: Terminals,
    /// Those of a decoder's steps of several tokens, if it has any.
    pub prefill: Option<Terminals>,
    /// The tensor that each value is, in the graph of its phase.
    pub tensors: Vec<TensorId>,
}

/// The inputs and outputs of the model in a phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terminals {
    /// Those that anything needs, in the order of the source's values.
    pub inputs: Vec<TensorId>,
    /// Where each that is not a state comes from.
    pub outputs: Vec<Output>,
}

/// Where one output of the model comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// The value with this index at the sink.
    Sink(u32),
    /// It is a parameter or a constant, which no operator computes.
    Parameter(TensorId),
}
