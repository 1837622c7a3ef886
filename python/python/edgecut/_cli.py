"""The command ``edgecut``: the Rust command line in this process."""

import os
import signal
import sys
from typing import NoReturn

from . import _edgecut
from ._options import package_library


def main() -> NoReturn:
    """Runs the command line with this process's arguments, and exits with its code."""
    # The command line has its own handlers of Ctrl-C; where it has none, Ctrl-C ends it as it ends any program.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    library = package_library()
    if library:
        # Of the interpreter that runs this, which need not be the `python3` on PATH.
        os.environ.setdefault("ORT_DYLIB_PATH", library)
    sys.exit(_edgecut.main(["edgecut", *sys.argv[1:]]))
