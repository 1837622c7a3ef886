"""Tokens of a decoder, generated on this machine or by a plan on its agents."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Optional, Union

from . import _edgecut
from ._graph import SeedParameters
from ._options import Names, PathLike, Time, model_options, options, runtime_library, site_options
from ._plan import Plan
from ._profile import Engine
from ._progress import Progress, listener


@dataclass(frozen=True)
class TokenTimes:
    """The distribution of the times of tokens after the first, in microseconds."""

    n: int
    median_us: float
    mad_us: float
    min_us: float
    p95_us: float
    p99_us: float
    max_us: float


@dataclass(frozen=True)
class PredictedTimes:
    """What a plan predicts of a generation, in microseconds."""

    #: Of a token after the first, at the end of the context.
    token_us: float
    #: To the first token; ``None`` if the plan says nothing of such steps.
    prefill_us: Optional[float] = None


@dataclass(frozen=True)
class GenerationFigures:
    """What was measured of a generation."""

    tokens: "tuple[int, ...]"
    prompt_tokens: int
    #: From the start of the prompt to the first token.
    prefill_us: float
    #: ``None`` if there is only one token.
    token_us: Optional[TokenTimes]
    #: Tensors that go from one server to another for a token, and their bytes.
    exchanges: int
    exchanged_bytes: int
    #: Whether the tokens are those of one device, near ties included; ``None`` if they were not compared.
    is_equal: Optional[bool]
    #: Tokens that differ from those of one device, whose logits there are within tolerance of its choice.
    near_ties: int
    #: ``None`` without a plan, or if another one went on.
    predicted: Optional[PredictedTimes] = None


class Generation(Iterator[int]):
    """The tokens of a decoder, each as soon as it is there; see :func:`generate`.

    Tokens are computed while the caller uses those before. To end early, leave the loop and :meth:`close` it, or use it in a
    ``with`` statement.
    """

    def __init__(self, native: _edgecut.NativeGeneration) -> None:
        self._native = native

    def __next__(self) -> int:
        return next(self._native)

    @property
    def figures(self) -> Optional[GenerationFigures]:
        """What was measured; ``None`` until the iterator has ended, and of a generation that was closed."""
        text = self._native.figures
        if text is None:
            return None
        found: "dict[str, Any]" = json.loads(text)
        times: "Optional[dict[str, Any]]" = found.pop("token_us")
        predicted: "Optional[dict[str, float]]" = found.pop("predicted", None)
        return GenerationFigures(
            tokens=tuple(found.pop("tokens")),
            token_us=None if times is None else TokenTimes(**times),
            predicted=None if predicted is None else PredictedTimes(**predicted),
            **found,
        )

    def close(self) -> None:
        """Ends the generation; agents unload the plan."""
        self._native.close()

    def __enter__(self) -> Generation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def generate(
    model: Union[Plan, PathLike],
    prompt_ids: Iterable[int],
    *,
    tokens: int = 64,
    top_k: int = 1,
    sampling_seed: int = 0,
    context: Optional[int] = None,
    prompt: Optional[int] = None,
    seed_parameters: Optional[SeedParameters] = None,
    cluster: Optional[PathLike] = None,
    wait: Optional[Time] = None,
    threads: Optional[int] = None,
    engine: Optional[Engine] = None,
    onnxruntime: Optional[PathLike] = None,
    providers: Names = None,
    replan: Optional[bool] = None,
    profile: Optional[PathLike] = None,
    check: bool = True,
    progress: Optional[Callable[[Progress], object]] = None,
) -> Generation:
    """Generates tokens with a decoder on this machine, or with a plan of one on its agents.

    :param model: the folder or the ONNX file of a decoder, or a plan of one
    :param prompt_ids: the tokens of the prompt, such as ``tokenizers.Tokenizer.encode(text).ids``
    :param tokens: number of tokens to generate
    :param top_k: draw each token from this number of tokens with the largest logits; with 1, take the largest
    :param sampling_seed: the seed of these draws
    :param context: length of the cache; without, as many tokens as are needed. A plan has its own
    :param prompt: number of tokens in a step that reads the prompt
    :param cluster: the cluster file of a plan, if not the plan's
    :param replan: whether to plan again when an agent is lost, and continue on the others; without, if there is a token
    :param check: whether to compare the tokens of a plan with those of one device, after the last one
    :param progress: hears of each step while a token is awaited; without it stderr shows them

    Others mean what they do for :func:`run` and :func:`run_model`.

    :raises ModelError: if the model cannot be read
    :raises InputError: if it is no decoder, or the context is too short
    :raises AgentError: if an agent does not answer or is lost
    """
    library = runtime_library(engine, onnxruntime)
    plan = model if isinstance(model, Plan) else None
    path = os.fspath(model) if not isinstance(model, Plan) else os.fspath(model.path or "plan.json")
    native = _edgecut.begin_generation(
        path,
        None if plan is None else plan.json.encode(),
        model_options(seed_parameters=seed_parameters, onnxruntime=library, context=context),
        site_options(
            cluster=cluster, wait=wait, threads=threads, engine=engine, onnxruntime=library, providers=providers
        ),
        options(
            prompts=[list(prompt_ids)],
            tokens=tokens,
            top_k=top_k,
            seed=sampling_seed,
            prompt_step=prompt,
            no_check=not check,
            replan=replan,
            profile=profile,
        ),
        listener(progress),
    )
    return Generation(native)
