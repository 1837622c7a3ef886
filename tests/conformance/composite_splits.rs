//! The law of splitting for composite operators: the expected split axes of each, and that their shards, put together, are the
//! operator, on engines that compute it by its name and by its decomposition.

use std::collections::BTreeMap;

use edgecut::{
    engine::Engine,
    graph::{Graph, TensorData, TensorId},
    ops::{
        passes::{
            axes::{axes, replica_axis},
            shard::SplitError,
            shard_graph::shard_graph,
        },
        split::Join,
    },
};
use libtest_mimic::Trial;

use crate::{
    onnx_rules::{input, names as rules, read},
    operators::ENGINE,
    splits::shardings,
    trial,
};

/// The split axes of each rule with a composite operator, as axes of its first result.
const AXES: &[(&str, &[usize])] = &[
    ("attention_of_channels", &[0]),
    ("attention_of_channels_and_a_mask", &[1, 2]),
    ("attention_of_heads", &[1, 2, 3]),
    ("dequantize_blocks", &[0]),
    ("gelu", &[0, 1, 2]),
    ("gelu_by_tanh", &[0, 1, 2]),
    ("group_norm", &[0, 1]),
    ("hardmax_11", &[0]),
    ("l1_norm_of_zero", &[0]),
    ("layer_norm_of_two_axes", &[0, 1]),
    ("layer_norm_statistics_of_halves", &[0]),
    ("lp_norm_of_zero", &[0]),
    ("mean_variance_norm", &[1]),
    ("ms_attention_of_lengths", &[0]),
    ("ms_attention_with_past", &[0]),
    ("ms_bias_gelu", &[0, 1, 2]),
    ("ms_embed_layer_norm", &[0]),
    ("ms_fast_gelu", &[0, 1, 2]),
    ("ms_fused_conv_clip_sum", &[1, 2, 3]),
    ("ms_fused_conv_relu", &[1, 2, 3]),
    ("ms_fused_gemm", &[0, 1]),
    ("ms_fused_matmul", &[0, 1, 2]),
    ("ms_fused_matmul_of_batches", &[0, 1, 2]),
    ("ms_grouped_attention_of_a_prompt", &[0]),
    ("ms_grouped_attention_of_a_step", &[0]),
    ("ms_grouped_attention_of_a_packed_projection", &[2]),
    ("ms_grouped_attention_of_separate_projections", &[2]),
    ("ms_grouped_attention_of_unequal_lengths", &[0]),
    ("ms_grouped_attention_with_a_softcap", &[2]),
    ("ms_grouped_attention_with_a_window", &[2]),
    ("ms_grouped_attention_with_interleaved_angles", &[2]),
    ("ms_grouped_attention_with_no_angles", &[2]),
    ("ms_matmul_of_2_bits_and_blocks_of_16_at_level_4", &[0, 1]),
    ("ms_matmul_of_2_bits_and_blocks_of_32_at_level_4", &[0, 1]),
    ("ms_matmul_of_4_bits", &[0, 1]),
    ("ms_matmul_of_4_bits_at_level_4", &[0, 1]),
    ("ms_matmul_of_4_bits_with_flat_zero_points", &[0, 1, 2]),
    ("ms_matmul_of_4_bits_with_zero_points", &[0, 1]),
    ("ms_matmul_of_8_bits", &[0, 1]),
    ("ms_matmul_of_blocks_at_level_4", &[1]),
    ("ms_matmul_of_large_blocks_at_level_4", &[0, 1]),
    ("ms_matmul_of_many_rows", &[0, 1]),
    ("ms_matmul_of_many_rows_and_partial_blocks", &[0, 1]),
    ("ms_matmul_of_many_rows_at_level_4", &[0, 1]),
    ("ms_matmul_of_one_block_at_level_4", &[0, 1, 2]),
    ("ms_max_pool_nhwc", &[0, 1, 2, 3]),
    ("ms_multi_head_attention", &[0, 1]),
    ("ms_multi_head_attention_with_past", &[0, 1]),
    ("ms_quick_gelu", &[0, 1, 2]),
    ("ms_rotary_embedding", &[0, 1, 2]),
    ("ms_rotary_embedding_from_one_position", &[0, 1, 3]),
    ("ms_skip_layer_norm", &[0, 1]),
    ("ms_skip_layer_norm_without_shift", &[0, 1]),
    ("ms_skip_rms_norm", &[0, 1]),
    ("nan_celu", &[0]),
    ("nan_elu", &[0]),
    ("nan_hardsigmoid", &[0]),
    ("nan_hardswish", &[0]),
    ("nan_mish", &[0]),
    ("nan_selu", &[0]),
    ("nan_softplus", &[0]),
    ("nan_softsign", &[0]),
    ("nan_thresholdedrelu", &[0]),
    ("qlinear_add", &[0, 1, 2]),
    ("qlinear_average_pool", &[0, 1, 2, 3]),
    ("qlinear_average_pool_nhwc", &[0, 1, 2, 3]),
    ("qlinear_concat", &[0, 2]),
    ("qlinear_conv", &[0, 1, 2, 3]),
    ("qlinear_conv_depthwise", &[1, 2, 3]),
    ("qlinear_conv_nhwc", &[0, 1, 2, 3]),
    ("qlinear_conv_of_groups", &[1, 2, 3]),
    ("qlinear_gemm", &[0, 1]),
    ("qlinear_global_average_pool", &[0, 1]),
    ("qlinear_global_average_pool_nhwc", &[0, 3]),
    ("qlinear_leaky_relu", &[0, 1, 2]),
    ("qlinear_matmul", &[0, 1]),
    ("qlinear_matmul_of_batches", &[0, 1, 2]),
    ("qlinear_mul", &[0, 1, 2]),
    ("qlinear_sigmoid", &[0, 1, 2]),
    ("qlinear_softmax", &[0, 1]),
    ("quantize_blocks", &[0]),
    ("rms_norm", &[0, 1]),
    ("rms_norm_of_onnx_runtime", &[0, 1]),
    ("rotary_embedding", &[0, 1, 2]),
    ("rotary_embedding_of_equal_tables", &[0, 1, 2]),
    ("shrink_uint8", &[0]),
    ("swish", &[0, 1, 2]),
];

/// Those that can be split into partial sums.
const SUMS: &[&str] = &[
    "ms_fused_matmul",
    "ms_fused_matmul_of_batches",
    "ms_matmul_of_2_bits_and_blocks_of_16_at_level_4",
    "ms_matmul_of_2_bits_and_blocks_of_32_at_level_4",
    "ms_matmul_of_4_bits",
    "ms_matmul_of_8_bits",
    "ms_matmul_of_blocks_at_level_4",
    "ms_matmul_of_many_rows",
    "ms_matmul_of_many_rows_at_level_4",
];

pub fn trials() -> Vec<Trial> {
    let law = |name: String| trial(format!("composite-splits/{name}"), move || check(&name, &*ENGINE));
    let all = trial("composite-splits: every rule is listed".to_string(), || {
        let listed: Vec<&str> = AXES.iter().map(|(name, _)| *name).collect();
        let found = names();
        let missing: Vec<&String> = found.iter().filter(|name| !listed.contains(&name.as_str())).collect();
        let gone: Vec<&&str> = listed.iter().filter(|name| !found.iter().any(|found| found == *name)).collect();
        match missing.is_empty() && gone.is_empty() {
            true => Ok(()),
            false => Err(format!("not listed: {missing:?}; without a composite operator: {gone:?}")),
        }
    });
    names().into_iter().map(law).chain([all]).collect()
}

/// The rules whose model has a composite operator.
pub fn names() -> Vec<String> {
    let is_composite = |graph: Graph| graph.operators().any(|(_, operator)| operator.decomposition.is_some());
    rules().into_iter().filter(|name| read(name).is_ok_and(|(graph, _)| is_composite(graph))).collect()
}

/// The results of `graph`, and the number of operators that fell back to another engine.
fn compute(
    engine: &dyn Engine,
    graph: &Graph,
    stored: &BTreeMap<String, TensorData>,
) -> Result<(Vec<TensorData>, usize), String> {
    let content = |id: TensorId| input(graph, stored, id);
    let inputs: Vec<TensorData> =
        graph.inputs().map(content).collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    let mut loaded = engine.load(graph, &content).map_err(|error| error.to_string())?;
    let made = loaded.run(&inputs).map_err(|error| error.to_string())?;
    Ok((made, loaded.fallbacks().len()))
}

/// Splits the composite operator of a rule along each of its axes, in several ways, and compares the results.
pub fn check(name: &str, engine: &dyn Engine) -> Result<(), String> {
    let (graph, stored) = read(name)?;
    let mut rng = fastrand::Rng::with_seed(u64::from(crc32fast::hash(name.as_bytes())));
    let (want, fallbacks) = compute(engine, &graph, &stored)?;
    for (id, operator) in graph.operators().filter(|(_, operator)| operator.decomposition.is_some()) {
        let axes = axes(&graph, operator);
        let side = |join: &Join| match join {
            Join::Axis(sides) => sides.first().copied().flatten(),
            Join::Sum | Join::Replicated => None,
        };
        let sums = axes.iter().filter(|axis| axis.join == Join::Sum).count();
        if usize::from(SUMS.contains(&name)) != sums {
            return Err(format!("{} has {sums} splits into partial sums", operator.name));
        }
        let found: Vec<usize> = axes.iter().filter_map(|axis| side(&axis.join)).collect();
        let listed = AXES.iter().find(|(listed, _)| *listed == name).map_or(&[][..], |(_, axes)| axes);
        if found != listed {
            return Err(format!("{} is split along {found:?}, expected {listed:?}", operator.name));
        }
        let replicas = replica_axis(&graph, operator);
        for (number, axis) in axes.iter().chain(&replicas).enumerate() {
            for sharding in shardings((&graph, operator), (number, axis), &mut rng) {
                let label = format!("{} {axis:?} as {sharding:?}", operator.name);
                let shards = sharding.ranges().len();
                let split = match shard_graph(&graph, &[], &BTreeMap::from([(id, sharding)])) {
                    Ok(split) => split.graph,
                    // A shard that reads only padding.
                    Err(SplitError::Empty { .. }) => continue,
                    Err(why) => return Err(format!("{label}: {why}")),
                };
                let composites =
                    split.operators().filter(|(_, shard)| shard.name == operator.name && shard.decomposition.is_some());
                let composites = composites.count();
                let (made, others) = compute(engine, &split, &stored).map_err(|why| format!("{label}: {why}"))?;
                if composites != shards || others != fallbacks {
                    return Err(format!("{label}: {composites} composite operators, {others} fallbacks"));
                }
                made.iter()
                    .zip(&want)
                    .try_for_each(|(made, want)| equals(made, want))
                    .map_err(|why| format!("{label}: {why}"))?;
            }
        }
    }
    Ok(())
}

/// Compares floats within a tolerance, and integers exactly.
fn equals(made: &TensorData, want: &TensorData) -> Result<(), String> {
    let numbers = |data: &TensorData| data.to_f64s().ok_or("no numbers");
    let (a, b) = (numbers(made)?, numbers(want)?);
    let tolerance = if want.dtype().is_float() { 1e-5 } else { 0.0 };
    let differs = |(a, b): (&f64, &f64)| (a - b).abs() > tolerance * (1.0 + b.abs());
    match a.iter().zip(&b).position(differs) {
        _ if made.ty() != want.ty() => Err(format!("{}, expected {}", made.ty(), want.ty())),
        Some(at) => Err(format!("element {at} is {}, expected {}", a[at], b[at])),
        None => Ok(()),
    }
}
