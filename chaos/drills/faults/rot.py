"""Faults of a stopped node's files: bytes of them have changed when it starts again.

A rotten journal must be refused, and be left as it is. A rotten state may be refused, be noticed later, or lie in unused
space; no answer may come from it. The node is asked for finished jobs meanwhile, which never change.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from random import Random
from typing import Any, Final, Never

from chaos.drills.cluster import Cluster
from chaos.drills.faults.registry import Scene, fault, require_stopped
from chaos.drills.nodes import Node
from raftsched.api.http.routes import BASE_PATH

_FLIPS_MAX: Final = 30
_META_BYTES: Final = 8192
"""LMDB's two meta pages: of these one may rot, and then the other one counts."""
_JOBS: Final = 100
_PAUSE_SECONDS: Final = 0.02
_FINISHED_SECONDS_MAX: Final = 60.0
_OK: Final = 200


@fault(is_alone=True)
async def rot_journal(scene: Scene) -> AsyncIterator[str]:
    """Change a byte of a follower's journal while it is down: it must refuse to start. Undo it at the end."""
    follower = (await scene.followers())[0]
    follower.kill()
    segment = max((follower.data / "journal").glob("*.segment"), key=lambda path: path.stat().st_size)
    sound = segment.read_bytes()
    rotten = _flipped(sound, 0, len(sound) * 3 // 4, 1, scene.random)
    segment.write_bytes(rotten)
    follower.start()
    yield follower.id
    await require_stopped(follower)
    if segment.read_bytes() != rotten:
        raise RuntimeError(f"{follower.id} changed a journal that it refused")
    segment.write_bytes(sound)
    follower.start()


@fault(is_alone=True)
async def rot_state(scene: Scene) -> AsyncIterator[str]:
    """Change bytes of a follower's state while it is down: no answer may come from them. Remove the state at the end."""
    follower = (await scene.followers())[0]
    jobs = await _finished_jobs(scene.cluster, await scene.leader())
    follower.kill()
    file = follower.data / "state" / "data.mdb"
    flips = scene.random.randint(1, _FLIPS_MAX)
    sound = file.read_bytes()
    file.write_bytes(_flipped(sound, _META_BYTES, len(sound), flips, scene.random))
    follower.start()
    asking = asyncio.create_task(_compare(scene.cluster, follower, jobs))
    yield f"{follower.id}, {flips} bytes"
    asking.cancel()
    outcome = (await asyncio.gather(asking, return_exceptions=True))[0]
    if follower.is_running:
        follower.kill()
    else:
        await require_stopped(follower)
    shutil.rmtree(follower.data / "state")  # the journal holds every entry, and rebuilds it
    follower.start()
    if not isinstance(outcome, asyncio.CancelledError):
        raise outcome


def _flipped(data: bytes, begin: int, end: int, count: int, random: Random) -> bytes:
    rotten = bytearray(data)
    for position in random.sample(range(begin, end), count):
        rotten[position] ^= 1 << random.randrange(8)
    return bytes(rotten)


Jobs = Mapping[str, Mapping[str, Any]]


async def _finished_jobs(cluster: Cluster, leader: Node) -> Jobs:
    """Return the documents of jobs that have completed, by id; wait until there are any. Raises `TimeoutError`."""
    async with asyncio.timeout(_FINISHED_SECONDS_MAX):
        while True:
            _, page = await cluster.get(leader, f"{BASE_PATH}/jobs?status=completed&limit={_JOBS}")
            if ids := [job["id"] for job in page.get("jobs", [])]:
                return {job_id: (await cluster.get(leader, f"{BASE_PATH}/jobs/{job_id}"))[1] for job_id in ids}
            await asyncio.sleep(_PAUSE_SECONDS)


async def _compare(cluster: Cluster, node: Node, jobs: Jobs) -> Never:
    """Ask a node for jobs, again and again; raise RuntimeError if it shows one in another way."""
    while True:
        for job_id, sound in jobs.items():
            status, shown = await cluster.get(node, f"{BASE_PATH}/jobs/{job_id}?consistency=stale")
            if status == _OK and shown.get("revision") == sound.get("revision") and shown != sound:
                raise RuntimeError(f"{node.id} showed {shown} in place of {sound}")
            await asyncio.sleep(_PAUSE_SECONDS)
