//! Multi-device annotations of an ONNX file.

/// The device configurations of a model, and what its nodes state for them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShardedModel {
    pub configurations: Vec<DeviceConfiguration>,
    /// In the order of the file; a node is listed once for each configuration that it states something for.
    pub entries: Vec<NodeSharding>,
}

/// A set of devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceConfiguration {
    pub name: String,
    /// How many devices it has.
    pub devices: usize,
    /// Their names, if the file has any.
    pub names: Vec<String>,
}

/// What a node states for one configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeSharding {
    /// Its number in the graph of the model.
    pub number: usize,
    /// Its name; empty if it has none, or another one has the same.
    pub name: String,
    /// Its number and kind, with its name, for messages.
    pub title: String,
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    /// Index into [`ShardedModel::configurations`].
    pub configuration: usize,
    pub stage: Option<u32>,
    pub tensors: Vec<TensorSharding>,
    /// The metadata of the node.
    pub metadata: Vec<(String, String)>,
}

/// How an input or output of a node is placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSharding {
    pub tensor: String,
    /// By shard: the devices that have it. A tensor that is not sharded counts as one shard.
    pub shards: Vec<Vec<usize>>,
    /// The axes that are described, each once.
    pub dims: Vec<ShardedDim>,
}

/// How an axis of a tensor is sharded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardedDim {
    pub axis: i64,
    /// Positions of the axis, if the file says how many.
    pub size: Option<u64>,
    /// Number of shards; 1 for an axis that is whole.
    pub shards: u64,
}

impl TensorSharding {
    /// The axes that are sharded, from 0 on for a tensor of `rank` axes.
    pub fn sharded_axes(&self, rank: usize) -> Vec<usize> {
        let sharded = self.dims.iter().filter(|dim| dim.shards > 1);
        sharded.filter_map(|dim| dim.index(rank)).collect()
    }
}

impl ShardedDim {
    /// The axis from 0 on in a tensor of `rank` axes; `None` if that has no such axis.
    pub fn index(&self, rank: usize) -> Option<usize> {
        let rank = i64::try_from(rank).ok()?;
        let axis = if self.axis < 0 { self.axis.checked_add(rank)? } else { self.axis };
        (0..rank).contains(&axis).then_some(axis as usize)
    }
}
