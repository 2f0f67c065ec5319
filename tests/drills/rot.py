"""One bit flips in a stopped node's state, at random, again and again: what finds it, and is anything wrong ever served?

    .venv/bin/python -m tests.drills.rot [FLIPS [SEED]]

Each flip is tried on a fresh copy of the directory, twice, each time in a process of its own:

    as it is        the file is small, so all of it is verified before it is opened
    as if large     only its length is looked at before; then a node serves from it (every row is read, by walk and by key),
                    copies it, and verifies it beside

What came of it: `refused at start`, `stopped at read`, `stopped at copy`, `found beside the node`, `ended by a signal` (none
served, but no clear word either), `older commit` (the one before, whole: the journal replays the rest), `unused space`
(everything is as it was), and `SERVED`, which must never be.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from raftsched import limits
from raftsched.consensus.machine import ReplicatedState
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import LeaseJobs, PurgeJobs, RecordOutcome, SubmitJob, encode_batch
from raftsched.core.records.ids import FencingToken, JobId, TimeMs
from raftsched.core.records.job import AttemptEnd
from raftsched.core.records.retry import RetryPolicy
from raftsched.core.records.spec import JobSpec
from raftsched.errors import RaftschedError
from raftsched.storage.directory import inspect_copy, open_readonly
from raftsched.storage.state import State
from raftsched.storage.store.lmdb_store import DATA_FILE
from raftsched.storage.store.port import Table, all_rows
from raftsched.storage.verification import verify_elsewhere

_MAP_BYTES = 64 << 20
_START_MS = 1_800_000_000_000
SERVED = "SERVED"
Content = dict[str, dict[bytes, bytes]]


# -- a state to spoil -------------------------------------------------------------------------------------------------


def make_state(directory: Path, *, jobs: int = 400) -> list[Content]:
    """Fill a state as a node does; return what it holds as of its last two commits, older first."""
    machine = ReplicatedState(directory, map_bytes=_MAP_BYTES)
    contents: list[Content] = []
    for index, operations in enumerate(_history(jobs), start=1):
        machine.apply(index, 1, encode_batch(TimeMs(_START_MS + index), operations))
        machine.checkpoint()
        contents = [*contents[-1:], content_of(machine.state)]
    machine.close()
    return contents


def _history(jobs: int) -> list[tuple[Operation, ...]]:
    """Jobs that wait for long, jobs that are leased, completed and removed, and payloads of many pages."""
    entries: list[tuple[Operation, ...]] = []
    token = 0
    for batch in range(0, jobs, 40):
        ids = [JobId((batch + number).to_bytes(16, "big")) for number in range(40)]
        payloads = [b'{"to":"account-%04d"}' % (batch + number) for number in range(39)] + [b'"' + b"x" * 9_000 + b'"']
        entries.append(
            tuple(
                SubmitJob(
                    job_id,
                    "default",
                    JobSpec("pay", "pay", 5, 3, 0, RetryPolicy()),
                    TimeMs(0 if number % 2 else _START_MS + 10**9),
                    payload,
                )
                for number, (job_id, payload) in enumerate(zip(ids, payloads, strict=True))
            )
        )
        due = tuple(ids[1::2])
        entries.append((LeaseJobs("w1", 15_000, due, f"r{batch}"),))
        entries.append(
            tuple(
                RecordOutcome(job_id, 1, FencingToken(token + number), AttemptEnd.COMPLETED, f"c{number}")
                for number, job_id in enumerate(due[:-5], start=1)
            )
        )
        token += len(due)
        entries.append((PurgeJobs(due[:6], TimeMs(_START_MS + 10**9)),))
    return entries


def content_of(state: State) -> Content:
    """Everything that can be read, by walk and by key."""
    store = state._store  # the drill looks where no user can
    content = {table.name: dict(all_rows(store, table)) for table in Table if table is not Table.META}
    for name, rows in content.items():
        for key, value in rows.items():
            if store.get(Table[name], key) != value:
                return {}
    return content


# -- one flip ---------------------------------------------------------------------------------------------------------


def try_flip(source: Path, contents: list[Content], random: Random, *, as_large: bool) -> str:
    """Flip one bit of a copy of `source`; return what came of it."""
    directory = Path(tempfile.mkdtemp())
    try:
        shutil.copytree(source, directory / "state")
        file = directory / "state" / DATA_FILE
        offset, bit = random.randrange(file.stat().st_size), random.randrange(8)
        with file.open("r+b") as data:
            data.seek(offset)
            byte = data.read(1)[0]
            data.seek(offset)
            data.write(bytes([byte ^ 1 << bit]))
        return _in_a_child(lambda: _serve(directory, contents, as_large=as_large))
    finally:
        shutil.rmtree(directory)


def _serve(directory: Path, contents: list[Content], *, as_large: bool) -> str:
    if as_large:
        limits.VERIFIED_AT_START_BYTES = 0
    try:
        machine = ReplicatedState(directory / "state", map_bytes=_MAP_BYTES)
    except RaftschedError:
        return "refused at start"
    try:
        content = content_of(machine.state)
    except RaftschedError:
        return "stopped at read"
    if content == contents[-1]:
        found = "unused space"
    elif content == contents[0]:
        return "older commit"
    else:
        found = SERVED
    until = "" if found != SERVED else f"{SERVED} until it "
    try:
        machine.copy_to(directory / "copy")
        inspect_copy(directory / "copy")
        open_readonly(directory / "copy").close()
    except RaftschedError:
        return f"{until}stopped at copy"
    if verify_elsewhere(directory / "state"):
        return f"{until}found beside the node"
    return found


def _in_a_child(work: Callable[[], str]) -> str:
    """Do it in a process of its own, which may be killed by what it reads."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            said = work()
        except BaseException as error:  # noqa: BLE001  # whatever it is, it is told
            said = f"raised {type(error).__name__}: {error}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return "ended by a signal" if os.WIFSIGNALED(status) else said


def drill(flips: int, seed: int, *, as_large: bool) -> Counter[str]:
    """Flip so many bits, each on a fresh copy; return how many came to what."""
    random = Random(seed)  # a drill's dice
    directory = Path(tempfile.mkdtemp())
    try:
        contents = make_state(directory / "state")
        return Counter(try_flip(directory / "state", contents, random, as_large=as_large) for _ in range(flips))
    finally:
        shutil.rmtree(directory)


def main(flips: int = 400, seed: int = 1) -> int:
    served = 0
    for as_large in (False, True):
        counts = drill(flips, seed, as_large=as_large)
        served += sum(count for what, count in counts.items() if what.startswith(SERVED))
        how = "as if large" if as_large else "as it is   "
        sys.stdout.write(f"{how}: {', '.join(f'{what} {count}' for what, count in counts.most_common())}\n")
    return 1 if served else 0


if __name__ == "__main__":
    sys.exit(main(*(int(argument) for argument in sys.argv[1:])))
