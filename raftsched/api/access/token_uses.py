"""Note which tokens are used, hour by hour, so that nobody has to guess which of them can be revoked.

A use costs one look into a dictionary. The first of a token in an hour waits here until the cluster's log has it: at most
one change an hour and token, however many requests there are (`api.tokens.uses`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

HOUR_MS: Final = 3_600_000


class TokenUses:
    """The latest use of each token on this node, and those that the log may not have yet."""

    def __init__(self) -> None:
        self._hours: dict[str, int] = {}
        """Token id -> the hour of its latest use."""
        self._waiting: dict[str, int] = {}
        self._is_waiting = asyncio.Event()

    def note(self, token_id: str, now_ms: int) -> None:
        """Note that a token was accepted."""
        hour = now_ms // HOUR_MS
        if self._hours.get(token_id) != hour:
            self._hours[token_id] = self._waiting[token_id] = hour
            self._is_waiting.set()

    async def wait(self) -> None:
        """Return when uses wait for the log."""
        await self._is_waiting.wait()

    def take(self) -> dict[str, int]:
        """Return the uses that wait, as token id -> beginning of the hour in milliseconds, and forget them."""
        taken, self._waiting = self._waiting, {}
        self._is_waiting.clear()
        return {token_id: hour * HOUR_MS for token_id, hour in taken.items()}

    def give_back(self, uses: Mapping[str, int]) -> None:
        """Let uses wait again that could not be noted, unless later ones do."""
        self._waiting = {token_id: at_ms // HOUR_MS for token_id, at_ms in uses.items()} | self._waiting
        self._is_waiting.set()
