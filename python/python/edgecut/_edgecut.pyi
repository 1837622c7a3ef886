"""Native code: what the package calls, and the classes `Table` and `Tensor`."""

from collections.abc import Callable
from typing import Any, Optional, TypedDict

__version__: str

_Listener = Optional[Callable[[str, str, Optional[str], Optional[int], Optional[int]], object]]

class NativeGraph:
    @property
    def path(self) -> str: ...
    @property
    def blake3(self) -> str: ...
    @property
    def type_checks(self) -> tuple[int, int]: ...
    def summary(self) -> str: ...
    def operators(self) -> Table: ...
    def tensors(self) -> Table: ...
    def to_relay(self) -> str: ...
    def __len__(self) -> int: ...

class Table:
    """A table of results in Arrow's memory layout.

    Implements the Arrow PyCapsule interface: ``pyarrow.table(t)``, ``polars.DataFrame(t)`` and pandas (through
    ``t.to_pandas()`` or ``pandas.DataFrame.from_arrow(t)``) read it without a copy. Times are in microseconds and sizes in
    bytes, as the names of columns say.
    """

    @property
    def num_rows(self) -> int:
        """The number of rows."""
    @property
    def column_names(self) -> list[str]:
        """The names of the columns, in order."""
    def column(self, name: str) -> list[Any]:
        """The cells of one column, ``None`` where a row has none."""
    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows as dictionaries."""
    def to_pandas(self) -> Any:
        """As a ``pandas.DataFrame``; needs pandas and pyarrow."""
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...
    def __arrow_c_schema__(self) -> object: ...
    def __len__(self) -> int: ...
    def __getitem__(self, name: str) -> list[Any]: ...

class Tensor:
    """An output of a run. ``numpy.asarray(tensor)`` reads it without a copy."""

    @property
    def shape(self) -> list[int]:
        """Its sizes."""
    @property
    def dtype(self) -> str:
        """The type of its elements, such as ``float32``."""
    def tobytes(self) -> bytes:
        """Its elements, row by row and little-endian."""
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

class _Places(TypedDict):
    plan: str
    model: Optional[str]
    trace: Optional[str]
    output: Optional[str]

# Options are JSON of the structs in the crate `edgecut-session`.
def inspect(path: str, model: str) -> NativeGraph: ...
def profile(path: str, model: str, site: str, profile: str, progress: _Listener) -> tuple[str, Table]: ...
def plan(
    path: str, model: str, site: str, plan: str, profiles: list[str], output: Optional[str], progress: _Listener
) -> str: ...
def check_plan(text: bytes) -> None: ...
def plan_table(text: bytes) -> Table: ...
def write_plan(path: str, text: str) -> None: ...
def run_model(path: str, model: str, site: str, run: str, progress: _Listener) -> tuple[str, list[Tensor]]: ...
def run_plan(
    text: bytes, places: _Places, model: str, site: str, run: str, progress: _Listener
) -> list[tuple[str | None, str, Table, list[Tensor]]]: ...
def main(arguments: list[str]) -> int: ...
