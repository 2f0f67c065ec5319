"""The command line, as `raftsched` and as `python -m raftsched`."""

from __future__ import annotations

import sys
from importlib.util import find_spec

_NOT_INSTALLED = "raftsched: only Client and Worker are installed; for this command run: pip install 'raftsched[node]'"


def run() -> None:
    """Run the command line; ends the program. Ctrl-C ends it quietly even while it is being loaded.

    Without the extra `node` it says in one line how to install it.
    """
    if find_spec("click") is None or find_spec("lmdb") is None:
        raise SystemExit(_NOT_INSTALLED)
    arguments = sys.argv[1:]
    if arguments[:1] == ["healthcheck"] and not any(word.startswith("-") for word in arguments) and len(arguments) <= 2:
        from raftsched import healthcheck

        healthcheck.run(arguments[1:])

    from raftsched.first_process import leave_first_process

    leave_first_process()
    try:
        from raftsched.cli.main import main

        main()
    except KeyboardInterrupt:
        raise SystemExit(128 + 2) from None


if __name__ == "__main__":
    run()
