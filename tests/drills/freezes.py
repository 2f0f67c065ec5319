"""All nodes are stopped for 3 s again and again (a VM that is moved, a machine without CPU), while links are dialed.

    python -m tests.drills.freezes --rounds 20

In each round one node is stopped first, so that the others dial it, with TLS: a handshake that nobody answers is an
introduction under way. Then all others are stopped too, at some moment of it; the first goes on and answers into the
silence, and after 3 s the others find the deadline and the answer at once. They wake up slowly, as on a machine without
CPU: some milliseconds of work, then a pause, several times. In the end each node lives, has every job that was acknowledged,
and ends on SIGTERM with exit code 0.

Whether a round meets the few microseconds between a connection and the wake-up of who waits for it is chance;
`tests.consensus.test_stalls` stalls the event loop just there.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import trustme

from raftsched.cli.local.cluster import LocalCluster, LocalNode
from raftsched.errors import Unavailable
from tests.acceptance.http import call

FREEZE_SECONDS: Final = 3.0
"""Longer than an introduction may take, and than a silent link lives."""
_SLICES_MAX: Final = 12
_SILENCE_SECONDS: Final = 2.5
"""After this long the others have cut the link to a stopped node, and dial it."""


@contextmanager
def secured_cluster(directory: Path) -> Iterator[LocalCluster]:
    """Three nodes with mutual TLS, one of which leads."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(directory / "ca.pem")
    issued = authority.issue_cert("n1", "n2", "n3")  # one for all: who is who is another drill's
    (directory / "node.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(directory / "node.key")
    files = {"certificate": "node.pem", "key": "node.key", "ca": "ca.pem"}
    tables = {"peer_tls": {name: str(directory / file) for name, file in files.items()}}
    with LocalCluster(directory / "cluster", node_count=3, settings=tables) as cluster:
        cluster.wait_for_leader()
        yield cluster


def freeze(cluster: LocalCluster, random: Random) -> None:
    """Stop one node until the others dial it, then the others, at some moment, and let it answer them."""
    first = random.choice(cluster.nodes)
    others = [node for node in cluster.nodes if node is not first]
    first.signal(signal.SIGSTOP)
    time.sleep(_SILENCE_SECONDS + 2.0 * random.random())
    for node in others:
        node.signal(signal.SIGSTOP)
    first.signal(signal.SIGCONT)
    time.sleep(FREEZE_SECONDS)
    for _ in range(random.randint(0, _SLICES_MAX)):
        for node in others:
            node.signal(signal.SIGCONT)
        time.sleep(0.001 + 0.004 * random.random())
        for node in others:
            node.signal(signal.SIGSTOP)
        time.sleep(0.3)
    for node in others:
        node.signal(signal.SIGCONT)


def faults_after(cluster: LocalCluster, acknowledged: set[str], name: str) -> Iterator[str]:
    """Yield what is otherwise than it must be once nothing is frozen any more."""
    for node in cluster.nodes:
        if not node.is_running:
            yield f"{name}: {node.id} ended: {node.last_words()}"
            return
    cluster.wait_for_leader()
    for node in cluster.nodes:
        cluster.wait_until_ready(node)
        status, answer = call(node.api, "POST", "/api/v1/jobs", {"name": "n", "queue": "freezes"}, timeout=20)
        if status != 201:
            yield f"{name}: {node.id} doesn't serve: {status} {answer}"
        else:
            acknowledged.add(answer["id"])


def run(cluster: LocalCluster, *, rounds: int, seed: int) -> Iterator[str]:
    """Freeze and thaw; yield every fault found."""
    random = Random(seed)
    acknowledged: set[str] = set()
    yield from faults_after(cluster, acknowledged, "before")
    for number in range(1, rounds + 1):
        freeze(cluster, random)
        yield from faults_after(cluster, acknowledged, f"round {number}")
        print(f"round {number}: {len(acknowledged)} jobs acknowledged", flush=True)
    for node in cluster.nodes:
        try:
            cluster.wait_until(partial(holds_all, node, acknowledged), what=f"{node.id} to hold all jobs")
        except Unavailable as error:
            yield f"{error}; it lacks {len(acknowledged - held_by(node))} of {len(acknowledged)}"
    yield from (f"{node.id}: {line}" for node in cluster.nodes for line in bad_lines(node))
    for node in cluster.nodes:
        code = node.stop()
        if code != 0:
            yield f"{node.id} ended with {code} on SIGTERM: {node.last_words()}"


def held_by(node: LocalNode) -> set[str]:
    """The first jobs that one node by itself holds."""
    page: Any = node.get("/api/v1/jobs?consistency=stale&limit=1000", timeout=10)
    return {job["id"] for job in page["jobs"]}


def holds_all(node: LocalNode, job_ids: set[str]) -> bool:
    return job_ids <= held_by(node)


def bad_lines(node: LocalNode) -> Iterator[str]:
    """Yield the lines of a node's log that tell of a fault in raftsched."""
    for line in node.log_file.read_text(encoding="utf-8").splitlines():
        if any(word in line for word in ("Traceback", "traceback", "exception", "node_failing", "transport_failed")):
            yield line[:300]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with suppress(KeyboardInterrupt), tempfile.TemporaryDirectory(prefix="raftsched-drill-") as name:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the contexts are left
        with secured_cluster(Path(name)) as cluster:
            found = list(run(cluster, rounds=options.rounds, seed=options.seed))
        print(*(found or ["each node lives, serves and ends on SIGTERM"]), sep="\n")
        sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
