"""The placements of a session: one for each shape of its inputs, in a list of limited length."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Optional, Union

from . import _edgecut
from ._edgecut import Tensor
from ._errors import ModelError
from ._feed import MAX_DECIDING, Contents, Shapes, Signature, shapes_of
from ._fleet import Fleet, fleet
from ._options import PathLike, model_options
from ._placement import Placement, _listen
from ._plan import Plan
from ._plan_cache import PlanCache, cache_folder
from ._run import npz

#: What a plan is for: the shapes of all inputs, and the contents of those that decide what is computed.
Key = tuple[Shapes, tuple[bytes, ...]]


@dataclass(frozen=True)
class Settings:
    """How a session plans; see :class:`edgecut.InferenceSession`."""

    cluster: Optional[PathLike] = None
    planning: Literal["wait", "background"] = "wait"
    plan_options: "Mapping[str, Any]" = field(default_factory=dict)
    profile: PathLike = "profiles"
    max_shapes: int = 8

    def but(self, **changes: Any) -> Settings:
        """The same with these changes; ``None`` changes nothing."""
        return replace(self, **{name: value for name, value in changes.items() if value is not None})


class Placements:
    """Finds the placement for a feed, or has one prepared."""

    def __init__(self, signature: Signature, model: Path, settings: Settings, agents: Fleet) -> None:
        self._signature, self._model, self._settings, self._fleet = signature, model, settings, agents
        self._cache = None
        if settings.cluster is not None:
            self._cache = PlanCache(model, settings.cluster, dict(settings.plan_options))
        self._lock = threading.Lock()
        self._placed: "OrderedDict[Key, Placement]" = OrderedDict()
        #: Shapes that were seen once, oldest first.
        self._seen: "OrderedDict[Key, None]" = OrderedDict()
        #: Inputs whose contents decide what is computed, once the model was read.
        self._deciding: "tuple[str, ...]" = ()
        #: The first one, for whose plan a call may wait.
        self._first: Optional[Placement] = None

    @classmethod
    def of(
        cls, session: Any, path_or_bytes: Union[PathLike, bytes], plan: Optional[Plan], settings: Settings
    ) -> Optional[Placements]:
        """Those of an ONNX Runtime session; ``None``, with a warning, if edgecut cannot take its model.

        :raises EdgecutError: if `plan` cannot be loaded
        """
        try:
            signature = Signature(session.get_inputs(), session.get_outputs())
        except ValueError as error:
            _refuse("a model" if isinstance(path_or_bytes, bytes) else os.fspath(path_or_bytes), error)
            return None
        model = _file(path_or_bytes)
        if plan is not None and settings.cluster is None:
            settings = settings.but(cluster=_cluster(plan))
        made = cls(signature, model, settings, fleet("" if settings.cluster is None else str(Path(settings.cluster).resolve())))
        if plan is not None:
            made._load(plan)
        return made

    def plans(self) -> "tuple[Plan, ...]":
        """Those that are loaded."""
        with self._lock:
            return tuple(p.plan for p in self._placed.values() if p.is_loaded and p.plan is not None)

    def run(self, output_names: Any, feed: Any) -> "Optional[list[Tensor]]":
        """The outputs of these names; ``None`` if ONNX Runtime has to compute or refuse them."""
        if not isinstance(feed, Mapping):
            return None
        arrays, positions = self._signature.arrays(feed), self._signature.positions(output_names)
        if arrays is None or positions is None:
            return None
        placement = self._find(arrays)
        outputs = None if placement is None else placement.run(arrays)
        if outputs is None or len(outputs) != len(self._signature.outputs):
            return None
        return [outputs[position] for position in positions]

    def _key(self, arrays: Contents) -> Key:
        return shapes_of(arrays), tuple(arrays[name].tobytes() for name in self._deciding)

    def _find(self, arrays: Contents) -> Optional[Placement]:
        key = self._key(arrays)
        placement = self._placed.get(key)
        if placement is not None:
            if len(self._placed) > 1:
                with self._lock:
                    if key in self._placed:
                        self._placed.move_to_end(key)
            return placement
        if self._cache is None:
            return None
        placement = self._add(key, arrays)
        if placement is None:
            return None
        placement.prepare()
        if self._settings.planning == "wait" and placement is self._first:
            while not placement.ready.wait(1):
                # Nothing is planned once the program ends.
                if not threading.main_thread().is_alive():
                    return None
        return self._placed.get(self._key(arrays))

    def _add(self, key: Key, arrays: Contents) -> Optional[Placement]:
        """A placement for `key`. Once there are others, a shape gets one when it is seen for the second time."""
        with self._lock:
            if key in self._placed:
                return self._placed[key]
            if self._placed and key not in self._seen:
                self._seen[key] = None
                if len(self._seen) > 8 * self._settings.max_shapes:
                    self._seen.popitem(last=False)
                return None
            self._seen.pop(key, None)
            while len(self._placed) >= max(1, self._settings.max_shapes):
                self._placed.popitem(last=False)[1].close()
            # The caller may write into its arrays while the plan is made.
            arrays = {name: array.copy() if array.size <= MAX_DECIDING else array for name, array in arrays.items()}
            profiles = self._cache.profiles if self._cache is not None else self._settings.profile
            placement = Placement(
                self._fleet,
                str(self._model),
                lambda placement: self._make(placement, arrays),
                cluster=self._settings.cluster,
                profiles=profiles,
            )
            self._placed[key] = placement
            self._first = self._first or placement
            return placement

    def _make(self, placement: Placement, arrays: Contents) -> Plan:
        """A plan for a feed. While its candidates are measured, nothing else of this process is loaded."""
        assert self._cache is not None
        shapes, deciding = shapes_of(arrays), self._decide(arrays)
        contents: Contents = {name: arrays[name] for name in deciding}
        self._decided(placement, deciding, arrays)
        unloaded = [] if self._cache.has(shapes, contents) else self._fleet.unload_all()
        try:
            return self._cache.plan(self._signature, shapes, contents)
        finally:
            for one in unloaded:
                one.reload()

    def _decide(self, arrays: Contents) -> "tuple[str, ...]":
        """The inputs whose contents decide what is computed.

        :raises ModelError: if edgecut cannot take the model with these shapes
        """
        small = {name: array for name, array in arrays.items() if array.size <= MAX_DECIDING}
        may_decide = {name: array for name, array in small.items() if array.dtype.kind in "biu"}
        with npz(may_decide or None) as file:
            options = model_options(bind_dim=self._signature.bindings(shapes_of(arrays)), inputs=file)
            deciding = _edgecut.deciding_inputs(str(self._model), options, _listen)
        for name in deciding:
            if name not in may_decide:
                raise ModelError(f"`{name}` decides what is computed: expected bool or integer, at most {MAX_DECIDING} elements")
        return tuple(deciding)

    def _decided(self, placement: Placement, deciding: "tuple[str, ...]", arrays: Contents) -> None:
        """Keys are from now on by the contents of `deciding`, too."""
        with self._lock:
            if set(deciding) <= set(self._deciding):
                return
            self._deciding = tuple(sorted({*self._deciding, *deciding}))
            for other in self._placed.values():
                if other is not placement:
                    other.close()
            self._placed = OrderedDict({self._key(arrays): placement})
            self._seen.clear()

    def _load(self, plan: Plan) -> None:
        """Loads a plan that was given.

        :raises EdgecutError: if it is not of this model, or its agents do not answer
        """
        cluster, profiles = self._settings.cluster, self._settings.profile
        placement = Placement(self._fleet, str(self._model), lambda _: plan, cluster=cluster, profiles=profiles)
        placement.load()
        sizes = {name: tuple(size or 0 for size in shape) for name, _, shape in placement.inputs()}
        shapes = tuple(sizes.get(name, ()) for name, *_ in self._signature.inputs)
        self._placed[(shapes, ())] = placement


def _file(path_or_bytes: Union[PathLike, bytes]) -> Path:
    """The file of a model; one of bytes is written to the cache."""
    if not isinstance(path_or_bytes, bytes):
        return Path(path_or_bytes).resolve()
    path = cache_folder() / "models" / f"{hashlib.sha256(path_or_bytes).hexdigest()[:32]}.onnx"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, written = tempfile.mkstemp(dir=path.parent)
        with open(handle, "wb") as file:
            file.write(path_or_bytes)
        os.replace(written, path)
    return path


def _cluster(plan: Plan) -> Optional[Path]:
    """The cluster file that a plan names; relative paths are also looked for from its folder."""
    named = plan.to_dict().get("cluster")
    if named is None:
        return None
    path = Path(named)
    return path if path.exists() or plan.path is None else plan.path.parent / path


def _refuse(model: str, why: object) -> None:
    warnings.warn(f"edgecut: {model}: ONNX Runtime computes it on this machine: {why}", RuntimeWarning, stacklevel=4)
