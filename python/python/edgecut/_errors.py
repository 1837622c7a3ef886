"""Exceptions of the package."""

from __future__ import annotations

from typing import Optional


class EdgecutError(Exception):
    """Something failed; the base class of all exceptions of this package."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        #: What is wrong.
        self.message: str = text


class InputError(EdgecutError, ValueError):
    """An option, or a file other than the model or the cluster's, is wrong."""


class ModelError(EdgecutError):
    """A model cannot be read, or cannot be used as it is.

    Of Relay text the place is known: :attr:`line` and :attr:`column`, counted from 1. ``str()`` of the exception has it as
    ``path:line:column: message``.
    """

    def __init__(
        self,
        text: str,
        path: Optional[str] = None,
        line: Optional[int] = None,
        column: Optional[int] = None,
        message: Optional[str] = None,
    ) -> None:
        super().__init__(text)
        self.path = path
        self.line = line
        self.column = column
        self.message = text if message is None else message


class PlanError(EdgecutError):
    """No plan satisfies the targets; the message says which device is short of what."""


class ClusterError(EdgecutError):
    """A cluster file cannot be used."""


class AgentError(EdgecutError):
    """An agent does not answer, failed or was lost. What was measured before is in the profiles."""
