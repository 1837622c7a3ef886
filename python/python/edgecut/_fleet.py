"""The agents of one cluster, as the sessions of this process use them: plans are made and loaded one after the other."""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Protocol


_LOG = logging.getLogger("edgecut")


class Loaded(Protocol):
    """Something that is loaded on agents."""

    def unload(self) -> None:
        """Unloads it after the calls in progress."""

    def reload(self) -> None:
        """Has it loaded again."""


class Fleet:
    """A thread that works for one cluster while there is work; what is loaded there."""

    def __init__(self) -> None:
        self._jobs: "deque[Callable[[], None]]" = deque()
        self._lock = threading.Lock()
        self._is_working = False
        self._loaded: "weakref.WeakSet[Loaded]" = weakref.WeakSet()

    def submit(self, job: "Callable[[], None]") -> None:
        """Has `job` done after those before."""
        with self._lock:
            self._jobs.append(job)
            if self._is_working:
                return
            self._is_working = True
        # The program waits for it at its end, so that no native code runs in an interpreter that is gone.
        threading.Thread(target=self._work, name="edgecut-fleet", daemon=False).start()

    def add(self, loaded: Loaded) -> None:
        """Registers what was loaded."""
        self._loaded.add(loaded)

    def unload_all(self) -> "list[Loaded]":
        """Unloads everything, so that the devices can be measured; returns what to load again."""
        loaded = list(self._loaded)
        self._loaded.clear()
        for one in loaded:
            one.unload()
        return loaded

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._jobs or not threading.main_thread().is_alive():
                    self._jobs.clear()
                    self._is_working = False
                    return
                job = self._jobs.popleft()
            try:
                job()
            except Exception:
                _LOG.exception("a plan could not be made or loaded")


_FLEETS: "dict[str, Fleet]" = {}
_FLEETS_LOCK = threading.Lock()


def fleet(cluster: str) -> Fleet:
    """That of the cluster file of this path."""
    with _FLEETS_LOCK:
        return _FLEETS.setdefault(cluster, Fleet())
