//! Faults of traced graphs and of the times of their kernels.

/// Why a text is not a valid traced graph.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FxError {
    #[error("line {line}: {what}")]
    Text { line: usize, what: String },
    #[error("there are {times} times for {kernels} kernels")]
    Times { times: usize, kernels: usize },
    #[error("found no kernel: expected `def forward(self, …):` and assignments such as `a: \"f32[2, 8]\" = f(x)`")]
    Empty,
}
