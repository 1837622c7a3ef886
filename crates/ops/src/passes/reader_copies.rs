//! Copies of operators that join the group of their reader ([`FusionClass::InFusable`]): one for each reader, so that
//! every group reads the operand instead of the result. A dequantisation with two readers would otherwise be a group of
//! its own, whose result is four times as large as its operand.

use std::collections::{HashMap, HashSet};

use edgecut_graph::{Arg, FusionClass, Graph, Operator, OperatorId, TensorId, constant_operators};
use smol_str::{SmolStr, format_smolstr};

use crate::lookup;

/// `graph` with a copy of every such operator for each of its readers. What depends on parameters alone is not copied:
/// it is computed once, before a run.
pub fn copy_for_readers(graph: &Graph) -> Graph {
    let consumers = graph.consumers();
    let is_constant = constant_operators(graph);
    let mut names: HashSet<SmolStr> = graph.tensors().map(|(_, tensor)| tensor.name.clone()).collect();
    let mut copied = Graph::new();
    let mut moved: HashMap<TensorId, TensorId> = HashMap::new();
    for (id, tensor) in graph.tensors().filter(|(id, _)| graph.producer(*id).is_none()) {
        moved.insert(id, copied.add_tensor(tensor.name.clone(), tensor.ty.clone(), tensor.origin.clone()));
    }
    let mut of_reader: HashMap<(OperatorId, TensorId), TensorId> = HashMap::new();
    for (id, operator) in graph.operators() {
        let operand = |tensor: TensorId| of_reader.get(&(id, tensor)).or(moved.get(&tensor)).copied().unwrap_or(tensor);
        let new = copied.copy_operator(graph, id, operand);
        moved.extend(operator.outputs.iter().copied().zip(copied.operator(new).outputs.clone()));
        if is_constant[id.0 as usize] || !joins_reader(operator) {
            continue;
        }
        let &[result] = &operator.outputs[..] else { continue };
        let readers = consumers[result.0 as usize].iter().copied();
        let own = usize::from(!graph.outputs.contains(&result));
        for reader in readers.skip(own) {
            let copy = copied.copy_operator(graph, id, |tensor| moved[&tensor]);
            let tensor = copied.operator(copy).outputs[0];
            let original = &graph.tensor(result).name;
            let mut free =
                (2..).map(|count| format_smolstr!("{original}.{count}")).filter(|name| names.insert(name.clone()));
            if let Some(name) = free.next() {
                copied.tensor_mut(tensor).name = name;
            }
            of_reader.insert((reader, result), tensor);
        }
    }
    copied.outputs = graph.outputs.iter().map(|output| moved[output]).collect();
    copied
}

fn joins_reader(operator: &Operator) -> bool {
    let is_plain = operator.args.iter().all(|arg| matches!(arg, Arg::Tensor(_)));
    is_plain && lookup(&operator.name).is_some_and(|def| def.class_of(&operator.attrs) == FusionClass::InFusable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ONNX, SEMANTICS};
    use edgecut_graph::{Attr, DType, Origin, TensorType};

    #[test]
    fn every_reader_has_its_own() {
        let mut graph = Graph::new();
        let ty = |dtype: DType| TensorType::of(dtype, &[4]);
        let q = graph.add_tensor("q", ty(DType::U8), Origin::Input);
        let scale = graph.add_tensor("scale", TensorType::of(DType::F32, &[]), Origin::Parameter);
        let attrs = [(SEMANTICS.into(), Attr::Str(ONNX.into()))].into_iter().collect();
        let dequantised = Operator::new("qnn.dequantize", [q, scale]).with_attrs(attrs);
        let id = graph.add_operator(dequantised, &[ty(DType::F32)]);
        let x = graph.operator(id).outputs[0];
        for name in ["exp", "tanh", "sigmoid"] {
            let id = graph.add_operator(Operator::new(name, [x]), &[ty(DType::F32)]);
            graph.outputs.extend(graph.operator(id).outputs.clone());
        }
        let count = |graph: &Graph| graph.operators().filter(|(_, o)| o.name == "qnn.dequantize").count();
        let copied = copy_for_readers(&graph);
        assert_eq!((count(&copied), copied.outputs.len()), (3, 3));
        assert!(copied.consumers().iter().all(|readers| readers.len() <= 3));
        let reads = |name: &str| copied.operators().find(|(_, o)| o.name == name).unwrap().1.operands().next().unwrap();
        let names = ["exp", "tanh", "sigmoid"].map(|name| copied.tensor(reads(name)).name.to_string());
        assert!(names[0] != names[1] && names[1] != names[2] && names[0] != names[2], "{names:?}");
        graph.outputs.push(x);
        assert_eq!(count(&copy_for_readers(&graph)), 4);
    }
}
