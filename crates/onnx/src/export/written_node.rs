//! The nodes of a written model: what each computes, and their metadata.

use std::collections::HashMap;

use edgecut_graph::{OperatorId, TensorId, units::Bytes};

use super::exported::Exported;
use crate::{kernel_names::unique_name, proto::StringStringEntryProto};

/// A node of a written model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenNode<'m> {
    pub name: &'m str,
    /// As ONNX Runtime's statistics of memory call it.
    pub unique_name: String,
    /// The operators of the graph that it computes; none for one that only renames an input or a constant.
    pub operators: &'m [OperatorId],
    pub inputs: Vec<NodeValue<'m>>,
    pub outputs: Vec<NodeValue<'m>>,
}

/// A value that a node reads or computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeValue<'m> {
    pub name: &'m str,
    /// Of an initializer: its size.
    pub initializer: Option<Bytes>,
    /// The tensor of the graph that it is; `None` for what only a composition needs.
    pub tensor: Option<TensorId>,
}

impl Exported {
    /// The nodes in order.
    pub fn entries(&self) -> Vec<WrittenNode<'_>> {
        let Some(graph) = &self.model.graph else { return Vec::new() };
        let size = |data: &Option<bytes::Bytes>| Bytes(data.as_ref().map_or(0, |data| data.len() as u64));
        let stored = graph.initializer.iter().map(|tensor| (tensor.name(), size(&tensor.raw_data)));
        let initializers: HashMap<&str, Bytes> = stored.collect();
        let entries = graph.node.iter().map(|node| WrittenNode {
            name: node.name(),
            unique_name: unique_name(node),
            operators: self.operators.get(node.name()).map_or(&[], Vec::as_slice),
            inputs: self.values(&node.input, &initializers),
            outputs: self.values(&node.output, &initializers),
        });
        entries.collect()
    }

    fn values<'m>(&'m self, names: &'m [String], initializers: &HashMap<&str, Bytes>) -> Vec<NodeValue<'m>> {
        let present = names.iter().map(String::as_str).filter(|name| !name.is_empty());
        let value = |name: &'m str| {
            let initializer = initializers.get(name).copied();
            NodeValue { name, initializer, tensor: self.tensors.get(name).copied() }
        };
        present.map(value).collect()
    }

    /// Gives every node an entry `key` in its metadata, with the value for the operators that it computes.
    pub fn annotate(&mut self, key: &str, value: &dyn Fn(&[OperatorId]) -> String) {
        for node in self.model.graph.iter_mut().flat_map(|graph| &mut graph.node) {
            let operators = self.operators.get(node.name()).map_or(&[][..], Vec::as_slice);
            let entry = StringStringEntryProto { key: Some(key.to_string()), value: Some(value(operators)) };
            node.metadata_props.push(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ExportOptions, export};
    use edgecut_graph::{DType, Graph, Operator, Origin, TensorData, TensorType};

    #[test]
    fn every_node_says_what_it_computes_and_has_the_metadata() {
        let (ty, mut graph) = (TensorType::of(DType::F32, &[4]), Graph::new());
        let x = graph.add_tensor("x", ty.clone(), Origin::Input);
        let w = graph.add_tensor("w", ty.clone(), Origin::Parameter);
        let sum = graph.add_operator(Operator::new("add", [x, w]), std::slice::from_ref(&ty));
        graph.outputs = vec![graph.operator(sum).outputs[0], x];
        let content = |_| Ok(Some(TensorData::zeros(&ty).unwrap()));
        let mut model = export(&graph, &ExportOptions::new(&content)).unwrap();
        model.annotate("layer_ann", &|operators| format!("{}", operators.len()));
        let nodes = model.entries();
        assert_eq!(nodes.iter().map(|node| node.operators).collect::<Vec<_>>(), [&[sum][..], &[]]);
        assert_eq!(nodes[0].inputs[0], NodeValue { name: "x", initializer: None, tensor: Some(x) });
        assert_eq!(nodes[0].inputs[1], NodeValue { name: "w", initializer: Some(Bytes(16)), tensor: Some(w) });
        assert_eq!(nodes[0].outputs[0].tensor, Some(graph.outputs[0]));
        assert!(nodes[0].unique_name.starts_with(&format!("{}_", nodes[0].name)), "{nodes:?}");
        let written = model.model.graph.unwrap().node;
        let values: Vec<&str> = written.iter().map(|node| node.metadata_props[0].value()).collect();
        assert_eq!(values, ["1", "0"]);
    }
}
