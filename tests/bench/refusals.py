"""What it costs a node to refuse expensive requests, beside what ordinary ones cost it in the same run.

    python -m tests.bench.refusals [--repeat 7]

Machines are slow and busy at times, so no test judges a duration: tests count steps (`tests.steps`). What only a clock
can tell is measured here, and read by people. Each request goes over real HTTP to a real node in this process
(`tests.api.node.serving`), several times; the best of each time counts, since noise only ever adds.

    handler    CPU time of the handler, from the head of the request to the reply; waits do not count
    turn       the longest part of it without a wait, while which nothing else runs on the node, heartbeats included
    both ends  CPU time of the whole request, its client in the same process included
    clock      duration of the whole request; with both ends on one core, on an idle machine, the same
    peer       CPU time of `json.loads` for a batch of ordinary jobs of as many bytes, or of the handler of an ordinary
               request
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from dataclasses import astuple, dataclass
from functools import partial
from types import coroutine
from typing import Any
from unittest.mock import patch

import structlog
from aiohttp import web
from rich import print as show
from rich.table import Table

from chaos.checkers import History, check_all
from raftsched import limits
from raftsched.api.app import create_app
from raftsched.api.jobs.convert import fingerprint_of, submit_operation
from raftsched.api.json.decode import StructDecoder
from raftsched.core.cron.parser import parse, parse_expression
from raftsched.core.records.ids import JobId
from raftsched.wire.jobs import BatchRequest, JobRequest
from tests.api import node as node_module
from tests.api.node import Api, SimulatedNode, serving
from tests.chaos.histories import good_history, replay

STORED_JOBS = 20_000
PROMISED = "a 400 kB expression"
PROMISED_MS = 10.0

# -- what is sent -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sent:
    """A request, and the status that answers it."""

    name: str
    path: str
    status: int
    body: bytes = b""
    """b"" = a GET."""
    peer: str = "json.loads"
    """Or the name of an ordinary request; "" = it is one itself."""


def _encoded(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _schedule(cron: str) -> bytes:
    return _encoded({"name": "report", "cron": cron, "job": {"name": "build_report"}})


def _nested(levels: int, opening: bytes, closing: bytes) -> bytes:
    return b'{"name":"x","payload":%b1%b}' % (opening * levels, closing * levels)


def _largest(before: bytes, part: bytes, after: bytes = b"") -> bytes:
    """The largest body of that shape."""
    return before + part * ((limits.BODY_BYTES_MAX - len(before) - len(after)) // len(part)) + after


def _batch(part: bytes, count: int) -> bytes:
    return b'{"jobs":[%b]}' % b",".join([part] * count)


_JOB = {"name": "send_email", "queue": "mail", "payload": {"to": "someone@example.org", "text": "x" * 160}}
_LONGEST = ",".join(f"{first}-{first + 29}/2" for first in range(30)) + " " + ",".join(map(str, range(24))) + " * * *"
_CIRCLE = {f"t{number}": {"name": "x", "depends_on": [f"t{(number + 1) % 10_000}"]} for number in range(10_000)}
_OUTLOOK = {"cron": "* * * * *", "count": 1_000}
_NEVER = {"calendar": {"blackouts": [{"from": "1970-01-01T00:00:00Z", "to": "9000-01-01T00:00:00Z"}]}}
_HOLIDAYS = {"cron": "0 0 29 2 *", "count": 1_000, "calendar": {"business_days": {"country": "BD"}}}
_BULK = {"action": "cancel", "filter": {"tag": "nobody"}, "dry_run": True}

ORDINARY = (
    Sent("a schedule", "schedules", 200, _schedule("30 6 1-7 * MON"), peer=""),
    Sent("an outlook", "schedules/preview", 200, _encoded(_OUTLOOK), peer=""),
    Sent("a page", "jobs?limit=1000", 200, peer=""),
)
EXPENSIVE = (
    Sent(PROMISED, "schedules", 422, _schedule(",".join("0" * 200_000) + " * * * *")),
    Sent("20,000 times 0-59", "schedules", 422, _schedule(",".join(["0-59"] * 20_000) + " * * * *")),
    Sent("a minute of 5,000 nines", "schedules", 422, _schedule("9" * 5_000 + " * * * *")),
    Sent("an expression that never matches", "schedules", 422, _schedule("0 0 31 2 *"), peer="a schedule"),
    Sent("a long expression that is stored", "schedules", 200, _schedule(_LONGEST), peer="a schedule"),
    Sent("an outlook, all of it blacked out", "schedules/preview", 200, _encoded(_OUTLOOK | _NEVER), peer="an outlook"),
    Sent("an outlook over 8,000 years of holidays", "schedules/preview", 200, _encoded(_HOLIDAYS), peer="an outlook"),
    Sent("500 levels of arrays", "jobs", 400, _nested(500, b"[", b"]")),
    Sent("20,000 levels of arrays", "jobs", 400, _nested(20_000, b"[", b"]")),
    Sent("500,000 levels of arrays", "jobs", 400, _nested(500_000, b"[", b"]")),
    Sent("500,000 levels of objects", "jobs", 400, _nested(500_000, b'{"a":', b"}")),
    Sent("a string that never ends", "jobs", 400, _largest(b'"', rb"\"")),
    Sent("escapes without end", "jobs", 400, _largest(b'["', rb"\u0041", b'"]')),
    Sent("short strings without end", "jobs", 413, _largest(b"[", rb'"\\",', b"1]")),
    Sent("empty arrays without end", "jobs", 413, _largest(b"[", b"[],", b"1]")),
    Sent("digits without end", "jobs", 400, _largest(b"[1.", b"1", b"]")),
    Sent("a batch of 1,000,000 tiny jobs", "jobs/batch", 413, _batch(b"{}", 1_000_000)),
    Sent("a batch of 10,000 tiny jobs", "jobs/batch", 400, _batch(b"{}", 10_000)),
    Sent("a circle of 10,000 jobs", "workflows", 422, _encoded({"name": "etl", "jobs": _CIRCLE})),
    Sent("a tag of no job", "jobs?tag=nobody", 200, peer="a page"),
    Sent("a tag of no queued job", "jobs?status=queued&tag=nobody", 200, peer="a page"),
    Sent(f"a tag of none of {STORED_JOBS:,} jobs, in bulk", "jobs/bulk", 200, _encoded(_BULK), peer="a page"),
)


# -- what it costs ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cost:
    """The best of several, in milliseconds."""

    handler: float
    turn: float
    both_ends: float
    clock: float

    def better(self, other: Cost) -> Cost:
        """Return the best of both in each respect."""
        return Cost(*map(min, astuple(self), astuple(other)))


async def costs_of(requests: tuple[Sent, ...], *, repeat: int) -> dict[str, Cost]:
    """Return what each request costs, by its name; several rounds over all, so that a busy while spoils none of them."""
    turns: list[float] = []
    costs: dict[str, Cost] = {}
    async with _metered(turns) as api:
        await api.post("schedules", ORDINARY[0].body)
        for _ in range(STORED_JOBS // 1_000):
            await api.post("jobs/batch", _batch(_encoded(_JOB), 1_000))
        for _ in range(repeat):
            for each in requests:
                parse_expression.cache_clear()
                turns.clear()
                cpu, clock = time.thread_time(), time.perf_counter()
                answer = await (api.post(each.path, each.body) if each.body else api.ask("GET", each.path))
                cpu, clock = time.thread_time() - cpu, time.perf_counter() - clock
                assert answer.status == each.status, (each.name, answer)
                cost = Cost(sum(turns), max(turns), 1_000 * cpu, 1_000 * clock)
                costs[each.name] = cost.better(costs.get(each.name, cost))
    return costs


@asynccontextmanager
async def _metered(turns: list[float]) -> AsyncIterator[Api]:
    """Serve the API of a node that leads; its handlers add their turns to `turns`."""

    @web.middleware
    async def meter(request: web.Request, handler: Any) -> Any:
        return await _in_turns(handler(request), turns)

    def create(*arguments: Any, **options: Any) -> web.Application:
        app = create_app(*arguments, **options)
        app.middlewares.insert(0, meter)
        return app

    with patch.object(node_module, "create_app", create):
        async with serving(SimulatedNode()) as api:
            yield api


@coroutine
def _in_turns(work: Coroutine[Any, Any, Any], turns: list[float]) -> Generator[Any, Any, Any]:
    """Await `work`, and add the CPU milliseconds of each of its turns to `turns`."""
    step: Callable[[], Any] = partial(work.send, None)
    while True:
        began = time.thread_time()
        try:
            waits_for = step()
        except StopIteration as end:
            return end.value
        finally:
            turns.append(1_000 * (time.thread_time() - began))
        try:
            yield waits_for
        except BaseException as error:  # noqa: BLE001  # whatever ends the wait is for `work` to hear
            step = partial(work.throw, error)
        else:
            step = partial(work.send, None)


def best_ms(run: Callable[[], object], *, repeat: int) -> float:
    """Return the CPU milliseconds of the quickest `run`."""
    best = float("inf")
    for _ in range(repeat):
        began = time.thread_time()
        run()
        best = min(best, 1_000 * (time.thread_time() - began))
    return best


# -- what is printed --------------------------------------------------------------------------------------------------


def print_requests(costs: dict[str, Cost], *, repeat: int) -> None:
    """Print a row for each request, and the promise of the issue."""
    table = Table("request", "bytes", "status", title="milliseconds")
    for column in ("handler", "turn", "both ends", "clock", "peer"):
        table.add_column(column, justify="right")
    table.add_column("")
    table.add_column("handler / peer", justify="right")
    for each in (*ORDINARY, *EXPENSIVE):
        cost = costs[each.name]
        times = [f"{figure:.2f}" for figure in astuple(cost)]
        if each.peer:
            peer = costs[each.peer].handler if each.peer in costs else _loads_ms(len(each.body), repeat=repeat)
            times += [f"{peer:.2f}", each.peer, f"{cost.handler / peer:.1f}"]
        table.add_row(each.name, f"{len(each.body):,}", f"{each.status}", *times)
    show(table)
    cost = costs[PROMISED]
    verdict = "yes" if cost.both_ends < PROMISED_MS else "in its handler only" if cost.handler < PROMISED_MS else "NO"
    show(
        f"{PROMISED} is refused in under {PROMISED_MS:g} ms: {verdict}; {cost.handler:.2f} ms of CPU in the handler, "
        f"{cost.both_ends:.2f} ms with the HTTP request at both ends, {cost.clock:.2f} ms by the clock"
    )


def _loads_ms(size: int, *, repeat: int) -> float:
    """What `json.loads` takes for about `size` bytes of ordinary jobs."""
    job = _encoded(_JOB)
    text = _batch(job, max(1, size // (len(job) + 1)))
    return best_ms(lambda: json.loads(text), repeat=repeat)


def print_calls(*, repeat: int) -> None:
    """Print what ordinary calls cost whose steps the tests count, and what was said of them."""
    table = Table("call", "microseconds", "said to be, on an idle machine", title="one of many")
    for name, said, count, run in (
        ("a job of a batch, from its bytes to its operation", "15", 500, _submitted),
        ("the next instant of an expression", "5", 1_000, _fire_times),
        ("checking an operation of a history", "333", *_checking()),
    ):
        table.add_row(name, f"{1_000 * best_ms(run, repeat=repeat) / count:.1f}", said)
    show(table)


def _submitted() -> None:
    batch, document = StructDecoder(BatchRequest).read(_SUBMITTED)
    for raw, part in zip(batch.jobs, document["jobs"], strict=True):
        wanted = _decode(raw)
        submit_operation(wanted, job_id=JobId(bytes(16)), now_ms=1, key="k", fingerprint=fingerprint_of(part))


_SUBMITTED = _batch(_encoded(_JOB | {"idempotency_key": "k" * 24}), 500)
_decode = StructDecoder(JobRequest).decode


def _fire_times() -> None:
    parse("0 9 * * 1-5", zone="Europe/Berlin").between(1_800_000_000_000, 10**15, 1_000)


def _checking() -> tuple[int, Callable[[], object]]:
    events = good_history(5_002, jobs=1_000, workers=6)
    return len(History(events).operations), lambda: check_all(History(events, replay=replay))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what it costs a node to refuse expensive requests.")
    parser.add_argument("--repeat", type=int, default=7, help="the best of so many counts")
    repeat = parser.parse_args().repeat
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    print_requests(asyncio.run(costs_of((*ORDINARY, *EXPENSIVE), repeat=repeat)), repeat=repeat)
    print_calls(repeat=repeat)


if __name__ == "__main__":
    main()
