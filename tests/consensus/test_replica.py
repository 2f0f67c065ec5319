"""The asyncio shell, with real sockets and a real disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.consensus.replicas import started


@pytest.mark.parametrize("count", [1, 3])
async def test_replica_applies_what_is_proposed_on_every_node(tmp_path: Path, count: int) -> None:
    async with started(tmp_path, count) as group:
        leader = await group.leader()
        index = await leader.replica.propose(b"one")
        assert leader.machine.history[index - 1][1] == b"one"
        await group.until(lambda: all(m.machine.history == leader.machine.history for m in group.members.values()))
