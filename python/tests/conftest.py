"""What the tests share: a small model, and agents in processes of their own."""

import contextlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import edgecut

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "models"

#: Two convolutions and a classifier.
SMALL = """#[version = "0.0.5"]
def @main(%data: Tensor[(1, 8, 32, 32), float32], %a: Tensor[(16, 8, 3, 3), float32], %b: Tensor[(16, 16, 3, 3), float32],
          %w: Tensor[(10, 16384), float32]) {
  %0 = nn.conv2d(%data, %a, padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3]);
  %1 = nn.relu(%0);
  %2 = nn.conv2d(%1, %b, padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3]);
  %3 = nn.batch_flatten(%2);
  %4 = nn.dense(%3, %w, units=10);
  nn.softmax(%4)
}
"""


def pytest_report_header():
    return f"edgecut {edgecut.__version__} in {Path(edgecut.__file__).parent}"


@pytest.fixture
def small(tmp_path, monkeypatch):
    """The path of a small model; the working directory is empty but for it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EDGECUT_CLUSTER", raising=False)
    path = tmp_path / "small.relay"
    path.write_text(SMALL)
    return path


@pytest.fixture(scope="session")
def command():
    """The command that the wheel installs."""
    found = Path(sys.executable).parent / "edgecut"
    assert found.is_file(), "the wheel is not installed in this environment"
    return str(found)


@contextlib.contextmanager
def agents(command, names, *flags):
    """Agents of these names, which are processes of the wheel's command with `flags`; gives the text of their cluster file."""
    with processes(command, names, *flags) as (_, text):
        yield text


@contextlib.contextmanager
def processes(command, names, *flags):
    """The same, with the processes."""
    started, text = [], ""
    try:
        for name in names:
            agent = subprocess.Popen(
                [command, "agent", "--name", name, "--listen", "127.0.0.1:0", "--threads", "1", *flags],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            started.append(agent)
            address = re.fullmatch(r"listening on (\S+)\n", agent.stdout.readline())[1]
            text += f'[[server]]\nname = "{name}"\naddress = "{address}"\n'
        yield started, text
    finally:
        for agent in started:
            agent.terminate()
        for agent in started:
            agent.wait(timeout=30)
            agent.stdout.close()


@pytest.fixture
def cluster(command, tmp_path):
    """A cluster file of two agents."""
    path = tmp_path / "cluster.toml"
    with agents(command, ("one", "two")) as text:
        path.write_text(text)
        yield path
