"""``python -m edgecut``: the command line."""

from ._cli import main

main()
