"""The command line of the wheel."""

import json
import os
import signal
import subprocess
import sys

import edgecut


def test_the_command_and_the_module_are_the_command_line(command, small):
    for program in ([command], [sys.executable, "-m", "edgecut"]):
        done = subprocess.run([*program, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout == f"edgecut {edgecut.__version__}\n"
    done = subprocess.run([command, "inspect", small, "--format", "json"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["flops"] == edgecut.inspect(small).flops


def test_exit_codes_are_those_of_the_command_line(command, small):
    for arguments, code in [
        (["inspect", "missing.relay"], 2),
        (["unknown"], 2),
        (["plan", small, "--memory", "100KiB", "--rehearse", "0", "--profile-budget", "1s"], 3),
        (["run", small], 0),
    ]:
        done = subprocess.run([command, *arguments], capture_output=True, text=True)
        assert done.returncode == code, done.stderr


def test_the_command_finds_the_package_of_its_interpreter(command, small):
    # Without a `python3` on PATH to ask.
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DYLIB_PATH"} | {"PATH": "/nowhere"}
    done = subprocess.run(
        [command, "run", small, "--engine", "onnxruntime", "--format", "json"],
        capture_output=True, text=True, check=True, env=environment,
    )
    assert json.loads(done.stdout)["engine"].startswith("onnxruntime")


def test_ctrl_c_ends_a_run_with_what_is_finished(command, small):
    process = subprocess.Popen([command, "run", small, "--repeat", "100000000"], stdout=subprocess.PIPE, text=True)
    try:
        process.wait(timeout=2)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 0 and "runs" in said


def test_a_reader_that_stops_ends_the_command_silently(command, small):
    process = subprocess.Popen(
        [command, "operators"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.close()
    assert process.stderr.read() == "" and process.wait() == 1
