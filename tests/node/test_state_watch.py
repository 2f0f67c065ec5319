"""A large state is verified beside the node: what is damaged stops it, and a node that stops waits for no verification."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from raftsched import limits
from raftsched.node import state_watch
from raftsched.node.state_watch import watch_state
from raftsched.storage.store.lmdb_store import DATA_FILE, open_store
from raftsched.storage.verification import DamagedState
from tests.drills.rot import make_state


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_state(tmp_path / "state", jobs=80)
    monkeypatch.setattr(limits, "VERIFIED_AT_START_BYTES", 0)
    return tmp_path / "state"


def test_a_sound_state_in_use_passes(directory: Path) -> None:
    store = open_store(directory)
    with capture_logs() as logs:
        asyncio.run(watch_state(directory))
    store.close()
    assert [entry["event"] for entry in logs] == ["state_verification_begun", "state_verified"]


def test_a_damaged_one_is_told_with_table_and_key(directory: Path) -> None:
    path = directory / DATA_FILE
    path.write_bytes(path.read_bytes().replace(b"account-0030", b"account-?030"))
    with pytest.raises(DamagedState, match=r"table payloads: .* key [0-9a-f]+ .* NEW id"):
        asyncio.run(watch_state(directory))


def test_one_that_ends_the_child_is_told(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_watch, "child_command", lambda *_: ["/bin/sh", "-c", "ulimit -c 0; kill -SEGV $$"])
    with pytest.raises(DamagedState, match="signal 11"):
        asyncio.run(watch_state(directory))


def test_a_node_that_stops_ends_the_child(directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    begun = tmp_path / "begun"
    script = f"echo $$ > {pid_file}; echo > {begun}; exec sleep 600"
    monkeypatch.setattr(state_watch, "child_command", lambda *_: ["/bin/sh", "-c", script])

    async def stop() -> None:
        watching = asyncio.create_task(watch_state(directory))
        await asyncio.to_thread(begun.read_text)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    os.mkfifo(begun)
    asyncio.run(asyncio.wait_for(stop(), 60))
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
