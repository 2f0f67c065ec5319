"""The links of hosts that are network namespaces: after a heal nothing is refused, whatever was under way."""

from __future__ import annotations

import asyncio

import pytest

from chaos.drills.backends import namespaces_backend
from chaos.drills.backends.namespaces_backend import Namespaces


class Rules:
    """In place of a network: the rules that each host has by now."""

    def __init__(self) -> None:
        self.lost: dict[int, list[str]] = {}
        self.reset: dict[int, list[str]] = {}

    def join(self) -> None: ...

    def address(self, number: int) -> str:
        return f"host {number}"

    def refuse(self, number: int, *, lost: list[str], reset: list[str]) -> None:
        self.lost[number], self.reset[number] = lost, reset


def test_a_backend_that_has_served_one_drill_serves_the_next_in_another_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rules = Rules()
    monkeypatch.setattr(namespaces_backend, "Network", lambda _subnet, _hosts: rules)
    backend = Namespaces((1, 2, 3))

    async def drill() -> None:
        await backend.open()
        await asyncio.gather(*(backend.cut(sender, receiver) for sender in (1, 2, 3) for receiver in (1, 2, 3)))
        await backend.heal()

    for _ in range(2):
        asyncio.run(drill())
    assert rules.lost == {1: [], 2: [], 3: []}


async def test_a_heal_takes_back_cuts_and_a_reset_that_was_cancelled_in_its_midst(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rules = Rules()
    monkeypatch.setattr(namespaces_backend, "Network", lambda _subnet, _hosts: rules)
    backend = Namespaces((1, 2, 3))
    await backend.open()
    resetting = asyncio.create_task(backend.reset(1, 2))
    await backend.cut(3, 1)
    async with asyncio.timeout(10):
        while rules.reset != {1: ["host 2"], 2: ["host 1"]} or rules.lost[1] != ["host 3"]:
            await asyncio.sleep(0)
    resetting.cancel()
    await asyncio.gather(resetting, return_exceptions=True)
    await backend.heal()
    assert rules.lost == rules.reset == {1: [], 2: []}
