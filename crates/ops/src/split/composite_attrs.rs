//! How the attributes of composite operators, which are those in the file, depend on sizes: those of a shard must describe the
//! shard.

/// What an attribute depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CompositeAttr {
    /// No size, or one that is the same in every shard, such as that of a window.
    SizeIndependent,
    /// The number of columns: the last axis of the result.
    Columns,
    /// The length of the reduction axis.
    Reduction,
    /// The number of heads that the channels of the result consist of: the attribute's name.
    Heads(&'static str),
    /// The numbers of channels of all heads, in a list.
    SizesOfHeads,
    /// The attribute is that of an operator of the decomposition with this name, in the same format.
    Inner(&'static str),
}

/// The known attributes. An operator with another one is not split.
const COMPOSITE_ATTRS: &[(CompositeAttr, &[&str])] = &[
    (
        CompositeAttr::SizeIndependent,
        &[
            "accuracy_level",
            "activation",
            "activation_alpha",
            "activation_beta",
            "activation_gamma",
            "activation_params",
            "alpha",
            "approximate",
            "auto_pad",
            "axis",
            "beta",
            "bias",
            "bits",
            "block_size",
            "ceil_mode",
            "channels_last",
            "count_include_pad",
            "dilations",
            "do_rotary",
            "epsilon",
            "gamma",
            "interleaved",
            "is_causal",
            "kernel_shape",
            "lambd",
            "local_window_size",
            "mask_filter_value",
            "mask_index_type",
            "opset",
            "p",
            "qk_matmul_output_mode",
            "rotary_embedding_dim",
            "rotary_interleaved",
            "scale",
            "smooth_softmax",
            "softcap",
            "softmax_precision",
            "stash_type",
            "strides",
            "transA",
            "transB",
            "transBatchA",
            "transBatchB",
            "unidirectional",
        ],
    ),
    (CompositeAttr::Columns, &["N"]),
    (CompositeAttr::Reduction, &["K"]),
    (CompositeAttr::Heads("kv_num_heads"), &["kv_num_heads"]),
    (CompositeAttr::Heads("num_heads"), &["num_heads"]),
    (CompositeAttr::Heads("q_num_heads"), &["q_num_heads"]),
    (CompositeAttr::SizesOfHeads, &["qkv_hidden_sizes"]),
    (CompositeAttr::Inner("padding"), &["pads"]),
    (CompositeAttr::Inner("groups"), &["group"]),
    (CompositeAttr::Inner("num_groups"), &["num_groups"]),
];

/// Attributes of inner operators that the sizes of a composite operator's operands determine.
pub(crate) const FROM_OPERANDS: &[&str] = &["axis", "begin", "channels", "end", "newshape", "shape", "units"];

/// What the attribute `name` depends on; `None` if it is not known.
pub(crate) fn composite_attr(name: &str) -> Option<CompositeAttr> {
    COMPOSITE_ATTRS.iter().find(|(_, names)| names.contains(&name)).map(|(meaning, _)| *meaning)
}

/// The attribute of a composite operator that corresponds to `inner` of an operator of its decomposition.
pub(crate) fn attr_of_inner(inner: &str) -> Option<&'static str> {
    let names = |(meaning, names): &(CompositeAttr, &'static [&'static str])| match meaning {
        CompositeAttr::Inner(same) if *same == inner => names.first().copied(),
        _ => None,
    };
    COMPOSITE_ATTRS.iter().find_map(names)
}
