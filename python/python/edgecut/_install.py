"""``edgecut.install``: has a program's sessions of ONNX Runtime compute on the agents of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Optional

from ._options import PathLike


def install(
    *,
    cluster: Optional[PathLike] = None,
    planning: Optional[Literal["wait", "background"]] = None,
    plan_options: "Optional[Mapping[str, Any]]" = None,
    max_shapes: Optional[int] = None,
) -> None:
    """Has ``onnxruntime.InferenceSession`` be :class:`edgecut.InferenceSession` from now on. Everything else of the package
    ``onnxruntime`` stays as it is. Modules that have imported the class before keep ONNX Runtime's.

    :param cluster: the cluster file, if not that of ``EDGECUT_CLUSTER``; without any, this machine computes

    Others are arguments of :class:`edgecut.InferenceSession`, as defaults of all sessions.
    """
    import onnxruntime  # type: ignore[import-untyped]
    from onnxruntime.capi import onnxruntime_inference_collection as collection  # type: ignore[import-untyped]

    from . import _session

    _session.DEFAULTS = _session.DEFAULTS.but(
        cluster=cluster, planning=planning, plan_options=plan_options, max_shapes=max_shapes
    )
    onnxruntime.InferenceSession = _session.InferenceSession
    collection.InferenceSession = _session.InferenceSession
