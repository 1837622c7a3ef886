//! What stands in one graph, copied into another.

use std::collections::HashMap;

use super::{Graph, OperatorId, TensorId, TensorType};

impl Graph {
    /// Adds what `from` has from outside: inputs, parameters and constants. Returns where each of them is now.
    pub fn copy_outside(&mut self, from: &Graph) -> HashMap<TensorId, TensorId> {
        let outside = from.tensors().filter(|(id, _)| from.producer(*id).is_none());
        outside
            .map(|(id, tensor)| (id, self.add_tensor(tensor.name.clone(), tensor.ty.clone(), tensor.origin.clone())))
            .collect()
    }

    /// Adds operator `id` of `from`, its operands where `at` has them in this graph; its outputs keep their names.
    pub fn copy_operator(&mut self, from: &Graph, id: OperatorId, at: impl Fn(TensorId) -> TensorId) -> OperatorId {
        let whole = from.operator(id);
        let types: Vec<TensorType> = whole.outputs.iter().map(|t| from.tensor(*t).ty.clone()).collect();
        let mut operator = whole.clone();
        operator.redirect(at);
        let new = self.add_operator(operator, &types);
        for (old, output) in whole.outputs.iter().zip(self.operator(new).outputs.clone()) {
            self.tensor_mut(output).name = from.tensor(*old).name.clone();
        }
        new
    }
}
