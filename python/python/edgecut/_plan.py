"""Plans: where each group of operators runs, in which order, and what that costs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Optional, Union

from . import _edgecut
from ._edgecut import Table
from ._errors import InputError
from ._graph import BindDim, SeedParameters
from ._options import (
    Names,
    PathLike,
    Size,
    Time,
    default_cluster,
    model_options,
    options,
    runtime_library,
    several,
    site_options,
)
from ._profile import Engine
from ._progress import Progress, listener


@dataclass(frozen=True)
class Predicted:
    """What the simulation of a plan says."""

    latency_us: float
    #: Between results, when inputs are pipelined.
    interval_us: float
    throughput_per_s: float
    #: The inputs in flight at which that holds.
    in_flight: int
    #: What the fullest device needs.
    peak_bytes: int
    #: Joules of one run; ``None`` where a device tells no power.
    energy_j: Optional[float] = None


@dataclass(frozen=True)
class Bound:
    """What no plan can go below: in microseconds, in bytes where memory is the objective, in joules where energy is."""

    value: float
    #: The argument that gives it.
    by: str


@dataclass(frozen=True)
class DevicePlan:
    """One device and what a plan asks of it."""

    server: str
    device: str
    #: Where the server's agent listens; ``None`` for the embedded one.
    address: Optional[str]
    threads: Optional[int]
    engine: Optional[str]
    #: Number of groups that it computes.
    groups: int
    busy_us: float
    memory_limit_bytes: Optional[int]
    parameter_bytes: int
    load_bytes: int
    arena_bytes: int
    #: Its idle power in watts; ``None`` where it is not known.
    idle_w: Optional[float] = None

    @property
    def name(self) -> str:
        """``server/device``"""
        return f"{self.server}/{self.device}"


@dataclass(frozen=True)
class Prefill:
    """How a plan of a decoder reads a prompt."""

    #: Tokens of the prompt.
    prompt: int
    #: Tokens of a step. What is left is read token by token.
    step: int
    step_us: float
    time_us: float
    #: The limit on that.
    target_us: Optional[float] = None
    #: What no plan can go below, if the time to the first token was the objective.
    bound_us: Optional[float] = None


@dataclass(frozen=True)
class Plan:
    """A placement of a model on devices, with what it is predicted to cost, as :func:`plan` returns it."""

    model: str
    objective: Literal["latency", "throughput", "memory", "energy"]
    predicted: Predicted
    bound: Bound
    #: How far the objective's value is above its bound, as a fraction of the value.
    gap: float
    devices: "tuple[DevicePlan, ...]"
    #: Operators that are split over devices.
    splits: int
    #: What a person should know: devices left out and why, times that are estimates.
    notes: "tuple[str, ...]"
    #: The plan as ``plan.json`` has it.
    json: str = field(repr=False)
    #: Of a decoder that was planned with a prompt.
    prefill: Optional[Prefill] = None
    #: The file that it was read from or saved to; files that it names are looked for from there.
    path: Optional[Path] = field(default=None, compare=False)

    @classmethod
    def load(cls, path: PathLike) -> Plan:
        """Reads a ``plan.json``.

        :raises InputError: if it cannot be read or is not a plan
        """
        try:
            text = Path(path).read_bytes()
        except OSError as error:
            raise InputError(f"{os.fspath(path)}: {error.strerror or error}") from error
        _edgecut.check_plan(text)
        return _plan(text.decode(), Path(path))

    def save(self, path: PathLike) -> Plan:
        """Writes it as JSON, and its rows as ``.csv`` with the same name. Returns it with its :attr:`path`."""
        _edgecut.write_plan(os.fspath(path), self.json)
        # As the command line does: named by the CSV file, the JSON is next to it.
        path = Path(path)
        return _plan(self.json, path.with_suffix(".json") if path.suffix.lower() == ".csv" else path)

    @cached_property
    def table(self) -> Table:
        """A row for each group and each transfer, by start time, with the columns of ``plan.csv``."""
        return _edgecut.plan_table(self.json.encode())

    def to_dict(self) -> "dict[str, Any]":
        """Everything in ``plan.json``."""
        found: dict[str, Any] = json.loads(self.json)
        return found

    def __str__(self) -> str:
        used = [device for device in self.devices if device.groups]
        lines = [
            f"{device.name}: {device.groups} groups, busy {device.busy_us / 1e3:.2f} ms, "
            f"parameters {device.parameter_bytes / 2**20:.1f} MiB, peak load {device.load_bytes / 2**20:.1f} MiB"
            for device in used
        ]
        predicted, unit = self.predicted, {"memory": "bytes", "energy": "J"}.get(self.objective, "us")
        bound = f"{self.bound.value:.4g}" if unit == "J" else f"{self.bound.value:.0f}"
        energy = "" if predicted.energy_j is None else f", energy {predicted.energy_j:.4g} J"
        lines.append(
            f"latency {predicted.latency_us / 1e3:.2f} ms, throughput {predicted.throughput_per_s:.1f}/s{energy}; "
            f"bound {bound} {unit} ({self.bound.by}), gap {100 * self.gap:.1f} %"
        )
        return "\n".join(lines)


def plan(
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
    objective: Literal["latency", "throughput", "memory", "energy", "first-token"] = "latency",
    memory: Optional[Size] = None,
    latency: Optional[Time] = None,
    throughput: Optional[float] = None,
    prompt: Optional[int] = None,
    first_token: Optional[Time] = None,
    granularity: Literal["fused", "op"] = "fused",
    split: bool = True,
    ratios: Optional[Literal["tuned", "equal", "proportional"]] = None,
    halos: Optional[Literal["exchanged", "recomputed"]] = None,
    like: Optional[PathLike] = None,
    sharded: bool = False,
    transfer: Optional[Literal["exact", "f16", "int8"]] = None,
    pin: Names = None,
    ban: Names = None,
    advise: bool = False,
    threads: Optional[int] = None,
    engine: Optional[Engine] = None,
    onnxruntime: Optional[PathLike] = None,
    providers: Names = None,
    profile: Union[PathLike, Sequence[PathLike]] = "profiles",
    estimate: bool = False,
    rehearse: Optional[int] = None,
    links: Optional[PathLike] = None,
    calibration: Optional[PathLike] = None,
    profile_budget: Optional[Time] = None,
    time_limit: Optional[Time] = None,
    seed: Optional[int] = None,
    budget: Optional[int] = None,
    output: Optional[PathLike] = None,
    progress: Optional[Callable[[Progress], object]] = None,
) -> Plan:
    """Plans where the operators of a model run, under memory and latency targets.

    Measures what the profiles lack, and runs candidates on the agents. Options mean what the flags of ``edgecut plan`` do; those
    that :func:`profile` has too mean the same.

    :param model: Relay text, an ONNX model, a decoder's folder, or a graph dump of TVM's debug executor
    :param context: tokens for which the caches of a decoder have room
    :param state: further states, as ``"INPUT=OUTPUT"``
    :param objective: the latency of one input, the largest load of a device or link, the fullest device's memory, the energy
        of one run, or the time to the first token after a prompt
    :param memory: no device may need more than this
    :param latency: the plan must be at least as fast as this
    :param throughput: the plan must give at least this number of results a second
    :param prompt: tokens of a prompt; the plan then predicts the time to the first token (TTFT) of a decoder
    :param first_token: the predicted TTFT may be at most this
    :param split: whether groups may be split over several devices
    :param ratios: the shares of devices in a split group, tuned without
    :param halos: how shards get what they read of their neighbours' shares, what is best without
    :param like: split what this plan splits, over the same devices
    :param sharded: place and split groups by the shardings in the model's ONNX file
    :param transfer: format of activations between servers, exact without
    :param pin: run groups on one device: ``"#7=two/cpu"``, or several of them
    :param ban: keep groups off one device
    :param advise: note how much worse the plan is without each server
    :param profile: folder of profiles, or files, with which nothing is measured
    :param estimate: measure nothing, and estimate what the profiles lack
    :param rehearse: rounds of pilot runs, 3 without; 0 plans by profiles alone
    :param links: where measured links are kept
    :param calibration: calibrations to use
    :param profile_budget: time to spend on measuring, on each device
    :param time_limit: return the best plan found in this time
    :param seed: the same seed and budget give the same plan
    :param budget: number of placements that may be evaluated
    :param output: also write the plan there, as ``.json`` and ``.csv``
    :param progress: hears of each step; without it stderr shows them

    :raises PlanError: if no plan satisfies the targets, with the reason
    :raises ModelError: if the model cannot be read
    :raises ClusterError: if the cluster file cannot be used
    :raises AgentError: if an agent does not answer or is lost
    :raises KeyboardInterrupt: on Ctrl-C; what was measured is in the profiles
    """
    library = runtime_library(engine, onnxruntime)
    text = _edgecut.plan(
        os.fspath(model),
        model_options(
            params=params,
            bind_dim=bind_dim,
            seed_parameters=seed_parameters,
            inputs=inputs,
            onnxruntime=library,
            context=context,
            # A plan is for steps of one token.
            prompt=None if prompt is None else 1,
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
            objective=objective,
            memory=memory,
            latency=latency,
            throughput=throughput,
            prompt=prompt,
            first_token=first_token,
            granularity=granularity,
            no_split=not split,
            ratios=ratios,
            halos=halos,
            like=like,
            sharded=sharded,
            transfer=transfer,
            pin=several(pin),
            ban=several(ban),
            advise=advise,
            estimate=estimate,
            rehearse=rehearse,
            links=links,
            calibration=calibration,
            profile_budget=profile_budget,
            time_limit=time_limit if time_limit is None or isinstance(time_limit, str) else f"{time_limit}us",
            seed=seed,
            budget=budget,
        ),
        [os.fspath(path) for path in several(profile)],
        # Checked before the work, written after it.
        None if output is None else os.fspath(output),
        listener(progress),
    )
    made = _plan(text, None)
    return made if output is None else made.save(output)


def _plan(text: str, path: Optional[Path]) -> Plan:
    found = json.loads(text)
    absent = {"in_flight": 1}
    predicted = {name: found["predicted"].get(name, absent.get(name)) for name in Predicted.__dataclass_fields__}
    return Plan(
        model=found["model"]["path"],
        objective=found["objective"],
        predicted=Predicted(**predicted),
        bound=Bound(**found["bound"]),
        gap=found["gap"],
        devices=tuple(_device(device) for device in found["devices"]),
        splits=len(found.get("splits", ())),
        notes=tuple(found["notes"]),
        prefill=Prefill(**found["prefill"]) if "prefill" in found else None,
        json=text,
        path=path,
    )


def _device(found: "dict[str, Any]") -> DevicePlan:
    memory = found["memory"]
    return DevicePlan(
        server=found["server"],
        device=found["device"],
        address=found["address"],
        threads=found["threads"],
        engine=found.get("engine"),
        groups=len(found["order"]),
        busy_us=found["busy_us"],
        memory_limit_bytes=found["memory_limit_bytes"],
        parameter_bytes=memory["parameter_bytes"],
        load_bytes=memory["load_bytes"],
        arena_bytes=memory["arena_bytes"],
        idle_w=found.get("idle_w"),
    )
