//! Which tensors of a graph are float32 activations, which a link may carry in another
//! [format](super::transfer_format).
//!
//! The model's inputs and outputs are not, nor what slices, joins and views make of inputs and what they make outputs of:
//! these stay what the user gives and gets. What depends on parameters alone is not either, nor are tensors of other types.

use edgecut_graph::{DType, Graph, Operator, Origin, TensorType, constant_operators, is_constant};

/// The size of a float32 activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activation {
    pub elements: u64,
    /// Number of [blocks](block_length).
    pub blocks: u64,
}

/// The fewest elements of a block. The scales of 8-bit integers then take at most 1/32 of the tensor's own size.
const MIN_BLOCK: u64 = 32;

/// Operators that move elements and compute nothing; so do views.
const MOVES: [&str; 2] = ["strided_slice", "concatenate"];

impl Activation {
    /// `None` for other types than float32, and for shapes that are not known or have more elements than can be counted.
    pub fn of(ty: &TensorType) -> Option<Activation> {
        let shape = ty.shape.fixed().filter(|_| ty.dtype == DType::F32)?;
        let elements = shape.iter().try_fold(1u64, |all, size| all.checked_mul(*size))?;
        Some(Activation { elements, blocks: elements / block_length(&shape) })
    }
}

/// The number of consecutive elements with a common scale: those of as few trailing axes as have [`MIN_BLOCK`] elements
/// together, or all. In NCHW that is a channel, or a row of one; of a sequence of vectors, a vector.
pub fn block_length(shape: &[u64]) -> u64 {
    let mut length: u64 = 1;
    for size in shape.iter().rev() {
        if length >= MIN_BLOCK {
            break;
        }
        length = length.saturating_mul(*size);
    }
    length.max(1)
}

/// By tensor of `graph`: its size, if it is an activation. `is_view` tells which operators are views of their first
/// operand.
pub fn activations(graph: &Graph, is_view: impl Fn(&Operator) -> bool) -> Vec<Option<Activation>> {
    let moves = |operator: &Operator| MOVES.contains(&operator.name.as_str()) || is_view(operator);
    let constant = constant_operators(graph);
    let is_weight = |id| is_constant(graph, &constant, id);
    let mut exact: Vec<bool> =
        graph.tensors().map(|(id, tensor)| tensor.origin == Origin::Input || is_weight(id)).collect();
    for (_, operator) in graph.operators().filter(|(_, operator)| moves(operator)) {
        let mut operands = operator.operands().filter(|id| !is_weight(*id)).peekable();
        if operands.peek().is_some() && operands.all(|id| exact[id.0 as usize]) {
            operator.outputs.iter().for_each(|id| exact[id.0 as usize] = true);
        }
    }
    let mut returned = vec![false; exact.len()];
    graph.outputs.iter().for_each(|id| returned[id.0 as usize] = true);
    let operators: Vec<&Operator> = graph.operators().map(|(_, operator)| operator).collect();
    for operator in operators.into_iter().rev().filter(|operator| moves(operator)) {
        if operator.outputs.iter().any(|id| returned[id.0 as usize]) {
            operator.operands().for_each(|id| returned[id.0 as usize] = true);
        }
    }
    let activation = |((id, tensor), (exact, returned)): (_, (&bool, &bool))| {
        let (id, tensor): (_, &edgecut_graph::Tensor) = (id, tensor);
        let is_computed = graph.producer(id).is_some() && !exact && !returned;
        Activation::of(&tensor.ty).filter(|_| is_computed)
    };
    graph.tensors().zip(exact.iter().zip(&returned)).map(activation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::TensorId;

    #[test]
    fn a_block_is_a_channel_a_row_or_a_vector() {
        for (shape, length) in [
            (&[1, 64, 56, 56][..], 56),
            (&[1, 256, 28, 28], 28 * 28),
            (&[1, 512, 7, 7], 49),
            (&[1, 128, 768], 768),
            (&[1, 1000], 1000),
            (&[1, 8], 8),
            (&[], 1),
            (&[4, 0, 3], 1),
        ] {
            assert_eq!(block_length(shape), length, "{shape:?}");
            let activation = Activation::of(&TensorType::of(DType::F32, shape)).unwrap();
            assert_eq!(activation.blocks * length, activation.elements, "{shape:?}");
        }
        assert_eq!(Activation::of(&TensorType::of(DType::I32, &[64])), None);
    }

    #[test]
    fn what_is_given_and_returned_is_no_activation() {
        let mut graph = Graph::new();
        let float = TensorType::of(DType::F32, &[4, 8]);
        let x = graph.add_tensor("x", float.clone(), Origin::Input);
        let w = graph.add_tensor("w", float.clone(), Origin::Parameter);
        let mut add = |name: &str, operands: &[TensorId], dtype: DType| {
            let operator = Operator::new(name, operands.iter().copied());
            let id = graph.add_operator(operator, &[TensorType::of(dtype, &[4, 8])]);
            graph.operator(id).outputs[0]
        };
        let constant = add("tanh", &[w], DType::F32);
        let slice = add("strided_slice", &[x], DType::F32);
        let hidden = add("add", &[slice, constant], DType::F32);
        let halo = add("strided_slice", &[hidden], DType::F32);
        let index = add("argmax", &[hidden], DType::I32);
        let upper = add("tanh", &[halo], DType::F32);
        let lower = add("tanh", &[hidden], DType::F32);
        let joined = add("concatenate", &[upper, lower], DType::F32);
        let result = add("reshape", &[joined], DType::F32);
        graph.outputs = vec![result, index];
        let found = activations(&graph, |operator| operator.name == "reshape");
        let is_activation = |id: TensorId| found[id.0 as usize].is_some();
        for (id, expected) in [
            (x, false),
            (w, false),
            (constant, false),
            (slice, false),
            (hidden, true),
            (halo, true),
            (index, false),
            (upper, false),
            (lower, false),
            (joined, false),
            (result, false),
        ] {
            assert_eq!(is_activation(id), expected, "{}", graph.tensor(id).name);
        }
    }
}
