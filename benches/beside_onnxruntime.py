#!/usr/bin/env python3
"""Times models on edgecut's engines beside ONNX Runtime's own session, in turn and on one thread.

    benches/beside_onnxruntime.py MODEL[:TWIN] ... [--turns N] [--runs N]

MODEL is an ONNX file; open dimensions are 1. TWIN is the same network in single precision: tract's time of MODEL is
also printed as a multiple of its time of TWIN. Figures are medians of the turns' medians; `apart` is the distance of
the outputs from ONNX Runtime's, as a share of their norm. EDGECUT is the binary. Needs numpy and onnxruntime; edgecut
finds ONNX Runtime through the first Python in PATH.
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
        numbers = np.random.default_rng(zlib.crc32(value.name.encode()))
        shape = [size if isinstance(size, int) else 1 for size in value.shape]
        dtype = np.dtype(TYPES[value.type])
        random = numbers.standard_normal(shape) if dtype.kind == "f" else numbers.integers(0, 2, shape)
        inputs[value.name] = random.astype(dtype)
    return inputs


def session_ms(session, inputs, runs):
    times = []
    for _ in range(3 + runs):
        start = time.perf_counter()
        session.run(None, inputs)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times[3:])


def edgecut_ms(path, session, inputs, engine, runs, folder):
    """The median time and the outputs."""
    given, outputs = os.path.join(folder, "in.npz"), os.path.join(folder, "out.npz")
    np.savez(given, **{f"in_{name}": value for name, value in inputs.items()})
    command = [EDGECUT, "run", path, "--engine", engine, "--inputs", given, "--outputs", outputs]
    command += ["--repeat", str(runs), "--format", "json"]
    for value in session.get_inputs():
        open_axes = [axis for axis, size in enumerate(value.shape) if not isinstance(size, int)]
        command += [flag for axis in open_axes for flag in ("--bind-dim", f"{value.name}:{axis}=1")]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    with np.load(outputs) as arrays:
        results = [arrays[f"out_{index}"] for index in range(len(arrays.files))]
    return json.loads(done.stdout)["latency"]["median_us"] / 1e3, results


def distance(results, expected):
    def apart(a, b):
        a, b = np.asarray(a, "f8"), np.asarray(b, "f8")
        return float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30))

    return max(apart(a, b) for a, b in zip(results, expected, strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL[:TWIN]")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    ratios = {"onnxruntime": [], "tract": [], "twin": []}
    print(f"{'model':32} {'session':>9}   {'onnxruntime':>18} {'tract':>18} {'twin on tract':>18}   apart")
    with tempfile.TemporaryDirectory() as folder:
        for pair in options.models:
            path, _, twin = pair.partition(":")
            session = session_of(path)
            inputs = inputs_of(session)
            expected = session.run(None, inputs)
            times = {"session": [], "onnxruntime": [], "tract": [], "twin": []}
            apart = 0.0
            twin_session = session_of(twin) if twin else None
            for _ in range(options.turns):
                times["session"].append(session_ms(session, inputs, options.runs))
                for engine in ("onnxruntime", "tract"):
                    ms, results = edgecut_ms(path, session, inputs, engine, options.runs, folder)
                    times[engine].append(ms)
                    apart = max(apart, distance(results, expected))
                if twin_session:
                    given = inputs_of(twin_session)
                    ms, _ = edgecut_ms(twin, twin_session, given, "tract", options.runs, folder)
                    times["twin"].append(ms)
            ms = {name: statistics.median(list_) for name, list_ in times.items() if list_}
            cells = []
            for name, unit in (("onnxruntime", "session"), ("tract", "session"), ("twin", "twin")):
                if name == "twin" and not twin:
                    cells.append("")
                    continue
                of = ms["tract"] if name == "twin" else ms[name]
                ratio = of / ms[unit]
                ratios[name].append(ratio)
                cells.append(f"{ms[name]:8.2f} ms {ratio:5.2f} x")
            row = " ".join(f"{cell:>18}" for cell in cells)
            print(f"{os.path.basename(path):32} {ms['session']:6.2f} ms   {row}   {apart:.2%}", flush=True)
    for name, list_ in ratios.items():
        if list_:
            mean = math.exp(statistics.mean(map(math.log, list_)))
            what = {"twin": "tract beside the twin"}.get(name, f"{name} beside the session")
            print(f"{what}: geometric mean {mean:.2f} x, worst {max(list_):.2f} x of {len(list_)}")


if __name__ == "__main__":
    main()
