//! Sizes of unknown dimensions that were guessed.

use std::slice;

use edgecut_onnx::{Interface, UnknownDim};
pub use edgecut_ops::passes::retype::BindDim;
use edgecut_ops::passes::retype::bound_size;

use super::Model;

/// A guessed size, and the dimensions that have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuessedSize {
    /// The size as [`super::ModelOptions::bind_dim`] takes it.
    pub bind: String,
    /// The dimensions as `input:axis`. Empty if `bind` names the only one.
    pub places: Vec<String>,
}

impl Model {
    /// The guessed sizes of dimensions that occur in the interface of the model.
    pub fn guessed_sizes(&self) -> Vec<GuessedSize> {
        let dims: Vec<UnknownDim> = self.interface.iter().flat_map(Interface::unknown_dims).collect();
        self.guessed.iter().filter_map(|bind| guessed_size(bind, &dims)).collect()
    }
}

fn guessed_size(bind: &BindDim, dims: &[UnknownDim]) -> Option<GuessedSize> {
    let size = |dim: &UnknownDim| bound_size(slice::from_ref(bind), &dim.input, dim.axis, dim.symbol.as_deref());
    let bound: Vec<&UnknownDim> = dims.iter().filter(|dim| size(dim).is_some()).collect();
    let first = bound.first()?;
    let places = match first.symbol {
        Some(_) => bound.iter().map(|dim| dim.place()).collect(),
        None => Vec::new(),
    };
    Some(GuessedSize { bind: format!("{}={}", first.key(), size(first)?), places })
}
