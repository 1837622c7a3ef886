"""Plans that sessions make, kept by what they are for: model, cluster, shapes, and the options of the planner."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Optional

from . import __version__, _errors
from ._errors import EdgecutError, InputError
from ._feed import Contents, Shapes, Signature
from ._options import PathLike
from ._plan import Plan
from ._run import save_inputs

#: How often a process that plans is looked after, in seconds.
POLL = 0.1


def cache_folder() -> Path:
    """Where sessions keep plans and profiles: ``EDGECUT_CACHE``, or a folder for caches of the user."""
    named = os.environ.get("EDGECUT_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(named).resolve() if named else Path(base, "edgecut")


class PlanCache:
    """Plans of one model for one cluster."""

    def __init__(self, model: Path, cluster: PathLike, options: "dict[str, Any]") -> None:
        """
        :param model: an ONNX file
        :param options: further arguments of :func:`edgecut.plan`
        """
        self.folder = cache_folder()
        self.profiles = self.folder / "profiles"
        self._model, self._options = model.resolve(), options
        self._cluster = Path(cluster).resolve()
        self._hash = _hash(self._model)

    def plan(self, signature: Signature, shapes: Shapes, contents: Contents) -> Plan:
        """A plan for inputs of these shapes and contents, which is made if it is not there.

        :raises EdgecutError: if none can be made
        """
        if _hash(self._model) != self._hash:
            raise InputError(f"{self._model} has changed since the session was opened: open another session")
        path = self._path(shapes, contents)
        if path.is_file():
            return Plan.load(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        inputs: Optional[Path] = None
        if contents:
            inputs = path.with_suffix(".npz")
            save_inputs(inputs, contents)
        arguments = {
            "model": str(self._model),
            "cluster": str(self._cluster),
            "bind_dim": signature.bindings(shapes),
            "inputs": None if inputs is None else str(inputs),
            "profile": str(self.profiles),
            "output": str(path),
            **self._options,
        }
        _run(arguments, self.folder)
        return Plan.load(path)

    def has(self, shapes: Shapes, contents: Contents) -> bool:
        """Whether there is such a plan."""
        return self._path(shapes, contents).is_file()

    def _path(self, shapes: Shapes, contents: Contents) -> Path:
        cluster = _hash(self._cluster)
        decided = sorted((name, array.dtype.str, array.tobytes().hex()) for name, array in contents.items())
        key = json.dumps([__version__, cluster, shapes, decided, self._options], sort_keys=True, default=os.fspath)
        return self.folder / "plans" / self._hash[:32] / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _hash(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _run(arguments: "dict[str, Any]", folder: Path) -> None:
    """Makes a plan in another process, which ends with this program."""
    process = subprocess.Popen(
        [sys.executable, "-m", "edgecut._plan_process"],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        # Ctrl-C is for the program: it decides whether it ends.
        start_new_session=True,
    )
    with process:
        assert process.stdin is not None and process.stdout is not None
        # It stays open: its end is that of this program.
        process.stdin.write(json.dumps(arguments, default=os.fspath) + "\n")
        process.stdin.flush()
        while process.poll() is None:
            try:
                process.wait(POLL)
            except subprocess.TimeoutExpired:
                if not threading.main_thread().is_alive():
                    process.terminate()
        out = process.stdout.read()
    if process.returncode != 0:
        raise _error(out, process.returncode)


def _error(out: str, code: int) -> EdgecutError:
    try:
        found: "dict[str, str]" = json.loads(out)
    except ValueError:
        return EdgecutError(f"the process that plans ended with {code}")
    kind: "type[EdgecutError]" = getattr(_errors, found["error"], EdgecutError)
    return kind(found["message"])
