"""Writes sharding/: the model of ort/ with shardings for two devices, and variants of it: wrong, impossible to
plan, or with duplicate names. Needs onnx; run in this folder after ort.py."""
import copy
import os

import onnx

SIZES = {"x": (1, 3, 32, 32), "w1": (8, 3, 3, 3), "c1": (1, 8, 32, 32), "r1": (1, 8, 32, 32), "f": (1, 8), "w3": (10, 8), "b3": (10,), "y": (1, 10)}


def sharding(stated, name, along=None, devices=(0, 1)):
    """A tensor sharded along an axis, or replicated."""
    spec = stated.sharding_spec.add(tensor_name=name)
    if along is None:
        spec.device.append(-1)
        spec.index_to_device_group_map.add(key=-1, value=devices)
    else:
        spec.device.extend(devices)
    for axis, size in enumerate(SIZES.get(name, ())):
        dim = spec.sharded_dim.add(axis=axis)
        dim.simple_sharding.add(dim_value=size, num_shards=len(devices) if axis == along else 1)


def good():
    model = onnx.load("ort/model.onnx")
    model.ir_version = 11
    model.configuration.add(name="two", num_devices=2, device=["a/cpu", "b/cpu"])
    # The channels of conv1, and of fc; all else on b.
    split = {
        "conv1": {"x": None, "w1": 0, "c1": 1},
        "relu1": {"c1": 1, "r1": 1},
        "fc": {"f": None, "w3": 0, "b3": 0, "y": 1},
    }
    stages = {"conv1": 0, "relu1": 0, "fc": 2}
    for node in model.graph.node:
        stated = node.device_configurations.add(configuration_id="two", pipeline_stage=stages.get(node.name, 1))
        for name in dict.fromkeys([*node.input, *node.output]):
            if node.name in split:
                sharding(stated, name, split[node.name][name])
            else:
                stated.sharding_spec.add(tensor_name=name, device=[1])
    onnx.checker.check_model(model, full_check=True)
    return model


def stated(model, node):
    return model.graph.node[node].device_configurations[0]


def axis(model):
    stated(model, 0).sharding_spec[1].sharded_dim[0].axis = 4


def shape(model):
    stated(model, 0).sharding_spec[1].sharded_dim[0].simple_sharding[0].dim_value = 16


def group(model):
    stated(model, 0).sharding_spec[0].index_to_device_group_map[0].value[1] = 2


def stage(model):
    stated(model, 3).pipeline_stage = 0


def configuration(model):
    stated(model, 7).configuration_id = "other"


def sums():
    """A product that is sharded along what it sums over, a softmax on both devices, and a product with sharded columns."""
    SIZES.update(a=(1, 64), b=(64, 32), p=(1, 32), q=(1, 32), c=(32, 64), r=(1, 64))
    weights = [onnx.helper.make_tensor(name, onnx.TensorProto.FLOAT, SIZES[name], [0.01] * 2048) for name in "bc"]
    nodes = [
        onnx.helper.make_node("MatMul", ["a", "b"], ["p"], "sum"),
        onnx.helper.make_node("Softmax", ["p"], ["q"], "softmax"),
        onnx.helper.make_node("MatMul", ["q", "c"], ["r"], "columns"),
    ]
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, SIZES[name]) for name in "ar"]
    graph = onnx.helper.make_graph(nodes, "sums", values[:1], values[1:], weights)
    model = onnx.helper.make_model(graph, ir_version=11, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.configuration.add(name="two", num_devices=2)
    shardings = [{"a": 1, "b": 0, "p": None}, {"p": None, "q": None}, {"q": None, "c": 1, "r": 1}]
    for node, along in zip(model.graph.node, shardings):
        stated = node.device_configurations.add(configuration_id="two")
        for name, axis in along.items():
            sharding(stated, name, axis)
    onnx.checker.check_model(model, full_check=True)
    return model


def fused(model):
    """Rows of conv1, and channels of the relu that it is fused with."""
    for spec, along in zip(stated(model, 0).sharding_spec, [2, None, 2]):
        del spec.sharded_dim[:], spec.device[:], spec.index_to_device_group_map[:]
        spec.device.extend([0, 1] if along else [-1])
        if along is None:
            spec.index_to_device_group_map.add(key=-1, value=[0, 1])
        else:
            spec.sharded_dim.add(axis=along).simple_sharding.add(num_shards=2)


def cuts(model):
    """Shares that end beyond the axis."""
    text = '{"axis":0,"cuts":[0,3,9],"devices":[0,1]}'
    model.graph.node[1].metadata_props.add(key="edgecut.split", value=text)


def replicas(model):
    """A product that could be split, on both devices."""
    for spec in stated(model, 7).sharding_spec:
        del spec.sharded_dim[:], spec.device[:], spec.index_to_device_group_map[:]
        spec.device.extend([0, 1])


def names(model):
    """Two nodes of one name, which differ in their results."""
    model.graph.node[0].name = model.graph.node[6].name = "layer"


os.makedirs("sharding", exist_ok=True)
base = good()
onnx.save(base, "sharding/good.onnx")
onnx.save(sums(), "sharding/sums.onnx")
for wrong in [axis, shape, group, stage, configuration, fused, cuts, replicas, names]:
    model = copy.deepcopy(base)
    wrong(model)
    onnx.save(model, f"sharding/{wrong.__name__}.onnx")
