//! Tolerance for the outputs of a plan, compared with those of one device.

use edgecut_graph::{DType, Graph, Operator, TensorId};

/// Why outputs may differ when a model is computed in parts, which decides by how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tolerance {
    /// Float arithmetic in another order: each element may differ by [`ABSOLUTE`] + [`RELATIVE`] of its value.
    Rounding,
    /// Floats are quantised inside the model, where a rounding error may change an integer by one: the relative error of a
    /// tensor in the Euclidean norm may be [`MAX_NORM_ERROR`], that of an element [`MAX_ELEMENT_ERROR`]. Integers of more than
    /// 16 bits are no quantised numbers, and must be equal.
    Quantisation,
}

/// With float arithmetic in another order, the largest allowed |a − b| is this and [`RELATIVE`]·|b|.
pub(super) const ABSOLUTE: f64 = 1e-4;
pub(super) const RELATIVE: f64 = 1e-3;

/// Largest relative error of a tensor in the Euclidean norm. For QDQ models of 20 to 50 layers, sessions of ONNX Runtime with
/// and without graph optimisations differ by 0.4 to 0.6 %.
pub(super) const MAX_NORM_ERROR: f64 = 0.01;

/// Largest error of an element, relative to the largest element of its tensor. Shards of QDQ resnet50 differ from the whole by
/// one quantisation step of its logits, 0.6 % of the largest; deeper in a model a step may pass through several layers.
pub(super) const MAX_ELEMENT_ERROR: f64 = 0.05;

/// Operators that quantise what they read and return floats.
const QUANTISING: [&str; 2] = ["com.microsoft.DynamicQuantizeLSTM", "com.microsoft.DynamicQuantizeMatMul"];

impl Tolerance {
    /// The tolerance for outputs of `graph`.
    pub fn of(graph: &Graph) -> Tolerance {
        let quantises = |graph: &Graph| graph.operators().any(|(_, operator)| quantises(graph, operator));
        let mut inner = graph.operators().filter_map(|(_, operator)| operator.decomposition.as_deref());
        match quantises(graph) || inner.any(quantises) {
            true => Tolerance::Quantisation,
            false => Tolerance::Rounding,
        }
    }

    /// Largest difference of two elements of about this `magnitude` that may change places when the model is computed in parts. With
    /// quantisation each may be off by [`MAX_NORM_ERROR`], a typical error; [`MAX_ELEMENT_ERROR`] is that of the worst of many.
    pub fn of_ties(self, magnitude: f64) -> f64 {
        match self {
            Tolerance::Rounding => 2.0 * (ABSOLUTE + RELATIVE * magnitude),
            Tolerance::Quantisation => 2.0 * MAX_NORM_ERROR * magnitude,
        }
    }
}

/// Whether `operator` quantises floats to at most 16 bits: by its types or, if it does so internally, by its name.
fn quantises(graph: &Graph, operator: &Operator) -> bool {
    let dtype = |tensor: TensorId| graph.tensor(tensor).ty.dtype;
    let is_quantised = |dtype: DType| dtype.is_integer() && dtype.size() <= 2;
    let reads_floats = operator.operands().any(|operand| dtype(operand).is_float());
    (reads_floats && operator.outputs.iter().any(|output| is_quantised(dtype(*output))))
        || QUANTISING.contains(&operator.name.as_str())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use edgecut_graph::{OperatorId, Origin, TensorType};

    fn graph(name: &str, from: DType, to: DType) -> Graph {
        let mut graph = Graph::new();
        let x = graph.add_tensor("x", TensorType::of(from, &[4]), Origin::Input);
        let id = graph.add_operator(Operator::new(name, [x]), &[TensorType::of(to, &[4])]);
        graph.outputs = graph.operator(id).outputs.clone();
        graph
    }

    #[test]
    fn quantisation_of_floats_widens_the_tolerance() {
        use Tolerance::{Quantisation, Rounding};
        for (name, from, to, expected) in [
            ("qnn.quantize", DType::F32, DType::I8, Quantisation),
            ("com.microsoft.DynamicQuantizeLSTM", DType::F32, DType::F32, Quantisation),
            ("qnn.requantize", DType::I32, DType::I8, Rounding),
            ("qnn.dequantize", DType::I8, DType::F32, Rounding),
            ("com.microsoft.GatherBlockQuantized", DType::I8, DType::F32, Rounding),
            ("argmax", DType::F32, DType::I64, Rounding),
            ("nn.relu", DType::F32, DType::F32, Rounding),
        ] {
            assert_eq!(Tolerance::of(&graph(name, from, to)), expected, "{name}");
        }
        let mut composite = graph("com.microsoft.QLinearSigmoid", DType::I8, DType::I8);
        let inner = graph("qnn.quantize", DType::F32, DType::I8);
        composite.operator_mut(OperatorId(0)).decomposition = Some(Arc::new(inner));
        assert_eq!(Tolerance::of(&composite), Quantisation);
    }
}
