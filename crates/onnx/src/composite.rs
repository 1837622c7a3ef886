//! Nodes as composite operators: the operator that the file has, and as its decomposition what the node's family makes of it.
//!
//! The decomposition is made in a graph of its own, whose inputs are the operands. Constant operands are inputs there too, so
//! that weights are neither folded nor converted; their contents are known, where axes or sizes come from them.

use std::{collections::HashMap, sync::Arc};

use edgecut_graph::{Graph, Origin, TensorId, TensorType};

use crate::{
    live::live,
    lowering::{Call, Lower, Lowering, Value, tensors},
    opaque,
    proto::{AttributeProto, NodeProto},
};

impl<'m> Lowering<'m> {
    /// Adds `node` as a composite operator. `None` if it cannot be one: `lower` refuses it without the rest of the graph, its
    /// types are not known, or it is more than a function of tensors. A function of constants is not one: it is folded.
    pub fn composite(
        &mut self,
        node: &'m NodeProto,
        lower: Lower,
        version: i64,
        inputs: &[Option<Value>],
    ) -> Option<Vec<Value>> {
        let operands = tensors(inputs)?;
        if operands.iter().flatten().all(|tensor| self.known(*tensor).is_some()) {
            return None;
        }
        let attribute = |a: &'m AttributeProto| self.attribute(a);
        let operator = opaque::operator(node, version, &operands, attribute)?;
        let decomposition = self.decomposition(node, lower, version, &operands)?;
        let ty = |tensor: &TensorId| decomposition.tensor(*tensor).ty.clone();
        let types: Vec<TensorType> = decomposition.outputs.iter().map(ty).collect();
        let are_fixed = decomposition.tensors().all(|(_, tensor)| tensor.ty.shape.fixed().is_some());
        if types.is_empty() || !are_fixed {
            return None;
        }
        self.other_operators += decomposition.operators().len();
        let operator = operator.with_layer(self.layer.clone()).with_decomposition(Arc::new(decomposition));
        let id = self.graph.add_operator(operator, &types);
        Some(self.results(node, id))
    }

    /// What `lower` makes of `node`, as a graph from its operands to the results that it names.
    fn decomposition(
        &mut self,
        node: &'m NodeProto,
        lower: Lower,
        version: i64,
        operands: &[Option<TensorId>],
    ) -> Option<Graph> {
        let mut inner = Graph::new();
        let mut contents = HashMap::new();
        let input = |operand: &Option<TensorId>| {
            operand.map(|id| {
                let tensor = self.graph.tensor(id);
                let new = inner.add_tensor(tensor.name.clone(), tensor.ty.clone(), Origin::Input);
                if let Origin::Constant(data) = &tensor.origin {
                    contents.insert(new, data.clone());
                }
                Value::Tensor(new)
            })
        };
        let inputs: Vec<Option<Value>> = operands.iter().map(input).collect();
        let outer = std::mem::replace(&mut self.graph, inner);
        let scalars = std::mem::take(&mut self.scalars);
        self.other_operators += outer.operators().len();
        self.operand_contents = contents;
        let results = lower(&mut Call { lowering: self, node, inputs, version });
        self.operand_contents.clear();
        self.other_operators -= outer.operators().len();
        self.scalars = scalars;
        let mut inner = std::mem::replace(&mut self.graph, outer);
        let results = results.ok()?;
        let named = (0..).zip(&node.output).filter(|(_, name)| !name.is_empty());
        let result = |at: usize| match results.get(at) {
            Some(Value::Tensor(tensor)) => Some(*tensor),
            _ => None,
        };
        inner.outputs = named.map(|(at, _)| result(at)).collect::<Option<_>>()?;
        Some(live(&inner))
    }
}
