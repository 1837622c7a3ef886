#!/usr/bin/env python3
"""Plans in three parts on a local cluster of three Ray servers: outputs, results per second, a worker killed in between.

ray_serve.py EDGECUT MODEL.relay [REQUESTS]     needs ray[serve], onnxruntime and numpy

Three agents plan the model in three parts, `edgecut export --format ray` writes the application, Ray Serve runs it. Its outputs are
compared with `edgecut run`, its results per second are next to the agents' own stream, and a worker is killed in the middle of
REQUESTS (1000) requests, of which none may be lost.
"""
import asyncio
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

SERVERS = ["s0", "s1", "s2"]
# Requests under way.
UNDER_WAY = 8


def agents(edgecut, folder):
    processes, cluster = [], ""
    for name in SERVERS:
        command = [edgecut, "agent", "--name", name, "--listen", "127.0.0.1:0", "--threads", "1"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        address = process.stdout.readline().removeprefix("listening on ").strip()
        processes.append(process)
        cluster += f'[[server]]\nname = "{name}"\naddress = "{address}"\n'
    with open(os.path.join(folder, "lab.toml"), "w") as file:
        file.write(cluster)
    return processes


def run(edgecut, folder, *arguments):
    result = subprocess.run([edgecut, *arguments], cwd=folder, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{arguments}: {result.stderr}")
    return result.stdout


def three_parts(edgecut, folder, model):
    """Pins thirds of the groups to the servers."""
    run(edgecut, folder, "plan", model, "--cluster", "lab.toml", "--profile-budget", "1s", "--rehearse", "0", "--no-split",
        "--pin", "*=s0/cpu", "--output", "one.json")
    with open(os.path.join(folder, "one.json")) as file:
        count = len(json.load(file)["groups"])
    pins = [f"--pin=#{group}=s{group * 3 // count}/cpu" for group in range(count)]
    run(edgecut, folder, "plan", model, "--cluster", "lab.toml", "--rehearse", "0", "--no-split", "--objective", "throughput",
        "--output", "plan.json", *pins)


def generated(folder, name, shape, dtype):
    return importlib.import_module("runner").generated(name, tuple(shape), np.dtype(dtype))


async def measure(handle, inputs, expected, requests, during=lambda: None):
    """Results per second of `requests` with some under way; `during` is called in the middle."""
    gate, wrong = asyncio.Semaphore(UNDER_WAY), 0

    async def one():
        nonlocal wrong
        async with gate:
            outputs = await handle.infer.remote(inputs)
            wrong += not all(np.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(outputs, expected, strict=True))

    begin = time.perf_counter()
    tasks = [asyncio.create_task(one()) for _ in range(requests)]
    while sum(task.done() for task in tasks) < requests // 2:
        await asyncio.sleep(0.01)
    during()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    lost = [outcome for outcome in outcomes if outcome is not None]
    return requests / (time.perf_counter() - begin), lost, wrong


def kill_a_worker():
    """The process of a part in the middle."""
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True).stdout
    found = re.findall(r"^\s*(\d+) ray::ServeReplica:default:part-01", listed, re.MULTILINE)
    if not found:
        sys.exit("no worker of part 01 to kill")
    os.kill(int(found[0]), signal.SIGKILL)
    print(f"killed worker {found[0]}")


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    edgecut, model = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    requests = int(sys.argv[3]) if len(sys.argv) == 4 else 1000
    folder = tempfile.mkdtemp(prefix="edgecut-ray-")
    processes = agents(edgecut, folder)
    try:
        three_parts(edgecut, folder, model)
        run(edgecut, folder, "run", model, "--outputs", "whole.npz")
        streamed = json.loads(run(edgecut, folder, "run", "plan.json", "--throughput", "--repeat", "100", "--format", "json"))
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
    print(run(edgecut, folder, "export", "plan.json", "--format", "onnx", "--output", "app"), end="")
    print(run(edgecut, folder, "export", "plan.json", "--format", "ray", "--output", "app"), end="")
    sys.path.insert(0, os.path.join(folder, "app"))
    os.environ["PYTHONPATH"] = os.path.join(folder, "app")

    import ray
    from ray import serve
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "resources": {"edgecut_s0": 1}})
    for name in SERVERS[1:]:
        cluster.add_node(num_cpus=2, resources={f"edgecut_{name}": 1})
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        serve.start(http_options={"location": "NoServer"})
        handle = serve.run(importlib.import_module("ray_serve").app)
        with open(os.path.join(folder, "app", "manifest.json")) as file:
            manifest = json.load(file)
        if len({part["server"] for part in manifest["parts"]}) != 3:
            sys.exit(f"not three parts: {manifest['parts']}")
        types = {value["name"]: value for part in manifest["parts"] for value in part["inputs"]}
        inputs = {
            name: generated(folder, name, types[name]["shape"], types[name]["dtype"]) for name in manifest["inputs"]
        }
        whole = np.load(os.path.join(folder, "whole.npz"))
        expected = [whole[f"out_{at}"] for at in range(len(manifest["outputs"]))]
        asyncio.run(measure(handle, inputs, expected, 50))
        rate, lost, wrong = asyncio.run(measure(handle, inputs, expected, requests))
        print(f"Ray Serve: {rate:.1f} results a second, {len(lost)} lost, {wrong} wrong; "
              f"agents: {1e6 / streamed['interval_us']:.1f} a second")
        rate, lost_then, wrong_then = asyncio.run(measure(handle, inputs, expected, requests, kill_a_worker))
        print(f"with a worker killed: {rate:.1f} results a second, {len(lost_then)} lost, {wrong_then} wrong")
        if lost or wrong or lost_then or wrong_then:
            sys.exit(f"lost: {[str(error)[:200] for error in (lost + lost_then)[:3]]}")
    finally:
        serve.shutdown()
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
