//! Additions that become the bias of the convolution or dense layer before them: one ONNX node instead of two.

use std::collections::HashMap;

use edgecut_graph::{Arg, Attr, DType, Graph, Operator, OperatorId, TensorId};

use super::layout::BlockedLayout;

/// Which additions are written as the bias of which products.
#[derive(Debug, Default)]
pub(super) struct Biases {
    /// By addition: the product before it, and what is added to that.
    products: HashMap<OperatorId, (OperatorId, TensorId)>,
    /// The products whose nodes are written where the addition stands.
    postponed: HashMap<OperatorId, OperatorId>,
}

impl Biases {
    /// The additions of `graph` that are the only readers of a product, and add one number for each of its channels.
    pub fn of(graph: &Graph) -> Biases {
        let consumers = graph.consumers();
        let mut found = Biases::default();
        for (id, operator) in graph.operators() {
            let only_reader =
                |tensor: &TensorId| consumers[tensor.0 as usize] == [id] && !graph.outputs.contains(tensor);
            let [Arg::Tensor(first), Arg::Tensor(second)] = operator.args[..] else { continue };
            if first == second {
                continue;
            }
            for (value, added) in [(first, second), (second, first)] {
                let Some(product) = graph.producer(value).filter(|_| only_reader(&value)) else { continue };
                let Some(axis) = channel_axis(graph, graph.operator(product)) else { continue };
                let fits = match operator.name.as_str() {
                    "nn.bias_add" => value == first && bias_axis(graph, operator) == Some(axis),
                    // A MatMul and an Add stay two nodes.
                    "add" => {
                        graph.operator(product).name != "nn.matmul"
                            && is_per_channel(graph, added, value, axis)
                            && graph.tensor(operator.outputs[0]).ty == graph.tensor(value).ty
                    }
                    _ => false,
                };
                if fits && !found.postponed.contains_key(&product) {
                    found.products.insert(id, (product, added));
                    found.postponed.insert(product, id);
                    break;
                }
            }
        }
        found
    }

    /// Whether an operator is written later, with the addition after it.
    pub fn is_postponed(&self, operator: OperatorId) -> bool {
        self.postponed.contains_key(&operator)
    }

    /// The product that an addition is written with, and what is added to it.
    pub fn product(&self, addition: OperatorId) -> Option<(OperatorId, TensorId)> {
        self.products.get(&addition).copied()
    }
}

/// The axis of the channels in the result of an operator whose ONNX equivalent takes a bias.
fn channel_axis(graph: &Graph, operator: &Operator) -> Option<usize> {
    let text = |key| operator.attrs.get(key).and_then(Attr::str).filter(|text| !text.is_empty());
    let default = match operator.name.as_str() {
        "nn.conv1d" | "nn.conv1d_transpose" => "NCW",
        "nn.conv2d" | "nn.conv2d_transpose" => "NCHW",
        "nn.conv3d" | "nn.conv3d_transpose" => "NCDHW",
        "nn.dense" | "nn.matmul" => {
            let data = graph.tensor(operator.operands().next()?);
            let out = graph.tensor(*operator.outputs.first()?);
            let is_gemm = data.ty.shape.rank() == 2 && out.ty.dtype.is_float() && data.ty.dtype == out.ty.dtype;
            return is_gemm.then_some(1);
        }
        _ => return None,
    };
    let out = graph.tensor(*operator.outputs.first()?);
    let data = graph.tensor(operator.operands().next()?);
    if !matches!(out.ty.dtype, DType::F32 | DType::F16) || data.ty.dtype != out.ty.dtype {
        return None;
    }
    let layout = BlockedLayout::parse(text("out_layout").or(text("data_layout")).unwrap_or(default)).ok()?;
    layout.position('C').filter(|_| layout.is_whole('C'))
}

/// The axis along which `nn.bias_add` adds.
fn bias_axis(graph: &Graph, operator: &Operator) -> Option<usize> {
    let shape = &graph.tensor(operator.operands().next()?).ty.shape;
    shape.axis(operator.attrs.get("axis").and_then(Attr::int).unwrap_or(1))
}

/// Whether `added` has one number for each of the channels of `value`, and broadcasts along its other axes.
fn is_per_channel(graph: &Graph, added: TensorId, value: TensorId, axis: usize) -> bool {
    let (added, value) = (&graph.tensor(added).ty.shape, &graph.tensor(value).ty.shape);
    let Some(skipped) = value.rank().checked_sub(added.rank()) else { return false };
    axis >= skipped
        && value[axis].get().is_some()
        && added.iter().enumerate().all(|(at, dim)| match at + skipped == axis {
            true => dim.same(value[axis]),
            false => dim.get() == Some(1),
        })
}
