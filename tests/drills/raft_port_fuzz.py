"""Bytes of all kinds at the Raft port of real nodes: none crashes, grows or stops committing.

    python -m tests.drills.raft_port_fuzz --frames 1000000 --seed 7

Three nodes of a cluster of four run; nobody is the fourth, and the attackers claim to be it. The frames are spread over
three clusters: without protection, with a cluster secret, with TLS. There are two kinds of attackers:

- Outsiders, who have no secret and no certificate of the cluster's authority. They send whatever they like, real frames
  with huge terms included, none of which may have any effect; against TLS also noise and spoiled handshakes.
- Insiders, who are linked as the fourth node. They send frames that no node may accept: a real message of a member has
  effects, and should. Without protection everybody is an insider.

A hundred connections that send a byte now and then, or nothing, are open all the time. Every so often a job must be
stored by each node, no node may have ended or hold more memory or descriptors than its bound allows, and no log may tell
of a fault of our own. With a secret or TLS the cluster's term must not follow that of an outsider.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import psutil

from raftsched.cli.local.cluster import HOST, LocalCluster, LocalNode
from raftsched.consensus.net.framing import FrameDecoder, encode_frame
from raftsched.consensus.net.link_secret import LinkSeal, with_nonce
from raftsched.tls.authority import issue
from raftsched.tls.contexts import TlsFiles, node_client_context
from tests.acceptance.http import call
from tests.drills.frames import HELLO, PING, any_frame, is_harmless, spoiled_frame
from tests.secured import SecuredCluster

GROWTH_BYTES_MAX: Final = 64 * 2**20
DESCRIPTORS_MAX: Final = 128
"""More than at the start: 64 handshakes, and the connections of the API."""
TERM_MAX: Final = 10_000
IDLE_COUNT: Final = 100
AT_ONCE: Final = 48
SECRET: Final = b"the secret of the cluster that is drilled"
_ANYBODY: Final = ssl.create_default_context()
GUARDS: Final = ("none", "secret", "tls")
_PATIENCE_SECONDS: Final = (0.2, 0.2, 0.2, 3.0)
"""How long an attacker stays; the last outlasts a handshake's limit."""
_CHECKS: Final = 20
_STORE_SECONDS_MAX: Final = 120.0
"""Three of four members run, so one that gets no CPU for a while ends the lead; this asks for progress, not for speed."""
_START_SECONDS_MAX: Final = 180.0
"""For a machine that has other work: this one runs with a low priority."""


@dataclass
class Count:
    """What was sent."""

    connections: int = 0
    frames: int = 0
    bytes_sent: int = 0
    by_kind: dict[str, int] = field(default_factory=dict)


class Attack:
    """Connections of all kinds to the Raft ports of a cluster."""

    def __init__(self, cluster: LocalCluster, guard: str, seed: int) -> None:
        self._guard = guard
        self._seed = seed
        self._ports = [int(node.raft.rpartition(":")[2]) for node in cluster.nodes[:3]]
        self._names = [node.id for node in cluster.nodes[:3]]
        self.count = Count()
        self._contexts: dict[str, ssl.SSLContext] = {}
        if isinstance(cluster, SecuredCluster):
            self._contexts = _contexts(cluster)

    async def run(self, frames: int) -> None:
        """Send so many more frames."""
        until = self.count.frames + frames
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._attackers(until))

    async def _attackers(self, until: int) -> None:
        while self.count.frames < until:
            self.count.connections += 1
            random = Random(f"{self._seed} {self._guard} {self.count.connections}")
            target = random.randrange(3)
            kind = self._kind(random)
            self.count.by_kind[kind] = self.count.by_kind.get(kind, 0) + 1
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, AssertionError):
                async with asyncio.timeout(random.choice(_PATIENCE_SECONDS)):
                    await self._attack(kind, target, random)

    def _kind(self, random: Random) -> str:
        kinds = {
            "none": ["noise", "insider", "insider", "insider"],
            "secret": ["noise", "outsider", "outsider", "outsider", "replayed", "insider", "insider"],
            "tls": ["noise", "handshake", "handshake", "handshake", "outsider", "insider"],
        }
        return random.choice(kinds[self._guard])

    async def _attack(self, kind: str, target: int, random: Random) -> None:
        port = self._ports[target]
        if kind == "noise":
            reader, writer = await asyncio.open_connection(HOST, port)
            await self._say(reader, writer, [random.randbytes(random.choice((1, 5, 100, 1500)))])
        elif kind == "handshake":
            reader, writer = await asyncio.open_connection(HOST, port)
            await self._say(reader, writer, [_spoiled_handshake(self._names[target], random)])
        elif self._guard == "tls":
            context = self._contexts[
                "insider" if kind == "insider" else random.choice(("stranger", "client", "nobody"))
            ]
            reader, writer = await asyncio.open_connection(HOST, port, ssl=context, server_hostname=self._names[target])
            await self._linked(reader, writer, _frames(random, is_insider=kind == "insider"))
        elif self._guard == "secret":
            reader, writer = await asyncio.open_connection(HOST, port)
            await self._with_secret(reader, writer, kind, random)
        else:
            reader, writer = await asyncio.open_connection(HOST, port)
            await self._linked(reader, writer, _frames(random, is_insider=True))

    async def _linked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frames: list[bytes]) -> None:
        writer.write(encode_frame(HELLO))
        await self._say(reader, writer, frames)

    async def _with_secret(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kind: str, random: Random
    ) -> None:
        own = with_nonce(HELLO)
        writer.write(encode_frame(own))
        if kind == "outsider" and random.random() < 0.5:
            await self._say(reader, writer, _frames(random, is_insider=False))
            return
        decoder = FrameDecoder(is_sealed=True)
        said: list[Any] = []
        while not said:
            data = await reader.read(4096)
            if not data:
                return
            said = decoder.feed(data)
        secret = random.randbytes(32) if kind == "outsider" else SECRET
        other = with_nonce(said[0]) if kind == "replayed" else said[0]  # proofs that are right for another link
        seal = LinkSeal([secret], own=own, other=other, dialed=True)
        frames = _frames(random, is_insider=kind == "insider")
        await self._say(reader, writer, [b"".join(seal.sealed([frame])) for frame in (PING, *frames)])

    async def _say(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frames: list[bytes]) -> None:
        """Send the frames and wait until the node closes; one time in four leave first."""
        data = b"".join(frames)
        self.count.frames += len(frames)
        self.count.bytes_sent += len(data)
        try:
            writer.write(data)
            if len(data) % 4:
                await writer.drain()
                writer.write_eof() if writer.can_write_eof() else None
                while await reader.read(65536):
                    pass
        finally:
            writer.transport.abort()


def _frames(random: Random, *, is_insider: bool) -> list[bytes]:
    """What one connection sends behind its hello."""
    if not is_insider:
        return [any_frame(random) for _ in range(random.randint(1, 20))]
    while True:
        frames = [*[PING] * random.randint(0, 12), *[spoiled_frame(random) for _ in range(random.randint(1, 8))]]
        if is_harmless(frames):
            return frames


def _contexts(cluster: SecuredCluster) -> dict[str, ssl.SSLContext]:
    """Contexts of a member, of a node of another authority, of a client of ours, and of nobody."""
    trusted = cluster.files / "ca1" / "ca.crt"
    made = {}
    for kind, authority, is_client in (("insider", "ca1", False), ("stranger", "ca2", False), ("client", "ca1", True)):
        issued = issue(
            cluster.files / authority, cluster.files / kind, name="n4", days=1, is_client=is_client, replace=False
        )
        made[kind] = node_client_context(TlsFiles(issued.certificate, issued.key, trusted))
    made["nobody"] = ssl.create_default_context(cafile=trusted)
    return made


def _spoiled_handshake(name: str, random: Random) -> bytes:
    """The first message of TLS with some bytes changed, cut off, or followed by noise."""
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        _ANYBODY.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name).do_handshake()
    said = bytearray(outgoing.read())
    for _ in range(random.choice((0, 1, 1, 3, 20))):
        said[random.randrange(len(said))] = random.randrange(256)
    if random.random() < 0.3:
        del said[random.randrange(len(said)) :]
    return bytes(said) + random.randbytes(random.choice((0, 0, 10, 500)))


# -- checks ------------------------------------------------------------------------------------------------------------


class Watch:
    """What the nodes use, compared with how they began."""

    def __init__(self, cluster: LocalCluster, guard: str) -> None:
        self._cluster = cluster
        self._guard = guard
        self._nodes = cluster.nodes[:3]
        self._processes = [psutil.Process(node.process.pid) for node in self._nodes if node.process]
        self._first = [(each.memory_info().rss, each.num_fds()) for each in self._processes]
        self.growth_bytes = 0
        self.more_descriptors = 0
        self.slowest_seconds = 0.0

    def faults(self) -> Iterator[str]:
        """Yield what is otherwise than it must be now."""
        for node in self._nodes:
            if not node.is_running:
                yield f"{node.id} ended: {node.last_words()}"
                return
        for node, process, (rss, descriptors) in zip(self._nodes, self._processes, self._first, strict=True):
            growth, more = process.memory_info().rss - rss, process.num_fds() - descriptors
            self.growth_bytes, self.more_descriptors = max(self.growth_bytes, growth), max(self.more_descriptors, more)
            if growth > GROWTH_BYTES_MAX or more > DESCRIPTORS_MAX:
                yield f"{node.id} has grown by {growth:,} bytes and {more} descriptors"
            yield from self._serves(node)
        term = self._nodes[0].get("/api/v1/cluster")["term"]
        if self._guard != "none" and term > TERM_MAX:
            yield f"the term is {term}: a frame of an outsider had an effect"

    def _serves(self, node: LocalNode) -> Iterator[str]:
        began = time.monotonic()
        tls = self._cluster.client_context() if isinstance(self._cluster, SecuredCluster) else None
        status, answer = 503, None
        while status == 503 and time.monotonic() - began < _STORE_SECONDS_MAX:
            status, answer = call(node.api, "POST", "/api/v1/jobs", {"name": "n", "queue": "fuzz"}, timeout=20, tls=tls)
        self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)
        if status != 201:
            yield f"{node.id} does not store jobs: {status} {answer}"

    def own_faults(self) -> Iterator[str]:
        """Yield the lines of logs that tell of a fault in raftsched."""
        for node in self._nodes:
            for line in node.log_file.read_text(encoding="utf-8", errors="replace").splitlines():
                if any(word in line for word in ("Traceback", '"exception"', "node_failing", "transport_failed")):
                    yield f"{node.id}: {line[:300]}"


def _cluster(guard: str, directory: Path) -> LocalCluster:
    if guard == "tls":
        return SecuredCluster(directory / "cluster", node_count=4)
    settings = {}
    if guard == "secret":
        secret = directory / "secret"
        secret.write_bytes(SECRET)
        settings["cluster_secret_file"] = str(secret)
    return LocalCluster(directory / "cluster", node_count=4, settings=settings)


async def _hold_idle(ports: list[int]) -> list[asyncio.StreamWriter]:
    """Open connections that say nothing, or a byte now and then."""
    return [(await asyncio.open_connection(HOST, ports[number % 3]))[1] for number in range(IDLE_COUNT)]


async def _trickle(ports: list[int]) -> None:
    """Keep idle connections open for ever: the node closes them, and others come."""
    while True:
        with suppress(OSError):
            writers = await _hold_idle(ports)
            await asyncio.sleep(1.0)
            for writer in writers[::2]:
                writer.write(b"\0")
            await asyncio.sleep(0.5)
            for writer in writers:
                writer.transport.abort()


async def _drill(cluster: LocalCluster, guard: str, *, frames: int, seed: int) -> list[str]:
    attack, watch = Attack(cluster, guard, seed), Watch(cluster, guard)
    idle = asyncio.create_task(_trickle(attack._ports))
    began = time.monotonic()
    found: list[str] = []
    for _ in range(_CHECKS):
        await attack.run(max(1, frames // _CHECKS))
        try:
            found += await asyncio.to_thread(lambda: list(watch.faults()))
        except OSError as error:
            found.append(f"a node does not answer: {error}")
        if found:
            break
    idle.cancel()
    found += list(watch.own_faults())
    count = attack.count
    logged = sum(node.log_file.stat().st_size for node in cluster.nodes[:3])
    print(
        f"{guard}: {count.frames:,} frames ({count.bytes_sent:,} bytes) over {count.connections:,} connections in "
        f"{time.monotonic() - began:,.0f} s; memory +{watch.growth_bytes / 2**20:.1f} MiB, descriptors "
        f"+{watch.more_descriptors}, slowest job {watch.slowest_seconds:.2f} s, logs {logged / 2**20:.1f} MiB; "
        + ", ".join(f"{kind} {number:,}" for kind, number in sorted(count.by_kind.items())),
        flush=True,
    )
    return found


def run(guard: str, *, frames: int, seed: int) -> list[str]:
    """Drill one cluster; return every fault found."""
    directory = Path(tempfile.mkdtemp(prefix="raftsched-drill-"))
    try:
        with _cluster(guard, directory) as cluster:
            cluster.wait_for_leader(seconds=_START_SECONDS_MAX)
            cluster.nodes[3].kill()  # it has joined; from now on the attackers are the fourth node
            cluster.wait_for_leader(seconds=_START_SECONDS_MAX)
            found = asyncio.run(_drill(cluster, guard, frames=frames, seed=seed))
            for node in cluster.nodes[:3]:
                if node.is_running and (code := node.stop()) != 0:
                    found.append(f"{node.id} ended with {code} on SIGTERM: {node.last_words()}")
        return [f"{guard}: {fault}" for fault in found]
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=30_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--guard", choices=GUARDS, help="one of the three clusters only")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the contexts are left
    guards = (options.guard,) if options.guard else GUARDS
    found: list[str] = []
    for guard in guards:
        found += run(guard, frames=options.frames // len(guards), seed=options.seed)
    print(*(found or ["no node crashed, grew or stopped committing"]), sep="\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
