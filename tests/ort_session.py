"""Runs what `edgecut export --format ort` wrote in ONNX Runtime: ort_session.py FOLDER PLAIN.onnx OUT

Creates a session of FOLDER/model.onnx with the options in FOLDER/session_options.json, which may warn on stderr, and compares its
outputs with those of PLAIN.onnx. Writes OUT/memory.csv and OUT/profile.json of sessions of FOLDER/model.onnx."""
import json
import os
import sys

import numpy as np
import onnxruntime

folder, plain, out = sys.argv[1:]
exported = os.path.join(folder, "model.onnx")
DTYPES = {"tensor(float)": "f4", "tensor(int64)": "i8", "tensor(int32)": "i4"}


def session(path, **options):
    made = onnxruntime.SessionOptions()
    made.log_severity_level = 2
    made.intra_op_num_threads = 1
    for key, value in options.pop("entries", {}).items():
        made.add_session_config_entry(key, value)
    for key, value in options.items():
        setattr(made, key, value)
    return onnxruntime.InferenceSession(path, made, providers=["CPUExecutionProvider"])


def contents(inputs):
    random = np.random.default_rng(3)
    return {one.name: random.standard_normal(one.shape).astype(DTYPES[one.type]) for one in inputs}


with open(os.path.join(folder, "session_options.json"), encoding="utf-8") as file:
    entries = json.load(file)
annotated = session(exported, entries=entries)
given = contents(annotated.get_inputs())
wanted = session(plain).run(None, given)
found = annotated.run(None, given)
assert len(wanted) == len(found)
print("largest difference", max(float(np.abs(a - b).max(initial=0)) for a, b in zip(wanted, found)))
for a, b in zip(wanted, found):
    np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-4)
memory = os.path.abspath(os.path.join(out, "memory.csv"))
session(exported, enable_mem_pattern=False, entries={"session.collect_node_memory_stats_to_file": memory}).run(None, given)
profiled = session(exported, enable_profiling=True, profile_file_prefix=os.path.join(out, "session"))
for _ in range(3):
    profiled.run(None, given)
os.replace(profiled.end_profiling(), os.path.join(out, "profile.json"))
