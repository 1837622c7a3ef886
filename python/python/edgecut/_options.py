"""Options as native code reads them: JSON of the structs that all interfaces fill."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Optional, Union

PathLike = Union[str, "os.PathLike[str]"]
#: One text, or several.
Names = Union[str, Sequence[str], None]
#: Bytes, or a text with a unit: ``"512MiB"``.
Size = Union[int, str]
#: Microseconds, or a text with a unit: ``"40ms"``.
Time = Union[int, float, str]


def several(value: Any) -> "list[Any]":
    """A list of one or more."""
    if value is None:
        return []
    one = isinstance(value, (str, int, os.PathLike)) or not isinstance(value, Iterable)
    return [value] if one else list(value)


def options(**values: Any) -> str:
    """Options as native code reads them; those that are ``None`` are not given."""
    return json.dumps({name: _plain(value) for name, value in values.items() if value is not None})


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (bool, int, float, str)):
        return value
    # Numbers of other packages, such as numpy's.
    return operator.index(value) if hasattr(value, "__index__") else float(value)


def model_options(
    *,
    params: Optional[PathLike] = None,
    bind_dim: Any = None,
    seed_parameters: Any = None,
    inputs: Optional[PathLike] = None,
    onnxruntime: Optional[PathLike] = None,
    strict: bool = False,
    external: Literal["keep", "inline"] = "inline",
    guess_dims: bool = False,
    context: Optional[int] = None,
    prompt: Optional[int] = None,
    state: Names = None,
) -> str:
    """How a model is read."""
    return options(
        params=params,
        bind_dim=several(bind_dim),
        seed_parameters=several(seed_parameters),
        inputs=inputs,
        onnxruntime=onnxruntime,
        strict=strict,
        external=external,
        guess_dims=guess_dims,
        context=context,
        prompt=prompt,
        state=several(state),
    )


def site_options(
    *,
    cluster: Optional[PathLike] = None,
    wait: Optional[Time] = None,
    threads: Optional[int] = None,
    engine: Optional[str] = None,
    onnxruntime: Optional[PathLike] = None,
    providers: Names = None,
) -> str:
    """Which devices are used, and how they compute."""
    names = [name for part in several(providers) for name in str(part).split(",")]
    return options(
        cluster=cluster,
        wait=wait,
        threads=threads,
        engine=engine,
        onnxruntime=onnxruntime,
        providers=names or None,
    )


def default_cluster(cluster: Optional[PathLike]) -> Optional[PathLike]:
    """The cluster file, or the one of the environment, as for the command line."""
    return cluster if cluster is not None else os.environ.get("EDGECUT_CLUSTER") or None


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
