//! The activation fused into a product or convolution.

use edgecut_graph::{Attr, TensorId};

use crate::{error::Result, families::activation::hard_sigmoid, lowering::Call};

/// Applies the activation that the attribute `activation` names to `x`. `parameter` returns its parameters by index.
///
/// # Errors
/// If it is not known.
pub(super) fn activated(
    call: &mut Call<'_, '_>,
    x: TensorId,
    parameter: impl Fn(usize) -> Option<f64>,
) -> Result<TensorId> {
    let number = |at: usize, default: f64| parameter(at).unwrap_or(default);
    match call.text("activation", "") {
        "" => Ok(x),
        "Relu" => call.map("nn.relu", &[x]),
        "Tanh" => call.map("tanh", &[x]),
        "Sigmoid" => call.map("sigmoid", &[x]),
        "LeakyRelu" => call.op("nn.leaky_relu", &[x], vec![("alpha", Attr::Float(number(0, 0.01)))]),
        "Clip" => {
            let limits = (number(0, f64::from(f32::MIN)), number(1, f64::from(f32::MAX)));
            call.op("clip", &[x], vec![("a_min", Attr::Float(limits.0)), ("a_max", Attr::Float(limits.1))])
        }
        "HardSigmoid" => hard_sigmoid(call, x, number(0, 0.2), number(1, 0.5)),
        other => Err(format!("attribute activation: {} is not supported", crate::error::shown(other))),
    }
}
