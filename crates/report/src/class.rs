//! Classes of operators by what dominates their time, which give charts their colours.

/// The classes, in the order of the page's colours.
pub(crate) const CLASSES: [&str; 7] =
    ["convolution", "matrix product", "pooling", "normalisation", "element-wise", "data movement", "other"];

/// Names, and beginnings of names (`*`), the most expensive class first: a fused group has the first class that one of
/// its operators has.
const NAMES: &[(usize, &str)] = &[
    (0, "nn.conv* nn.contrib_conv* qnn.conv* nn.deformable_conv* image.dilation2d"),
    (1, "nn.dense* nn.batch_matmul nn.matmul qnn.dense* qnn.batch_matmul nn.sparse* einsum nn.contrib_dense_pack"),
    (2, "nn.max_pool* nn.avg_pool* nn.global* nn.adaptive* nn.upsampling* image.resize*"),
    (3, "nn.batch_norm nn.layer_norm nn.instance_norm nn.group_norm nn.softmax nn.log_softmax nn.fast_softmax nn.lrn"),
    (3, "nn.l2_normalize mean sum variance max min prod argmax argmin"),
    (4, "add subtract multiply divide nn.relu nn.bias_add clip sigmoid tanh exp erf sqrt rsqrt power negative maximum"),
    (4, "minimum nn.leaky_relu nn.prelu where equal log abs fast_*"),
    (5, "reshape* transpose nn.batch_flatten squeeze expand_dims concatenate split strided_slice take stack"),
    (5, "layout_transform nn.pad tile repeat broadcast_to cast copy gather* nn.dropout"),
];

/// The index in `CLASSES` of an operator or a fused group of this name: `nn.conv2d+nn.relu`,
/// `nn.conv2d[1of2]`, `strided_slice x[0..8]`.
pub fn class(name: &str) -> usize {
    let parts: Vec<&str> = name.split('+').map(|part| part.split(['[', ' ']).next().unwrap_or(part)).collect();
    let is_of = |known: &str| {
        let beginning = known.strip_suffix('*');
        parts.iter().any(|part| beginning.map_or(*part == known, |beginning| part.starts_with(beginning)))
    };
    let found = NAMES.iter().find(|(_, names)| names.split(' ').any(is_of));
    found.map_or(CLASSES.len() - 1, |(class, _)| *class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_expensive_operator_of_a_group_gives_its_class() {
        for (name, wanted) in [
            ("nn.conv2d+nn.batch_norm+nn.relu", "convolution"),
            ("nn.dense[1of2]+nn.bias_add", "matrix product"),
            ("nn.max_pool2d+nn.batch_norm", "pooling"),
            ("add+nn.relu", "element-wise"),
            ("maximum", "element-wise"),
            ("reshape+squeeze", "data movement"),
            ("strided_slice input0[1:0..43]", "data movement"),
            ("vision.nms", "other"),
        ] {
            assert_eq!(CLASSES[class(name)], wanted, "{name}");
        }
    }
}
