"""edgecut profiles neural networks operator by operator on the servers of an edge cluster, and plans how to split them over
its devices.

:func:`inspect` says what is in a model, :func:`profile` measures it, :func:`plan` plans where its operators run, :func:`run` runs a
plan, :func:`generate` generates tokens. :class:`InferenceSession` is ONNX Runtime's session on a cluster, :func:`install` makes programs use it. Results
are dataclasses, and tables in Arrow's layout (:class:`Table`). Options are the flags of the command line.

Long work releases the GIL. Ctrl-C stops it and raises :exc:`KeyboardInterrupt`; what was measured stays in the profiles.
"""

from typing import TYPE_CHECKING, Any

from ._edgecut import Table, Tensor, __version__
from ._errors import AgentError, ClusterError, EdgecutError, InputError, ModelError, PlanError
from ._generation import Generation, GenerationFigures, PredictedTimes, TokenTimes, generate
from ._graph import Graph, ModelSummary, OperatorKind, Parameters, TensorType, inspect
from ._install import install
from ._plan import Bound, DevicePlan, Plan, Predicted, Prefill, plan
from ._profile import DeviceProfile, KindTime, Profile, profile
from ._progress import Progress
from ._run import Difference, Latency, ModelRun, PlanRun, run, run_model

if TYPE_CHECKING:
    from ._session import InferenceSession

__all__ = [
    "AgentError",
    "Bound",
    "ClusterError",
    "DevicePlan",
    "DeviceProfile",
    "Difference",
    "EdgecutError",
    "Generation",
    "GenerationFigures",
    "Graph",
    "InferenceSession",
    "InputError",
    "KindTime",
    "Latency",
    "ModelError",
    "ModelRun",
    "ModelSummary",
    "OperatorKind",
    "Parameters",
    "Plan",
    "PlanError",
    "PlanRun",
    "Predicted",
    "PredictedTimes",
    "Prefill",
    "Profile",
    "Progress",
    "Table",
    "Tensor",
    "TensorType",
    "TokenTimes",
    "__version__",
    "generate",
    "inspect",
    "install",
    "plan",
    "profile",
    "run",
    "run_model",
]


def __getattr__(name: str) -> Any:
    """`InferenceSession`, for which the package ``onnxruntime`` is imported only when it is asked for."""
    if name != "InferenceSession":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ._session import InferenceSession

    return InferenceSession
