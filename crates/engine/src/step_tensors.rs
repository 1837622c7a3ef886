//! The tensors of one step of a loaded graph, and which of them die in it. Shared by all engines.

use std::collections::HashSet;

use edgecut_graph::{Graph, Part, TensorId, TensorType};

/// An input or output of the whole graph.
pub(crate) struct NamedTensor {
    pub id: TensorId,
    pub name: String,
    pub ty: TensorType,
}

impl NamedTensor {
    pub(crate) fn new(graph: &Graph, id: TensorId) -> NamedTensor {
        let tensor = graph.tensor(id);
        NamedTensor { id, name: tensor.name.to_string(), ty: tensor.ty.clone() }
    }
}

/// The tensors that a step reads and writes, by id in the whole graph.
#[derive(Debug, Default)]
pub(crate) struct StepTensors {
    pub inputs: Vec<TensorId>,
    pub outputs: Vec<TensorId>,
    /// Inputs and outputs that no later step reads.
    pub last_uses: HashSet<TensorId>,
}

impl StepTensors {
    /// The tensors of the step that computes `part`; [`find_last_uses`] completes them.
    pub(crate) fn of(part: &Part) -> StepTensors {
        let whole = |t: TensorId| part.whole_tensor[t.0 as usize];
        StepTensors {
            inputs: part.graph.inputs().map(whole).collect(),
            outputs: part.graph.outputs.iter().map(|t| whole(*t)).collect(),
            last_uses: HashSet::new(),
        }
    }
}

/// Sets [`StepTensors::last_uses`] of consecutive steps: what a step reads or writes, and neither a later step nor the
/// caller (as one of `outputs`) reads.
pub(crate) fn find_last_uses<'s>(outputs: &[TensorId], steps: impl DoubleEndedIterator<Item = &'s mut StepTensors>) {
    let mut needed: HashSet<TensorId> = outputs.iter().copied().collect();
    for step in steps.rev() {
        step.last_uses = step.inputs.iter().chain(&step.outputs).filter(|id| !needed.contains(id)).copied().collect();
        needed.extend(&step.inputs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_die_in_the_last_step_that_reads_them() {
        let ids = |ids: &[u32]| ids.iter().copied().map(TensorId).collect::<Vec<_>>();
        let step = |inputs: &[u32], outputs: &[u32]| StepTensors {
            inputs: ids(inputs),
            outputs: ids(outputs),
            last_uses: HashSet::new(),
        };
        // Tensor 4 is never read; tensor 2 is read twice; tensor 3 is returned.
        let mut steps = [step(&[0, 1], &[2]), step(&[1, 2], &[3, 4]), step(&[2, 3], &[5])];
        find_last_uses(&ids(&[3, 5]), steps.iter_mut());
        let found: Vec<Vec<u32>> = steps
            .iter()
            .map(|step| {
                let mut ids: Vec<u32> = step.last_uses.iter().map(|id| id.0).collect();
                ids.sort_unstable();
                ids
            })
            .collect();
        assert_eq!(found, [vec![0], vec![1, 4], vec![2]]);
    }
}
