//! Copies tensors and operators of one graph into another.

use std::collections::HashMap;

use crate::{
    graph::Graph,
    id::{OperatorId, TensorId},
    types::TensorType,
};

impl Graph {
    /// Copies the inputs, parameters and constants of `from`. Returns for each of them its id in this graph.
    pub fn copy_outside(&mut self, from: &Graph) -> HashMap<TensorId, TensorId> {
        let outside = from.tensors().filter(|(id, _)| from.producer(*id).is_none());
        outside
            .map(|(id, tensor)| (id, self.add_tensor(tensor.name.clone(), tensor.ty.clone(), tensor.origin.clone())))
            .collect()
    }

    /// Copies operator `id` of `from`, with its operands replaced by their images under `map`. Its outputs keep their
    /// names.
    pub fn copy_operator(&mut self, from: &Graph, id: OperatorId, map: impl Fn(TensorId) -> TensorId) -> OperatorId {
        let original = from.operator(id);
        let types: Vec<TensorType> = original.outputs.iter().map(|t| from.tensor(*t).ty.clone()).collect();
        let mut operator = original.clone();
        operator.redirect(map);
        let new = self.add_operator(operator, &types);
        for (old, output) in original.outputs.iter().zip(self.operator(new).outputs.clone()) {
            self.tensor_mut(output).name = from.tensor(*old).name.clone();
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Operator, Origin};

    #[test]
    fn copies_keep_names_and_connections() {
        let ty = TensorType::of(DType::F32, &[4]);
        let mut from = Graph::new();
        let x = from.add_tensor("x", ty.clone(), Origin::Input);
        let w = from.add_tensor("w", ty.clone(), Origin::Parameter);
        let id = from.add_operator(Operator::new("add", [x, w]), std::slice::from_ref(&ty));
        let y = from.operator(id).outputs[0];
        from.tensor_mut(y).name = "sum".into();
        let mut to = Graph::new();
        to.add_tensor("other", ty, Origin::Input);
        let map = to.copy_outside(&from);
        let copy = to.copy_operator(&from, id, |t| map[&t]);
        let name = |t: TensorId| to.tensor(t).name.as_str();
        let operator = to.operator(copy);
        assert_eq!(operator.operands().map(name).collect::<Vec<_>>(), ["x", "w"]);
        assert_eq!(operator.outputs.iter().map(|t| name(*t)).collect::<Vec<_>>(), ["sum"]);
    }
}
