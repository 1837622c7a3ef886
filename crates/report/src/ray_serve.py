#!/usr/bin/env python3
"""The parts of a plan, exported by edgecut, as an application of Ray Serve.

    serve run ray_serve:app                 in this folder, on a Ray cluster whose servers are started like
    ray start --head --resources '{"edgecut_SERVER": 1}'

Each part is a deployment of its own, placed by the custom resource `edgecut_SERVER` of its server. Tensors go from part to
part through Ray's object store. A part whose worker is lost is restarted, and what was under way there is computed again.
POST an .npz with an array `in_NAME` for each input to get one with `out_0`, `out_1`, ...; or in Python:

    handle = serve.get_app_handle("default"); handle.infer.remote({"NAME": array}).result()

Needs ray[serve], onnxruntime and numpy on all servers, and this folder at the same path (or its --working-dir).
"""
import asyncio
import io
import json
import os

import numpy as np
import onnxruntime as ort
from ray import serve
from ray.exceptions import RayActorError, RayTaskError
from ray.serve.exceptions import RayServeException
from starlette.requests import Request
from starlette.responses import Response

FOLDER = os.path.dirname(os.path.abspath(__file__))
# Requests that a part computes or has waiting.
ONGOING = int(os.environ.get("EDGECUT_ONGOING", "4"))
THREADS = int(os.environ.get("EDGECUT_THREADS", "1"))
# How often a request is computed again when workers are lost, and the longest time between two attempts.
ATTEMPTS = int(os.environ.get("EDGECUT_ATTEMPTS", "30"))
LONGEST_WAIT_S = 2.0

with open(os.path.join(FOLDER, "manifest.json")) as file:
    MANIFEST = json.load(file)


@serve.deployment(max_ongoing_requests=ONGOING, health_check_period_s=2, health_check_timeout_s=10)
class Part:
    """One stage of one device."""

    def __init__(self, part):
        options = ort.SessionOptions()
        options.intra_op_num_threads = THREADS
        options.log_severity_level = 3
        gpu = ["CUDAExecutionProvider"] if part["device"].startswith("gpu") else []
        path = os.path.join(FOLDER, part["file"])
        self.session = ort.InferenceSession(path, options, providers=gpu + ["CPUExecutionProvider"])
        self.inputs = [value["name"] for value in part["inputs"]]
        self.outputs = [value["name"] for value in part["outputs"]]

    def check_health(self):
        if self.session is None:
            raise RuntimeError("the model is not loaded")

    async def compute(self, *sources):
        """The outputs, by name, for the values of other parts and of the request."""
        values = {}
        for source in sources:
            values.update(source)
        # ONNX Runtime releases the interpreter's lock: messages are handled meanwhile.
        inputs = {name: values[name] for name in self.inputs}
        results = await asyncio.get_running_loop().run_in_executor(None, self.session.run, self.outputs, inputs)
        return dict(zip(self.outputs, results))


@serve.deployment(max_ongoing_requests=1000)
class Plan:
    """All parts in order; the entrance."""

    def __init__(self, *parts):
        self.parts = parts

    async def infer(self, inputs):
        """The model's outputs, in order, for its inputs by name."""
        for attempt in range(ATTEMPTS):
            try:
                return await self.once(inputs)
            except (RayActorError, RayServeException):
                # A worker is gone; Ray Serve starts another one.
                if attempt + 1 == ATTEMPTS:
                    raise
            except RayTaskError as error:
                # A part whose operand was on a lost worker.
                if not isinstance(error.cause, (RayActorError, RayServeException)) or attempt + 1 == ATTEMPTS:
                    raise
            await asyncio.sleep(min(LONGEST_WAIT_S, 0.1 * 2**attempt))

    async def once(self, inputs):
        made = {}
        for part, handle in zip(MANIFEST["parts"], self.parts):
            names = [value["name"] for value in part["inputs"]]
            given = {name: inputs[name] for name in names if name in inputs}
            # Each producer once; its values are fetched by the part itself.
            sources = {id(made[name]): made[name] for name in names if name in made}
            response = handle.compute.remote(*([given] if given else []), *sources.values())
            made.update((value["name"], response) for value in part["outputs"])
        results = {}
        for name in MANIFEST["outputs"]:
            if name not in results:
                results.update(await made[name] if name in made else {name: inputs[name]})
        return [results[name] for name in MANIFEST["outputs"]]

    async def __call__(self, request: Request) -> Response:
        body = np.load(io.BytesIO(await request.body()), allow_pickle=False)
        inputs = {name: body["in_" + name] for name in MANIFEST["inputs"] if "in_" + name in body}
        missing = [name for name in MANIFEST["inputs"] if name not in inputs]
        if missing:
            return Response(f"no array in_{missing[0]}\n", status_code=400)
        outputs = await self.infer(inputs)
        answer = io.BytesIO()
        np.savez(answer, **{f"out_{at}": output for at, output in enumerate(outputs)})
        return Response(answer.getvalue(), media_type="application/octet-stream")


def deployment(at, part):
    """The deployment of a part, on its server."""
    actor = {"num_cpus": 0, "resources": {f"edgecut_{part['server']}": 0.001}}
    if part["device"].startswith("gpu"):
        actor["num_gpus"] = 0.01
    return Part.options(name=f"part-{at:02}", ray_actor_options=actor).bind(part)


app = Plan.options(ray_actor_options={"num_cpus": 0}).bind(
    *(deployment(at, part) for at, part in enumerate(MANIFEST["parts"]))
)
