//! Items, the units of measurement: an operator or a fused group, with the columns that describe it in a profile.

use std::collections::HashMap;

use crate::Signature;
use edgecut_graph::{
    Arg, FusionClass, Granularity, Graph, Operator, OperatorId, Origin, Part, Parts, TensorId, TensorType,
    attach_constants, fuse, units::Bytes,
};
use edgecut_ops as ops;
use edgecut_ops::passes::summary::flops;

/// An operator, or a fused group of operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// In program order.
    pub operators: Vec<OperatorId>,
    /// The operators' names, joined by `+`.
    pub name: String,
    /// Their layers, where the model has names of layers, joined by `+`.
    pub layer: String,
    /// What other operators or the model's caller read of its results.
    pub outputs: Vec<TensorId>,
    pub signature: Signature,
    /// Types of operands and parameters, `->`, types of outputs.
    pub shapes: String,
    /// Element type of its first output.
    pub dtype: String,
    /// Floating-point (or integer) operations; a multiply-add is two.
    pub flops: u64,
    /// Minimum memory traffic: operands, parameters and outputs.
    pub bytes: Bytes,
    pub output_bytes: Bytes,
    /// Parameters and constants as stored in the model.
    pub parameter_bytes: Bytes,
}

/// The items of a graph, in topological order. Every operator belongs to exactly one.
pub fn items(graph: &Graph, granularity: Granularity) -> Vec<Item> {
    let groups = match granularity {
        Granularity::Op => graph.operators().map(|(id, _)| vec![id]).collect(),
        Granularity::Fused => attach_constants(graph, fuse(graph, |operator| fusion_class(graph, operator))),
    };
    let parts = Parts::of(graph);
    groups.into_iter().map(|operators| Item::of(&parts, operators)).collect()
}

/// By item: the first with the same signature, possibly itself.
pub fn representatives(items: &[Item]) -> Vec<usize> {
    let mut first: HashMap<&Signature, usize> = HashMap::new();
    items.iter().enumerate().map(|(id, item)| *first.entry(&item.signature).or_insert(id)).collect()
}

/// The fusion class of an operator for [`fuse`]: the registered one, or opaque if the operator is unknown or the shape
/// of its result depends on values.
///
/// `nn.batch_norm` counts as a broadcast: TVM's `SimplifyInference` rewrites it to a multiplication and an addition
/// before fusion, so its registered class never applies. A composite operator is a broadcast if its decomposition
/// has only elementwise and broadcast operators.
pub(crate) fn fusion_class(graph: &Graph, operator: &Operator) -> FusionClass {
    let fixed = |tensor: &TensorId| graph.tensor(*tensor).ty.shape.fixed().is_some();
    let is_data_dependent = operator.operands().all(|t| fixed(&t)) && !operator.outputs.iter().all(fixed);
    if let Some(inner) = &operator.decomposition {
        let broadcasts = |part: &Operator| fusion_class(inner, part) <= FusionClass::Broadcast;
        let is_broadcast = inner.operators().all(|(_, part)| part.decomposition.is_none() && broadcasts(part));
        return if is_broadcast { FusionClass::Broadcast } else { FusionClass::Opaque };
    }
    match ops::lookup(&operator.name) {
        Some(_) if operator.name == "nn.batch_norm" => FusionClass::Broadcast,
        Some(def) if !is_data_dependent => def.class_of(&operator.attrs),
        _ => FusionClass::Opaque,
    }
}

impl Item {
    /// The item of `operators`, which are in program order. For many items of a graph, see [`Item::of`].
    pub fn new(graph: &Graph, operators: Vec<OperatorId>) -> Item {
        Item::of(&Parts::of(graph), operators)
    }

    /// The item of `operators` of one graph, which are in program order.
    pub fn of(parts: &Parts<'_>, operators: Vec<OperatorId>) -> Item {
        let graph = parts.whole();
        let Part { graph: part, whole_tensor, .. } = parts.cut(&operators);
        let names: Vec<&str> = operators.iter().map(|id| graph.operator(*id).name.as_str()).collect();
        let ty = |id: &TensorId| &part.tensor(*id).ty;
        let size = |ids: &[TensorId]| ids.iter().filter_map(|id| ty(id).bytes()).sum::<Bytes>();
        let inputs: Vec<TensorId> = part.inputs().collect();
        let parameters: Vec<TensorId> = part.parameters().collect();
        let (output_bytes, parameter_bytes) = (size(&part.outputs), size(&parameters));
        Item {
            name: names.join("+"),
            layer: graph.layers(&operators).join("+"),
            outputs: part.outputs.iter().map(|id| whole_tensor[id.0 as usize]).collect(),
            signature: Signature::of(graph, &operators),
            shapes: shapes(&part),
            dtype: part.outputs.first().map_or(String::new(), |id| ty(id).dtype.to_string()),
            flops: operators.iter().map(|id| flops(graph, graph.operator(*id))).fold(0, u64::saturating_add),
            bytes: size(&inputs) + parameter_bytes + output_bytes,
            output_bytes,
            parameter_bytes,
            operators,
        }
    }
}

/// The types of the tensors that a part reads, in order of first use, and of its outputs.
fn shapes(part: &Graph) -> String {
    let list = |types: Vec<&TensorType>| types.iter().map(ToString::to_string).collect::<Vec<_>>().join("|");
    let mut read: Vec<TensorId> = Vec::new();
    for (_, operator) in part.operators() {
        for tensor in operator.args.iter().flat_map(Arg::tensors) {
            let inside = matches!(part.tensor(*tensor).origin, Origin::Operator { .. });
            if !inside && !read.contains(tensor) {
                read.push(*tensor);
            }
        }
    }
    let types = |ids: &[TensorId]| list(ids.iter().map(|id| &part.tensor(*id).ty).collect());
    format!("{}->{}", types(&read), types(&part.outputs))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use edgecut_graph::DType;

    use super::*;

    /// A composite of `names`, one after the other, each of the result before and of the operand.
    fn composite(names: &[&str]) -> Graph {
        let ty = TensorType::of(DType::F32, &[8, 8]);
        let mut inner = Graph::new();
        let x = inner.add_tensor("x", ty.clone(), Origin::Input);
        let mut last = x;
        for name in names {
            let id = inner.add_operator(Operator::new(*name, [last, x]), std::slice::from_ref(&ty));
            last = inner.operator(id).outputs[0];
        }
        inner.outputs = vec![last];
        let mut graph = Graph::new();
        let x = graph.add_tensor("x", ty.clone(), Origin::Input);
        let id = graph.add_operator(Operator::new("my.op", [x]).with_decomposition(Arc::new(inner)), &[ty]);
        graph.outputs = graph.operator(id).outputs.clone();
        graph
    }

    #[test]
    fn a_composite_fuses_and_costs_as_what_it_consists_of() {
        for (names, class, flops) in [
            (&["add", "multiply"][..], FusionClass::Broadcast, 128),
            (&["add", "nn.dense"], FusionClass::Opaque, 64 + 2 * 512),
        ] {
            let graph = composite(names);
            assert_eq!(fusion_class(&graph, graph.operator(OperatorId(0))), class);
            let [item] = &items(&graph, Granularity::Fused)[..] else { panic!("one item") };
            assert_eq!((item.flops, item.name.as_str()), (flops, "my.op"));
        }
    }
}
