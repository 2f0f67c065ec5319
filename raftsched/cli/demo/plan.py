"""What the demo submits, and how each job must end."""

from __future__ import annotations

import hashlib
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raftsched.client import JobSpec

HASH_COUNT_MIN = 1_501
HASH_KIND = "hash a file"
_ALGORITHMS = ("sha256", "sha512", "blake2b", "sha3_256", "md5", "sha1")
DELAYED_COUNT = 40
PRIORITISED_COUNT = 50
FLAKY_COUNT = 20
HOPELESS_COUNT = 10
CANCELLED_WAITING_COUNT = 20
CANCELLED_RUNNING_COUNT = 4
_QUICK_RETRY = {"backoff": "exponential", "base_seconds": 0.2, "factor": 2, "cap_seconds": 2, "jitter": 0.2}


@dataclass(frozen=True, slots=True)
class Planned:
    """A job and how it must end."""

    spec: JobSpec
    kind: str
    ends_as: str
    result: Any = None
    attempts: int = 1
    """At least so many; more where a node or worker died under it."""


def plan() -> list[Planned]:
    """All jobs of the demo: one for each file of the standard library first."""
    return [*_hashes(), *_delayed(), *_prioritised(), *_flaky(), *_hopeless(), *_cancelled()]


def library_files() -> list[Path]:
    """Every .py file of Python's standard library, without what is installed beside it."""
    root = Path(sysconfig.get_path("stdlib"))
    foreign = {"site-packages", "dist-packages"}
    return sorted(path for path in root.rglob("*.py") if not foreign & set(path.parts) and path.is_file())


def _hashes() -> list[Planned]:
    """A job for each file; on systems that ship a small library, again with other algorithms."""
    files = library_files()
    rounds = -(-HASH_COUNT_MIN // len(files))
    return [_hash(path, algorithm) for algorithm in _ALGORITHMS[:rounds] for path in files]


def _hash(path: Path, algorithm: str) -> Planned:
    digest = hashlib.new(algorithm, path.read_bytes()).hexdigest()
    payload = {"path": str(path), "algorithm": algorithm}
    return Planned(JobSpec(name="hash_file", queue="hash", payload=payload), HASH_KIND, "completed", {"digest": digest})


def _note(kind: str, text: str, **options: Any) -> Planned:
    spec = JobSpec(name="note", queue="misc", payload={"text": text}, **options)
    return Planned(spec, kind, "completed", {"text": text})


def _delayed() -> list[Planned]:
    return [_note("with a delay", f"delayed {n}", delay_seconds=1 + n * 0.1) for n in range(DELAYED_COUNT)]


def _prioritised() -> list[Planned]:
    return [_note("with a priority", f"priority {n % 10} {n}", priority=n % 10) for n in range(PRIORITISED_COUNT)]


def _flaky() -> list[Planned]:
    return [
        Planned(
            JobSpec(
                name="flaky",
                queue="misc",
                payload={"failures": 2, "text": f"flaky {n}"},
                max_attempts=5,
                retry_policy=_QUICK_RETRY,
            ),
            "fails twice",
            "completed",
            {"text": f"flaky {n}"},
            attempts=3,
        )
        for n in range(FLAKY_COUNT)
    ]


def _hopeless() -> list[Planned]:
    return [
        Planned(
            JobSpec(name="hopeless", queue="misc", payload={"account": n}, max_attempts=3, retry_policy=_QUICK_RETRY),
            "fails for good",
            "dead_letter",
            attempts=3,
        )
        for n in range(HOPELESS_COUNT)
    ]


def _cancelled() -> list[Planned]:
    waiting = JobSpec(name="note", queue="misc", payload={"text": "never"}, delay_seconds=3600)
    running = JobSpec(name="long", queue="misc", payload={"seconds": 3600}, priority=9)
    return [
        *[Planned(waiting, "cancelled waiting", "cancelled", attempts=0) for _ in range(CANCELLED_WAITING_COUNT)],
        *[Planned(running, "cancelled running", "cancelled") for _ in range(CANCELLED_RUNNING_COUNT)],
    ]


def probe() -> Planned:
    """The job that measures how long nobody could write."""
    return _note("after the kill", "the cluster is back")
