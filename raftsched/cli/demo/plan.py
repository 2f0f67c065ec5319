"""Plan the jobs of the demo, and how each must end. Each kind has a queue of its own, of the same name."""

from __future__ import annotations

import hashlib
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from raftsched.client import JobSpec
from raftsched.client.kinds import http_job, shell_job
from raftsched.single_file import IS_SINGLE_FILE

KINDS: Final = {
    "hash": "a digest of each file of Python's library",
    "delayed": "run 1 to 5 s later",
    "priority": "one at a time, the highest first",
    "retry": "fail twice, back off, succeed",
    "give-up": "fail for good: dead-letter queue",
    "requeue": "dead letters by reason, requeued",
    "cancel": "cancelled while they wait, or run",
    "pause": "paused, then resumed",
    "unique": "submitted three times, run once",
    "once": "at most once, even if they fail",
    "narrow": "at most 3 at the same time",
    "rate": "at most 5 a second",
    "report": "report progress, write logs",
    "every": "a schedule, every second",
    "cron": "a cron schedule, every other second",
    "workflow": "a graph: fan-out, fan-in, a failed branch",
    "http": "requests to a receiver that records each once",
    "shell": "commands, each with its output in the log",
    "http-2s": "a schedule of requests",
    "shell-2s": "a schedule of commands",
    "hook": "submitted by the end of others",
    "probe": "the first write after the kill",
}
"""Description of each kind."""
HASH_COUNT_MIN = 1_501
NARROW_AT_ONCE = 3
RATE_COUNT = 5
RATE_SECONDS = 1.0
REPORT_STEPS = 3
_ALGORITHMS = ("sha256", "sha512", "blake2b", "sha3_256", "md5", "sha1")
_DELAYED_COUNT = 40
_PRIORITISED_COUNT = 20
_FLAKY_COUNT = 20
_HOPELESS_COUNT = 10
_FIXED_COUNT = 8
_CANCELLED_WAITING_COUNT = 20
_CANCELLED_RUNNING_COUNT = 4
_PAUSED_COUNT = 5
_NARROW_COUNT = 15
_RATE_JOB_COUNT = 15
_REPORT_COUNT = 3
_HTTP_COUNT = 60
_SHELL_COUNT = 6
EXECUTED_KINDS: Final = ("http", "http-2s", "shell", "shell-2s")
"""Queues of jobs without a handler."""
HOOK_TEXT: Final = "{{cause.name}} {{cause.job_id}} ended: {{cause.reason}}"
_QUICK_RETRY = {"backoff": "exponential", "base_seconds": 0.2, "factor": 2, "cap_seconds": 2, "jitter": 0.2}


@dataclass(frozen=True, slots=True)
class Planned:
    """A job and how it must end."""

    spec: JobSpec
    ends_as: str = "completed"
    result: Any = None
    """If it is an object, the job's result can have more fields."""
    attempts: int = 1
    """At least this number; more if a node or worker died under it."""
    runs: int = 1
    recorded: str | None = None
    """The receiver's record of its last run."""

    @property
    def kind(self) -> str:
        return self.spec.queue or self.spec.name


def plan(*, receiver: str, ledger: Path) -> list[Planned]:
    """Return all jobs that are submitted one by one: one for each file of the standard library first.

    Requests go to the address `receiver`, commands record their runs in the file `ledger`.
    """
    return [
        *_hashes(),
        *(note("delayed", f"delayed {n}", delay_seconds=1 + n * 0.1) for n in range(_DELAYED_COUNT)),
        *(note("priority", f"priority {n % 10}, {n}", priority=n % 10) for n in range(_PRIORITISED_COUNT)),
        *_failing(),
        *_cancelled(),
        *(note("pause", f"paused {n}", paused=True) for n in range(_PAUSED_COUNT)),
        *(note("narrow", f"narrow {n}", seconds=0.2) for n in range(_NARROW_COUNT)),
        *(note("rate", f"rate {n}") for n in range(_RATE_JOB_COUNT)),
        *_once(),
        *_reports(),
        *(request("http", receiver, f"request {n}") for n in range(_HTTP_COUNT)),
        *(command("shell", ledger, f"command {n}") for n in range(_SHELL_COUNT)),
    ]


def note(kind: str, text: str, *, seconds: float = 0.0, **options: Any) -> Planned:
    """Return a job that takes this long, then records `text`."""
    payload = {"text": text, "seconds": seconds}
    spec = JobSpec(name="note", queue=kind, payload=payload, **options)
    return Planned(spec, result={"text": text}, recorded=text)


def request(kind: str, receiver: str, text: str, recorded: str | None = None) -> Planned:
    """Return a job that sends `text` to the receiver, which records it, or `recorded`."""
    spec = http_job(receiver, queue=kind, body={"text": text})
    return Planned(spec, result={"status": 200}, recorded=recorded or text)


def command(kind: str, ledger: Path, text: str = "") -> Planned:
    """Return a job that runs a command, which records `text`; without one, the time for which it was scheduled."""
    argv = [sys.executable, "-m", "raftsched.cli.demo.record", str(ledger.resolve())]
    return Planned(shell_job(argv, queue=kind, stdin=text or None), result={"exit_code": 0}, recorded=text)


def unique() -> Planned:
    """Return the job that is submitted several times and must run once."""
    return note("unique", "the daily report")


def probe() -> Planned:
    """Return the job that measures how long writes were impossible."""
    return note("probe", "the cluster is back")


def report_lines() -> list[str]:
    """Return the lines that a job that reports must leave in its log."""
    return [f"step {step} of {REPORT_STEPS}" for step in range(1, REPORT_STEPS + 1)]


def library_files() -> list[Path]:
    """Return every .py file of Python's standard library, without installed packages.

    The single-file program holds the library as one archive: there it is every file that was unpacked.
    """
    if IS_SINGLE_FILE:
        return sorted(path for path in Path(sys.prefix).rglob("*") if path.is_file())
    root = Path(sysconfig.get_path("stdlib"))
    foreign = {"site-packages", "dist-packages"}
    return sorted(path for path in root.rglob("*.py") if not foreign & set(path.parts) and path.is_file())


def _hashes() -> list[Planned]:
    """Return a job for each file; on systems with a small library, again with other algorithms."""
    files = library_files()
    rounds = -(-HASH_COUNT_MIN // len(files))
    return [_hash(path, algorithm) for algorithm in _ALGORITHMS[:rounds] for path in files]


def _hash(path: Path, algorithm: str) -> Planned:
    digest = hashlib.new(algorithm, path.read_bytes()).hexdigest()
    payload = {"path": str(path), "algorithm": algorithm}
    spec = JobSpec(name="hash_file", queue="hash", payload=payload)
    return Planned(spec, result={"digest": digest}, recorded=digest)


def _failing() -> list[Planned]:
    return [
        *map(_flaky, range(_FLAKY_COUNT)),
        *map(_hopeless, range(_HOPELESS_COUNT)),
        *map(_fixed, range(_FIXED_COUNT)),
    ]


def _flaky(number: int) -> Planned:
    text = f"flaky {number}"
    payload = {"failures": 2, "text": text}
    spec = JobSpec(name="flaky", queue="retry", payload=payload, max_attempts=5, retry_policy=_QUICK_RETRY)
    return Planned(spec, result={"text": text}, attempts=3, recorded=text)


def _hopeless(number: int) -> Planned:
    payload = {"account": number}
    hook = {"name": "note", "queue": "hook", "payload": {"text": HOOK_TEXT, "seconds": 0}}
    spec = JobSpec(
        name="hopeless",
        queue="give-up",
        payload=payload,
        max_attempts=3,
        retry_policy=_QUICK_RETRY,
        on_failure=hook,
    )
    return Planned(spec, "dead_letter", attempts=3)


def _fixed(number: int) -> Planned:
    """Return a job that is given up in its first run and succeeds in its second."""
    text = f"fixed {number}"
    spec = JobSpec(name="fixed", queue="requeue", payload={"text": text})
    return Planned(spec, result={"text": text}, runs=2, recorded=text)


def _cancelled() -> list[Planned]:
    waiting = JobSpec(name="note", queue="cancel", payload={"text": "never", "seconds": 0}, delay_seconds=3600)
    running = JobSpec(name="long", queue="cancel", payload={"seconds": 3600}, priority=9)
    return [
        *[Planned(waiting, "cancelled", attempts=0) for _ in range(_CANCELLED_WAITING_COUNT)],
        *[Planned(running, "cancelled") for _ in range(_CANCELLED_RUNNING_COUNT)],
    ]


def _once() -> list[Planned]:
    """Return one that succeeds and one that fails; neither may begin twice, though attempts are left."""
    done = JobSpec(name="charge", queue="once", payload={"text": "paid", "fails": False}, start="at_most_once")
    failed = JobSpec(name="charge", queue="once", payload={"text": "unclear", "fails": True}, start="at_most_once")
    return [
        Planned(done, result={"text": "paid"}, recorded="paid"),
        Planned(failed, "dead_letter", recorded="unclear"),
    ]


def _reports() -> list[Planned]:
    texts = [f"report {number}" for number in range(_REPORT_COUNT)]
    specs = [JobSpec(name="report", queue="report", payload={"text": text, "steps": REPORT_STEPS}) for text in texts]
    return [Planned(spec, result={"text": text}, recorded=text) for spec, text in zip(specs, texts, strict=True)]
