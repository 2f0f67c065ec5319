"""Verify a large state beside the running node, in a child of low priority: a start has no time to read all of it."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

import structlog

from raftsched.encryption.cipher import NO_KEYS, Cipher
from raftsched.storage.store.lmdb_store import DATA_FILE
from raftsched.storage.verification import DamagedState, child_command, child_verdict, is_verified_later

log = structlog.get_logger()


async def watch_state(directory: Path, cipher: Cipher = NO_KEYS) -> None:
    """Verify the state in `directory` while a node uses it; raises `DamagedState`. Cancelling it ends the child."""
    if not is_verified_later(directory):
        return
    log.info("state_verification_begun", bytes=(directory / DATA_FILE).stat().st_size)
    command = child_command(directory, cipher)
    child = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
    try:
        output, complaint = await child.communicate()
    except asyncio.CancelledError:
        child.kill()
        await child.wait()
        raise
    assert child.returncode is not None
    for fault in child_verdict(child.returncode, output.decode(), complaint.decode(errors="replace")):
        raise DamagedState(directory / DATA_FILE, fault)
    log.info("state_verified")
