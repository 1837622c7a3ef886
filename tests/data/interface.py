"""Writes interface/*.onnx: small models whose inputs, defaults and outputs are what matters. Needs numpy and onnx; run in this folder."""
import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper

random = np.random.default_rng(7)
value = h.make_tensor_value_info


def save(name, nodes, inputs, outputs, initializers=(), sets=(), is_valid=True):
    weights = [numpy_helper.from_array(array, key) for key, array in initializers]
    graph = h.make_graph(nodes, name, inputs, outputs, weights)
    model = h.make_model(graph, ir_version=8, opset_imports=[h.make_opsetid("", 13), *sets])
    if is_valid:
        onnx.checker.check_model(model)
    onnx.save(model, f"interface/{name}.onnx")


def weights(*dims):
    return (random.standard_normal(dims) / np.sqrt(np.prod(dims[1:]))).astype("f4")


# Convolutions that are worth splitting.
nodes, at = [], "image"
for k in range(4):
    nodes += [h.make_node("Conv", [at, f"w{k}"], [f"c{k}"], pads=[1] * 4), h.make_node("Relu", [f"c{k}"], [f"r{k}"])]
    at = f"r{k}"
save("convolutions", nodes, [value("image", T.FLOAT, [1, 16, 48, 48])], [value(at, T.FLOAT, [1, 16, 48, 48])],
     [(f"w{k}", weights(16, 16, 3, 3)) for k in range(4)])

# Inputs by every name and use that looks like a weight's.
save("operands", [h.make_node("MatMul", ["x", "weight"], ["p"]), h.make_node("Mul", ["p", "scale"], ["s"]), h.make_node("Add", ["s", "bias"], ["y"])],
     [value("x", T.FLOAT, [4, 8]), value("weight", T.FLOAT, [8, 3]), value("scale", T.FLOAT, [1]), value("bias", T.FLOAT, [3])], [value("y", T.FLOAT, [4, 3])])

# An initializer with the name of an input is a default.
save("default", [h.make_node("Mul", ["x", "gain"], ["m"]), h.make_node("Add", ["m", "shift"], ["y"])],
     [value("x", T.FLOAT, [3]), value("gain", T.FLOAT, [1]), value("shift", T.FLOAT, [3])], [value("y", T.FLOAT, [3])],
     [("gain", np.float32([2])), ("shift", np.zeros(3, "f4"))])

# Sizes and branches that contents decide.
then = h.make_graph([h.make_node("Relu", ["x"], ["t"])], "then", [], [value("t", T.FLOAT, [2, 6])])
other = h.make_graph([h.make_node("Neg", ["x"], ["n"]), h.make_node("Exp", ["n"], ["e"])], "else", [], [value("e", T.FLOAT, [2, 6])])
save("decided", [h.make_node("If", ["condition"], ["b"], then_branch=then, else_branch=other), h.make_node("Reshape", ["b", "shape"], ["y"])],
     [value("x", T.FLOAT, [2, 6]), value("condition", T.BOOL, []), value("shape", T.INT64, [2])], [value("y", T.FLOAT, ["a", "b"])])

# Outputs that are an input, a constant, or another output; an input that nothing reads; indices.
save("outputs", [h.make_node("Identity", ["x"], ["same"]), h.make_node("Relu", ["x"], ["score"]), h.make_node("Identity", ["score"], ["again"]),
                 h.make_node("Size", ["x"], ["count"]), h.make_node("Gather", ["table", "at"], ["rows"])],
     [value("x", T.FLOAT, [2, 3]), value("unused", T.INT32, [4]), value("at", T.INT64, [5])],
     [value("same", T.FLOAT, [2, 3]), value("x", T.FLOAT, [2, 3]), value("score", T.FLOAT, [2, 3]), value("again", T.FLOAT, [2, 3]),
      value("count", T.INT64, []), value("table", T.FLOAT, [3, 2]), value("rows", T.FLOAT, [5, 2])],
     [("table", weights(3, 2))])

# Unsorted nodes, which ONNX Runtime sorts: in the graph, in a body, and read by a body. A cycle has no order.
body = h.make_graph([h.make_node("Neg", ["p"], ["q"]), h.make_node("Exp", ["a"], ["p"])], "body", [], [value("q", T.FLOAT, [2, 3])])
save("shuffled", [h.make_node("Add", ["b", "c"], ["y"]), h.make_node("If", ["yes"], ["c"], then_branch=body, else_branch=body),
                  h.make_node("Tanh", ["a"], ["b"]), h.make_node("Relu", ["x"], ["a"])],
     [value("x", T.FLOAT, [2, 3])], [value("y", T.FLOAT, [2, 3])], [("yes", np.array(True))], is_valid=False)
save("cycle", [h.make_node("Exp", ["b"], ["y"]), h.make_node("Tanh", ["a"], ["b"], "turns"), h.make_node("Add", ["x", "b"], ["a"])],
     [value("x", T.FLOAT, [2, 3])], [value("y", T.FLOAT, [2, 3])], is_valid=False)

# An operator without an equivalent in the graph, whose type the file does not state.
save("untyped", [h.make_node("Inverse", ["x"], ["inverse"], "upside_down", domain="com.microsoft"), h.make_node("Relu", ["inverse"], ["y"])],
     [value("x", T.FLOAT, [2, 3, 3])], [value("y", T.FLOAT, ["a", "b", "c"])], sets=[h.make_opsetid("com.microsoft", 1)])

# Sizes that the file leaves open.
save("open", [h.make_node("Gather", ["table", "ids"], ["rows"]), h.make_node("Flatten", ["rows"], ["words"]), h.make_node("GlobalAveragePool", ["image"], ["p"]),
              h.make_node("Flatten", ["p"], ["colours"]), h.make_node("Concat", ["words", "colours"], ["y"], axis=1)],
     [value("ids", T.INT64, ["batch", "sequence"]), value("image", T.FLOAT, ["batch", 3, None, None])], [value("y", T.FLOAT, ["batch", "all"])], [("table", weights(5, 4))])

# Random numbers without a seed.
save("noise", [h.make_node("RandomNormalLike", ["x"], ["noise"]), h.make_node("RandomUniformLike", ["x"], ["more"], high=0.5),
               h.make_node("Add", ["noise", "more"], ["all"]), h.make_node("Add", ["x", "all"], ["y"])],
     [value("x", T.FLOAT, [4, 8])], [value("y", T.FLOAT, [4, 8])])
