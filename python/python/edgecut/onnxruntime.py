"""Programs that use ONNX Runtime, unchanged, on the agents of a cluster: ``python -m edgecut.onnxruntime PROGRAM ARGUMENTS…``.

:func:`edgecut.install` does it from within a program.
"""

from __future__ import annotations

import argparse
import runpy
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from ._install import install


def main(arguments: Sequence[str]) -> None:
    """Runs a program as ``python`` would, with :func:`install` before it."""
    parser = argparse.ArgumentParser(
        prog="python -m edgecut.onnxruntime",
        description="Runs a Python program whose sessions of ONNX Runtime compute on the agents of a cluster.",
    )
    parser.add_argument("--cluster", help="the cluster file, if not that of EDGECUT_CLUSTER")
    parser.add_argument(
        "--planning", choices=("wait", "background"), help="whether the first call of a session waits for its plan"
    )
    parser.add_argument("-m", dest="is_module", action="store_true", help="PROGRAM is a module")
    parser.add_argument("program", metavar="PROGRAM", help="a script, a command that is one, or a module")
    parser.add_argument("arguments", metavar="ARGUMENTS", nargs=argparse.REMAINDER)
    given = parser.parse_args(arguments)
    path = None if given.is_module else _script(given.program)
    if path is None and not given.is_module:
        parser.error(f"{given.program} is neither a Python script nor a command that is one")
    install(cluster=given.cluster, planning=given.planning)
    sys.argv = [given.program if path is None else str(path), *given.arguments]
    if path is None:
        runpy.run_module(given.program, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(path.resolve().parent)
        runpy.run_path(str(path), run_name="__main__")


def _script(program: str) -> Optional[Path]:
    """The script of this path, or of a command of this name."""
    if Path(program).is_file():
        return Path(program)
    found = shutil.which(program)
    if found is None:
        return None
    with open(found, "rb") as file:
        first = file.readline(256)
    return Path(found) if first.startswith(b"#!") and b"python" in first else None


if __name__ == "__main__":
    main(sys.argv[1:])
