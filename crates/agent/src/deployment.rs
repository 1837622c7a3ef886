//! What the servers of a run must do, as plain data. Plans are turned into deployments by `edgecut-session`.

use edgecut_graph::TensorId;

use crate::protocol::setup::Setup;

/// The servers that take part in a plan, each with its setup.
#[derive(Debug, Clone, PartialEq)]
pub struct Deployment {
    /// In the order of the cluster.
    pub setups: Vec<Setup>,
    /// The model's inputs that anything needs, in the order of the source's values.
    pub inputs: Vec<TensorId>,
    /// Where each of the model's outputs that is not a state comes from.
    pub outputs: Vec<Output>,
    /// The tensor of the model that each value is.
    pub tensors: Vec<TensorId>,
}

/// Where one output of the model comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// The value with this index at the sink.
    Sink(u32),
    /// It is a parameter or a constant, which no operator computes.
    Parameter(TensorId),
}
