//! A second copy of what is measured, which runs between a flush and a sample.
//!
//! A flush evicts what a model's operators find in the caches: the code of the engine and of the kernel, and the page tables
//! of both. In a model, an earlier operator has usually run the same kernel on other weights; the copy stands in for it. Without it,
//! isolated operators of a decoder take 20 % more in sum than the model, and a norm 33 us instead of 9 (ONNX Runtime, EPYC).

use edgecut_engine::{Engine, EngineError, Executable, ParameterSource};
use edgecut_graph::{Graph, Origin, Tensor, TensorData, TensorId, units::Bytes};

use crate::CacheFlush;

/// A loaded copy with weights of its own.
pub(super) struct WarmUpCopy<'a> {
    executable: Box<dyn Executable>,
    inputs: &'a [TensorData],
    outputs: Vec<TensorData>,
}

impl<'a> WarmUpCopy<'a> {
    /// Of `graph`, unless its weights are more than a flush displaces: then loading code is negligible.
    /// `None` also where it cannot be loaded.
    pub(super) fn of(
        engine: &dyn Engine,
        graph: &Graph,
        parameter: &ParameterSource<'_>,
        inputs: &'a [TensorData],
    ) -> Option<WarmUpCopy<'a>> {
        let is_weight = |tensor: &Tensor| matches!(tensor.origin, Origin::Parameter | Origin::Constant(_));
        let weights = graph.tensors().filter(|(_, tensor)| is_weight(tensor));
        let weights: Bytes = weights.filter_map(|(_, tensor)| tensor.ty.bytes()).sum();
        if weights > CacheFlush::MAX {
            return None;
        }
        let mut own = graph.clone();
        for id in graph.tensors().map(|(id, _)| id) {
            if let Origin::Constant(data) = &mut own.tensor_mut(id).origin {
                *data = copied(data).ok()?;
            }
        }
        let copy = |id: TensorId| copied(&parameter(id)?);
        let mut executable = engine.load(&own, &copy).ok()?;
        let outputs = executable.run(inputs).ok()?;
        Some(WarmUpCopy { executable, inputs, outputs })
    }

    /// Runs it once more.
    ///
    /// # Errors
    /// Those of the engine.
    pub(super) fn run(&mut self) -> Result<(), EngineError> {
        let inputs = self.executable.next_inputs(self.inputs, std::mem::take(&mut self.outputs));
        self.outputs = self.executable.run_measured(inputs)?.0;
        Ok(())
    }
}

/// The same content in memory of its own.
fn copied(data: &TensorData) -> Result<TensorData, EngineError> {
    let error = |error: edgecut_graph::TensorError| EngineError::Other(error.to_string());
    TensorData::new(data.dtype(), data.shape(), data.bytes().to_vec()).map_err(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_engine::TractEngine;
    use edgecut_graph::{DType, Operator, TensorType};

    /// A dense layer of `rows` × 4 weights.
    fn dense(rows: u64) -> (Graph, TensorId) {
        let mut graph = Graph::new();
        let of = |dims: &[u64]| TensorType::of(DType::F32, dims);
        let x = graph.add_tensor("x", of(&[1, 4]), Origin::Input);
        let w = graph.add_tensor("w", of(&[rows, 4]), Origin::Parameter);
        let id = graph.add_operator(Operator::new("nn.dense", [x, w]), &[of(&[1, rows])]);
        graph.outputs = vec![graph.operator(id).outputs[0]];
        (graph, w)
    }

    fn content(graph: &Graph, id: TensorId) -> TensorData {
        edgecut_values::seeded(&graph.tensor(id).name, &graph.tensor(id).ty).unwrap()
    }

    #[test]
    fn a_copy_computes_the_same_from_weights_of_its_own() {
        let (graph, w) = dense(8);
        let (engine, weights) = (TractEngine::new(1).unwrap(), content(&graph, w));
        let given = |_| Ok(weights.clone());
        let inputs: Vec<TensorData> = graph.inputs().map(|id| content(&graph, id)).collect();
        let expected = engine.load(&graph, &given).unwrap().run(&inputs).unwrap();
        let mut copy = WarmUpCopy::of(&engine, &graph, &given, &inputs).unwrap();
        copy.run().unwrap();
        assert_eq!(copy.outputs, expected);
        let own = copied(&weights).unwrap();
        assert_eq!(own, weights);
        assert_ne!(own.bytes().as_ptr(), weights.bytes().as_ptr());
    }

    #[test]
    fn there_is_none_of_more_weights_than_a_flush_displaces() {
        let (graph, _) = dense(CacheFlush::MAX.0 / 16 + 1);
        let never = |_| unreachable!("nothing is loaded");
        assert!(WarmUpCopy::of(&TractEngine::new(1).unwrap(), &graph, &never, &[]).is_none());
    }
}
