"""Map the end of a job to the exit code of the command that waited for it."""

from __future__ import annotations

from typing import Final

from raftsched.cli.terminal.statuses import STATUSES

_CODES: Final = {status: shown.exit_code for status, shown in STATUSES.items() if shown.exit_code is not None}
EXIT_CODES: Final = {**_CODES, "failed": 3}
"""For each status in which a job is finished. No job is `failed` now, but the API names it."""
EXIT_INTERRUPTED: Final = 128 + 2
"""The code by which shells report an end by SIGINT."""
EXIT_HELP: Final = f"exit code {', '.join(f'{code} {status}' for status, code in _CODES.items()).replace('_', ' ')}."


def is_finished(status: str) -> bool:
    """Return whether the job is finished: only a request of a user can change it now."""
    return status in EXIT_CODES


def exit_for(status: str) -> None:
    """End the command with the code of `status`, if that is another than 0."""
    if code := EXIT_CODES.get(status, 0):
        raise SystemExit(code)
