//! Recurrent layers, whose operands, gates and results are those of ONNX.

use crate::export::write::Write::{self, Many};
use crate::{
    error::Result,
    export::{builder::OnnxValue, scope::Scope},
};

pub(super) const OPS: &[(&str, Write)] =
    &[("nn.gru", Many(gru)), ("nn.lstm", Many(lstm)), ("nn.rnn", Many(|scope| layer(scope, "RNN", &[])))];

fn lstm(scope: &mut Scope<'_>) -> Result<Vec<OnnxValue>> {
    let cell = scope.x(5)?;
    layer(scope, "LSTM", &[cell])
}

fn gru(scope: &mut Scope<'_>) -> Result<Vec<OnnxValue>> {
    layer(scope, "GRU", &[])
}

/// A layer of the kind `op` whose sequences have equal lengths; `more` are inputs after the initial hidden state.
fn layer(scope: &mut Scope<'_>, op: &'static str, more: &[OnnxValue]) -> Result<Vec<OnnxValue>> {
    let given = (0..5).map(|index| scope.x(index)).collect::<Result<Vec<_>>>()?;
    let hidden = *scope.dims(4)?.last().ok_or("the hidden state is a scalar")?;
    let direction = scope.text("direction", "forward")?;
    let linear = scope.flag("linear_before_reset", false)?;
    let types: Vec<_> = scope.results().iter().map(|ty| ty.dtype).collect();
    let lengths = scope.builder.absent();
    let mut inputs: Vec<&OnnxValue> = given.iter().take(4).collect();
    inputs.extend([&lengths, &given[4]]);
    inputs.extend(more);
    let node = scope.builder.node(op, &inputs).int("hidden_size", hidden).text("direction", direction);
    let node = if op == "GRU" { node.int("linear_before_reset", i64::from(linear)) } else { node };
    node.many(&types)
}
