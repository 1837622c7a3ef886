"""``python -m edgecut._plan_process``: makes one plan, in a process of its own.

Then the search holds no interpreter lock of a program that computes meanwhile, measurements of memory count only what they
should, and the heap of that program stays as it is. Reads the arguments of :func:`edgecut.plan` as JSON from stdin, and writes
the class and message of an error to stdout.
"""

from __future__ import annotations

import json
import sys

from ._errors import EdgecutError
from ._plan import plan


def main() -> int:
    """The exit code: 0 if the plan is in the file that ``output`` names."""
    try:
        plan(**json.load(sys.stdin), progress=lambda step: None)
    except EdgecutError as error:
        json.dump({"error": type(error).__name__, "message": str(error)}, sys.stdout)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
