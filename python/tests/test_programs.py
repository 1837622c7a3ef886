"""Programs that import `onnxruntime`, unchanged: `python -m edgecut.onnxruntime` and `edgecut.install`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, agents

onnxruntime = pytest.importorskip("onnxruntime")

MODELS = ROOT / "tests" / "data" / "interface"

#: Prints a checksum of the output, and the class of the session.
PROGRAM = """
import sys
import numpy, onnxruntime as ort
session = ort.InferenceSession(sys.argv[1], providers=ort.get_available_providers())
feed = {arg.name: numpy.ones(arg.shape, dtype="float32") for arg in session.get_inputs()}
print(round(float(session.run(None, feed)[0].sum()), 2), len(sys.argv), __name__)
print(type(session).__module__, len(getattr(session, "plans", ())), file=sys.stderr)
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def python(tmp_path, *arguments, **environment):
    """What a program prints on stdout and stderr."""
    environment = {**os.environ, "EDGECUT_CACHE": str(tmp_path / "cache"), "EDGECUT_CLUSTER": "", **environment}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_a_program_computes_on_agents(command, tmp_path, program):
    model = MODELS / "convolutions.onnx"
    wanted, _ = python(tmp_path, program, model, "more")
    cluster = tmp_path / "cluster.toml"
    with agents(command, ("one", "two")) as text:
        cluster.write_text(text)
        run = ("-m", "edgecut.onnxruntime")
        found, said = python(tmp_path, *run, program, model, "more", EDGECUT_CLUSTER=str(cluster))
        assert (found, said) == (wanted, "edgecut._session 1\n")
        as_module, said = python(tmp_path, *run, "--cluster", cluster, "-m", "program", model, "more")
        assert (as_module, said) == (wanted, "edgecut._session 1\n")


def test_without_a_cluster_this_machine_computes(tmp_path, program):
    model = MODELS / "convolutions.onnx"
    wanted, theirs = python(tmp_path, program, model)
    found, ours = python(tmp_path, "-m", "edgecut.onnxruntime", program, model)
    assert found == wanted and theirs.startswith("onnxruntime") and ours == "edgecut._session 0\n"


def test_a_model_that_edgecut_cannot_take_is_named(tmp_path, program):
    model = Path(onnxruntime.__file__).parent / "datasets" / "logreg_iris.onnx"
    cluster = tmp_path / "cluster.toml"
    cluster.write_text('[[server]]\nname = "gone"\naddress = "127.0.0.1:9"\n')
    wanted, _ = python(tmp_path, program, model)
    found, said = python(tmp_path, "-m", "edgecut.onnxruntime", program, model, EDGECUT_CLUSTER=str(cluster))
    assert found == wanted
    assert "logreg_iris.onnx: ONNX Runtime computes it on this machine: `probabilities` is of type seq" in said


def test_install_keeps_everything_else(tmp_path):
    script = """
import onnxruntime
before = dict(vars(onnxruntime))
import edgecut
edgecut.install()
changed = {name for name, value in vars(onnxruntime).items() if before.get(name) is not value}
print(changed, onnxruntime.InferenceSession is edgecut.InferenceSession)
"""
    assert python(tmp_path, "-c", script)[0] == "{'InferenceSession'} True\n"


def test_what_is_no_program_is_refused(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "edgecut.onnxruntime", "no-such-program"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2 and "no-such-program" in done.stderr
