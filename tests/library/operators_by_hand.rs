//! Operators on small tensors whose results are worked out by hand: what the cases that TVM computed leave out.

use std::collections::BTreeMap;

use edgecut::{
    engine::{Engine, TractEngine},
    graph::{DType, TensorData, TensorType},
    relay::{ImportOptions, import},
};
use half::{bf16, f16};

struct ByHand {
    parameters: &'static str,
    body: &'static str,
    inputs: &'static [&'static [f64]],
    outputs: &'static [&'static [f64]],
}

const ALL: &[ByHand] = &[
    // Rounded to eight bits at each operator: 1.0078125 is 1 + 2⁻⁷, the next number after 1.
    ByHand {
        parameters: "%x: Tensor[(3), bfloat16], %y: Tensor[(3), bfloat16]",
        body: "add(%x, %y)",
        inputs: &[&[1.0, 1.0, -3.0], &[0.00390625, 0.005, 2.0]],
        outputs: &[&[1.0, 1.0078125, -1.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(2, 2), bfloat16], %w: Tensor[(1, 2), bfloat16]",
        body: "nn.dense(%x, %w, units=1)",
        inputs: &[&[1.0, 2.0, -4.0, 0.5], &[3.0, 0.25]],
        outputs: &[&[3.5, -11.875]],
    },
    ByHand {
        parameters: "%x: Tensor[(2, 2), bfloat16]",
        body: "%0 = reshape(%x, newshape=[4]); %1 = cast(%0, dtype=\"float32\"); (%0, %1)",
        inputs: &[&[1.0, -0.5, 0.1, 0.0]],
        outputs: &[&[1.0, -0.5, 0.10009765625, 0.0], &[1.0, -0.5, 0.10009765625, 0.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(4), float32]",
        body: "%0 = cast(%x, dtype=\"bfloat16\"); max(%0, axis=[0])",
        inputs: &[&[-7.0, 2.0, 2.01, 1.0]],
        outputs: &[&[2.015625]],
    },
    // The areas of large numbers: a naive logarithm of squares overflows.
    ByHand {
        parameters: "%x: Tensor[(2), float32]",
        body: "%0 = asinh(%x); %1 = acosh(%x); %2 = round(%0); %3 = round(%1); (%2, %3)",
        inputs: &[&[1e30, 1e38]],
        outputs: &[&[70.0, 88.0], &[70.0, 88.0]],
    },
    // Two bits of eight neighbours, the first neighbour highest in its word.
    ByHand {
        parameters: "%x: Tensor[(1, 8), uint8]",
        body: "nn.bitpack(%x, bits=2, pack_axis=1, bit_axis=1, pack_type=\"uint8\")",
        inputs: &[&[1.0, 2.0, 3.0, 0.0, 0.0, 1.0, 0.0, 2.0]],
        outputs: &[&[0b1010_0100 as f64, 0b0110_0001 as f64]],
    },
    // Unipolar weights of one bit are −1 and 1, others 0 and 1.
    ByHand {
        parameters: "%x: Tensor[(1, 8), uint8], %w: Tensor[(2, 8), uint8]",
        body: "%0 = nn.bitserial_dense(%x, %w, units=2, data_bits=2, pack_dtype=\"uint8\", out_dtype=\"int16\"); \
               %1 = nn.bitserial_dense(%x, %w, units=2, data_bits=2, pack_dtype=\"uint8\", out_dtype=\"int16\", unipolar=False); (%0, %1)",
        inputs: &[
            &[3.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0],
            &[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
        ],
        outputs: &[&[0.0, 0.0], &[3.0, 3.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(1, 8, 1, 2), uint8], %w: Tensor[(1, 8, 1, 1), uint8]",
        body: "nn.bitserial_conv2d(%x, %w, kernel_size=[1, 1], channels=1, pack_dtype=\"uint8\", out_dtype=\"int16\", padding=[0, 1])",
        inputs: &[
            &[1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
            &[1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
        ],
        outputs: &[&[0.0, 1.0, 3.0, 0.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(2, 6), int32]",
        body: "auto_scheduler_layout_transform(%x, src_layout=\"2n6c\", dst_layout=\"3c2n2c\")",
        inputs: &[&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0]],
        outputs: &[&[0.0, 1.0, 6.0, 7.0, 2.0, 3.0, 8.0, 9.0, 4.0, 5.0, 10.0, 11.0]],
    },
    // Two images, so that the convolution goes image by image, with what follows it.
    ByHand {
        parameters: "%x: Tensor[(2, 2, 2, 2), float32]",
        body: "%0 = ones(shape=[1, 2, 2, 2], dtype=\"float32\"); %1 = nn.conv2d(%x, %0, channels=1, kernel_size=[2, 2]); \
               %2 = multiply(%1, 0.5f); nn.relu(%2)",
        inputs: &[&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, -1.0, -2.0, -3.0, -4.0, 1.0, 1.0, 1.0, 1.0]],
        outputs: &[&[18.0, 0.0]],
    },
    // Each channel alone, normalised and bounded.
    ByHand {
        parameters: "%x: Tensor[(1, 2, 1, 3), float32], %s: Tensor[(2), float32]",
        body: "%0 = ones(shape=[2, 1, 1, 3], dtype=\"float32\"); \
               %1 = nn.conv2d(%x, %0, padding=[0, 1], groups=2, channels=2, kernel_size=[1, 3]); \
               %2 = zeros(shape=[2], dtype=\"float32\"); %3 = ones(shape=[2], dtype=\"float32\"); \
               %4 = nn.batch_norm(%1, %s, %3, %2, %3, epsilon=0f); %5 = %4.0; clip(%5, a_min=0f, a_max=6f)",
        inputs: &[&[1.0, 2.0, 3.0, -1.0, -1.0, 0.5], &[1.0, 2.0]],
        outputs: &[&[4.0, 6.0, 6.0, 0.0, 0.0, 0.0]],
    },
    // A window that begins two steps beyond the data holds −1 elements, which sum to 0.
    ByHand {
        parameters: "%x: Tensor[(1, 1, 5), float32]",
        body: "nn.avg_pool1d(%x, pool_size=[1], strides=[3], padding=[0, 0], ceil_mode=True, count_include_pad=True)",
        inputs: &[&[1.0, 2.0, 3.0, 4.0, 5.0]],
        outputs: &[&[1.0, 4.0, 0.0]],
    },
    // Twice 2³¹ − 1 is −2 in 32 bits, before it is bounded.
    ByHand {
        parameters: "%x: Tensor[(2), int32]",
        body: "qnn.requantize(%x, 1f, 0, 0.5f, 0, out_dtype=\"int8\")",
        inputs: &[&[3.0, 2147483647.0]],
        outputs: &[&[6.0, -2.0]],
    },
    // 1.65 / 0.3 is a little less than 5.5 in single precision, 1.65 times the reciprocal is 5.5.
    ByHand {
        parameters: "%x: Tensor[(2), float32]",
        body: "qnn.quantize(%x, 0.3f, 0, out_dtype=\"int8\")",
        inputs: &[&[1.65, -2.25]],
        outputs: &[&[6.0, -8.0]],
    },
    // −1 becomes the output's zero point 3, of which both halves are rounded up to 2.
    ByHand {
        parameters: "%x: Tensor[(2), int8]",
        body: "qnn.leaky_relu(%x, 1f, 0, 4f, 3, alpha=0.5f)",
        inputs: &[&[-1.0, 8.0]],
        outputs: &[&[4.0, 5.0]],
    },
    // Nothing is compared with NaN.
    ByHand {
        parameters: "%x: Tensor[(4), float32], %y: Tensor[(4), float32]",
        body: "not_equal(%x, %y)",
        inputs: &[&[1.0, f64::NAN, 2.0, f64::INFINITY], &[1.0, 1.0, 3.0, f64::NAN]],
        outputs: &[&[0.0, 0.0, 1.0, 0.0]],
    },
    // In half precision 0.3 is 0.300048828125, 33 times that is 9.9016…, rounded to 9.8984375.
    ByHand {
        parameters: "%x: Tensor[(2), float16], %y: Tensor[(2), float16]",
        body: "floor_mod(%x, %y)",
        inputs: &[&[100.0, 10.0], &[3.0, 0.3]],
        outputs: &[&[1.0, 0.1015625]],
    },
    // In single precision a third of 10¹⁰ is 3333333248, and three times that is 10¹⁰ again.
    ByHand {
        parameters: "%x: Tensor[(3), float32], %y: Tensor[(3), float32]",
        body: "%0 = trunc_mod(%x, %y); %1 = mod(%x, %y); (%0, %1)",
        inputs: &[&[-7.5, 7.0, 1e10], &[2.0, -3.0, 3.0]],
        outputs: &[&[-1.5, 1.0, 0.0], &[-1.5, 1.0, 1.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(1, 2, 0), float32]",
        body: "%0 = sum(%x, axis=[2]); %1 = (%x, %x); %2 = concatenate(%1); %3 = stack(%1, axis=0); (%0, %2, %3)",
        inputs: &[&[]],
        outputs: &[&[0.0, 0.0], &[], &[]],
    },
    // 100 steps are −143 of the logarithm to base 2 in halves; 20 halvings leave −103, and (−103 >> 1) + 2 is negative.
    ByHand {
        parameters: "%x: Tensor[(1, 2), int8]",
        body: "qnn.softmax(%x, 0.5f, 0, 0.0078125f, 0)",
        inputs: &[&[0.0, -100.0]],
        outputs: &[&[127.0, -1.0]],
    },
];

/// Operands of another type than the data they meet: scalars are cast to the type of the data, lengths, indices and
/// conditions may be of any type.
const MIXED: &[ByHand] = &[
    ByHand {
        parameters: "%i: Tensor[(2), int32], %v: Tensor[(2), float32], %d: int32",
        body: "sparse_to_dense(%i, %v, %d, output_shape=[4])",
        inputs: &[&[1.0, 3.0], &[0.5, -2.5], &[7.0]],
        outputs: &[&[7.0, 0.5, 7.0, -2.5]],
    },
    ByHand {
        parameters: "%x: Tensor[(4), float32], %v: int32",
        body: "nn.pad(%x, %v, pad_width=[[-1, 2]])",
        inputs: &[&[1.5, 2.5, 3.5, 4.5], &[7.0]],
        outputs: &[&[2.5, 3.5, 4.5, 7.0, 7.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(4), float32], %v: Tensor[(2), int32], %b: Tensor[(1), int32], %e: Tensor[(1), int32], %s: Tensor[(1), int32]",
        body: "strided_set(%x, %v, %b, %e, %s)",
        inputs: &[&[1.5, 2.5, 3.5, 4.5], &[7.0, 8.0], &[1.0], &[3.0], &[1.0]],
        outputs: &[&[1.5, 7.0, 8.0, 4.5]],
    },
    ByHand {
        parameters: "%i: Tensor[(2), int64], %v: Tensor[(2), int8], %d: float32",
        body: "sparse_to_dense(%i, %v, %d, output_shape=[3])",
        inputs: &[&[0.0, 2.0], &[5.0, -6.0], &[7.0]],
        outputs: &[&[5.0, 7.0, -6.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(2), int8], %v: float32",
        body: "nn.pad(%x, %v, pad_width=[[1, 0]])",
        inputs: &[&[1.0, 2.0], &[-3.0]],
        outputs: &[&[-3.0, 1.0, 2.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(3), float32], %v: Tensor[(1), float32], %b: Tensor[(1), int64], %e: Tensor[(1), int32], %s: Tensor[(1), int64]",
        body: "strided_set(%x, %v, %b, %e, %s)",
        inputs: &[&[1.5, 2.5, 3.5], &[9.0], &[1.0], &[2.0], &[1.0]],
        outputs: &[&[1.5, 9.0, 3.5]],
    },
    ByHand {
        parameters: "%i: Tensor[(2), int32], %on: int32, %off: int32",
        body: "one_hot(%i, %on, %off, depth=3, axis=-1, dtype=\"float32\")",
        inputs: &[&[0.0, 2.0], &[5.0], &[1.0]],
        outputs: &[&[5.0, 1.0, 1.0, 1.0, 1.0, 5.0]],
    },
    ByHand {
        parameters: "%i: Tensor[(1), uint8], %on: float32, %off: int64",
        body: "one_hot(%i, %on, %off, depth=2, axis=0, dtype=\"int8\")",
        inputs: &[&[1.0], &[3.0], &[-1.0]],
        outputs: &[&[-1.0, 3.0]],
    },
    ByHand {
        parameters: "%v: float32",
        body: "full(%v, shape=[2], dtype=\"int32\")",
        inputs: &[&[3.75]],
        outputs: &[&[3.0, 3.0]],
    },
    ByHand {
        parameters: "%v: int32",
        body: "full(%v, shape=[2], dtype=\"float16\")",
        inputs: &[&[3.0]],
        outputs: &[&[3.0, 3.0]],
    },
    ByHand {
        parameters: "%v: int32",
        body: "full(%v, shape=[2], dtype=\"bool\")",
        inputs: &[&[1.0]],
        outputs: &[&[1.0, 1.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(2), float32], %v: int32",
        body: "full_like(%x, %v)",
        inputs: &[&[0.0, 0.0], &[7.0]],
        outputs: &[&[7.0, 7.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(2), int8], %v: float32",
        body: "full_like(%x, %v)",
        inputs: &[&[0.0, 0.0], &[-7.5]],
        outputs: &[&[-7.0, -7.0]],
    },
    ByHand {
        parameters: "",
        body: "arange(0, 1.5f, 0.5f, dtype=\"float32\")",
        inputs: &[],
        outputs: &[&[0.0, 0.5, 1.0]],
    },
    ByHand { parameters: "", body: "arange(0f, 3, 1, dtype=\"int32\")", inputs: &[], outputs: &[&[0.0, 1.0, 2.0]] },
    ByHand {
        parameters: "%c: Tensor[(3), float32], %x: Tensor[(3), float32], %y: Tensor[(3), float32]",
        body: "where(%c, %x, %y)",
        inputs: &[&[0.0, 0.5, -1.0], &[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]],
        outputs: &[&[4.0, 2.0, 3.0]],
    },
    ByHand {
        parameters: "%c: Tensor[(2), int64], %x: int8, %y: Tensor[(2), int8]",
        body: "where(%c, %x, %y)",
        inputs: &[&[0.0, 256.0], &[1.0], &[4.0, 5.0]],
        outputs: &[&[4.0, 1.0]],
    },
    ByHand {
        parameters: "%c: Tensor[(2), uint8], %x: Tensor[(2), float16], %y: Tensor[(2), float16]",
        body: "where(%c, %x, %y)",
        inputs: &[&[0.0, 2.0], &[1.0, 2.0], &[4.0, 5.0]],
        outputs: &[&[4.0, 2.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(3), float32], %i: Tensor[(2), uint8]",
        body: "take(%x, %i, axis=0)",
        inputs: &[&[1.5, 2.5, 3.5], &[2.0, 0.0]],
        outputs: &[&[3.5, 1.5]],
    },
    ByHand {
        parameters: "%x: Tensor[(3), int8], %i: Tensor[(2), int64]",
        body: "take(%x, %i, axis=0, mode=\"wrap\")",
        inputs: &[&[1.0, 2.0, 3.0], &[-1.0, 4.0]],
        outputs: &[&[3.0, 2.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(3), float32], %i: Tensor[(1, 2), int64]",
        body: "gather_nd(%x, %i)",
        inputs: &[&[1.5, 2.5, 3.5], &[2.0, 0.0]],
        outputs: &[&[3.5, 1.5]],
    },
    ByHand {
        parameters: "%x: Tensor[(3), float32], %i: Tensor[(2), int64]",
        body: "gather(%x, %i, axis=0)",
        inputs: &[&[1.5, 2.5, 3.5], &[2.0, 0.0]],
        outputs: &[&[3.5, 1.5]],
    },
    ByHand {
        parameters: "%x: Tensor[(2, 2), float32], %n: Tensor[(2), float32]",
        body: "sequence_mask(%x, %n, mask_value=-1f, axis=0)",
        inputs: &[&[1.0, 2.0, 3.0, 4.0], &[1.0, 2.0]],
        outputs: &[&[1.0, 2.0, -1.0, 4.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(2, 2), int8], %n: Tensor[(2), int64]",
        body: "sequence_mask(%x, %n, mask_value=-2f, axis=0)",
        inputs: &[&[1.0, 2.0, 3.0, 4.0], &[1.0, 2.0]],
        outputs: &[&[1.0, 2.0, -2.0, 4.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(2, 2), float32], %n: Tensor[(2), int64]",
        body: "reverse_sequence(%x, %n, seq_axis=0, batch_axis=1)",
        inputs: &[&[1.0, 2.0, 3.0, 4.0], &[1.0, 2.0]],
        outputs: &[&[1.0, 4.0, 3.0, 2.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(2, 2), float32], %k: int64",
        body: "trilu(%x, %k, upper=True)",
        inputs: &[&[1.0, 2.0, 3.0, 4.0], &[1.0]],
        outputs: &[&[0.0, 2.0, 0.0, 0.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(3), int32]",
        body: "clip(%x, a_min=-1.5f, a_max=2f)",
        inputs: &[&[-7.0, 0.0, 7.0]],
        outputs: &[&[-1.0, 0.0, 2.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(3), uint8]",
        body: "clip(%x, a_min=-1f, a_max=300f)",
        inputs: &[&[0.0, 128.0, 255.0]],
        outputs: &[&[0.0, 128.0, 255.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(2), int8]",
        body: "nn.dilate(%x, strides=[2], dilation_value=3f)",
        inputs: &[&[1.0, 2.0]],
        outputs: &[&[1.0, 3.0, 2.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(1, 2, 1), int32]",
        body: "nn.space_to_batch_nd(%x, block_shape=[2], paddings=[[1, 1]], pad_value=2f)",
        inputs: &[&[5.0, 6.0]],
        outputs: &[&[2.0, 6.0, 5.0, 2.0]],
    },
    ByHand {
        parameters: "%i: Tensor[(2), int32], %s: Tensor[(2), int64]",
        body: "unravel_index(%i, %s)",
        inputs: &[&[1.0, 5.0], &[2.0, 3.0]],
        outputs: &[&[0.0, 1.0, 1.0, 2.0]],
    },
    ByHand {
        parameters: "%s: Tensor[(3), float32], %v: Tensor[(2), float32]",
        body: "searchsorted(%s, %v, dtype=\"int64\")",
        inputs: &[&[1.0, 2.0, 3.0], &[0.5, 2.5]],
        outputs: &[&[0.0, 2.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(2), int8]",
        body: "cumsum(%x, axis=0, dtype=\"int32\")",
        inputs: &[&[100.0, 100.0]],
        outputs: &[&[100.0, 200.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(2), float32], %y: Tensor[(2), int8]",
        body: "cast_like(%x, %y)",
        inputs: &[&[1.75, -2.75], &[0.0, 0.0]],
        outputs: &[&[1.0, -2.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(1, 2), float32], %t: Tensor[(1), int64], %w: Tensor[(2), float32]",
        body: "nn.nll_loss(%x, %t, %w)",
        inputs: &[&[0.5, 0.25], &[1.0], &[1.0, 1.0]],
        outputs: &[&[-0.25]],
    },
    ByHand {
        parameters: "%x: Tensor[(1, 2, 3), float32], %t: float32",
        body: "vision.get_valid_counts(%x, %t, id_index=0, score_index=1)",
        inputs: &[&[0.0, 0.25, 1.0, 0.0, 0.75, 2.0], &[0.5]],
        outputs: &[&[1.0], &[0.0, 0.75, 2.0, -1.0, -1.0, -1.0], &[1.0, -1.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(2, 1), int32], %v: Tensor[(2), float32], %n: Tensor[(1), int32], %d: int32",
        body: "sparse_fill_empty_rows(%x, %v, %n, %d)",
        inputs: &[&[0.0, 2.0], &[1.5, 2.5], &[3.0], &[7.0]],
        outputs: &[&[0.0, 1.0, 2.0], &[1.5, 7.0, 2.5], &[0.0, 1.0, 0.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(2), float32], %k: int64",
        body: "dyn.topk(%x, %k, axis=0, ret_type=\"values\")",
        inputs: &[&[1.0, 2.0], &[1.0]],
        outputs: &[&[2.0]],
    },
    ByHand { parameters: "", body: "arange(5i64, 8, 1, dtype=\"int32\")", inputs: &[], outputs: &[&[5.0, 6.0, 7.0]] },
    ByHand {
        parameters: "%x: Tensor[(1, 2), uint8], %w: Tensor[(2, 2), int8]",
        body: "nn.dense(%x, %w, units=2, out_dtype=\"int32\")",
        inputs: &[&[200.0, 3.0], &[1.0, -1.0, -2.0, 0.0]],
        outputs: &[&[197.0, -400.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(1, 1, 2), uint8], %w: Tensor[(1, 2, 2), int8]",
        body: "nn.batch_matmul(%x, %w, out_dtype=\"int32\", transpose_b=True)",
        inputs: &[&[200.0, 3.0], &[1.0, -1.0, -2.0, 0.0]],
        outputs: &[&[197.0, -400.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(1, 2, 1, 1), uint8], %w: Tensor[(1, 2, 1, 1), int8]",
        body: "nn.conv2d(%x, %w, channels=1, kernel_size=[1, 1], padding=[0, 0], out_dtype=\"int32\")",
        inputs: &[&[200.0, 3.0], &[-2.0, 1.0]],
        outputs: &[&[-397.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(1, 2, 1, 1), uint8], %w: Tensor[(2, 1, 1, 1), int8]",
        body: "nn.conv2d(%x, %w, channels=2, groups=2, kernel_size=[1, 1], padding=[0, 0], out_dtype=\"int32\")",
        inputs: &[&[200.0, 3.0], &[-2.0, 1.0]],
        outputs: &[&[-400.0, 3.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(1, 1, 2), uint8], %w: Tensor[(1, 1, 1), int8]",
        body: "nn.conv1d(%x, %w, channels=1, kernel_size=[1], out_dtype=\"int32\")",
        inputs: &[&[200.0, 3.0], &[-2.0]],
        outputs: &[&[-400.0, -6.0]],
    },
    ByHand {
        parameters: "%x: Tensor[(1, 1, 1, 1), uint8], %w: Tensor[(1, 1, 1, 2), int8]",
        body: "nn.conv2d_transpose(%x, %w, channels=1, kernel_size=[1, 2], out_dtype=\"int32\")",
        inputs: &[&[200.0], &[-2.0, 1.0]],
        outputs: &[&[-400.0, 200.0]],
    },
];

fn tensor(ty: &TensorType, values: &[f64]) -> TensorData {
    let bytes: Vec<u8> = match ty.dtype {
        DType::F32 => values.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect(),
        DType::F16 => values.iter().flat_map(|x| f16::from_f64(*x).to_le_bytes()).collect(),
        DType::Bf16 => values.iter().flat_map(|x| bf16::from_f64(*x).to_le_bytes()).collect(),
        DType::I32 => values.iter().flat_map(|x| (*x as i32).to_le_bytes()).collect(),
        DType::I8 => values.iter().flat_map(|x| (*x as i8).to_le_bytes()).collect(),
        DType::I64 => values.iter().flat_map(|x| (*x as i64).to_le_bytes()).collect(),
        DType::U8 => values.iter().map(|x| *x as u8).collect(),
        other => panic!("no example is of type {other}"),
    };
    TensorData::new(ty.dtype, ty.shape.fixed().unwrap().to_vec(), bytes).unwrap()
}

fn run(example: &ByHand) -> Result<Vec<Vec<f64>>, String> {
    let text = format!("#[version = \"0.0.5\"]\ndef @main({}) {{\n  {}\n}}\n", example.parameters, example.body);
    let import = import("by hand", text.as_bytes(), &ImportOptions::default()).map_err(|e| e.to_string())?;
    // An operand that the text does not use as data is still a parameter of the function, in its order.
    let given: BTreeMap<_, _> = {
        let named = import.graph.tensors().filter(|(_, t)| example.parameters.contains(&format!("%{}:", t.name)));
        let place = |name: &str| example.parameters.find(&format!("%{name}:"));
        let mut named: Vec<_> = named.map(|(id, t)| (place(&t.name), id, t.ty.clone())).collect();
        named.sort_by_key(|(place, ..)| *place);
        named.into_iter().zip(example.inputs).map(|((_, id, ty), values)| (id, tensor(&ty, values))).collect()
    };
    let engine = TractEngine::new(1).unwrap();
    let mut loaded = engine.load(&import.graph, &|id| Ok(given[&id].clone())).map_err(|e| e.to_string())?;
    let inputs: Vec<TensorData> = import.graph.inputs().map(|id| given[&id].clone()).collect();
    let outputs = loaded.run(&inputs).map_err(|e| e.to_string())?;
    Ok(outputs.iter().map(|tensor| tensor.to_f64s().unwrap()).collect())
}

/// Runs a table; every example must give its outputs.
fn check(examples: &[ByHand]) {
    let mut wrong = Vec::new();
    for example in examples {
        let close = |found: &[Vec<f64>]| {
            let same = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-5 * b.abs();
            found.len() == example.outputs.len()
                && found.iter().zip(example.outputs).all(|(a, b)| a.len() == b.len() && a.iter().zip(*b).all(same))
        };
        match run(example) {
            Ok(found) if close(&found) => {}
            Ok(found) => wrong.push(format!("{}: {found:?}, expected {:?}", example.body, example.outputs)),
            Err(why) => wrong.push(format!("{}: {why}", example.body)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn operators_give_what_was_worked_out_by_hand() {
    check(ALL);
}

#[test]
fn operands_may_have_other_types_than_the_data() {
    check(MIXED);
}
