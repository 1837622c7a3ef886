"""Profiles, plans and runs; progress, Ctrl-C and other threads meanwhile."""

import csv
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy
import pytest

import edgecut

from conftest import MODELS


def test_a_profile_is_measured_once(small):
    steps = []
    first = edgecut.profile(small, budget="1s", progress=steps.append)
    measured = [step for step in steps if step.kind == "measured"]
    assert measured[-1].done == measured[-1].total == len(first.table)
    assert measured[-1].device == first.devices[0].device == "local/cpu"
    assert first.devices[0].sum_us > 0 and first.devices[0].whole_us > 0
    assert sum(kind.count for kind in first.devices[0].kinds) == len(first.table)
    # The counting allocator is that of the extension.
    assert max(first.table["workspace_bytes"]) > 0
    again = edgecut.profile(small, budget="1s", progress=lambda step: None)
    assert again.table.to_pylist() == first.table.to_pylist()


def test_progress_goes_to_stderr_without_a_listener(small, capfd):
    edgecut.profile(small, budget="1s")
    assert "profile written to" in capfd.readouterr().err
    edgecut.profile(small, budget="1s", again=True, progress=lambda step: None)
    edgecut.plan(small, rehearse=0, progress=lambda step: None)
    assert capfd.readouterr() == ("", "")


def test_the_installed_package_is_the_engine(small):
    pytest.importorskip("onnxruntime")
    run = edgecut.run_model(small, engine="onnxruntime", repeat=2)
    assert run.engine.startswith("onnxruntime") and run.latency.n == 2
    tract = edgecut.run_model(small)
    assert tract.peak_bytes > 0 and tract.held_bytes > 0
    numpy.testing.assert_allclose(numpy.asarray(run.outputs[0]), numpy.asarray(tract.outputs[0]), rtol=1e-4)


def test_inputs_are_arrays(small):
    given = numpy.linspace(-1, 1, 8 * 32 * 32, dtype="float32").reshape(1, 8, 32, 32)
    with_given, without = (numpy.asarray(edgecut.run_model(small, inputs=i).outputs[0]) for i in ({"data": given}, None))
    assert with_given.shape == (1, 10) and not numpy.allclose(with_given, without)
    numpy.savez("inputs.npz", in_data=given)
    assert (numpy.asarray(edgecut.run_model(small, inputs="inputs.npz").outputs[0]) == with_given).all()


def test_a_plan_is_saved_read_and_run(small):
    plan = edgecut.plan(small, rehearse=0, profile_budget="1s", progress=lambda step: None)
    assert plan.predicted.latency_us > 0 and 0 <= plan.gap < 1 and plan.path is None
    assert not list(Path.cwd().glob("plan*")), "a plan is written only where `output` says"
    saved = plan.save("folder/plan.json")
    assert edgecut.Plan.load(saved.path) == plan and Path("folder/plan.csv").is_file()
    run = edgecut.run(saved.path, repeat=3)
    assert run.plan == plan and run.latency.n == 3 == len(run.latencies_us)
    assert run.difference.largest_error == 0 and numpy.asarray(run.outputs[0]).shape == (1, 10)


def test_no_plan_is_an_error_with_its_reason(small):
    with pytest.raises(edgecut.PlanError, match="local/cpu"):
        edgecut.plan(small, memory="100KiB", rehearse=0, profile_budget="1s", progress=lambda step: None)


def test_two_agents_share_a_model(small, cluster):
    steps = []
    options = dict(cluster=cluster, profile_budget="1s", split=False, pin=["#0=one/cpu", "#1=two/cpu"])
    plan = edgecut.plan(small, rehearse=1, time_limit="10s", progress=steps.append, **options)
    assert {device.name for device in plan.devices if device.groups} == {"one/cpu", "two/cpu"}
    assert any("measuring the link one" in step.text for step in steps)
    run = edgecut.run(plan, repeat=5)
    assert run.difference.elements_beyond_tolerance == 0
    assert [kind for kind in run.table["kind"] if kind == "transfer"]
    profile = edgecut.profile(small, cluster=cluster, budget="1s", progress=lambda step: None)
    assert [device.device for device in profile.devices] == ["one/cpu", "two/cpu"]


def test_an_agent_that_does_not_answer_is_named(small, tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text('[[server]]\nname = "gone"\naddress = "127.0.0.1:9"\n')
    with pytest.raises(edgecut.AgentError, match="gone"):
        edgecut.profile(small, cluster=path)


def test_other_threads_run_meanwhile(small):
    ticks, done = [], threading.Event()

    def tick():
        while not done.wait(0.01):
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    begin = time.monotonic()
    edgecut.profile(small, budget="2s", again=True, progress=lambda step: None)
    took = time.monotonic() - begin
    done.set()
    thread.join()
    assert len(ticks) > 10 * took, f"{len(ticks)} ticks in {took:.2f} s"


def test_an_exception_of_the_listener_stops_the_work(small):
    class Enough(Exception):
        pass

    def listen(step):
        if step.kind == "measured" and step.done == 1:
            raise Enough

    with pytest.raises(Enough):
        edgecut.profile(small, budget="1s", progress=listen)
    rows = [row for path in Path("profiles").glob("*/*isolated-fused.csv") for row in csv.DictReader(path.open())]
    assert rows


def test_a_listener_that_has_raised_is_not_called_again(small):
    heard = []

    def listen(step):
        heard.append(step)
        raise RuntimeError(f"step {len(heard)}")

    with pytest.raises(RuntimeError, match="step 1"):
        edgecut.profile(small, budget="1s", progress=listen)
    assert len(heard) == 1


INTERRUPTED = """
import sys, edgecut
def listen(step):
    if step.kind == "measured":
        print(step.done, flush=True)
try:
    edgecut.{call}(sys.argv[1], progress=listen, {options})
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize(("call", "options"), [("profile", "budget='60s'"), ("plan", "profile_budget='60s'")])
def test_ctrl_c_keeps_what_was_measured(tmp_path, call, options):
    model = str(MODELS / "resnet18.relay")
    script = INTERRUPTED.format(call=call, options=options)
    process = subprocess.Popen([sys.executable, "-c", script, model], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if int(line) >= 2:
            break
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert rest.split()[-1] == "interrupted" and process.returncode == 0
    assert time.monotonic() - begin < 30
    (path,) = tmp_path.glob("profiles/*/*isolated-fused.csv")
    with path.open() as file:
        assert len(list(csv.DictReader(file))) >= 2


def test_ctrl_c_ends_a_search(tmp_path, small):
    """A plan that is searched for, not measured: the profile is there."""
    edgecut.profile(small, budget="1s", progress=lambda step: None)
    script = INTERRUPTED.format(call="plan", options="rehearse=20").replace('"measured"', '"planning"').replace(
        "step.done", "1"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(small)], cwd=os.getcwd(), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "1\n"
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert rest.split()[-1] == "interrupted"
