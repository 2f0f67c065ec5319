"""The command line, as `raftsched` and as `python -m raftsched`."""

from __future__ import annotations

from raftsched.first_process import leave_first_process


def run() -> None:
    """Run the command line; ends the program. Ctrl-C ends it quietly even while it is being loaded."""
    leave_first_process()
    try:
        from raftsched.cli.main import main

        main()
    except KeyboardInterrupt:
        raise SystemExit(128 + 2) from None


if __name__ == "__main__":
    run()
