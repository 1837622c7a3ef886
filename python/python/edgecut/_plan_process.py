"""``python -m edgecut._plan_process``: makes one plan, in a process of its own.

Then the search holds no interpreter lock of a program that computes meanwhile, measurements of memory count only what they
should, and the heap of that program stays as it is. Reads the arguments of :func:`edgecut.plan` as a line of JSON from stdin, and
writes the class and message of an error to stdout. Ends when stdin does: then the program is gone.
"""

from __future__ import annotations

import json
import os
import sys
import threading

from ._errors import EdgecutError
from ._plan import plan


def main() -> int:
    """The exit code: 0 if the plan is in the file that ``output`` names."""
    arguments = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_program, daemon=True).start()
    try:
        plan(**arguments, progress=lambda step: None)
    except EdgecutError as error:
        json.dump({"error": type(error).__name__, "message": str(error)}, sys.stdout)
        return 1
    except Exception as error:
        # Such as an unknown argument.
        json.dump({"error": "InputError", "message": f"{type(error).__name__}: {error}"}, sys.stdout)
        return 1
    return 0


def _end_with_program() -> None:
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


if __name__ == "__main__":
    raise SystemExit(main())
