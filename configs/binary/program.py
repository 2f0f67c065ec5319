"""Run raftsched out of the single-file program.

raftsched starts processes of itself, and its supervisor of commands, by `sys.executable`. That is this program here, so it
stands in for the interpreter as far as they use one: `-m MODULE` and `[-I -S -B] FILE`.
"""

from __future__ import annotations

import runpy
import sys


def main() -> None:
    """Run the module or the file that the arguments name as an interpreter would, or the command line."""
    if sys.argv[1:2] == ["-m"]:
        sys.argv = sys.argv[2:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    elif sys.argv[1:4] == ["-I", "-S", "-B"]:
        sys.argv = sys.argv[4:]
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        from raftsched.__main__ import run

        run()


main()
