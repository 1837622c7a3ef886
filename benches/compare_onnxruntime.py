#!/usr/bin/env python3
"""Compares edgecut's engines with a plain ONNX Runtime session: latency on one thread, alternating, and outputs.

    benches/compare_onnxruntime.py MODEL[:FLOAT] ... [--rounds N] [--runs N]

MODEL is an ONNX file; unknown dimensions are bound to 1. FLOAT is the same network in single precision: tract's
latency of MODEL is also printed relative to its latency of FLOAT. Latencies are medians over rounds of the median of
the runs; `error` is the largest relative error (L2) of an output against ONNX Runtime's. The environment variable
EDGECUT is the path of the binary. Needs numpy and onnxruntime; edgecut finds ONNX Runtime through the first Python in
PATH.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zlib

import numpy as np
import onnxruntime

EDGECUT = os.environ.get("EDGECUT", "target/release/edgecut")
ENVIRONMENT = dict(os.environ, PATH=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])
TYPES = {
    "tensor(float)": "f4",
    "tensor(double)": "f8",
    "tensor(float16)": "f2",
    "tensor(int64)": "i8",
    "tensor(int32)": "i4",
    "tensor(int8)": "i1",
    "tensor(uint8)": "u1",
    "tensor(bool)": "?",
}


def session_of(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def inputs_of(session):
    inputs = {}
    for value in session.get_inputs():
        rng = np.random.default_rng(zlib.crc32(value.name.encode()))
        shape = [size if isinstance(size, int) else 1 for size in value.shape]
        dtype = np.dtype(TYPES[value.type])
        values = rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(0, 2, shape)
        inputs[value.name] = values.astype(dtype)
    return inputs


def session_ms(session, inputs, runs):
    times = []
    for _ in range(3 + runs):
        start = time.perf_counter()
        session.run(None, inputs)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times[3:])


def edgecut_ms(path, session, inputs, engine, runs, folder):
    """The median latency and the outputs."""
    inputs_file, outputs = os.path.join(folder, "in.npz"), os.path.join(folder, "out.npz")
    np.savez(inputs_file, **{f"in_{name}": value for name, value in inputs.items()})
    command = [EDGECUT, "run", path, "--engine", engine, "--inputs", inputs_file, "--outputs", outputs]
    command += ["--repeat", str(runs), "--format", "json"]
    for value in session.get_inputs():
        unknown_axes = [axis for axis, size in enumerate(value.shape) if not isinstance(size, int)]
        command += [flag for axis in unknown_axes for flag in ("--bind-dim", f"{value.name}:{axis}=1")]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    with np.load(outputs) as arrays:
        results = [arrays[f"out_{index}"] for index in range(len(arrays.files))]
    return json.loads(done.stdout)["latency"]["median_us"] / 1e3, results


def relative_error(results, expected):
    def error(a, b):
        a, b = np.asarray(a, "f8"), np.asarray(b, "f8")
        return float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30))

    return max(error(a, b) for a, b in zip(results, expected, strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL[:FLOAT]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    ratios = {"onnxruntime": [], "tract": [], "float": []}
    print(f"{'model':32} {'session':>9}   {'onnxruntime':>18} {'tract':>18} {'float on tract':>18}   error")
    with tempfile.TemporaryDirectory() as folder:
        for pair in options.models:
            path, _, float_path = pair.partition(":")
            session = session_of(path)
            inputs = inputs_of(session)
            expected = session.run(None, inputs)
            times = {"session": [], "onnxruntime": [], "tract": [], "float": []}
            error = 0.0
            float_session = session_of(float_path) if float_path else None
            for _ in range(options.rounds):
                times["session"].append(session_ms(session, inputs, options.runs))
                for engine in ("onnxruntime", "tract"):
                    ms, results = edgecut_ms(path, session, inputs, engine, options.runs, folder)
                    times[engine].append(ms)
                    error = max(error, relative_error(results, expected))
                if float_session:
                    float_inputs = inputs_of(float_session)
                    ms, _ = edgecut_ms(float_path, float_session, float_inputs, "tract", options.runs, folder)
                    times["float"].append(ms)
            ms = {name: statistics.median(values) for name, values in times.items() if values}
            cells = []
            for name, baseline in (("onnxruntime", "session"), ("tract", "session"), ("float", "float")):
                if name == "float" and not float_path:
                    cells.append("")
                    continue
                ratio = ms["tract" if name == "float" else name] / ms[baseline]
                ratios[name].append(ratio)
                cells.append(f"{ms[name]:8.2f} ms {ratio:5.2f} x")
            row = " ".join(f"{cell:>18}" for cell in cells)
            print(f"{os.path.basename(path):32} {ms['session']:6.2f} ms   {row}   {error:.2%}", flush=True)
    for name, values in ratios.items():
        if values:
            mean = math.exp(statistics.mean(map(math.log, values)))
            what = "tract / float on tract" if name == "float" else f"{name} / session"
            print(f"{what}: geometric mean {mean:.2f} x, worst {max(values):.2f} x of {len(values)}")


if __name__ == "__main__":
    main()
