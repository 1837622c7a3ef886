"""One shape of a session's inputs: its plan, the agents that have it loaded, and what happens when one of them is lost."""

from __future__ import annotations

import logging
import os
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Optional

from . import _edgecut
from ._edgecut import Tensor
from ._errors import AgentError, EdgecutError, InputError, ModelError
from ._feed import Contents, tensors
from ._fleet import Fleet
from ._options import PathLike, model_options, site_options
from ._plan import Plan, _plan

#: How long agents that could not be used are left alone, in seconds.
RETRY_S = 30.0

_LOG = logging.getLogger("edgecut")


class Placement:
    """A plan that is made and loaded in the background, and computes once it is loaded."""

    def __init__(
        self,
        fleet: Fleet,
        model: str,
        make: "Callable[[Placement], Plan]",
        *,
        cluster: Optional[PathLike] = None,
        profiles: PathLike = "profiles",
    ) -> None:
        """
        :param model: the path of the plan's model
        :param make: makes the plan, or raises an :exc:`EdgecutError`
        :param cluster: the cluster file, if not the plan's
        :param profiles: folder of the profiles from which another plan can be made when an agent is lost
        """
        self._fleet, self._model = fleet, model
        #: ``None`` once the plan is there.
        self._make: "Optional[Callable[[Placement], Plan]]" = make
        self._cluster, self._profiles = cluster, profiles
        self._plan: Optional[Plan] = None
        self._deployment: "Optional[_edgecut.NativeDeployment]" = None
        self._lock = threading.Lock()
        self._is_queued = False
        #: When to try again, by ``time.monotonic``; ``None``: never.
        self._retry_at: Optional[float] = 0.0
        #: Set once the first attempt is over.
        self.ready = threading.Event()

    @property
    def is_loaded(self) -> bool:
        """Whether the agents compute."""
        return self._deployment is not None

    @property
    def plan(self) -> Optional[Plan]:
        """The plan in use, once it is there."""
        return self._plan

    def run(self, arrays: Contents) -> "Optional[list[Tensor]]":
        """The model's outputs, in order; ``None`` if ONNX Runtime in this process has to compute them."""
        deployment = self._deployment
        if deployment is None:
            self.prepare()
            return None
        try:
            return deployment.run(tensors(arrays))
        except InputError as error:
            # Such as an input that decides what is computed, with another content than the plan is for.
            _LOG.info("%s: falling back to ONNX Runtime in this process: %s", self._model, error)
            return None
        except EdgecutError as error:
            self._lose(deployment, error)
            return None

    def prepare(self) -> None:
        """Has the plan made and loaded, unless that is in progress or has failed a moment ago."""
        with self._lock:
            if self._is_queued or self._retry_at is None or time.monotonic() < self._retry_at:
                return
            self._is_queued = True
        self._fleet.submit(self._attempt)

    def load(self) -> None:
        """Makes and loads the plan at once.

        :raises EdgecutError: if that fails
        """
        self._load(self._made())
        self.ready.set()

    def unload(self) -> None:
        """Unloads the plan after the calls in progress."""
        self._deployment = None

    def reload(self) -> None:
        """Has the plan loaded again."""
        self.prepare()

    def close(self) -> None:
        """Unloads the plan for good."""
        self._retry_at = None
        self.unload()

    def inputs(self) -> "list[tuple[str, str, list[Optional[int]]]]":
        """Names, types and sizes of the inputs that the loaded plan is for."""
        return [] if self._deployment is None else self._deployment.inputs

    def _made(self) -> Plan:
        if self._plan is None and self._make is not None:
            self._plan = self._make(self)
            self._make = None
        assert self._plan is not None
        return self._plan

    def _load(self, plan: Plan) -> None:
        deployment = _edgecut.deploy_plan(self._places(plan), _listen)
        # The first inference has warm-up runs before it; inputs that are not given are generated.
        deployment.run([])
        self._plan = plan
        if self._retry_at is not None:
            self._deployment = deployment
            self._fleet.add(self)

    def _lose(self, deployment: "_edgecut.NativeDeployment", error: EdgecutError) -> None:
        """Goes on by another plan, which is made in the background."""
        with self._lock:
            if self._deployment is not deployment or self._is_queued:
                return
            self._deployment = None
            self._is_queued = True
        self._fleet.submit(self._attempt)
        self._warn(f"falling back to ONNX Runtime in this process until the plan is loaded again: {error}")

    def _attempt(self) -> None:
        """Makes and loads the plan, or one for the agents that answer; if that fails, ONNX Runtime in this process computes."""
        try:
            if self._retry_at is None:
                return
            plan = self._made()
            try:
                self._load(plan)
            except AgentError:
                text = _edgecut.replan(self._places(plan), os.fspath(self._profiles), _listen)
                self._load(_plan(text, plan.path))
        except Exception as error:
            # A plan that could not be made cannot be made later, unless it was for an agent; nor can one be loaded that does not fit.
            is_final = isinstance(error, (InputError, ModelError)) or (
                self._plan is None and not isinstance(error, AgentError)
            )
            self._retry_at = None if is_final or self._retry_at is None else time.monotonic() + RETRY_S
            again = "" if is_final else f", for {RETRY_S:.0f} s at least"
            self._warn(f"falling back to ONNX Runtime in this process{again}: {error}")
        finally:
            self._is_queued = False
            self.ready.set()

    def _places(self, plan: Plan) -> "_edgecut._PlanPlaces":
        return {
            "text": plan.json.encode(),
            "path": os.fspath(plan.path or Path("plan.json")),
            "model": self._model,
            "options": model_options(),
            "site": site_options(cluster=self._cluster),
        }

    def _warn(self, what: str) -> None:
        warnings.warn(f"edgecut: {self._model}: {what}", RuntimeWarning, stacklevel=2)


def _listen(kind: str, text: str, *_: object) -> None:
    _LOG.debug("%s: %s", kind, text)
