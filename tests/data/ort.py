"""Writes ort/: a small model, and what sessions of ONNX Runtime write of it. Needs numpy, onnx and onnxruntime; run in this folder."""
import os

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto as T, helper as h, numpy_helper

random = np.random.default_rng(5)
RUNS = 3


def model(path):
    sizes = {"w1": (8, 3, 3, 3), "w2": (8, 8, 3, 3), "w3": (10, 8), "b3": (10,)}
    weights = [numpy_helper.from_array(random.standard_normal(size).astype("f4"), name) for name, size in sizes.items()]
    nodes = [
        h.make_node("Conv", ["x", "w1"], ["c1"], "conv1", pads=[1] * 4),
        h.make_node("Relu", ["c1"], ["r1"], "relu1"),
        h.make_node("Conv", ["r1", "w2"], ["c2"], "conv2", pads=[1] * 4),
        h.make_node("Add", ["c2", "r1"], ["a"], "add"),
        h.make_node("Relu", ["a"], ["r2"]),  # without a name
        h.make_node("GlobalAveragePool", ["r2"], ["g"], "pool"),
        h.make_node("Flatten", ["g"], ["f"], "flat"),
        h.make_node("Gemm", ["f", "w3", "b3"], ["y"], "fc", transB=1),
    ]
    inputs, outputs = [h.make_tensor_value_info("x", T.FLOAT, [1, 3, 32, 32])], [h.make_tensor_value_info("y", T.FLOAT, [1, 10])]
    made = h.make_model(h.make_graph(nodes, "ort", inputs, outputs, weights), ir_version=8, opset_imports=[h.make_opsetid("", 17)])
    onnx.checker.check_model(made)
    onnx.save(made, path)


def session(path, is_optimised, memory=None, profile=None):
    options = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if is_optimised else level.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.enable_mem_pattern = memory is None
    if memory:
        options.add_session_config_entry("session.collect_node_memory_stats_to_file", os.path.abspath(memory))
    options.enable_profiling = profile is not None
    run = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    for _ in range(RUNS):
        run.run(None, {"x": np.ones((1, 3, 32, 32), "f4")})
    if profile:
        os.replace(run.end_profiling(), profile)


os.makedirs("ort", exist_ok=True)
model("ort/model.onnx")
session("ort/model.onnx", True, profile="ort/profile.json")
session("ort/model.onnx", True, memory="ort/memory.csv")
session("ort/model.onnx", False, memory="ort/memory-unoptimised.csv")
