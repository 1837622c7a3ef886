"""Models: what is in them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, Optional, Union

from . import _edgecut
from ._edgecut import Table
from ._options import PathLike, model_options

BindDim = Union[str, int, Iterable[Union[str, int]]]
SeedParameters = Union[str, Iterable[str]]


@dataclass(frozen=True)
class TensorType:
    """Name and type of an input or output."""

    name: str
    #: As Relay prints it, such as ``Tensor[(1, 3, 224, 224), float32]``.
    type: str


@dataclass(frozen=True)
class Parameters:
    """Weights, with the constants of the model."""

    tensors: int
    elements: int
    bytes: int
    #: How many of the tensors are constants of the model.
    constants: int


@dataclass(frozen=True)
class OperatorKind:
    """All operators of one name."""

    op: str
    count: int
    flops: int
    output_bytes: int
    #: Why no engine supports it.
    unsupported: Optional[str]


@dataclass(frozen=True)
class ModelSummary:
    """What is in a model, as :func:`inspect` returns it."""

    model: str
    blake3: str
    operators: int
    flops: int
    inputs: "tuple[TensorType, ...]"
    outputs: "tuple[TensorType, ...]"
    parameters: Parameters
    #: Of all operators together, views excluded.
    output_bytes: int
    #: Tensors with unknown dimensions, counted as nothing: ``bind_dim`` gives them sizes.
    unknown_shapes: int
    #: In descending order of FLOPs.
    kinds: "tuple[OperatorKind, ...]"
    types_checked: int
    types_disagreeing: int
    graph: Graph = field(repr=False, compare=False)

    def __str__(self) -> str:
        parameters = self.parameters
        lines = [
            f"{self.model}: {self.operators} operators, {self.flops / 1e9:.3f} GFLOP",
            f"parameters: {parameters.elements / 1e6:.3f} M elements, {parameters.bytes / 2**20:.1f} MiB",
            *(f"input: {tensor.name} {tensor.type}" for tensor in self.inputs),
            *(f"output: {tensor.name} {tensor.type}" for tensor in self.outputs),
        ]
        without = sum(kind.count for kind in self.kinds if kind.unsupported)
        return "\n".join(lines + ([f"{without} operators are not supported"] if without else []))


class Graph:
    """A model as a graph of operators and tensors in single-assignment form.

    :param model: Relay text, as TVM's ``mod.astext()`` prints it, or an ONNX model
    :param params: content of the parameters, as ``relay.save_param_dict`` writes it
    :param bind_dim: sizes of unknown dimensions: ``8``, ``"data:0=8"``, ``"batch=8"``, or several of them; missing sizes of an ONNX model are guessed
    :param seed_parameters: inputs that are parameters, generated from their names: a name, a pattern such as ``"*.weight"``, or several
    :param inputs: an ``.npz`` file with contents of inputs, as arrays ``in_<name>``
    :param strict: accept only what TVM's own parser accepts
    :param external: whether calls of functions of another compiler are kept or inlined

    :raises ModelError: if the model cannot be read
    """

    def __init__(
        self,
        model: PathLike,
        *,
        params: Optional[PathLike] = None,
        bind_dim: Optional[BindDim] = None,
        seed_parameters: Optional[SeedParameters] = None,
        inputs: Optional[PathLike] = None,
        strict: bool = False,
        external: Literal["keep", "inline"] = "keep",
    ) -> None:
        options = model_options(
            params=params,
            bind_dim=bind_dim,
            seed_parameters=seed_parameters,
            inputs=inputs,
            strict=strict,
            external=external,
            guess_dims=True,
        )
        self._native = _edgecut.inspect(os.fspath(model), options)

    @property
    def path(self) -> str:
        """The model's file, as it was named."""
        return self._native.path

    @property
    def blake3(self) -> str:
        """The hash of the file, which identifies the model in profiles and plans."""
        return self._native.blake3

    @property
    def operators(self) -> Table:
        """A row for each operator: id, operator, arguments, result, flops, output_bytes, inputs, outputs."""
        return self._native.operators()

    @property
    def tensors(self) -> Table:
        """A row for each tensor: id, name, type, bytes, origin, producer."""
        return self._native.tensors()

    def to_relay(self) -> str:
        """The graph as Relay text."""
        return self._native.to_relay()

    def summary(self) -> ModelSummary:
        """What is in it."""
        found = json.loads(self._native.summary())
        checked, disagreeing = self._native.type_checks
        return ModelSummary(
            model=self.path,
            blake3=self.blake3,
            operators=found["operators"],
            flops=found["flops"],
            inputs=tuple(TensorType(**tensor) for tensor in found["inputs"]),
            outputs=tuple(TensorType(**tensor) for tensor in found["outputs"]),
            parameters=Parameters(**found["parameters"]),
            output_bytes=found["output_bytes"],
            unknown_shapes=found["unknown_shapes"],
            kinds=tuple(OperatorKind(**kind) for kind in found["kinds"]),
            types_checked=checked,
            types_disagreeing=disagreeing,
            graph=self,
        )

    def __len__(self) -> int:
        return len(self._native)

    def __repr__(self) -> str:
        return f"<edgecut.Graph {os.path.basename(self.path)}: {len(self)} operators>"


def inspect(
    model: PathLike,
    *,
    params: Optional[PathLike] = None,
    bind_dim: Optional[BindDim] = None,
    seed_parameters: Optional[SeedParameters] = None,
    inputs: Optional[PathLike] = None,
    strict: bool = False,
    external: Literal["keep", "inline"] = "keep",
) -> ModelSummary:
    """What is in a model: operators, shapes, FLOPs, parameters, what is not supported. Options as of :class:`Graph`.

    :raises ModelError: if the model cannot be read
    """
    graph = Graph(
        model,
        params=params,
        bind_dim=bind_dim,
        seed_parameters=seed_parameters,
        inputs=inputs,
        strict=strict,
        external=external,
    )
    return graph.summary()
