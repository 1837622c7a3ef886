//! Which operands of operators are indices or lengths, and what they may be.

use edgecut_graph::{Attr, Graph, Operator, TensorId};

use crate::omitted_inputs::present_inputs;

/// Values from the first to the second, both included.
pub type ValueRange = (i64, i64);

/// The operands of an operator, by the positions that its definition gives them.
struct Operands<'g> {
    graph: &'g Graph,
    operator: &'g Operator,
    /// By operand that is present: its position.
    positions: Vec<i64>,
    present: Vec<TensorId>,
}

/// What operand `at` of `operator` may be, tuples flattened; `None` if it may be anything.
pub(super) fn operand_range(graph: &Graph, operator: &Operator, at: usize) -> Option<ValueRange> {
    let operands = Operands::of(graph, operator);
    let position = *operands.positions.get(at)?;
    let id = *operands.present.get(at)?;
    if !graph.tensor(id).ty.dtype.is_integer() {
        return None;
    }
    match operator.name.rsplit_once('.') {
        Some((domain @ ("onnx" | "com.microsoft"), kind)) if operator.is_kept_as_read() => match domain {
            "onnx" => operands.onnx(kind, position),
            _ => operands.microsoft(kind, position),
        },
        _ => operands.of_graph(operator.name.as_str(), position),
    }
}

impl<'g> Operands<'g> {
    fn of(graph: &'g Graph, operator: &'g Operator) -> Operands<'g> {
        let present: Vec<TensorId> = operator.operands().collect();
        let positions = present_inputs(&operator.attrs, present.len());
        Operands { graph, operator, positions, present }
    }

    fn operand(&self, position: i64) -> Option<TensorId> {
        let at = self.positions.iter().position(|known| *known == position)?;
        self.present.get(at).copied()
    }

    fn dims(&self, position: i64) -> Option<Vec<i64>> {
        let shape = &self.graph.tensor(self.operand(position)?).ty.shape;
        shape.fixed()?.iter().map(|size| i64::try_from(*size).ok()).collect()
    }

    /// The size of a possibly negative axis.
    fn size(&self, position: i64, axis: i64) -> Option<i64> {
        let dims = self.dims(position)?;
        let axis = if axis < 0 { axis + dims.len() as i64 } else { axis };
        dims.get(usize::try_from(axis).ok()?).copied()
    }

    fn elements(&self, position: i64) -> Option<i64> {
        self.dims(position)?.iter().try_fold(1i64, |all, size| all.checked_mul(*size))
    }

    fn int(&self, key: &str, default: i64) -> i64 {
        int(self.operator, key).unwrap_or(default)
    }

    /// The smallest of `count` sizes from axis `first` on: of tuples that index several axes.
    fn smallest(&self, position: i64, first: i64, count: i64) -> Option<i64> {
        let dims = self.dims(position)?;
        let (first, count) = (usize::try_from(first).ok()?, usize::try_from(count).ok()?);
        dims.get(first..first.checked_add(count)?)?.iter().min().copied()
    }

    /// Operators of the graph.
    fn of_graph(&self, name: &str, position: i64) -> Option<ValueRange> {
        match (name, position) {
            ("take", 1) => match int(self.operator, "axis") {
                Some(axis) => index(self.size(0, axis)),
                None => index(self.elements(0)),
            },
            ("gather" | "scatter_elements", 1) => index(self.size(0, self.int("axis", 0))),
            ("gather_nd" | "scatter_nd", 1) => index(self.smallest(0, self.int("batch_dims", 0), self.size(1, 0)?)),
            ("adv_index", axis @ 1..) => index(self.size(0, axis - 1)),
            ("reverse_sequence", 1) => length(self.size(0, self.int("seq_axis", 1))),
            ("image.crop_and_resize", 2) => index(self.size(0, 0)),
            ("nn.nll_loss" | "nn.cross_entropy", 1) => index(self.size(0, 1)),
            _ => None,
        }
    }

    /// Operators of ONNX's own domain.
    fn onnx(&self, kind: &str, position: i64) -> Option<ValueRange> {
        match (kind, position) {
            ("Gather" | "GatherElements" | "ScatterElements" | "Scatter", 1) => {
                index(self.size(0, self.int("axis", 0)))
            }
            ("GatherND", 1) => index(self.smallest(0, self.int("batch_dims", 0), self.size(1, -1)?)),
            ("ScatterND", 1) => index(self.smallest(0, 0, self.size(1, -1)?)),
            ("LSTM" | "GRU" | "RNN", 4) => length(self.size(0, self.int("layout", 0))),
            ("ReverseSequence", 1) => length(self.size(0, self.int("time_axis", 0))),
            ("RoiAlign", 2) => index(self.size(0, 0)),
            ("MaxUnpool", 1) => index(self.elements(0)),
            ("NegativeLogLikelihoodLoss" | "SoftmaxCrossEntropyLoss", 1) => index(self.size(0, 1)),
            ("RotaryEmbedding", 3) => index(self.size(1, 0)),
            ("TensorScatter", 2) => {
                let axis = self.int("axis", -2);
                index(self.size(0, axis)?.checked_sub(self.size(1, axis)?)?.checked_add(1))
            }
            ("Attention", 6) => length(self.size(1, -2)),
            _ => None,
        }
    }

    /// Operators of ONNX Runtime.
    fn microsoft(&self, kind: &str, position: i64) -> Option<ValueRange> {
        match (kind, position) {
            ("GroupQueryAttention", 5) => self.total_length().map(|total| (total - 1, total - 1)),
            ("GroupQueryAttention", 6) => self.total_length().map(|total| (total, total)),
            ("EmbedLayerNormalization", 0) => index(self.size(2, 0)),
            ("EmbedLayerNormalization", 1) => index(self.size(4, 0)),
            ("GatherBlockQuantized", 1) => index(self.size(0, self.int("gather_axis", 0))),
            // Where the positions of a sequence begin, or one for each token.
            ("RotaryEmbedding", 1) => match self.elements(1)? {
                1 => index(self.size(2, 0)?.checked_sub(self.size(0, -2)?)?.checked_add(1)),
                _ => index(self.size(2, 0)),
            },
            ("Attention", 3) if self.dims(3)?.len() == 1 => length(self.size(0, 1)),
            ("MultiHeadAttention", 4) if self.dims(4)?.len() == 1 => length(self.size(1, 1).or(self.size(0, 1))),
            _ => None,
        }
    }

    /// Tokens of a sequence after the new ones: past ones and those, as far as positions go and the cache has room.
    fn total_length(&self) -> Option<i64> {
        let past = self.size(3, 2).unwrap_or(0);
        let total = past.checked_add(self.size(0, 1)?)?;
        let most = self.size(7, 0).unwrap_or(i64::MAX);
        let cache = self.operator.outputs.get(1).map(|id| &self.graph.tensor(*id).ty.shape);
        let room = cache.and_then(|shape| i64::try_from(*shape.fixed()?.get(2)?).ok()).unwrap_or(i64::MAX);
        Some(total.min(most).min(room)).filter(|total| *total > 0)
    }
}

/// An integer attribute.
fn int(operator: &Operator, key: &str) -> Option<i64> {
    operator.attrs.get(key).and_then(Attr::int)
}

/// The indices of an axis.
fn index(size: Option<i64>) -> Option<ValueRange> {
    size.filter(|size| *size > 0).map(|size| (0, size - 1))
}

/// The lengths of what has at most `size` elements.
fn length(size: Option<i64>) -> Option<ValueRange> {
    size.filter(|size| *size > 0).map(|size| (1, size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OMITTED_INPUTS;
    use edgecut_graph::{Arg, DType, Origin, TensorType};

    /// An operator by name, attributes and shapes, an operand's index, and that operand's range.
    type Case = (&'static str, &'static [(&'static str, i64)], &'static [&'static [u64]], usize, Option<ValueRange>);

    #[test]
    fn lengths_and_indices_of_opaque_operators() {
        let cases: [Case; 6] = [
            ("onnx.GRU", &[], &[&[5, 3, 2], &[1, 12, 2], &[1, 12, 4], &[3]], 3, Some((1, 5))),
            ("onnx.GRU", &[("layout", 1)], &[&[5, 3, 2], &[1, 12, 2], &[1, 12, 4], &[5]], 3, Some((1, 3))),
            ("onnx.Gather", &[("axis", -1)], &[&[5, 3], &[2]], 1, Some((0, 2))),
            ("onnx.MaxUnpool", &[], &[&[1, 1, 2, 2], &[1, 1, 2, 2]], 1, Some((0, 3))),
            ("onnx.Relu", &[], &[&[5]], 0, None),
            ("my.Gather", &[], &[&[5], &[2]], 1, None),
        ];
        for (name, attrs, shapes, at, expected) in cases {
            let mut graph = Graph::new();
            let tensors: Vec<TensorId> = shapes
                .iter()
                .map(|dims| graph.add_tensor("t", TensorType::of(DType::I32, dims), Origin::Input))
                .collect();
            let mut attrs: Vec<(smol_str::SmolStr, Attr)> =
                attrs.iter().map(|(key, value)| ((*key).into(), Attr::Int(*value))).collect();
            if name.ends_with("GRU") {
                attrs.push((OMITTED_INPUTS.into(), Attr::List([Attr::Int(3)].into())));
            }
            let operator = Operator::new(name, tensors.into_iter().map(Arg::Tensor));
            let operator = operator.with_attrs(attrs.into_iter().collect()).with_opaque_reason("unknown");
            let id = graph.add_operator(operator, &[TensorType::of(DType::F32, &[1])]);
            assert_eq!(operand_range(&graph, graph.operator(id), at), expected, "{name}");
        }
    }
}
