//! The model that devices are calibrated with: two chains of convolutions, each of which passes results of many sizes on to the
//! device of the other while it goes on computing.

use smol_str::SmolStr;

use edgecut_graph::{Attr, Attrs, DType, Graph, Operator, OperatorId, Origin, TensorId, TensorType};

/// The model, and which of two devices computes what.
pub(super) struct CalibrationModel {
    pub graph: Graph,
    /// By operator: the device of the first chain (0) or of the second (1).
    pub sides: Vec<usize>,
}

/// One convolution of a chain.
struct Layer {
    channels: u64,
    kernel: u64,
    stride: u64,
    /// By chain: what of its result crosses.
    crossing: [Crossing; 2],
}

/// What of a layer's result the other device reads.
#[derive(Clone, Copy, PartialEq)]
enum Crossing {
    Nothing,
    /// The mean of every channel: a few kilobytes.
    Means,
    /// All of it: 50 to 400 kB.
    Whole,
}

use Crossing::{Means, Nothing, Whole};

const fn layer(channels: u64, kernel: u64, stride: u64, crossing: [Crossing; 2]) -> Layer {
    Layer { channels, kernel, stride, crossing }
}

/// From few weights on large tensors to many weights (9 MB) on small ones, as in networks for images.
const LAYERS: [Layer; 10] = [
    layer(32, 3, 1, [Means, Whole]),
    layer(64, 3, 2, [Whole, Means]),
    layer(256, 1, 1, [Means, Nothing]),
    layer(64, 1, 1, [Whole, Means]),
    layer(128, 3, 2, [Whole, Whole]),
    layer(256, 3, 1, [Whole, Whole]),
    layer(1024, 1, 1, [Means, Means]),
    layer(256, 3, 2, [Whole, Whole]),
    layer(1024, 3, 1, [Whole, Means]),
    layer(2048, 1, 1, [Means, Whole]),
];
const CHANNELS: u64 = 32;
const SIZE: u64 = 56;

impl CalibrationModel {
    pub fn new() -> CalibrationModel {
        let mut model = CalibrationModel { graph: Graph::new(), sides: Vec::new() };
        let input = model.graph.add_tensor("x", tensor([1, CHANNELS, SIZE, SIZE]), Origin::Input);
        let mut at = [(input, CHANNELS, SIZE); 2];
        let mut crossing: Vec<(usize, TensorId, u64)> = Vec::new();
        for (number, layer) in LAYERS.iter().enumerate() {
            for (side, (operand, channels, size)) in at.iter_mut().enumerate() {
                let weight = tensor([layer.channels, *channels, layer.kernel, layer.kernel]);
                let weight = model.graph.add_tensor(format!("w{side}_{number}"), weight, Origin::Parameter);
                (*channels, *size) = (layer.channels, size.div_ceil(layer.stride));
                let ty = tensor([1, *channels, *size, *size]);
                let convolution = Operator::new("nn.conv2d", [*operand, weight]).with_attrs(layer.attributes());
                let result = model.add(side, convolution, &ty);
                *operand = model.add(side, Operator::new("nn.relu", [result]), &ty);
                match layer.crossing[side] {
                    Nothing => {}
                    Whole => crossing.push((side, *operand, *channels)),
                    Means => {
                        let means = Operator::new("nn.global_avg_pool2d", [*operand]);
                        let means = model.add(side, means, &tensor([1, *channels, 1, 1]));
                        crossing.push((side, means, *channels));
                    }
                }
            }
        }
        // Readers come last, so that nothing waits for a transfer that could be computed before.
        for (side, operand, channels) in crossing {
            let reader = Operator::new("nn.global_avg_pool2d", [operand]);
            let output = model.add(1 - side, reader, &tensor([1, channels, 1, 1]));
            model.graph.outputs.push(output);
        }
        for (side, (operand, channels, _)) in at.into_iter().enumerate() {
            let last = Operator::new("nn.global_avg_pool2d", [operand]);
            let output = model.add(side, last, &tensor([1, channels, 1, 1]));
            model.graph.outputs.push(output);
        }
        model
    }

    fn add(&mut self, side: usize, operator: Operator, ty: &TensorType) -> TensorId {
        let id: OperatorId = self.graph.add_operator(operator, std::slice::from_ref(ty));
        self.sides.push(side);
        self.graph.operator(id).outputs[0]
    }
}

impl Layer {
    fn attributes(&self) -> Attrs {
        let list = |values: &[u64]| Attr::List(values.iter().map(|value| Attr::Int(*value as i64)).collect());
        let attributes: [(SmolStr, Attr); 4] = [
            ("strides".into(), list(&[self.stride; 2])),
            ("padding".into(), list(&[self.kernel / 2; 4])),
            ("channels".into(), Attr::Int(self.channels as i64)),
            ("kernel_size".into(), list(&[self.kernel; 2])),
        ];
        attributes.into_iter().collect()
    }
}

fn tensor(shape: [u64; 4]) -> TensorType {
    TensorType::of(DType::F32, &shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::units::Bytes;
    use edgecut_profile::CacheFlush;

    #[test]
    fn weights_leave_the_caches_and_messages_of_many_sizes_cross() {
        let CalibrationModel { graph, sides } = CalibrationModel::new();
        assert_eq!(graph.operators().count(), sides.len());
        let set = CacheFlush::working_set(&graph);
        assert!(set > Bytes(50 << 20) && set < Bytes(128 << 20), "{set}");
        for side in 0..2 {
            let is_read_there = |(id, operator): &(OperatorId, &Operator)| {
                let producer = operator.operands().find_map(|tensor| graph.producer(tensor));
                sides[id.0 as usize] == side && producer.is_some_and(|from| sides[from.0 as usize] != side)
            };
            let operands = graph.operators().filter(is_read_there).flat_map(|(_, operator)| operator.operands());
            let mut sizes: Vec<u64> = operands.filter_map(|t| Some(graph.tensor(t).ty.bytes()?.0)).collect();
            sizes.sort_unstable();
            sizes.dedup();
            assert!(sizes.len() >= 6 && sizes[0] < 1000 && sizes.last() > Some(&200_000), "{sizes:?}");
        }
    }
}
