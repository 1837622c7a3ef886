"""``edgecut.InferenceSession``: ONNX Runtime's session, whose calls the agents of a cluster compute by a plan."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, Optional, Union

import numpy
import onnxruntime  # type: ignore[import-untyped]

from ._options import PathLike, default_cluster
from ._placements import Placements, Settings
from ._plan import Plan

#: Defaults of sessions; ``edgecut.install`` sets them.
DEFAULTS = Settings()


class InferenceSession(onnxruntime.InferenceSession):  # type: ignore[misc]
    """A session of ONNX Runtime, with a cluster behind it.

    Everything that is not about a plan is inherited from ``onnxruntime.InferenceSession``. :meth:`run` and :meth:`run_async`
    compute a complete feed of numpy arrays by a plan on the agents, if there is one for its shapes. ONNX Runtime in this
    process, with the session's options and providers, computes all other calls: feeds that it has to refuse, calls with
    ``run_options``, shapes whose plan is not loaded, and everything while agents are lost. Outputs equal its own within the
    tolerance of the engines of the agents.

    Threads may share a session. Agents keep a plan and its memory until the session is deleted or the program ends.
    """

    def __init__(
        self,
        path_or_bytes: Union[PathLike, bytes],
        sess_options: "Optional[onnxruntime.SessionOptions]" = None,
        providers: "Optional[Sequence[Any]]" = None,
        provider_options: "Optional[Sequence[dict[Any, Any]]]" = None,
        *,
        plan: Union[Plan, PathLike, None] = None,
        cluster: Optional[PathLike] = None,
        planning: Optional[Literal["wait", "background"]] = None,
        plan_options: "Optional[Mapping[str, Any]]" = None,
        profile: Optional[PathLike] = None,
        max_shapes: Optional[int] = None,
        **kwargs: Any,
    ) -> None:
        """
        :param path_or_bytes: an ONNX model
        :param plan: a plan of the model, or its file, which is loaded at once
        :param cluster: the cluster file, if not the plan's or that of ``EDGECUT_CLUSTER``; without any, this machine computes
        :param planning: ``"wait"`` (default): the first call blocks until its plan is loaded; ``"background"``: no call does
        :param plan_options: further arguments of :func:`edgecut.plan`, such as ``{"profile_budget": "20s"}``
        :param profile: folder of the profiles that `plan` was made of, to plan again when an agent is lost
        :param max_shapes: maximum number of shapes with a plan (default 8); the least recently used one is evicted
        :param kwargs: as ONNX Runtime has them, and so are the others

        :raises EdgecutError: if `plan` cannot be read, is of another model, or its agents do not answer
        """
        super().__init__(path_or_bytes, sess_options, providers, provider_options, **kwargs)
        self._placements: Optional[Placements] = None
        self._async: Optional[ThreadPoolExecutor] = None
        self._async_lock = threading.Lock()
        given = Plan.load(plan) if isinstance(plan, (str, os.PathLike)) else plan
        settings = DEFAULTS.but(
            cluster=cluster, planning=planning, plan_options=plan_options, profile=profile, max_shapes=max_shapes
        )
        if given is None:
            settings = settings.but(cluster=default_cluster(settings.cluster))
        if given is not None or settings.cluster is not None:
            self._placements = Placements.of(self, path_or_bytes, given, settings)

    @property
    def plans(self) -> "tuple[Plan, ...]":
        """The plans that are loaded now."""
        return () if self._placements is None else self._placements.plans()

    def run(self, output_names: Any, input_feed: Any, run_options: Any = None) -> Any:
        """As ONNX Runtime's, on the agents if there is a plan for the shapes."""
        if self._placements is not None and run_options is None:
            outputs = self._placements.run(output_names, input_feed)
            if outputs is not None:
                return [numpy.array(output) for output in outputs]
        return super().run(output_names, input_feed, run_options)

    def run_async(
        self, output_names: Any, input_feed: Any, callback: Callable[..., Any], user_data: Any, run_options: Any = None
    ) -> Any:
        """As ONNX Runtime's; `callback` gets the outputs, `user_data` and a message, which is empty without an error."""
        if self._placements is None or run_options is not None:
            return super().run_async(output_names, input_feed, callback, user_data, run_options)
        self._validate_input(list(input_feed.keys()))

        def compute() -> None:
            try:
                outputs, message = self.run(output_names, input_feed), ""
            except Exception as error:
                outputs, message = [], str(error)
            callback(outputs, user_data, message)

        with self._async_lock:
            if self._async is None:
                self._async = ThreadPoolExecutor(1, thread_name_prefix="edgecut-run")
        self._async.submit(compute)
        return None
