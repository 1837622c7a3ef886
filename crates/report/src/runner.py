#!/usr/bin/env python3
"""Runs the parts of a plan, exported by edgecut, one after the other with ONNX Runtime.

runner.py [--inputs IN.npz] [--outputs OUT.npz] [--threads N]

IN.npz holds an array `in_NAME` for each input; what it lacks is generated from the input's name, as edgecut generates it.
OUT.npz gets the outputs as `out_0`, `out_1`, .... Needs onnxruntime and numpy.
"""
import argparse
import json
import os
import zlib

import numpy as np
import onnxruntime as ort

TYPES = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16, "tensor(bool)": np.bool_,
    "tensor(int8)": np.int8, "tensor(int16)": np.int16, "tensor(int32)": np.int32, "tensor(int64)": np.int64,
    "tensor(uint8)": np.uint8, "tensor(uint16)": np.uint16, "tensor(uint32)": np.uint32, "tensor(uint64)": np.uint64,
}


def generated(name, shape, dtype):
    """Content that depends only on the name: pseudo-random numbers, small enough to stay finite in deep networks."""
    index = np.arange(int(np.prod(shape)), dtype=np.uint64)
    bits = (index * np.uint64(2654435761) + np.uint64(zlib.crc32(name.encode()))) % np.uint64(2**32)
    unit = bits.astype(np.float64) / 2**32
    if dtype == np.bool_:
        content = bits >= 2**31
    elif np.issubdtype(dtype, np.floating):
        content = 0.5 + unit if len(shape) <= 1 else (2 * unit - 1) * np.sqrt(3 / np.prod(shape[1:]))
    else:
        content = np.floor(100 * unit)
    return content.astype(dtype).reshape(shape)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs")
    parser.add_argument("--outputs")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    folder = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(folder, "manifest.json")) as file:
        manifest = json.load(file)
    given = np.load(arguments.inputs) if arguments.inputs else {}
    values = {name: given["in_" + name] for name in manifest["inputs"] if "in_" + name in given}
    options = ort.SessionOptions()
    options.intra_op_num_threads = arguments.threads
    options.log_severity_level = 3
    for part in manifest["parts"]:
        path = os.path.join(folder, part["file"])
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        for wanted in session.get_inputs():
            if wanted.name not in values:
                values[wanted.name] = generated(wanted.name, tuple(wanted.shape), np.dtype(TYPES[wanted.type]))
        inputs = {wanted.name: values[wanted.name] for wanted in session.get_inputs()}
        names = [output.name for output in session.get_outputs()]
        values.update(zip(names, session.run(names, inputs)))
        print(f"{part['file']}: stage {part['stage']} of {part['server']}/{part['device']}")
    outputs = [values[name] for name in manifest["outputs"]]
    for name, output in zip(manifest["outputs"], outputs):
        print(f"{name}: {output.dtype}{list(output.shape)}")
    if arguments.outputs:
        np.savez(arguments.outputs, **{f"out_{k}": output for k, output in enumerate(outputs)})


if __name__ == "__main__":
    main()
