"""Runs of plans on their agents, and of models on this machine."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Optional, Union

from . import _edgecut
from ._edgecut import Table, Tensor
from ._graph import BindDim, SeedParameters
from ._options import Names, PathLike, Time, model_options, options, runtime_library, site_options
from ._plan import Plan, _plan
from ._profile import Engine
from ._progress import Progress, listener

#: An ``.npz`` file with arrays ``in_<name>``, or arrays by the names of the inputs.
Inputs = Union[PathLike, Mapping[str, Any]]


@dataclass(frozen=True)
class Latency:
    """The distribution of latencies, in microseconds."""

    n: int
    median_us: float
    min_us: float
    p95_us: float
    #: Of plans only: median absolute deviation, 99th percentile, maximum.
    mad_us: Optional[float] = None
    p99_us: Optional[float] = None
    max_us: Optional[float] = None


@dataclass(frozen=True)
class Difference:
    """How far outputs are from those of one device; zero of all where they are equal."""

    #: Largest and mean absolute difference; infinite where types differ.
    largest_error: float
    mean_error: float
    #: The same, relative to the largest value of the output.
    largest_relative_error: float
    mean_relative_error: float
    #: Elements that are further apart than is allowed of a plan that converts nothing.
    elements_beyond_tolerance: int
    elements: int


@dataclass(frozen=True)
class PlanRun:
    """What was measured of a plan, as :func:`run` returns it."""

    #: What was run: the plan, or the last of those that were made because agents were lost.
    plan: Plan
    latency: Latency
    predicted_latency_us: float
    #: Between results, if inputs were pipelined.
    interval_us: Optional[float]
    predicted_interval_us: float
    #: Of each inference, in order.
    latencies_us: "tuple[float, ...]"
    #: ``None`` if outputs were not compared.
    difference: Optional[Difference]
    #: Of the last inference.
    outputs: "tuple[Tensor, ...]" = field(repr=False, compare=False)
    #: Groups, transfers, devices and the latency, predicted and measured, with the columns of ``run --format csv``.
    table: Table = field(repr=False, compare=False)
    #: The runs of plans before, each until an agent was lost.
    before: "tuple[PlanRun, ...]" = field(default=(), repr=False)


@dataclass(frozen=True)
class ModelRun:
    """What was measured of a model on this machine, as :func:`run_model` returns it."""

    model: str
    engine: str
    threads: int
    latency: Latency
    #: Operators that another engine computed.
    fallbacks: int
    #: What the engine holds of the parameters.
    held_bytes: int
    #: Peak of tensors and workspace, without what is held.
    peak_bytes: int
    #: Of the last run.
    outputs: "tuple[Tensor, ...]" = field(repr=False, compare=False)


def run(
    plan: Union[Plan, PathLike],
    *,
    model: Optional[PathLike] = None,
    params: Optional[PathLike] = None,
    bind_dim: Optional[BindDim] = None,
    seed_parameters: Optional[SeedParameters] = None,
    inputs: Optional[Inputs] = None,
    cluster: Optional[PathLike] = None,
    wait: Optional[Time] = None,
    repeat: Optional[int] = None,
    throughput: bool = False,
    replan: Optional[bool] = None,
    profile: Optional[PathLike] = None,
    check: bool = True,
    trace: Optional[PathLike] = None,
    output: Optional[PathLike] = None,
    progress: Optional[Callable[[Progress], object]] = None,
) -> PlanRun:
    """Runs a plan on its agents, and compares what it takes with what was predicted, and its outputs with those of one device.

    :param plan: a plan, or the ``plan.json`` of one
    :param model: the plan's model, if it is not where the plan says
    :param inputs: an ``.npz`` file with arrays ``in_<name>``, or arrays by the names of inputs; others are generated
    :param cluster: the cluster file, if not the plan's
    :param repeat: number of timed runs, 10 without
    :param throughput: keep several inputs in flight and measure the time between results
    :param replan: whether to plan again when an agent is lost; without, only with ``repeat`` or ``throughput``
    :param profile: folder of the profiles that the plan was made of
    :param check: whether to compare the outputs with those of the model on this machine
    :param trace: write predicted and measured times there: a trace in Chrome's format as ``.json``, else in Perfetto's
    :param output: append what was predicted and measured to this file (``.csv`` or ``.json``)
    :param progress: hears of each step; without it stderr shows them

    :raises AgentError: if an agent does not answer or is lost, and no other plan can go on
    :raises EdgecutError: if the outputs are not those of one device
    """
    plan = plan if isinstance(plan, Plan) else Plan.load(plan)
    with npz(inputs) as file:
        runs = _edgecut.run_plan(
            plan.json.encode(),
            {
                "plan": os.fspath(plan.path or "plan.json"),
                "model": None if model is None else os.fspath(model),
                "trace": None if trace is None else os.fspath(trace),
                "output": None if output is None else os.fspath(output),
            },
            model_options(params=params, bind_dim=bind_dim, seed_parameters=seed_parameters, inputs=file),
            site_options(cluster=cluster, wait=wait),
            options(repeat=repeat, throughput=throughput, replan=replan, profile=profile, no_check=not check),
            listener(progress),
        )
    done: "list[PlanRun]" = []
    for other, result, table, outputs in runs:
        done.append(_plan_run(plan if other is None else _plan(other, None), json.loads(result), table, outputs, tuple(done)))
    return done[-1]


def run_model(
    model: PathLike,
    *,
    params: Optional[PathLike] = None,
    bind_dim: Optional[BindDim] = None,
    seed_parameters: Optional[SeedParameters] = None,
    inputs: Optional[Inputs] = None,
    threads: Optional[int] = None,
    engine: Optional[Engine] = None,
    onnxruntime: Optional[PathLike] = None,
    providers: Names = None,
    repeat: int = 1,
    progress: Optional[Callable[[Progress], object]] = None,
) -> ModelRun:
    """Runs a model on this machine's processor.

    :param inputs: as of :func:`run`
    :param threads: compute threads, 1 without
    :param engine: as of :func:`profile`, and so are the others
    :param repeat: number of timed runs

    :raises ModelError: if the model cannot be read
    """
    with npz(inputs) as file:
        library = runtime_library(engine, onnxruntime)
        text, outputs = _edgecut.run_model(
            os.fspath(model),
            model_options(
                params=params, bind_dim=bind_dim, seed_parameters=seed_parameters, inputs=file, onnxruntime=library
            ),
            site_options(threads=threads, engine=engine, onnxruntime=library, providers=providers),
            options(repeat=repeat),
            listener(progress),
        )
    found = json.loads(text)
    latency = Latency(found["runs"], found["median_us"], found["min_us"], found["p95_us"])
    names = ("model", "engine", "threads", "fallbacks", "held_bytes", "peak_bytes")
    return ModelRun(**{name: found[name] for name in names}, latency=latency, outputs=tuple(outputs))


def _plan_run(
    plan: Plan, found: "dict[str, Any]", table: Table, outputs: "list[Tensor]", before: "tuple[PlanRun, ...]"
) -> PlanRun:
    difference: "Optional[dict[str, Any]]" = found["outputs"]
    return PlanRun(
        plan=plan,
        latency=Latency(**found["latency"]),
        predicted_latency_us=found["predicted_latency_us"],
        interval_us=found["interval_us"],
        predicted_interval_us=found["predicted_interval_us"],
        latencies_us=tuple(found["latencies_us"]),
        difference=None if difference is None else _difference(difference),
        outputs=tuple(outputs),
        table=table,
        before=before,
    )


def _difference(found: "dict[str, Any]") -> Difference:
    """JSON has no infinity."""
    values: "dict[str, Any]" = {name: inf if value is None else value for name, value in found.items()}
    return Difference(**values)


@contextmanager
def npz(inputs: Optional[Inputs]) -> Iterator[Optional[PathLike]]:
    """The file of `inputs`; arrays are written to one that is there for the call."""
    if inputs is None or isinstance(inputs, (str, os.PathLike)):
        yield inputs
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "inputs.npz")
        save_inputs(file, inputs)
        yield file


def save_inputs(file: Path, inputs: Mapping[str, Any]) -> None:
    """Writes arrays, by the names of inputs, as an ``.npz`` file of inputs."""
    import numpy

    arrays: "dict[str, Any]" = {f"in_{name}": numpy.asarray(array) for name, array in inputs.items()}
    numpy.savez(file, **arrays)
