"""How a job ended, as the exit code of the command that waited for it."""

from __future__ import annotations

from typing import Final

EXIT_CODES: Final = {"completed": 0, "dead_letter": 3, "failed": 3, "cancelled": 4, "skipped": 5}
"""Of each status in which a job is finished. 1 is for errors of the command itself, 2 for its wrong use."""
EXIT_INTERRUPTED: Final = 128 + 2
"""As shells say that SIGINT ended something."""
EXIT_HELP: Final = "exit code 0 completed, 3 dead letter, 4 cancelled, 5 skipped."


def is_finished(status: str) -> bool:
    """Whether nothing but a hand changes the job any more."""
    return status in EXIT_CODES


def exit_for(status: str) -> None:
    """End the command with the code of `status`, if that is another than 0."""
    if code := EXIT_CODES.get(status, 0):
        raise SystemExit(code)
