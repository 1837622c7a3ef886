"""Progress of long work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Optional


@dataclass(frozen=True)
class Progress:
    """One step of long work, as the function that was given as ``progress`` gets it."""

    #: ``measured``: an item of the model on a device; ``planning`` and ``running``: what the planner or the run does now;
    #: ``notice``: something to know.
    kind: Literal["measured", "planning", "running", "notice"]
    #: The item that was measured last, or a sentence.
    text: str
    #: Of ``measured``: where, and how many items of how many.
    device: Optional[str] = None
    done: Optional[int] = None
    total: Optional[int] = None


def listener(progress: Optional[Callable[[Progress], object]]) -> Optional[Callable[..., Any]]:
    """As native code calls it."""
    return None if progress is None else lambda *step: progress(Progress(*step))
