//! Contents of inputs and parameters that are not generated from their names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use edgecut_graph::{TensorData, TensorType};

/// Contents of tensors by name.
pub type NamedTensors = BTreeMap<SmolStr, TensorData>;

/// A tensor whose content is streamed after the document that announces it, by its name in the graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamedTensor {
    pub name: SmolStr,
    pub ty: TensorType,
}
