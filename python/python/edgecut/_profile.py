"""Profiles: what every operator costs on each device."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Optional, Union

from . import _edgecut
from ._edgecut import Table
from ._graph import BindDim, SeedParameters
from ._options import Names, PathLike, Time, default_cluster, model_options, options, runtime_library, site_options
from ._progress import Progress, listener

Engine = Literal["tract", "onnxruntime", "auto"]


@dataclass(frozen=True)
class KindTime:
    """All operators or groups of one name on one device."""

    operator: str
    count: int
    time_us: float
    cpu_us: float
    #: Fraction of the time of all kinds.
    share: float
    #: Of all of them, with what the idle device draws; ``None`` unless it is known of each.
    energy_j: Optional[float] = None


@dataclass(frozen=True)
class DeviceProfile:
    """The profile of one device, in short; the rows are in :attr:`Profile.table`."""

    #: ``server/device``
    device: str
    hardware: str
    engine: str
    threads: int
    #: The CSV file, to which later calls add.
    path: Path
    #: The sum of the times of all items, and the time of the whole model where the device can compute it.
    sum_us: float
    whole_us: Optional[float]
    #: Items that the device cannot compute.
    missing: int
    #: Items whose times are not to be trusted, as other processes took the processor.
    disturbed: int
    unmeasured_shards: int
    #: Most expensive first.
    kinds: "tuple[KindTime, ...]"


@dataclass(frozen=True)
class Profile:
    """What every operator of a model costs on each device, as :func:`profile` returns it."""

    devices: "tuple[DeviceProfile, ...]"
    #: The rows of all devices, with the columns of the CSV files.
    table: Table = field(repr=False, compare=False)


def profile(
    model: PathLike,
    *,
    params: Optional[PathLike] = None,
    bind_dim: Optional[BindDim] = None,
    seed_parameters: Optional[SeedParameters] = None,
    inputs: Optional[PathLike] = None,
    context: Optional[int] = None,
    state: Names = None,
    cluster: Optional[PathLike] = None,
    wait: Optional[Time] = None,
    mode: Literal["isolated", "in-situ"] = "isolated",
    granularity: Literal["fused", "op"] = "fused",
    threads: Optional[int] = None,
    engine: Optional[Engine] = None,
    onnxruntime: Optional[PathLike] = None,
    providers: Names = None,
    fractions: bool = False,
    budget: Time = "20s",
    output: PathLike = "profiles",
    again: bool = False,
    progress: Optional[Callable[[Progress], object]] = None,
) -> Profile:
    """Measures every operator of a model, on this machine or on all devices of a cluster.

    Measurements are stored as they arrive, and those that are there are not made again: after Ctrl-C the same call goes on.

    :param params: as of :class:`Graph`, and so are ``bind_dim``, ``seed_parameters`` and ``inputs``
    :param context: tokens for which the caches of a decoder have room
    :param state: further states, as ``"INPUT=OUTPUT"``
    :param cluster: the cluster's servers (TOML); this machine alone without
    :param wait: how long to wait for devices that others use
    :param mode: measure each distinct operator alone, or all of them while the model runs
    :param granularity: measure the groups that TVM's rules fuse, or single operators
    :param threads: compute threads on every server; 1 on this machine alone without
    :param engine: of CPUs: ``tract`` (embedded, the default here), ``onnxruntime``, or ``auto``, the faster of both
    :param onnxruntime: the library of ONNX Runtime, instead of the installed package's
    :param providers: ONNX Runtime's execution providers in order of preference, such as ``["cuda", "cpu"]``
    :param fractions: also measure halves, quarters and eighths of operators
    :param budget: time to spend on each device
    :param output: folder of the profiles
    :param again: measure again what was measured before
    :param progress: hears of each step; without it stderr shows them

    :raises ModelError: if the model cannot be read
    :raises ClusterError: if the cluster file cannot be used
    :raises AgentError: if an agent does not answer or is lost
    :raises KeyboardInterrupt: on Ctrl-C; what was measured is in the profiles
    """
    library = runtime_library(engine, onnxruntime)
    summaries, table = _edgecut.profile(
        os.fspath(model),
        model_options(
            params=params,
            bind_dim=bind_dim,
            seed_parameters=seed_parameters,
            inputs=inputs,
            onnxruntime=library,
            context=context,
            state=state,
        ),
        site_options(
            cluster=default_cluster(cluster),
            wait=wait,
            threads=threads,
            engine=engine,
            onnxruntime=library,
            providers=providers,
        ),
        options(
            mode=mode, granularity=granularity, fractions=fractions, budget=budget, output=output, again=again
        ),
        listener(progress),
    )
    return Profile(devices=tuple(_device(of) for of in json.loads(summaries)), table=table)


def _device(summary: "dict[str, Any]") -> DeviceProfile:
    kinds = tuple(KindTime(**{k: v for k, v in kind.items() if k != "kind"}) for kind in summary.pop("kinds"))
    return DeviceProfile(**{**summary, "path": Path(summary["path"])}, kinds=kinds)
