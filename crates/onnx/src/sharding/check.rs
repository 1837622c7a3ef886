//! Checks annotations against the shapes of tensors and the order of pipeline stages.

use std::collections::HashMap;

use super::annotation::{NodeSharding, ShardedModel, TensorSharding};
use crate::error::shown;

/// Gives the shape of a tensor by its name; `None` if that is not known.
pub type Shape<'a> = dyn Fn(&str) -> Option<Vec<u64>> + 'a;

/// What is wrong with a sharding or a stage of a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct ShardingError {
    /// The node.
    pub place: String,
    pub what: String,
}

impl ShardedModel {
    /// Everything that is wrong, in the order of the nodes: axes and sizes that the tensors do not have, more shards than
    /// positions, pipeline stages earlier than those of operands, and gaps in the
    /// numbers of stages.
    pub fn errors(&self, shape: &Shape<'_>) -> Vec<ShardingError> {
        let mut found = Vec::new();
        for node in &self.entries {
            let error = |what: String| ShardingError { place: node.title.clone(), what };
            let of_tensor = |tensor: &TensorSharding| {
                let what = error_of(tensor, &shape(&tensor.tensor)?)?;
                Some(error(format!("sharding of `{}`: {what}", shown(&tensor.tensor))))
            };
            found.extend(node.tensors.iter().filter_map(of_tensor));
        }
        (0..self.configurations.len()).for_each(|configuration| found.extend(self.stage_errors(configuration)));
        found
    }

    fn stage_errors(&self, configuration: usize) -> Vec<ShardingError> {
        let nodes: Vec<&NodeSharding> =
            self.entries.iter().filter(|node| node.configuration == configuration).collect();
        let mut stage_of: HashMap<&str, (u32, &str)> = HashMap::new();
        for node in &nodes {
            let Some(stage) = node.stage else { continue };
            // Omitted ones have no name.
            let outputs = node.outputs.iter().filter(|output| !output.is_empty());
            stage_of.extend(outputs.map(|output| (output.as_str(), (stage, node.title.as_str()))));
        }
        let early = |node: &&NodeSharding| {
            let stage = node.stage?;
            let operand =
                node.inputs.iter().find(|input| stage_of.get(input.as_str()).is_some_and(|(of, _)| *of > stage))?;
            let (of, by) = stage_of[operand.as_str()];
            let what =
                format!("pipeline stage {stage}: input `{}` is computed in later stage {of}, by {by}", shown(operand));
            Some(ShardingError { place: node.title.clone(), what })
        };
        let mut found: Vec<ShardingError> = nodes.iter().filter_map(early).collect();
        let mut stages: Vec<(u32, &str)> =
            nodes.iter().filter_map(|node| Some((node.stage?, node.title.as_str()))).collect();
        stages.sort_by_key(|(stage, _)| *stage);
        stages.dedup_by_key(|(stage, _)| *stage);
        if let Some((at, (stage, place))) = stages.iter().enumerate().find(|(at, (stage, _))| *at as u32 != *stage) {
            let what = format!("pipeline stage {stage}: no node is in stage {at}");
            found.push(ShardingError { place: place.to_string(), what });
        }
        found
    }
}

fn error_of(tensor: &TensorSharding, shape: &[u64]) -> Option<String> {
    let mut seen = vec![false; shape.len()];
    for dim in &tensor.dims {
        let Some(axis) = dim.index(shape.len()) else {
            return Some(format!("axis {} is out of range for rank {}", dim.axis, shape.len()));
        };
        if std::mem::replace(&mut seen[axis], true) {
            return Some(format!("axis {axis} is given twice"));
        }
        let has = shape[axis];
        match dim.size {
            Some(size) if size != has => return Some(format!("axis {axis} has {has} positions, not {size}")),
            _ if dim.shards > has.max(1) => {
                return Some(format!("axis {axis} has {has} positions for {} shards", dim.shards));
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sharding::DeviceConfiguration;

    #[test]
    fn omitted_operands_are_in_no_stage() {
        let node = |number, stage, input: &str, outputs: [&str; 2]| NodeSharding {
            number,
            stage: Some(stage),
            inputs: vec![input.to_string(), String::new()],
            outputs: outputs.map(str::to_string).to_vec(),
            ..NodeSharding::default()
        };
        let entries = vec![node(0, 0, "x", ["y", ""]), node(1, 1, "y", ["z", ""])];
        let configurations = vec![DeviceConfiguration { name: "one".into(), devices: 1, names: Vec::new() }];
        let mut model = ShardedModel { configurations, entries };
        assert_eq!(model.errors(&|_| None), []);
        model.entries[0].inputs[0] = "z".into();
        assert_eq!(model.errors(&|_| None).len(), 1);
    }
}
