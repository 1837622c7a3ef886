//! Schedules written out as graphs: an operator that runs twice occurs twice, so that engines need not know schedules.

use std::collections::{HashMap, HashSet};

use crate::{program::OperatorIndex, remat::ScheduleStep};
use edgecut_graph::{Graph, Operator, OperatorId, TensorId};

/// A schedule as a graph, with its operators in the order in which they run.
#[derive(Debug, Clone, PartialEq)]
pub struct UnrolledGraph {
    pub graph: Graph,
    /// The operators of each step, in order.
    pub steps: Vec<Vec<OperatorId>>,
    /// Copies that are on the host.
    pub on_host: Vec<TensorId>,
}

impl UnrolledGraph {
    /// One row a step: its number, its operators and the tensors that it makes.
    pub fn to_csv(&self) -> String {
        let mut lines = String::from("step,operators,results\n");
        for (number, step) in self.steps.iter().enumerate() {
            let operators = || step.iter().map(|id| self.graph.operator(*id));
            let names: Vec<&str> = operators().map(|operator| operator.name.as_str()).collect();
            let last = operators().next_back().into_iter().flat_map(|operator| &operator.outputs);
            let results: Vec<&str> = last.map(|t| self.graph.tensor(*t).name.as_str()).collect();
            lines += &format!("{number},{},{}\n", names.join("+"), results.join(" "));
        }
        lines
    }
}

/// A step of a schedule that cannot run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("step {step} of the schedule uses {what}, which does not exist at that point")]
pub struct ReplayError {
    step: usize,
    what: String,
}

/// Runs `graph` in `steps`, each a list of operators. An operator that occurs in several steps is recomputed; tensors
/// are read from where they were computed last.
///
/// # Errors
/// If a step names an operator or reads a tensor that does not exist, or an output is never computed.
pub fn replay(graph: &Graph, steps: &[Vec<OperatorId>]) -> Result<UnrolledGraph, ReplayError> {
    let mut unrolled = UnrolledGraph { graph: Graph::new(), steps: Vec::new(), on_host: Vec::new() };
    let mut current = unrolled.graph.copy_outside(graph);
    for (step, operators) in steps.iter().enumerate() {
        let mut inside: HashSet<TensorId> = HashSet::new();
        for id in operators {
            if id.0 as usize >= graph.operators().len() {
                return Err(ReplayError { step, what: format!("operator {}", id.0) });
            }
            let operator = graph.operator(*id);
            if let Some(absent) = operator.operands().find(|t| !current.contains_key(t) && !inside.contains(t)) {
                return Err(ReplayError { step, what: format!("tensor {}", graph.tensor(absent).name) });
            }
            inside.extend(&operator.outputs);
        }
        unrolled.run(graph, operators, &mut current);
    }
    match graph.outputs.iter().find(|t| !current.contains_key(t)) {
        Some(absent) => Err(ReplayError { step: steps.len(), what: format!("output {}", graph.tensor(*absent).name) }),
        None => {
            unrolled.graph.outputs = graph.outputs.iter().filter_map(|t| current.get(t).copied()).collect();
            Ok(unrolled)
        }
    }
}

/// The graph of a schedule. `operators` gives the graph's operators of a program operator, `tensors` the tensor of each
/// program value.
pub(super) fn unroll<'a>(
    graph: &Graph,
    operators: &dyn Fn(OperatorIndex) -> Option<&'a [OperatorId]>,
    tensors: &[TensorId],
    schedule: &[ScheduleStep],
) -> UnrolledGraph {
    let mut unrolled = UnrolledGraph { graph: Graph::new(), steps: Vec::new(), on_host: Vec::new() };
    // For each tensor its current copy on the device, and its copy on the host.
    let mut current = unrolled.graph.copy_outside(graph);
    let mut stored: HashMap<TensorId, TensorId> = HashMap::new();
    for step in schedule {
        let copied = match *step {
            ScheduleStep::Run(operator) => {
                if let Some(operators) = operators(operator) {
                    unrolled.run(graph, operators, &mut current);
                }
                continue;
            }
            ScheduleStep::Store(value) | ScheduleStep::Load(value) => tensors[value as usize],
        };
        let (from, to) = match step {
            ScheduleStep::Store(_) => (&current, &mut stored),
            _ => (&stored, &mut current),
        };
        let Some(&from) = from.get(&copied) else { continue };
        let copy = unrolled.copy(from);
        to.insert(copied, copy);
        if matches!(step, ScheduleStep::Store(_)) {
            unrolled.on_host.push(copy);
        }
    }
    unrolled.graph.outputs = graph.outputs.iter().filter_map(|t| current.get(t).copied()).collect();
    unrolled
}

impl UnrolledGraph {
    /// Adds a step that runs `operators` of `whole`, whose results become the current copies of their tensors.
    fn run(&mut self, whole: &Graph, operators: &[OperatorId], current: &mut HashMap<TensorId, TensorId>) {
        let mut step = Vec::with_capacity(operators.len());
        for id in operators {
            let new = self.graph.copy_operator(whole, *id, |t| current.get(&t).copied().unwrap_or(t));
            current.extend(whole.operator(*id).outputs.iter().copied().zip(self.graph.operator(new).outputs.clone()));
            step.push(new);
        }
        self.steps.push(step);
    }

    /// Adds a step that copies a tensor.
    fn copy(&mut self, tensor: TensorId) -> TensorId {
        let (name, ty) = (self.graph.tensor(tensor).name.clone(), self.graph.tensor(tensor).ty.clone());
        let id = self.graph.add_operator(Operator::new("copy", [tensor]), &[ty]);
        let copy = self.graph.operator(id).outputs[0];
        self.graph.tensor_mut(copy).name = name;
        self.steps.push(vec![id]);
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::{DType, Origin, TensorType};

    /// x → a → b, with b the output.
    fn chain() -> Graph {
        let mut graph = Graph::new();
        let ty = TensorType::of(DType::F32, &[4]);
        let mut last = graph.add_tensor("x", ty.clone(), Origin::Input);
        for name in ["a", "b"] {
            let id = graph.add_operator(Operator::new(name, [last]), std::slice::from_ref(&ty));
            last = graph.operator(id).outputs[0];
        }
        graph.outputs.push(last);
        graph
    }

    #[test]
    fn operators_of_several_steps_are_recomputed() {
        let graph = chain();
        let [a, b] = [OperatorId(0), OperatorId(1)];
        let twice = replay(&graph, &[vec![a], vec![a], vec![b]]).unwrap();
        assert_eq!(twice.graph.operators().len(), 3);
        // `b` reads the second result of `a`.
        assert_eq!(
            twice.graph.producer(twice.graph.operator(OperatorId(2)).operands().next().unwrap()),
            Some(OperatorId(1))
        );
        for (steps, error) in [
            (vec![vec![b]], "step 0 of the schedule uses tensor"),
            (vec![vec![a], vec![OperatorId(7)]], "step 1 of the schedule uses operator 7"),
            (vec![vec![a]], "step 1 of the schedule uses output"),
        ] {
            let found = replay(&graph, &steps).unwrap_err().to_string();
            assert!(found.starts_with(error), "{found}");
        }
    }
}
