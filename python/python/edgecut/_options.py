"""Options as the flags of the command line, which decides what they mean."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Optional, Union

PathLike = Union[str, "os.PathLike[str]"]
#: Bytes, or a text with a unit: ``"512MiB"``.
Size = Union[int, str]
#: Microseconds, or a text with a unit: ``"40ms"``.
Time = Union[int, float, str]


def size(value: Optional[Size]) -> Optional[str]:
    """A size with its unit."""
    return f"{value}B" if isinstance(value, int) else value


def time(value: Optional[Time]) -> Optional[str]:
    """A time with its unit."""
    return value if value is None or isinstance(value, str) else f"{value}us"


def several(value: Any) -> "list[Any]":
    """A list of one or more."""
    if value is None:
        return []
    one = isinstance(value, (str, int, os.PathLike)) or not isinstance(value, Iterable)
    return [value] if one else list(value)


def flags(*inputs: PathLike, **options: Any) -> "list[str]":
    """The arguments of a verb. ``None`` and ``False`` are not given, ``True`` is a flag alone, a list one flag for each item."""
    arguments = []
    for name, value in options.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            arguments.append(flag)
            continue
        arguments += [f"{flag}={os.fspath(v) if isinstance(v, os.PathLike) else v}" for v in several(value)]
    # After `--`, what begins with a dash is no flag.
    return [*arguments, "--", *(os.fspath(path) for path in inputs)]


def runtime_library(engine: Optional[str], library: Optional[PathLike] = None) -> Optional[PathLike]:
    """The library of ONNX Runtime that `engine` loads: `library`, or that of the package ``onnxruntime``.

    ``None`` where the engine needs none, and where the environment names one or there is no package: then it is found by the
    rules of the command line.
    """
    if library is not None or engine not in ("onnxruntime", "auto") or os.environ.get("ORT_DYLIB_PATH"):
        return library
    return package_library()


def package_library() -> Optional[str]:
    """The library in the package ``onnxruntime``, which is not imported."""
    spec = find_spec("onnxruntime")
    folders = (spec.submodule_search_locations or []) if spec else []
    names = ("libonnxruntime.so*", "libonnxruntime.*dylib", "onnxruntime.dll")
    found = [path for folder in folders for name in names for path in Path(folder, "capi").glob(name)]
    return str(max(found)) if found else None
