"""Feeds of an ONNX Runtime session: which ones a plan can compute, by their types and shapes, and their tensors as native code
takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

import numpy

#: The sizes of each input, in the order of the model.
Shapes = tuple[tuple[int, ...], ...]
#: The contents of some inputs, by name.
Contents = dict[str, "numpy.ndarray[Any, Any]"]

#: Types of ONNX Runtime's ``NodeArg`` that numpy and edgecut both have.
DTYPES: "dict[str, numpy.dtype[Any]]" = {
    f"tensor({onnx})": numpy.dtype(name)
    for onnx, name in {
        "bool": "bool",
        "float": "float32",
        "float16": "float16",
        "double": "float64",
        **{name: name for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")},
    }.items()
}

#: Elements of an input whose content may be part of what a plan is for.
MAX_DECIDING = 64


class Signature:
    """The inputs and outputs of a model, all of them tensors of known types and ranks."""

    def __init__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """
        :param inputs: ``NodeArg`` of each input
        :param outputs: ``NodeArg`` of each output

        :raises ValueError: if one of them is no tensor, or has elements that edgecut lacks
        """
        for arg in (*inputs, *outputs):
            if arg.type not in DTYPES:
                raise ValueError(f"`{arg.name}` is of type {arg.type}")
        #: Name, type, and sizes, ``None`` where any is accepted.
        self.inputs = [(arg.name, DTYPES[arg.type], tuple(map(_size, arg.shape))) for arg in inputs]
        self.outputs = {arg.name: index for index, arg in enumerate(outputs)}

    def arrays(self, feed: Mapping[str, Any]) -> Optional[Contents]:
        """A complete feed in the order of the model; ``None`` of others, on which ONNX Runtime has the last word.

        Values are numpy arrays of the types of the model, or lists, of which it makes such arrays.
        """
        if len(feed) != len(self.inputs):
            return None
        found = {}
        for name, dtype, sizes in self.inputs:
            value = feed.get(name)
            array = _array(value, dtype) if type(value) is list else value
            if type(array) is not numpy.ndarray or array.dtype != dtype:
                return None
            shape = array.shape
            if len(shape) != len(sizes) or any(want not in (None, have) or not have for have, want in zip(shape, sizes)):
                return None
            found[name] = array
        return found

    def positions(self, output_names: Any) -> "Optional[list[int]]":
        """Where these outputs are among the model's, all of them without names; ``None`` if ONNX Runtime has to refuse them."""
        if output_names is not None and not isinstance(output_names, (list, tuple)):
            return None
        if not output_names:
            return list(range(len(self.outputs)))
        found = [self.outputs.get(name) for name in output_names]
        return None if None in found else [index for index in found if index is not None]

    def bindings(self, shapes: Shapes) -> "list[str]":
        """Options ``bind_dim`` for the dimensions of which the model accepts any size."""
        return [
            f"{name}:{axis}={shape[axis]}"
            for (name, _, sizes), shape in zip(self.inputs, shapes)
            for axis, size in enumerate(sizes)
            if size is None
        ]


def shapes_of(arrays: Contents) -> Shapes:
    """The shapes of a complete feed."""
    return tuple(array.shape for array in arrays.values())


def tensors(arrays: Contents) -> "list[tuple[str, str, tuple[int, ...], bytes]]":
    """A feed as native code takes it."""
    return [(name, array.dtype.name, array.shape, array.tobytes()) for name, array in arrays.items()]


def _array(value: "list[Any]", dtype: "numpy.dtype[Any]") -> "Optional[numpy.ndarray[Any, Any]]":
    """A list as an array, if no value changes its kind, and integers are in the range of `dtype`."""
    try:
        array = numpy.array(value)
    except (ValueError, OverflowError):
        return None
    if not numpy.can_cast(array.dtype, dtype, "same_kind"):
        return None
    converted = array.astype(dtype)
    return converted if dtype.kind == "f" or numpy.array_equal(converted, array) else None


def _size(size: Any) -> Optional[int]:
    """Of one dimension; ONNX Runtime has a name or ``None`` where any is accepted, and -1 in old versions."""
    return size if isinstance(size, int) and size >= 0 else None
