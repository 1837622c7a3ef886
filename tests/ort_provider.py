"""A session of ONNX Runtime on the cluster: ort_provider.py LIBRARY MODEL.onnx THREADS [OPTION=VALUE…]

Registers the provider library, creates a session of MODEL.onnx with these options of the provider, and compares its outputs with
those of the CPU provider, for THREADS threads at once. After each line of stdin it compares again. Prints which provider computes,
and the largest difference."""
import concurrent.futures
import sys

import numpy as np
import onnxruntime

NAME = "EdgecutExecutionProvider"
DTYPES = {"tensor(float)": "f4", "tensor(float16)": "f2", "tensor(int64)": "i8", "tensor(int32)": "i4", "tensor(uint8)": "u1"}


def contents(inputs, seed):
    random = np.random.default_rng(seed)

    def content(one):
        shape = [size if isinstance(size, int) else 1 for size in one.shape]
        if one.type in ("tensor(float)", "tensor(float16)"):
            return random.standard_normal(shape).astype(DTYPES[one.type])
        return random.integers(0, 100, shape).astype(DTYPES[one.type])

    return {one.name: content(one) for one in inputs}


def main(library, model, threads, *options):
    onnxruntime.register_execution_provider_library("edgecut", library)
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == NAME]
    made = onnxruntime.SessionOptions()
    made.add_provider_for_devices(devices, dict(option.split("=", 1) for option in options))
    session = onnxruntime.InferenceSession(model, made)
    # Otherwise a failed call falls back to the CPU provider, and the comparison passes.
    session.disable_fallback()
    plain = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])

    def compare(seed):
        given = contents(plain.get_inputs(), seed)
        wanted, found = plain.run(None, given), session.run(None, given)
        assert len(wanted) == len(found)
        for a, b in zip(wanted, found):
            np.testing.assert_allclose(b, a, rtol=2e-3, atol=2e-4)
        return max(float(np.abs(a.astype("f8") - b.astype("f8")).max(initial=0)) for a, b in zip(wanted, found))

    def check():
        with concurrent.futures.ThreadPoolExecutor(int(threads)) as pool:
            print("largest difference", max(pool.map(compare, range(int(threads)))), flush=True)

    print(*session.get_providers(), flush=True)
    check()
    for _ in sys.stdin:
        check()
    del session
    onnxruntime.unregister_execution_provider_library("edgecut")


main(*sys.argv[1:])
