//! The memory of a written model's kernels by the plan, in the columns of ONNX Runtime's statistics.

use std::collections::{HashMap, HashSet};

use edgecut_graph::{Graph, OperatorId, TensorId, units::Bytes};
use edgecut_interop::ort_memory::KernelMemory;
use edgecut_onnx::{NodeValue, WrittenNode};
use edgecut_ops::is_view;

use crate::export::placement::PlacedGroup;

/// The statistics of `entries`, which compute the operators of `graph`. As in ONNX Runtime's, every value counts once: a result for
/// its kernel, inputs and weights for the first kernel that reads them, a view for none. The workspace of a group counts for its
/// first kernel. What only compositions need is not known.
pub(super) fn kernel_memory(entries: &[WrittenNode<'_>], graph: &Graph, groups: &[PlacedGroup]) -> Vec<KernelMemory> {
    let mut workspaces: HashMap<OperatorId, Bytes> = HashMap::new();
    let mut leader: HashMap<OperatorId, OperatorId> = HashMap::new();
    for group in groups {
        let Some(first) = group.operators.first() else { continue };
        workspaces.insert(*first, group.workspace);
        leader.extend(group.operators.iter().map(|operator| (*operator, *first)));
    }
    let size = |tensor: Option<TensorId>| tensor.and_then(|id| graph.tensor(id).ty.bytes()).unwrap_or(Bytes::ZERO);
    let mut counted: HashSet<&str> = HashSet::new();
    let mut kernels = Vec::with_capacity(entries.len());
    for entry in entries {
        let new: Vec<NodeValue<'_>> = entry.inputs.iter().filter(|value| counted.insert(value.name)).copied().collect();
        counted.extend(entry.outputs.iter().map(|value| value.name));
        let is_copy = !entry.operators.iter().all(|id| is_view(graph.operator(*id)));
        let results: Bytes = entry.outputs.iter().map(|value| size(value.tensor)).sum();
        let group = entry.operators.first().and_then(|operator| leader.get(operator));
        kernels.push(KernelMemory {
            name: entry.unique_name.clone(),
            inputs: new.iter().filter(|value| value.initializer.is_none()).map(|value| size(value.tensor)).sum(),
            initializers: new.iter().filter_map(|value| value.initializer).sum(),
            dynamic: if is_copy { results } else { Bytes::ZERO },
            temporary: group.and_then(|first| workspaces.remove(first)).unwrap_or(Bytes::ZERO),
        });
    }
    kernels
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::{DType, Operator, Origin, TensorType};
    use edgecut_onnx::{ExportOptions, export};

    #[test]
    fn every_value_counts_once() {
        let (ty, mut graph) = (TensorType::of(DType::F32, &[256]), Graph::new());
        let x = graph.add_tensor("x", ty.clone(), Origin::Input);
        let w = graph.add_tensor("w", ty.clone(), Origin::Parameter);
        let mut last = x;
        for _ in 0..2 {
            let id = graph.add_operator(Operator::new("multiply", [last, w]), std::slice::from_ref(&ty));
            last = graph.operator(id).outputs[0];
        }
        graph.outputs = vec![last];
        let content = |_| Ok(edgecut_graph::TensorData::zeros(&ty));
        let model = export(&graph, &ExportOptions::new(&content)).unwrap();
        let operators = vec![OperatorId(0), OperatorId(1)];
        let kernels = kernel_memory(&model.entries(), &graph, &[PlacedGroup { operators, workspace: Bytes(7) }]);
        let all = |get: fn(&KernelMemory) -> Bytes| kernels.iter().map(|kernel| get(kernel).0).collect::<Vec<_>>();
        assert_eq!(all(|kernel| kernel.inputs), [1024, 0]);
        assert_eq!(all(|kernel| kernel.initializers), [1024, 0]);
        assert_eq!(all(|kernel| kernel.dynamic), [1024, 1024]);
        assert_eq!(all(|kernel| kernel.temporary), [7, 0]);
    }
}
