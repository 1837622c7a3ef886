//! A graph divided into what depends on parameters alone, which an engine computes when it loads them, and what a run
//! computes.

use std::collections::{HashMap, HashSet};

use smol_str::{SmolStr, format_smolstr};

use crate::{
    graph::{Graph, Origin},
    id::{OperatorId, TensorId},
};

/// What a run of a graph computes, and what is computed before it.
#[derive(Debug, Clone)]
pub struct HoistedGraph {
    /// The operators of a run; results of the others that it reads are parameters.
    pub graph: Graph,
    /// By operator of the original graph: the operator of `graph`.
    pub operators: Vec<Option<OperatorId>>,
    /// Computes the parameters that are not the original's, in the order of `derived`.
    pub prologue: Graph,
    /// Parameters of `graph` that `prologue` computes.
    pub derived: Vec<TensorId>,
}

/// Divides `graph`. Parameters that only the prologue reads are none of a run. Opaque operators and those with results of
/// unknown sizes stay in the run.
pub fn hoist_constants(graph: &Graph) -> HoistedGraph {
    let is_hoisted = hoisted(graph);
    let is_run = |id: OperatorId| !is_hoisted[id.0 as usize];
    let mut read: HashSet<TensorId> = graph.outputs.iter().copied().collect();
    graph.operators().filter(|(id, _)| is_run(*id)).for_each(|(_, operator)| read.extend(operator.operands()));
    let mut before: HashSet<TensorId> = HashSet::new();
    graph.operators().filter(|(id, _)| !is_run(*id)).for_each(|(_, operator)| before.extend(operator.operands()));

    let mut run = HoistedGraph {
        graph: Graph::new(),
        operators: vec![None; graph.operators().len()],
        prologue: Graph::new(),
        derived: Vec::new(),
    };
    let mut names: HashSet<SmolStr> = HashSet::new();
    let mut moved: HashMap<TensorId, TensorId> = HashMap::new();
    for (id, tensor) in graph.tensors().filter(|(id, _)| graph.producer(*id).is_none()) {
        names.insert(tensor.name.clone());
        if read.contains(&id) || !before.contains(&id) {
            moved.insert(id, run.graph.add_tensor(tensor.name.clone(), tensor.ty.clone(), tensor.origin.clone()));
        }
    }
    let mut early = run.prologue.copy_outside(graph);
    for (id, operator) in graph.operators().filter(|(id, _)| !is_run(*id)) {
        let new = run.prologue.copy_operator(graph, id, |t| early[&t]);
        early.extend(operator.outputs.iter().copied().zip(run.prologue.operator(new).outputs.clone()));
        for output in operator.outputs.iter().filter(|output| read.contains(output)) {
            let tensor = graph.tensor(*output);
            let derived = run.graph.add_tensor(unique(&mut names, &tensor.name), tensor.ty.clone(), Origin::Parameter);
            run.prologue.outputs.push(early[output]);
            run.derived.push(derived);
            moved.insert(*output, derived);
        }
    }
    for (id, operator) in graph.operators().filter(|(id, _)| is_run(*id)) {
        let new = run.graph.copy_operator(graph, id, |t| moved[&t]);
        moved.extend(operator.outputs.iter().copied().zip(run.graph.operator(new).outputs.clone()));
        run.operators[id.0 as usize] = Some(new);
    }
    run.graph.outputs = graph.outputs.iter().map(|output| moved[output]).collect();
    run
}

/// By operator: whether it can be computed before a run.
fn hoisted(graph: &Graph) -> Vec<bool> {
    let mut hoisted = vec![false; graph.operators().len()];
    for (id, operator) in graph.operators() {
        let is_known = |tensor: TensorId| match graph.tensor(tensor).origin {
            Origin::Parameter | Origin::Constant(_) => true,
            Origin::Operator { operator, .. } => hoisted[operator.0 as usize],
            Origin::Input => false,
        };
        hoisted[id.0 as usize] = operator.opaque_reason().is_none()
            && operator.operands().all(is_known)
            && operator.outputs.iter().all(|output| graph.tensor(*output).ty.bytes().is_some());
    }
    hoisted
}

/// A name that no input or parameter has: `wanted`, else with a number appended.
fn unique(names: &mut HashSet<SmolStr>, wanted: &SmolStr) -> SmolStr {
    let numbered = (1..).map(|count| format_smolstr!("{wanted}.{count}"));
    let found = std::iter::once(wanted.clone()).chain(numbered).find(|name| !names.contains(name));
    let name = found.unwrap_or_else(|| wanted.clone());
    names.insert(name.clone());
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Operator, TensorType};

    #[test]
    fn what_parameters_determine_is_computed_before_a_run() {
        let ty = TensorType::of(DType::F32, &[4]);
        let mut graph = Graph::new();
        let x = graph.add_tensor("x", ty.clone(), Origin::Input);
        let [w, v] = ["w", "v"].map(|name| graph.add_tensor(name, ty.clone(), Origin::Parameter));
        let add = |graph: &mut Graph, operands: &[TensorId]| {
            let operator = Operator::new("add", operands.iter().copied());
            let id = graph.add_operator(operator, std::slice::from_ref(&ty));
            graph.operator(id).outputs[0]
        };
        let inner = add(&mut graph, &[w, v]);
        let doubled = add(&mut graph, &[inner, v]);
        let sum = add(&mut graph, &[x, doubled]);
        let last = add(&mut graph, &[sum, v]);
        graph.tensor_mut(doubled).name = "x".into();
        graph.outputs = vec![last, doubled];
        let HoistedGraph { graph: run, operators, prologue, derived } = hoist_constants(&graph);
        let names = |graph: &Graph| graph.parameters().map(|id| graph.tensor(id).name.to_string()).collect::<Vec<_>>();
        assert_eq!((names(&run), names(&prologue)), (vec!["v".into(), "x.1".into()], vec!["w".into(), "v".into()]));
        assert_eq!(operators, [None, None, Some(OperatorId(0)), Some(OperatorId(1))]);
        assert_eq!((prologue.operators().len(), prologue.outputs.len()), (2, 1));
        assert_eq!((run.outputs[1], run.operator(OperatorId(0)).operands().nth(1)), (derived[0], Some(derived[0])));
    }
}
