//! Models that plans with splits are made of, as Relay text.

/// A small convolutional network: two convolutions with pooling between, a residual sum, a dense layer.
pub const MODEL: &str = r#"#[version = "0.0.5"]
def @main(%x: Tensor[(1, 3, 64, 64), float32], %w1: Tensor[(32, 3, 3, 3), float32], %w2: Tensor[(32, 32, 3, 3), float32],
          %w3: Tensor[(32, 32, 3, 3), float32], %d: Tensor[(10, 8192), float32]) {
  %0 = nn.conv2d(%x, %w1, padding=[1, 1, 1, 1], channels=32, kernel_size=[3, 3]);
  %1 = nn.relu(%0);
  %2 = nn.max_pool2d(%1, pool_size=[2, 2], strides=[2, 2]);
  %3 = nn.conv2d(%2, %w2, padding=[1, 1, 1, 1], channels=32, kernel_size=[3, 3]);
  %4 = add(%3, %2);
  %5 = nn.conv2d(%4, %w3, strides=[2, 2], padding=[1, 1, 1, 1], channels=32, kernel_size=[3, 3]);
  %6 = nn.batch_flatten(%5);
  nn.dense(%6, %d, units=10)
}
"#;

/// Attention with its residual sum, as PyTorch's frontend writes it: weights are transposed when they are loaded.
pub fn attention() -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut add = |call: String| {
        lines.push(format!("  %{} = {call};", lines.len()));
        format!("%{}", lines.len() - 1)
    };
    let linear = |add: &mut dyn FnMut(String) -> String, data: &str, weight: &str| {
        let transposed = add(format!("transpose(%{weight}, axes=[1, 0])"));
        let stack = add(format!("broadcast_to({transposed}, shape=[1, 128, 128])"));
        add(format!("nn.batch_matmul({data}, {stack}, transpose_b=False)"))
    };
    let heads = |add: &mut dyn FnMut(String) -> String, weight: &str, axes: &str, shape: &str| {
        let all = linear(add, "%x", weight);
        let divided = add(format!("reshape({all}, newshape=[1, 96, 4, 32])"));
        let transposed = add(format!("transpose({divided}, axes={axes})"));
        add(format!("reshape({transposed}, newshape={shape})"))
    };
    let q = heads(&mut add, "wq", "[0, 2, 1, 3]", "[4, 96, 32]");
    let k = heads(&mut add, "wk", "[0, 2, 3, 1]", "[4, 32, 96]");
    let v = heads(&mut add, "wv", "[0, 2, 1, 3]", "[4, 96, 32]");
    let scores = add(format!("nn.batch_matmul({q}, {k}, transpose_b=False)"));
    let weights = add(format!("nn.softmax({scores})"));
    let mixed = add(format!("nn.batch_matmul({weights}, {v}, transpose_b=False)"));
    let divided = add(format!("reshape({mixed}, newshape=[1, 4, 96, 32])"));
    let transposed = add(format!("transpose({divided}, axes=[0, 2, 1, 3])"));
    let merged = add(format!("reshape({transposed}, newshape=[1, 96, 128])"));
    let projected = linear(&mut add, &merged, "wo");
    let parameters: String =
        ["wq", "wk", "wv", "wo"].map(|name| format!(", %{name}: Tensor[(128, 128), float32]")).concat();
    let body = lines.join("\n");
    format!(
        "#[version = \"0.0.5\"]\ndef @main(%x: Tensor[(1, 96, 128), float32]{parameters}) {{\n{body}\n  \
         add({projected}, %x)\n}}\n"
    )
}

/// The feed-forward layers of a decoder for one token: their weights are most of the work, and no axis but theirs can be split.
pub const FEED_FORWARD: &str = r#"#[version = "0.0.5"]
def @main(%x: Tensor[(1, 256), float32], %w1: Tensor[(2048, 256), float32], %b1: Tensor[(2048), float32],
          %w2: Tensor[(256, 2048), float32], %b2: Tensor[(256), float32], %s: Tensor[(256), float32]) {
  %0 = nn.dense(%x, %w1, units=2048);
  %1 = nn.bias_add(%0, %b1);
  %2 = nn.relu(%1);
  %3 = nn.dense(%2, %w2, units=256);
  %4 = nn.bias_add(%3, %b2);
  %5 = multiply(%4, %s);
  %6 = reshape(%5, newshape=[1, 256]);
  %7 = add(%x, %6);
  nn.relu(%7)
}
"#;

/// Pairs of dense layers of one row, with norms between them and after them, as in the step of a decoder.
pub const NORMS: &str = r#"#[version = "0.0.5"]
def @main(%x: Tensor[(1, 256), float32], %g: Tensor[(256), float32], %b: Tensor[(256), float32],
          %w1: Tensor[(2048, 256), float32], %w2: Tensor[(256, 2048), float32],
          %w3: Tensor[(2048, 256), float32], %w4: Tensor[(256, 2048), float32]) {
  %0 = nn.layer_norm(%x, %g, %b, axis=-1);
  %1 = nn.dense(%0, %w1, units=2048);
  %2 = nn.relu(%1);
  %3 = nn.dense(%2, %w2, units=256);
  %4 = nn.layer_norm(%3, %g, %b, axis=-1);
  %5 = nn.dense(%4, %w3, units=2048);
  %6 = nn.relu(%5);
  %7 = nn.dense(%6, %w4, units=256);
  nn.layer_norm(%7, %g, %b, axis=-1)
}
"#;

/// Groups that begin with a dequantisation, before a window, whose halo both shards compute, or a stride, which skips rows.
pub const QUANTISED: &str = r#"#[version = "0.0.5"]
def @main(%x: Tensor[(1, 3, 16, 16), float32], %w1: Tensor[(8, 3, 3, 3), float32], %w2: Tensor[(8, 8, 1, 1), float32]) {
  %0 = qnn.quantize(%x, 0.02f, 0, out_dtype="int8");
  %1 = qnn.dequantize(%0, 0.02f, semantics="onnx");
  %2 = nn.conv2d(%1, %w1, padding=[1, 1, 1, 1], channels=8, kernel_size=[3, 3]);
  %3 = qnn.quantize(%2, 0.05f, 0, out_dtype="int8");
  %4 = qnn.dequantize(%3, 0.05f, semantics="onnx");
  %5 = nn.conv2d(%4, %w2, strides=[2, 2], padding=[0, 0, 0, 0], channels=8, kernel_size=[1, 1]);
  %6 = qnn.quantize(%5, 0.05f, 0, out_dtype="int8");
  %7 = qnn.dequantize(%6, 0.05f, semantics="onnx");
  %8 = nn.max_pool2d(%7, pool_size=[3, 3], strides=[1, 1], padding=[1, 1, 1, 1]);
  %9 = qnn.quantize(%8, 0.05f, 0, out_dtype="int8");
  qnn.dequantize(%9, 0.05f, semantics="onnx")
}
"#;
