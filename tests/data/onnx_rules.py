#!/usr/bin/env python3
"""onnx_rules.py: makes onnx_rules/*.onnx, one small model for each rule of ONNX at the edges of an operator, and what it must compute.

NAME.npz has the inputs (`in_NAME`) and the outputs (`out_0`, …); without outputs, the model must fail when it runs. Outputs come
from ONNX Runtime with its optimisations off, or, where that departs from the standard, from numpy here. Needs onnx==1.19.1,
onnxruntime and numpy; the same files each time.
"""
import os, shutil
import numpy as np, onnx, onnxruntime
from onnx import TensorProto, helper

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "onnx_rules")
nan, inf, most = np.float32("nan"), np.float32("inf"), np.finfo(np.float32).max
f = lambda *values: np.array(values, np.float32)
i = lambda *values: np.array(values, np.int64)
u8 = lambda *values: np.array(values, np.uint8)
odd = f(nan, inf, -inf, 1.5, -1.5, 0.0, -0.25, 300.0)
RULES = {}


def rule(name, op, inputs, attrs=None, opset=18, constants=None, want=None, fails=False, outputs=1, then=()):
    """`op` is an operator, of another domain than ONNX's with it (`com.microsoft.Gelu`). `inputs` are given when the model runs, in order; None is one that is absent, a name one of the `constants`. The operators
    `then` follow, with the names of their further operands."""
    RULES[name] = (op, inputs, attrs or {}, opset, constants or {}, want, fails, outputs, then)


def image(*shape):
    rng = np.random.default_rng(7)
    return rng.standard_normal(shape).astype(np.float32)


# NaN and infinities.
for op in "Relu LeakyRelu Elu Selu Celu Softplus Softsign HardSigmoid HardSwish Mish ThresholdedRelu Sigmoid Tanh Exp Sign Abs Round Ceil IsNaN".split():
    rule(f"nan_{op.lower()}", op, [odd])
rule("nan_max", "Max", [odd, f(0, 0, 0, nan, 2, nan, nan, 1)])
rule("nan_min", "Min", [odd, f(0, 0, 0, nan, 2, nan, nan, 1), f(nan, 1, 1, 1, 1, 1, 1, 1)])
rule("nan_clip", "Clip", [odd, "low", "high"], constants={"low": np.float32(-1), "high": np.float32(2)})
rule("nan_prelu", "PRelu", [odd, "slope"], constants={"slope": f(0.3)})
rule("nan_prelu_infinite_slope", "PRelu", [f(1, -1, 0), "slope"], constants={"slope": f(inf)}, want=[f(1, -inf, 0)])
holed = image(1, 4, 6, 6)
holed[0, 1, 2, 3], holed[0, 2, 4, 1] = nan, inf
bounds = {"low": np.float32(-0.5), "high": np.float32(0.5)}
rule("nan_conv_relu", "Conv", [holed, "w"], constants={"w": image(8, 4, 3, 3)}, then=[("Relu",)])
rule("nan_conv_clip", "Conv", [holed, "w"], constants={"w": image(8, 4, 1, 1), **bounds}, then=[("Clip", "low", "high")])
rule("nan_depthwise_clip", "Conv", [holed, "w"], {"group": 4, "pads": [1, 1, 1, 1]}, constants={"w": image(4, 1, 3, 3), **bounds}, then=[("Clip", "low", "high")])
rule("nan_matmul_relu", "MatMul", [holed.reshape(24, 6), "w"], constants={"w": image(6, 16)}, then=[("Relu",)])
rule("nan_add_relu", "Add", [holed, holed[:, :, ::-1].copy()], then=[("Relu",)])
rule("nan_cast_to_bool", "Cast", [odd], {"to": TensorProto.BOOL})
rule("nan_reduce_max", "ReduceMax", [odd.reshape(2, 4), "axes"], constants={"axes": i(1)}, want=[f(nan, 300).reshape(2, 1)])
rule("clip_without_bounds", "Clip", [odd], want=[f(nan, most, -most, 1.5, -1.5, 0, -0.25, 300)])
rule("clip_6_defaults", "Clip", [odd], opset=6, want=[f(nan, most, -most, 1.5, -1.5, 0, -0.25, 300)])
rule("clip_crossed_bounds", "Clip", [f(-5, 0, 5), "low", "high"], constants={"low": np.float32(2), "high": np.float32(1)}, want=[f(1, 1, 1)])
rule("clip_bounds_at_run_time", "Clip", [odd, None, np.array(1, np.float32)], want=[f(nan, 1, -most, 1, -1.5, 0, -0.25, 1)])
rule("round_halves", "Round", [f(0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997, 8388609.0)])
rule("argmax_of_infinities", "ArgMax", [f(-inf, -inf, -inf).reshape(1, 3)], {"axis": 1})
rule("max_pool_of_infinities", "MaxPool", [f(-inf, -inf, 1).reshape(1, 1, 3)], {"kernel_shape": [2]}, want=[f(-inf, 1).reshape(1, 1, 2)])

# Integers.
a, b = i(2**62 + 1, -(2**62) - 1, 2**53 + 1, -7, 7), i(3, 3, 1, 3, -3)
rule("int_div", "Div", [a, b], want=[(np.sign(a) * np.sign(b)) * (np.abs(a) // np.abs(b))])
rule("int_mod", "Mod", [a, b], want=[a - b * (a // b)])
rule("int_fmod", "Mod", [a, b], {"fmod": 1}, want=[np.fmod(a, b)])
rule("float_fmod", "Mod", [f(1e10, -7.5, 5, 5, nan), f(3, 2, inf, 0, 1)], {"fmod": 1}, want=[f(1, -1.5, 5, nan, nan)])
rule("int_pow", "Pow", [i(3, -3, 2, -1, 10), i(39, 39, 62, 2**33 + 1, 18)], want=[i(3**39, -(3**39), 2**62, -1, 10**18)])
rule("int_pow_of_another_type", "Pow", [np.array([7, -2], np.int32), i(11, 31)], want=[np.array([7**11, -(2**31)], np.int64).astype(np.int32)])
rule("int8_wraps", "Sub", [np.array([-128, 127], np.int8), np.array([1, -1], np.int8)], want=[np.array([127, -128], np.int8)])
rule("bit_shift_left", "BitShift", [u8(255, 255, 1, 7), u8(7, 8, 9, 200)], {"direction": "LEFT"}, want=[u8(128, 0, 0, 0)])
rule("bit_shift_right", "BitShift", [np.array([2**31, 5, 7], np.uint32), np.array([31, 32, 33], np.uint32)], {"direction": "RIGHT"}, want=[np.array([1, 0, 0], np.uint32)])
rule("constant_of_shape", "ConstantOfShape", ["shape"], {"value": onnx.numpy_helper.from_array(i(2**60 + 1))}, constants={"shape": i(2)}, want=[i(2**60 + 1, 2**60 + 1)])
rule("shrink_uint8", "Shrink", [u8(0, 1, 2, 200)], {"lambd": 1.5, "bias": 1.0})

# Nothing, and the limits of norms.
nothing = np.zeros((2, 0, 3), np.float32)
for op, value in (("ReduceMax", -inf), ("ReduceMin", inf), ("ReduceSum", 0), ("ReduceProd", 1), ("ReduceLogSumExp", -inf)):
    rule(f"nothing_{op.lower()}", op, [nothing, "axes"], {"keepdims": 0}, opset=20, constants={"axes": i(1)}, want=[np.full((2, 3), value, np.float32)])
rule("nothing_reducemax_of_int32", "ReduceMax", [nothing.astype(np.int32), "axes"], opset=20, constants={"axes": i(1)}, want=[np.full((2, 1, 3), -(2**31), np.int32)])
rule("log_sum_exp_limits", "ReduceLogSumExp", [f(-inf, -inf, inf, 1, 1000, 1000).reshape(3, 2), "axes"], {"keepdims": 0}, constants={"axes": i(1)})
rule("lp_norm_of_zero", "LpNormalization", [f(0, 0, 3, -4).reshape(2, 2)], {"axis": -1, "p": 2})
rule("l1_norm_of_zero", "LpNormalization", [f(0, 0, 3, -4).reshape(2, 2)], {"axis": 1, "p": 1})
rule("lp_pool_at_the_edge", "LpPool", [image(1, 1, 5)], {"kernel_shape": [3], "strides": [2], "pads": [1, 1], "ceil_mode": 1, "p": 2})
rule("topk_none", "TopK", [f(1, 3, 2), "k"], constants={"k": i(0)}, outputs=2)

# Indices.
table = image(5, 2)
rule("gather_negative", "Gather", [table, i(-1, 0, -5)])
rule("gather_beyond", "Gather", [table, i(0, 5)], fails=True)
rule("gather_before", "Gather", [table, i(-6)], fails=True)
rule("gather_scalar", "Gather", [table, "at"], {"axis": 1}, constants={"at": np.array(-1, np.int64)})
rule("gather_elements_negative", "GatherElements", [table, i(0, -1, -5, 4).reshape(2, 2)])
rule("gather_elements_beyond", "GatherElements", [table, i(0, 1, 2, 5).reshape(2, 2)], fails=True)
rule("gather_nd_negative", "GatherND", [table, i(-1, 0, 4, -2).reshape(2, 2)])
rule("gather_nd_beyond", "GatherND", [table, i(0, 2).reshape(1, 2)], fails=True)
rule("scatter_elements_negative", "ScatterElements", [table, i(-1, 0).reshape(1, 2), f(1, 2).reshape(1, 2)])
rule("scatter_nd_negative", "ScatterND", [table, i(-1).reshape(1, 1), f(1, 2).reshape(1, 2)])
rule("scatter_nd_beyond", "ScatterND", [table, i(5).reshape(1, 1), f(1, 2).reshape(1, 2)], fails=True)

# Slices.
line = f(0, 1, 2, 3, 4)
for name, (begin, end, step), want in (
    ("before_the_beginning", (-100, 3, 1), line[0:3]), ("backwards_from_before", (-100, -200, -1), line[:1]), ("backwards", (2**62, -(2**62), -2), line[::-2]),
    ("empty_backwards", (0, 4, -1), line[:0]), ("empty", (3, 1, 1), line[:0]), ("negative_end", (1, -1, 2), line[1:-1:2])):
    constants = {"begin": i(begin), "end": i(end), "axes": i(0), "step": i(step)}
    rule(f"slice_{name}", "Slice", [line, "begin", "end", "axes", "step"], constants=constants, want=[want])

# Windows.
for ceil in (0, 1):
    for padded in (0, 1):
        rule(f"average_pool_ceil{ceil}_padded{padded}", "AveragePool", [image(1, 1, 6, 7)], {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 1, 1], "ceil_mode": ceil, "count_include_pad": padded}, opset=19)
rule("average_pool_begins_in_padding", "AveragePool", [image(1, 1, 4)], {"kernel_shape": [1], "strides": [2], "pads": [0, 0], "ceil_mode": 1}, opset=11)
rule("max_pool_begins_in_padding", "MaxPool", [image(1, 2, 5, 5)], {"kernel_shape": [2, 2], "strides": [3, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1})
rule("max_pool_same_lower", "MaxPool", [image(1, 1, 5, 6)], {"kernel_shape": [2, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"})
rule("average_pool_dilated", "AveragePool", [image(1, 1, 7, 8)], {"kernel_shape": [2, 2], "dilations": [2, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}, opset=19)
kernel = image(2, 3, 3, 3)
for auto in ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"):
    for name, shape in (("larger", [8, 13]), ("smaller", [6, 10]), ("natural", None)):
        attrs = {"strides": [2, 3], "auto_pad": auto}
        rule(f"conv_transpose_{auto.lower()}_{name}", "ConvTranspose", [image(1, 2, 3, 4), "w"], {**attrs, "output_shape": shape} if shape else attrs, opset=11, constants={"w": kernel})
rule("conv_same_lower", "Conv", [image(1, 2, 7, 8), "w"], {"auto_pad": "SAME_LOWER", "strides": [2, 3]}, constants={"w": image(3, 2, 3, 2)})

# Interpolation by scales.
picture = image(1, 1, 4, 5)
for mode, coordinates, scales, nearest in (
    ("nearest", "half_pixel", (1.5, 1.7), "round_prefer_floor"), ("nearest", "half_pixel", (0.6, 1.3), "round_prefer_ceil"), ("nearest", "asymmetric", (2.6, 1.9), "floor"),
    ("nearest", "asymmetric", (0.7, 1.4), "ceil"), ("linear", "half_pixel", (1.3, 1.7), None), ("linear", "pytorch_half_pixel", (0.3, 2.3), None), ("linear", "align_corners", (1.6, 0.7), None),
    ("linear", "asymmetric", (1.4, 1.4), None), ("cubic", "half_pixel", (0.6, 1.7), None), ("cubic", "align_corners", (1.6, 1.2), None), ("linear", "half_pixel_symmetric", (0.6, 1.7), None)):
    name = f"resize_{mode}_{coordinates}" + (f"_{nearest}" if nearest else "")
    attrs = {"mode": mode, "coordinate_transformation_mode": coordinates, **({"nearest_mode": nearest} if nearest else {})}
    rule(name, "Resize", [picture, None, "scales"], attrs, opset=19, constants={"scales": f(1, 1, *scales)})
rule("resize_single_precision_size", "Resize", [image(1, 1, 5), None, "scales"], {"mode": "linear"}, constants={"scales": f(1, 1, 1.4)})
rule("resize_sizes", "Resize", [picture, None, None, "sizes"], {"mode": "nearest"}, constants={"sizes": i(1, 1, 7, 3)})
rule("resize_not_larger", "Resize", [picture, None, None, "sizes"], {"mode": "linear", "axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"}, constants={"sizes": i(7, 8)})
rule("resize_not_smaller", "Resize", [picture, None, None, "sizes"], {"mode": "nearest", "axes": [2, 3], "keep_aspect_ratio_policy": "not_smaller"}, constants={"sizes": i(7, 8)})
rule("resize_crop", "Resize", [picture, "roi", None, "sizes"], {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 10.0}, opset=13, constants={"roi": f(0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7), "sizes": i(1, 1, 3, 3)})
rule("resize_channels_last", "Resize", [image(1, 4, 5, 2), None, "scales"], {"mode": "linear"}, constants={"scales": f(1, 1.5, 1.7, 1)})
rule("resize_matrix", "Resize", [image(4, 5), None, "scales"], {"mode": "linear"}, constants={"scales": f(1.5, 1.7)})
rule("resize_10_nearest", "Resize", [image(1, 1, 5, 5), "scales"], {"mode": "nearest"}, opset=10, constants={"scales": f(1, 1, 0.6, 1.7)})
rule("resize_10_linear", "Resize", [image(1, 1, 5, 5), "scales"], {"mode": "linear"}, opset=10, constants={"scales": f(1, 1, 0.6, 1.7)})
rule("upsample_9_nearest", "Upsample", [image(1, 1, 3, 5), "scales"], {"mode": "nearest"}, opset=9, constants={"scales": f(1, 1, 1.7, 1.3)})
rule("upsample_9_linear", "Upsample", [image(1, 1, 3, 5), "scales"], {"mode": "linear"}, opset=9, constants={"scales": f(1, 1, 1.5, 2.5)})
rule("upsample_7_nearest", "Upsample", [image(1, 1, 3, 5)], {"mode": "nearest", "scales": [1.0, 1.0, 1.7, 1.3]}, opset=7)

# Slopes of every shape that broadcasts.
for name, shape in (("scalar", ()), ("one", (1, 1)), ("channels", (3, 1, 1)), ("last", (4,)), ("rows", (1, 3, 4, 1)), ("whole", (2, 3, 4, 4))):
    rule(f"prelu_{name}", "PRelu", [image(2, 3, 4, 4), "slope"], constants={"slope": image(*shape) if shape else np.float32(0.2)})

# Quantisation.
rule("dynamic_quantize_zeros", "DynamicQuantizeLinear", [f(0, 0, 0)], outputs=3)
rule("dynamic_quantize", "DynamicQuantizeLinear", [f(-1, 0.3, 2.5)], outputs=3)
rule("quantize_halves", "QuantizeLinear", [f(0.25, 0.75, 1.25, -0.25, 1000, -1000), "scale", "zero"], constants={"scale": np.float32(0.5), "zero": np.int8(3)})
x, w, xs, ws, ys = np.arange(32, dtype=np.uint8).reshape(1, 2, 4, 4) * 7, (np.arange(16) * 13 % 251).astype(np.uint8).reshape(2, 2, 2, 2), np.float32(0.05), f(0.02, 0.03), np.float32(0.7)
exact = np.zeros((1, 2, 3, 3))
for o, zero in enumerate((5, 90)):
    for y in range(3):
        for z in range(3):
            exact[0, o, y, z] = ((x[0, :, y:y + 2, z:z + 2].astype(np.int64) - 128) * (w[o].astype(np.int64) - zero)).sum()
scaled = exact * (np.float64(xs) * ws.reshape(1, 2, 1, 1)) / ys
rule("qlinear_conv_zero_points", "QLinearConv", [x, "xs", "xz", "w", "ws", "wz", "ys", "yz"], opset=13, want=[np.clip(np.rint(scaled) + 120, 0, 255).astype(np.uint8)],
     constants={"xs": xs, "xz": np.uint8(128), "w": w, "ws": ws, "wz": u8(5, 90), "ys": ys, "yz": np.uint8(120)})

# Composite quantised operators. `xs` and `xz` are the scale and zero point of data, `ws` and `wz` of weights or of the second operand, `ys` and `yz` of the result.
byte = lambda *shape: (np.arange(np.prod(shape)) * 37 % 251).astype(np.uint8).reshape(shape)
signed = lambda *shape: (np.arange(np.prod(shape)) * 29 % 200 - 100).astype(np.int8).reshape(shape)
quantised = {"xs": np.float32(0.017), "xz": np.uint8(121), "ys": np.float32(0.083), "yz": np.uint8(117), "ws": np.float32(0.0113), "wz": np.int8(0)}
q = lambda name, op, inputs, attrs=None, **constants: rule("qlinear_" + name, op, inputs, attrs, opset=13, constants={**{key: value for key, value in quantised.items() if any(isinstance(name, str) and name == key for name in inputs)}, **constants})
channels = np.linspace(0.004, 0.013, 6, dtype=np.float32)
q("conv", "QLinearConv", [byte(2, 4, 9, 6), "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], {"pads": [1, 1, 1, 1], "strides": [2, 1]},
  w=signed(6, 4, 3, 3), ws=channels, wz=np.zeros(6, np.int8), b=(np.arange(6) * 900 - 2000).astype(np.int32))
q("conv_of_groups", "QLinearConv", [byte(1, 4, 7, 5), "xs", "xz", "w", "ws", "wz", "ys", "yz"], {"group": 2, "auto_pad": "SAME_UPPER", "strides": [2, 1]}, w=signed(6, 2, 3, 3), ws=channels)
q("conv_depthwise", "QLinearConv", [byte(1, 6, 8, 5), "xs", "xz", "w", "ws", "wz", "ys", "yz"], {"group": 6, "pads": [2, 1, 0, 1]}, w=signed(6, 1, 3, 3))
q("matmul", "QLinearMatMul", [byte(5, 8), "xs", "xz", "w", "ws", "wz", "ys", "yz"], w=signed(8, 6), ws=channels, wz=np.zeros(6, np.int8))
q("matmul_of_batches", "QLinearMatMul", [byte(2, 3, 8), "xs", "xz", byte(2, 8, 6), "ws", "xz", "ys", "yz"])
q("gemm", "com.microsoft.QGemm", [byte(5, 8), "xs", "xz", "w", "ws", "wz", "b", "ys", "yz"], {"transB": 1, "alpha": 0.5}, w=signed(6, 8), ws=channels, wz=np.zeros(6, np.int8), b=(np.arange(6) * 90 - 200).astype(np.int32))
q("add", "com.microsoft.QLinearAdd", [byte(2, 3, 4), "xs", "xz", byte(3, 1), "ws", "xz", "ys", "yz"])
q("mul", "com.microsoft.QLinearMul", [byte(2, 3, 4), "xs", "xz", byte(2, 3, 4)[::-1].copy(), "ws", "xz", "ys", "yz"])
q("sigmoid", "com.microsoft.QLinearSigmoid", [byte(2, 3, 4), "xs", "xz", "rs", "rz"], rs=np.float32(0.0041), rz=np.uint8(3))
q("leaky_relu", "com.microsoft.QLinearLeakyRelu", [byte(2, 3, 4), "xs", "xz", "ys", "yz"], {"alpha": 0.3})
q("softmax", "com.microsoft.QLinearSoftmax", [byte(2, 3, 4), "xs", "xz", "rs", "rz"], {"axis": -1, "opset": 13}, rs=np.float32(1 / 256), rz=np.uint8(0))
q("average_pool", "com.microsoft.QLinearAveragePool", [byte(2, 3, 9, 6), "xs", "xz", "ys", "yz"], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 1]})
q("global_average_pool", "com.microsoft.QLinearGlobalAveragePool", [byte(2, 3, 5, 4), "xs", "xz", "ys", "yz"])
q("conv_nhwc", "com.microsoft.QLinearConv", [byte(2, 9, 6, 4), "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], {"channels_last": 1, "pads": [1, 1, 1, 1], "strides": [2, 1]},
  w=signed(6, 4, 3, 3), ws=channels, wz=np.zeros(6, np.int8), b=(np.arange(6) * 900 - 2000).astype(np.int32))
q("average_pool_nhwc", "com.microsoft.QLinearAveragePool", [byte(2, 9, 6, 3), "xs", "xz", "ys", "yz"], {"channels_last": 1, "kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 1]})
q("global_average_pool_nhwc", "com.microsoft.QLinearGlobalAveragePool", [byte(2, 5, 4, 3), "xs", "xz", "ys", "yz"], {"channels_last": 1})
rule("ms_max_pool_nhwc", "com.microsoft.NhwcMaxPool", [byte(2, 9, 6, 3)], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 1]})
q("concat", "com.microsoft.QLinearConcat", ["ys", "yz", byte(2, 3, 4), "xs", "xz", byte(2, 2, 4), "ws", "xz"], {"axis": 1})

# Meanings of older operator sets.
rule("softmax_11", "Softmax", [image(2, 3, 4)], opset=11)
rule("hardmax_11", "Hardmax", [image(2, 3, 4)], opset=11)
rule("dropout_7_mask", "Dropout", [f(1, 2)], opset=7, want=[f(1, 2), f(1, 1)], outputs=2)
rule("range_int64", "Range", ["start", "limit", "delta"], constants={"start": np.array(2**60 + 1, np.int64), "limit": np.array(2**60 - 6, np.int64), "delta": np.array(-3, np.int64)})

# Sequences, and random numbers by their seeds: those that ONNX Runtime draws with GNU's C++ library.
rule("reverse_sequence_time_first", "ReverseSequence", [image(4, 3, 2), i(4, 1, 3)])
rule("reverse_sequence_batch_first", "ReverseSequence", [image(3, 4, 2), i(2, 4, 3)], {"time_axis": 1, "batch_axis": 0})
rule("random_normal_like", "RandomNormalLike", [image(3, 5)], {"seed": 7.0, "mean": 1.0, "scale": 2.0})
rule("random_normal_like_double", "RandomNormalLike", [image(3, 5)], {"seed": 11.0, "dtype": TensorProto.DOUBLE})
rule("random_uniform_like", "RandomUniformLike", [image(3, 5)], {"seed": 3e9, "low": -1.0, "high": 3.0})
rule("random_normal", "RandomNormal", [], {"seed": 7.0, "shape": [2, 3]})
rule("random_uniform", "RandomUniform", [], {"seed": 0.0, "shape": [7]})
rule("bernoulli", "Bernoulli", [f(0.0, 0.1, 0.5, 0.9, 1.0, 0.5, 0.5)], {"seed": 3.0}, opset=15)
# ONNX Runtime's own operators, which stay one operator each.
rows, scale, shift = image(2, 5, 16), image(16), image(17)[1:]
ms = lambda name, op, inputs, attrs=None, **more: rule("ms_" + name, "com.microsoft." + op, inputs, attrs, **more)
ms("bias_gelu", "BiasGelu", [rows, "b"], constants={"b": scale})
ms("fast_gelu", "FastGelu", [rows, "b"], constants={"b": scale})
ms("quick_gelu", "QuickGelu", [rows])
ms("skip_layer_norm", "SkipLayerNormalization", [rows, rows[::-1].copy(), "g", "b"], {"epsilon": 1e-5}, constants={"g": scale, "b": shift})
ms("skip_layer_norm_without_shift", "SkipLayerNormalization", [rows, rows[0], "g"], constants={"g": scale})
ms("skip_rms_norm", "SkipSimplifiedLayerNormalization", [rows, rows[::-1].copy(), "g"], constants={"g": scale})
rule("rms_norm_of_onnx_runtime", "SimplifiedLayerNormalization", [rows, "g"], constants={"g": scale})
words, mask = np.arange(10, dtype=np.int32).reshape(2, 5) % 7, np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.int32)
ms("embed_layer_norm", "EmbedLayerNormalization", [words, words % 2, "words", "places", "segments", "g", "b", mask], outputs=2,
   constants={"words": image(7, 16), "places": image(8, 16), "segments": image(2, 16), "g": scale, "b": shift})
plane, weights = image(1, 3, 6, 6), {"w": image(4, 3, 3, 3), "b": image(4)}
ms("fused_conv_relu", "FusedConv", [plane, "w", "b"], {"activation": "Relu", "pads": [1, 1, 1, 1]}, constants=weights)
ms("fused_conv_clip_sum", "FusedConv", [plane, "w", "b", image(1, 4, 4, 4)], {"activation": "Clip", "activation_params": [-0.1, 0.3]}, constants=weights)
ms("fused_gemm", "FusedGemm", [image(3, 8), "w", "b"], {"transB": 1, "activation": "LeakyRelu", "activation_alpha": 0.3}, constants={"w": image(6, 8), "b": image(6)})
ms("fused_matmul", "FusedMatMul", [image(2, 3, 5), image(2, 4, 5)], {"transB": 1, "alpha": 0.25})
ms("fused_matmul_of_batches", "FusedMatMul", [image(4, 2, 5), image(2, 5, 6)], {"transBatchA": 1})
packed, block_scales = (np.arange(6 * 2 * 16) * 37 % 256).astype(np.uint8).reshape(6, 2, 16), np.linspace(0.01, 0.1, 12, dtype=np.float32).reshape(6, 2)
ms("matmul_of_4_bits", "MatMulNBits", [image(3, 64), "w", "s"], {"K": 64, "N": 6, "bits": 4, "block_size": 32}, constants={"w": packed, "s": block_scales})
ms("matmul_of_4_bits_with_zero_points", "MatMulNBits", [image(3, 56), "w", "s", "z"], {"K": 56, "N": 6, "bits": 4, "block_size": 32},
   constants={"w": packed, "s": block_scales, "z": u8(1, 2, 0x53, 0x98, 0xff, 0x70).reshape(6, 1)})
ms("matmul_of_4_bits_with_flat_zero_points", "MatMulNBits", [image(2, 3, 80), "w", "s", "z", None, "b"], {"K": 80, "N": 4, "bits": 4, "block_size": 32},
   constants={"w": packed.reshape(4, 3, 16), "s": block_scales.reshape(12), "z": u8(0x53, 7, 0x98, 8, 0xff, 1, 0x70, 9), "b": image(4)})
ms("matmul_of_8_bits", "MatMulNBits", [image(3, 32), "w", "s", "z"], {"K": 32, "N": 6, "bits": 8, "block_size": 16}, constants={"w": packed, "s": block_scales, "z": (np.arange(12) * 9).astype(np.uint8).reshape(6, 2)})
# From accuracy level 4 on, data are rounded to 8 bits, block by block.
rounded, at_4 = np.concatenate([image(3, 56), np.zeros((1, 56), np.float32)]), {"N": 6, "accuracy_level": 4}
ms("matmul_of_4_bits_at_level_4", "MatMulNBits", [rounded, "w", "s", "z", None, "b"], {**at_4, "K": 56, "bits": 4, "block_size": 32},
   constants={"w": packed, "s": block_scales, "z": u8(1, 2, 0x53, 0x98, 0xff, 0x70).reshape(6, 1), "b": image(6)})
ms("matmul_of_blocks_at_level_4", "MatMulNBits", [image(1, 64), "w", "s"], {**at_4, "K": 64, "bits": 4, "block_size": 32}, constants={"w": packed, "s": block_scales})
ms("matmul_of_one_block_at_level_4", "MatMulNBits", [image(2, 3, 32), "w", "s"], {**at_4, "K": 32, "bits": 8, "block_size": 32}, constants={"w": packed.reshape(6, 1, 32), "s": block_scales[:, :1]})
ms("matmul_of_large_blocks_at_level_4", "MatMulNBits", [image(2, 700), "w", "s"], {**at_4, "K": 700, "bits": 8, "block_size": 512},
   constants={"w": (np.arange(6 * 2 * 512) * 37 % 256).astype(np.uint8).reshape(6, 2, 512), "s": block_scales})
for block in (16, 32):
    ms(f"matmul_of_2_bits_and_blocks_of_{block}_at_level_4", "MatMulNBits", [image(3, 128), "w", "s"], {**at_4, "K": 128, "bits": 2, "block_size": block},
       constants={"w": packed.reshape(6, 128 // block, block // 4), "s": np.linspace(0.01, 0.1, 6 * 128 // block, dtype=np.float32).reshape(6, -1)})
projection = {"w": image(16, 48), "b": image(48)}
ms("attention_of_lengths", "Attention", [rows, "w", "b", np.array([5, 3], np.int32)], {"num_heads": 4}, constants=projection)
ms("attention_with_past", "Attention", [rows, "w", "b", None, image(2, 2, 4, 3, 4)], {"num_heads": 4, "unidirectional": 1}, constants=projection, outputs=2)
ms("multi_head_attention", "MultiHeadAttention", [rows, image(2, 5, 16), rows * 2, "b", mask], {"num_heads": 4}, constants={"b": image(48)})
ms("multi_head_attention_with_past", "MultiHeadAttention", [rows, rows * 2, image(2, 5, 16), None, None, image(1, 4, 5, 8), image(2, 4, 3, 4), image(2, 4, 3, 4)], {"num_heads": 4}, outputs=3)
turns = np.arange(16, dtype=np.float32)[:, None] * f(1, 0.5, 0.25, 0.1)
tables = {"cos": np.cos(turns), "sin": np.sin(turns)}
ms("rotary_embedding", "RotaryEmbedding", [image(2, 5, 32), (np.arange(10) * 3 % 16).reshape(2, 5), "cos", "sin"], constants=tables)
ms("rotary_embedding_from_one_position", "RotaryEmbedding", [image(2, 4, 5, 8), i(3), "cos", "sin"], {"interleaved": 1}, constants=tables)
grouped = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}
turns = np.arange(16, dtype=np.float32)[:, None] * np.linspace(1, 0.1, 8, dtype=np.float32)
tables = {"cos": np.cos(turns), "sin": np.sin(turns)}
ms("grouped_attention_of_a_prompt", "GroupQueryAttention", [image(2, 5, 64), image(2, 5, 32), image(2, 5, 32), None, None, np.array([4, 4], np.int32), "total", "cos", "sin"], grouped,
   constants={"total": np.array(5, np.int32), **tables}, outputs=3)
ms("grouped_attention_of_a_step", "GroupQueryAttention", [image(2, 1, 128), None, None, image(2, 2, 6, 16), image(2, 2, 6, 16), np.array([6, 6], np.int32), "total", "cos", "sin"], grouped,
   constants={"total": np.array(7, np.int32), **tables}, outputs=3)
ms("grouped_attention_of_a_packed_projection", "GroupQueryAttention", [image(1, 2, 320), None, None, image(1, 4, 8, 16), image(1, 4, 8, 16), np.array([5], np.int32), "total", "cos", "sin"],
   {**grouped, "num_heads": 12, "kv_num_heads": 4}, constants={"total": np.array(6, np.int32), **tables}, outputs=3)
ms("grouped_attention_of_separate_projections", "GroupQueryAttention", [image(1, 2, 192), image(1, 2, 64), image(1, 2, 64), image(1, 4, 8, 16), image(1, 4, 8, 16), np.array([5], np.int32), "total", "cos", "sin"],
   {**grouped, "num_heads": 12, "kv_num_heads": 4}, constants={"total": np.array(6, np.int32), **tables}, outputs=3)
for name, more in {"a_window": {"local_window_size": 3}, "a_softcap": {"softcap": 0.5, "scale": 0.3}, "interleaved_angles": {"rotary_interleaved": 1}, "no_angles": {"do_rotary": 0}}.items():
    ms(f"grouped_attention_with_{name}", "GroupQueryAttention", [image(1, 3, 128), None, None, image(1, 2, 8, 16), image(1, 2, 8, 16), np.array([6], np.int32), "total", *([] if "do_rotary" in more else ["cos", "sin"])],
       {**grouped, **more}, constants={"total": np.array(7, np.int32), **({} if "do_rotary" in more else tables)}, outputs=3)
ms("matmul_of_many_rows_at_level_4", "MatMulNBits", [image(18, 64), "w", "s"], {**at_4, "K": 64, "bits": 4, "block_size": 32}, constants={"w": packed, "s": block_scales})
ms("matmul_of_many_rows_and_partial_blocks", "MatMulNBits", [image(17, 56), "w", "s", "z"], {"K": 56, "N": 6, "bits": 4, "block_size": 32},
   constants={"w": packed, "s": block_scales, "z": u8(1, 2, 0x53, 0x98, 0xff, 0x70).reshape(6, 1)})
ms("grouped_attention_of_unequal_lengths", "GroupQueryAttention", [image(2, 1, 128), None, None, image(2, 2, 6, 16), image(2, 2, 6, 16), np.array([6, 4], np.int32), "total", "cos", "sin"], grouped,
   constants={"total": np.array(7, np.int32), **tables}, outputs=3)
ms("matmul_of_many_rows", "MatMulNBits", [image(19, 32), "w", "s", "z"], {"K": 32, "N": 6, "bits": 8, "block_size": 16}, constants={"w": packed, "s": block_scales, "z": (np.arange(12) * 9).astype(np.uint8).reshape(6, 2)})

# Operators that the graph composes, by the newest operator sets.
rule("gelu", "Gelu", [rows], opset=20)
rule("gelu_by_tanh", "Gelu", [rows], {"approximate": "tanh"}, opset=20)
rule("swish", "Swish", [rows], {"alpha": 0.5}, opset=24)
rule("layer_norm_of_two_axes", "LayerNormalization", [image(2, 3, 4, 5), "g", "b"], {"axis": 2}, constants={"g": image(4, 5), "b": image(4, 5)}, outputs=3)
rule("group_norm", "GroupNormalization", [image(2, 4, 3, 3), "g", "b"], {"num_groups": 2}, opset=21, constants={"g": image(4), "b": image(4)})
rule("rms_norm", "RMSNormalization", [rows, "g"], opset=23, constants={"g": scale})
rule("mean_variance_norm", "MeanVarianceNormalization", [image(2, 4, 3, 3)])
rule("attention_of_heads", "Attention", [image(1, 4, 5, 4), image(1, 4, 6, 4), image(1, 4, 6, 4), image(5, 6)], opset=23)
rule("attention_of_channels", "Attention", [rows, image(2, 6, 8), image(2, 6, 8)], {"q_num_heads": 4, "kv_num_heads": 2, "is_causal": 1}, opset=23)
rule("attention_of_channels_and_a_mask", "Attention", [rows[:1].copy(), image(1, 6, 16), image(1, 6, 16), image(1, 4, 5, 6)], {"q_num_heads": 4, "kv_num_heads": 4}, opset=23)
rule("rotary_embedding_of_equal_tables", "RotaryEmbedding", [image(2, 4, 5, 4), "cos", "sin", i(*range(5), *range(5)).reshape(2, 5)], opset=23, constants={"cos": image(8, 2), "sin": image(8, 2)})
rule("rotary_embedding", "RotaryEmbedding", [image(2, 4, 5, 4), "cos", "sin", i(*range(5), *range(5)).reshape(2, 5)], opset=23, constants={"cos": image(8, 2), "sin": image(8, 2)[::-1].copy()})
blocks = {"axis": 1, "block_size": 3}
rule("dequantize_blocks", "DequantizeLinear", [np.arange(16, dtype=np.uint8).reshape(2, 8), "s", "z"], blocks, opset=21,
     constants={"s": abs(image(2, 3)), "z": np.arange(6, dtype=np.uint8).reshape(2, 3)})
rule("quantize_blocks", "QuantizeLinear", [image(2, 8), "s", "z"], blocks, opset=21, constants={"s": abs(image(2, 3)), "z": np.arange(6, dtype=np.uint8).reshape(2, 3)})
q, k, v = image(2, 4, 5, 8), image(2, 4, 5, 8), image(2, 4, 5, 8)
padding = np.array([1, 1, 1, 1, 0, 1, 1, 0, 0, 0], bool).reshape(2, 1, 1, 5)
scores = np.where(padding, (q @ k.transpose(0, 1, 3, 2)) / np.sqrt(np.float32(8)), -inf)
weights = np.exp(scores - scores.max(-1, keepdims=True))
rule("attention_of_a_padding_mask", "Attention", [q, k, v, padding], opset=23, want=[(weights / weights.sum(-1, keepdims=True)) @ v])
rule("matmul_of_rank_13", "MatMul", [np.arange(24, dtype=np.int32).reshape([1] * 10 + [2, 3, 4]), "w"], constants={"w": np.arange(20, dtype=np.int32).reshape(4, 5)})
rule("layer_norm_statistics_of_halves", "LayerNormalization", [image(2, 3, 4).astype(np.float16), "g"], {"axis": 1}, constants={"g": image(3, 4).astype(np.float16)}, outputs=3)
rule("matmul_of_rank_3", "MatMul", [rows, "w"], constants={"w": image(16, 6)})
rule("gemm_transposed", "Gemm", [image(16, 5), "w", "b"], {"transA": 1}, constants={"w": image(16, 6), "b": image(6)})


def model(op, inputs, attrs, opset, constants, outputs, then):
    given = [(f"x{at}", value) for at, value in enumerate(inputs) if isinstance(value, np.ndarray)]
    names = ["" if value is None else value if isinstance(value, str) else f"x{at}" for at, value in enumerate(inputs)]
    info = lambda name, value: helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
    results = [f"y{at}" for at in range(outputs)]
    domain, _, kind = op.rpartition(".")
    nodes = [helper.make_node(kind, names, results if not then else ["t"], domain=domain or None, **attrs)]
    for at, (kind, *others) in enumerate(then):
        nodes.append(helper.make_node(kind, ["t" + "t" * at, *others], ["tt" + "t" * at] if at + 1 < len(then) else results))
    graph = helper.make_graph(nodes, "rule", [info(*pair) for pair in given], [onnx.ValueInfoProto(name=name) for name in results],
                              [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else []), ir_version=8, producer_name="onnx_rules.py"), dict(given)


def computed(made, given):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(made.SerializeToString(), options).run(None, given)


if __name__ == "__main__":
    shutil.rmtree(HERE, ignore_errors=True)
    os.makedirs(HERE)
    for name, (op, inputs, attrs, opset, constants, want, fails, outputs, then) in RULES.items():
        made, given = model(op, inputs, attrs, opset, constants, outputs, then)
        want = [] if fails else want if want is not None else computed(made, given)
        for value, result in zip(made.graph.output, want):
            value.CopyFrom(helper.make_tensor_value_info(value.name, helper.np_dtype_to_tensor_dtype(result.dtype), result.shape))
        if fails:
            for value in made.graph.output:
                value.CopyFrom(helper.make_tensor_value_info(value.name, TensorProto.FLOAT, None))
        open(os.path.join(HERE, name + ".onnx"), "wb").write(made.SerializeToString())
        np.savez(os.path.join(HERE, name + ".npz"), **{"in_" + key: value for key, value in given.items()}, **{f"out_{at}": np.asarray(value) for at, value in enumerate(want)})
    print(len(RULES), "rules")
