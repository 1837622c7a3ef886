//! Taps of separable resampling, which split axes and kernels share.

use smallvec::SmallVec;

/// For each index of the result: indices of the data and their weights, which sum to 1.
pub type Taps = Vec<SmallVec<[(usize, f32); 4]>>;
