//! The values that integer inputs may have: indices lie within the axis that they index, lengths within what they are the
//! lengths of. Generated contents are such values.
//!
//! Ranges of operands come from the operators that read them, and go back through those that move, shift or sum values. A
//! range that contradicts one that is known is dropped: the result is a choice of valid contents, not an analysis.

use std::collections::HashMap;

use edgecut_graph::{Graph, Operator, Origin, TensorId};

pub use super::index_operands::ValueRange;
use super::index_operands::operand_range;

/// Operators whose results have the values of their operands, unchanged.
const MOVERS: [&str; 17] = [
    "reshape",
    "transpose",
    "squeeze",
    "expand_dims",
    "broadcast_to",
    "layout_transform",
    "cast",
    "nn.batch_flatten",
    "strided_slice",
    "concatenate",
    "split",
    "copy",
    "tile",
    "repeat",
    "reverse",
    "maximum",
    "minimum",
];

/// The ranges of the inputs of `graph` that have one.
pub fn index_ranges(graph: &Graph) -> HashMap<TensorId, ValueRange> {
    let mut ranges = Ranges { graph, known: HashMap::new() };
    for (_, operator) in graph.operators().collect::<Vec<_>>().into_iter().rev() {
        let operands: Vec<TensorId> = operator.operands().collect();
        for (at, operand) in operands.iter().enumerate() {
            if let Some(range) = operand_range(graph, operator, at) {
                ranges.narrow(*operand, range);
            }
        }
        ranges.pass_back(operator, &operands);
    }
    ranges.known.retain(|id, _| matches!(graph.tensor(*id).origin, Origin::Input));
    ranges.known
}

struct Ranges<'g> {
    graph: &'g Graph,
    known: HashMap<TensorId, ValueRange>,
}

impl Ranges<'_> {
    /// Narrows the range of `tensor`, unless no value would be left.
    fn narrow(&mut self, tensor: TensorId, (low, high): ValueRange) {
        let (known_low, known_high) = self.known.get(&tensor).copied().unwrap_or((i64::MIN, i64::MAX));
        let both = (low.max(known_low), high.min(known_high));
        if both.0 <= both.1 {
            self.known.insert(tensor, both);
        }
    }

    /// Narrows the ranges of operands to what the ranges of the results of `operator` allow.
    fn pass_back(&mut self, operator: &Operator, operands: &[TensorId]) {
        let results = operator.outputs.iter().filter_map(|output| self.known.get(output).copied());
        let Some((low, high)) = results.reduce(|a, b| (a.0.max(b.0), a.1.min(b.1))).filter(|(low, high)| low <= high)
        else {
            return;
        };
        match (operator.name.as_str(), operands) {
            ("where", [_, yes, no]) => [yes, no].iter().for_each(|tensor| self.narrow(**tensor, (low, high))),
            ("take" | "gather", [data, ..]) => self.narrow(*data, (low, high)),
            ("add", [a, b]) => {
                for (tensor, other) in [(*a, *b), (*b, *a)] {
                    if let Some(number) = self.number(other) {
                        self.narrow(tensor, (low.saturating_sub(number), high.saturating_sub(number)));
                    }
                }
            }
            ("subtract", [a, b]) => {
                if let Some(number) = self.number(*b) {
                    self.narrow(*a, (low.saturating_add(number), high.saturating_add(number)));
                }
            }
            ("sum", [x]) => self.pass_sum(*x, operator, (low, high)),
            (name, _) if MOVERS.contains(&name) => {
                operands.iter().for_each(|operand| self.narrow(*operand, (low, high)));
            }
            _ => {}
        }
    }

    /// Elements whose sum is in a range: all of them equal, where that is possible.
    fn pass_sum(&mut self, x: TensorId, operator: &Operator, (low, high): ValueRange) {
        let elements = |id: TensorId| self.graph.tensor(id).ty.shape.elements().and_then(|n| i64::try_from(n).ok());
        let Some(sums) = operator.outputs.first().and_then(|output| elements(*output)).filter(|n| *n > 0) else {
            return;
        };
        let Some(count) = elements(x).map(|n| n / sums).filter(|n| *n > 0) else { return };
        let least = low.checked_add(count - 1).map_or(low, |n| n.div_euclid(count));
        if least <= high.div_euclid(count) {
            self.narrow(x, (least, high.div_euclid(count)));
        }
    }

    /// The number that all elements of a constant are.
    fn number(&self, tensor: TensorId) -> Option<i64> {
        let Origin::Constant(data) = &self.graph.tensor(tensor).origin else { return None };
        if data.bytes().len() > 4096 || !data.dtype().is_integer() {
            return None;
        }
        let values = data.to_i64s()?;
        values.first().copied().filter(|first| values.iter().all(|value| value == first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::{Arg, Attr, DType, TensorData, TensorType};

    fn add(graph: &mut Graph, name: &str, operands: &[TensorId], attrs: &[(&str, i64)], ty: TensorType) -> TensorId {
        let attrs = attrs.iter().map(|(key, value)| ((*key).into(), Attr::Int(*value))).collect();
        let operands = operands.iter().copied().map(Arg::Tensor);
        let id = graph.add_operator(Operator::new(name, operands).with_attrs(attrs), &[ty]);
        graph.operator(id).outputs[0]
    }

    #[test]
    fn indices_are_bounded_by_the_axes_that_they_index() {
        let of = |dtype, dims: &[u64]| TensorType::of(dtype, dims);
        for (axis, name, expected) in [(0, "take", 5), (1, "take", 7), (0, "gather", 5), (1, "scatter_elements", 7)] {
            let mut graph = Graph::new();
            let data = graph.add_tensor("data", of(DType::F32, &[6, 8]), Origin::Input);
            let at = graph.add_tensor("at", of(DType::I64, &[3, 1]), Origin::Input);
            let flat = add(&mut graph, "reshape", &[at], &[], of(DType::I64, &[3]));
            let cast = add(&mut graph, "cast", &[flat], &[], of(DType::I32, &[3]));
            add(&mut graph, name, &[data, cast], &[("axis", axis)], of(DType::F32, &[3, 8]));
            assert_eq!(index_ranges(&graph), HashMap::from([(at, (0, expected))]), "{name} {axis}");
        }
    }

    #[test]
    fn a_mask_whose_sum_is_a_length_is_ones() {
        let of = |dims: &[u64]| TensorType::of(DType::I64, dims);
        let mut graph = Graph::new();
        let mask = graph.add_tensor("mask", of(&[2, 4]), Origin::Input);
        let one = TensorData::new(DType::I64, [], 1i64.to_le_bytes().to_vec()).unwrap();
        let one = graph.add_tensor("one", one.ty(), Origin::Constant(one));
        let sum = add(&mut graph, "sum", &[mask], &[("axis", 1)], of(&[2]));
        let last = add(&mut graph, "subtract", &[sum, one], &[], of(&[2]));
        let data = graph.add_tensor("data", TensorType::of(DType::F32, &[2, 4]), Origin::Input);
        let mut ranges = Ranges { graph: &graph, known: HashMap::from([(last, (3, 3))]) };
        for (_, operator) in graph.operators().collect::<Vec<_>>().into_iter().rev() {
            ranges.pass_back(operator, &operator.operands().collect::<Vec<_>>());
        }
        assert_eq!((ranges.known.get(&mask), ranges.known.get(&data)), (Some(&(1, 1)), None));
    }
}
