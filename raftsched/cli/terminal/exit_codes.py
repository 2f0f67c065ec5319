"""Map the end of a job to the exit code of the command that waited for it."""

from __future__ import annotations

from typing import Final

EXIT_CODES: Final = {"completed": 0, "dead_letter": 3, "failed": 3, "cancelled": 4, "skipped": 5}
"""For each status in which a job is finished. 1 is for errors of the command itself, 2 for its wrong use."""
EXIT_INTERRUPTED: Final = 128 + 2
"""The code by which shells report an end by SIGINT."""
EXIT_HELP: Final = "exit code 0 completed, 3 dead letter, 4 cancelled, 5 skipped."


def is_finished(status: str) -> bool:
    """Return whether the job is finished: only a request of a user can change it now."""
    return status in EXIT_CODES


def exit_for(status: str) -> None:
    """End the command with the code of `status`, if that is another than 0."""
    if code := EXIT_CODES.get(status, 0):
        raise SystemExit(code)
