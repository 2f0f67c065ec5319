"""Send requests of all operations as all callers, and collect what is wrong with the replies."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import msgspec
from schemathesis import GenerationMode
from yarl import URL

from tests.drills.api_fuzz.callers import Caller, Cast
from tests.drills.api_fuzz.crafting import Craft, Known
from tests.drills.api_fuzz.document import Operation, operations_of, problem_validator
from tests.drills.api_fuzz.requests import Request, drawn, spoiled
from tests.drills.api_fuzz.verdicts import Reply, Verdicts

_AT_ONCE: Final = 32
_CALLERS_EACH: Final = 4
"""Callers that send a drawn request: drawing one costs ten times what it costs to send it."""
_ANSWER_SECONDS: Final = 60.0
_STREAM_SECONDS: Final = 0.3
_KINDS_MAX: Final = 3
"""Examples of one finding that are kept."""
_VALID, _INVALID = 3, 1
"""Requests of an operation in a round, by whether its schema allows them."""


@dataclass(slots=True)
class Report:
    """What was sent, what came back, and what was wrong with it."""

    request_count: int = 0
    unsent_count: int = 0
    """Requests that no client can send: line ends in headers, and the like."""
    statuses: Counter[int] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    accepted: set[str] = field(default_factory=set)
    """Operations that have answered with success."""
    asked: Counter[str] = field(default_factory=Counter)
    findings: dict[str, list[str]] = field(default_factory=dict)
    """Examples of what was wrong, by what it is."""
    counts: Counter[str] = field(default_factory=Counter)
    """How often each finding was made."""

    def find(self, kind: str, example: str) -> None:
        self.counts[kind] += 1
        examples = self.findings.setdefault(kind, [])
        if len(examples) < _KINDS_MAX:
            examples.append(example)


class Fuzzer:
    """Sends requests to the nodes at `urls`."""

    def __init__(
        self,
        urls: Sequence[str],
        document: Mapping[str, Any],
        cast: Cast,
        session: aiohttp.ClientSession,
        *,
        seed: int,
        inner: tuple[str, ...] = (),
    ) -> None:
        self._urls = urls
        self._operations = operations_of(document)
        self._cast = cast
        self._session = session
        self._chance = random.Random(seed)
        self._known = Known()
        self._craft = Craft(cast, self._known, self._chance)
        self._verdicts = Verdicts(problem_validator(document), cast, inner, self._known.owners)
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self.report = Report()

    async def run(self, requests_max: int, seconds_max: float) -> Report:
        """Send requests round by round; in each every operation has its turn."""
        ends_at = time.monotonic() + seconds_max
        while True:
            for operation in self._chance.sample(self._operations, len(self._operations)):
                await self._turn(operation)
                if self.report.request_count >= requests_max or time.monotonic() > ends_at:
                    return self.report

    async def _turn(self, operation: Operation) -> None:
        seed = self._chance.randrange(2**32)
        requests = drawn(operation, GenerationMode.POSITIVE, _VALID, seed)
        requests += drawn(operation, GenerationMode.NEGATIVE, _INVALID, seed)
        requests.append(spoiled(self._chance.choice(requests), self._chance))
        async with asyncio.TaskGroup() as group:
            for request in requests:
                self._craft.addressed(request)
                self._craft.harmless(request)
                for caller in self._chance.sample(self._cast.callers, min(_CALLERS_EACH, len(self._cast.callers))):
                    group.create_task(self._ask(request, caller))

    async def _ask(self, request: Request, caller: Caller) -> None:
        report = self.report
        headers = self._craft.headers_of(request, caller)
        async with self._at_once:
            try:
                reply = await self._reply(request, headers)
            except (ValueError, TypeError, aiohttp.InvalidURL) as error:
                report.unsent_count += 1
                if report.unsent_count > max(100, report.request_count):
                    raise AssertionError("most requests can't be sent") from error
                return
            except (aiohttp.ClientError, TimeoutError) as error:
                report.find(f"no answer: {type(error).__name__}", f"{caller.name}: {_shown(request)}: {error}")
                return
        report.request_count += 1
        report.asked[request.operation.source.label] += 1
        report.statuses[reply.status] += 1
        self._note(request, caller, reply)
        for fault in self._verdicts.faults(request, caller, headers, reply):
            kind = f"{request.operation.source.label}: {fault}"
            report.find(
                kind, f"{caller.name}: {_shown(request)} {request.headers} -> {reply.status} {reply.body[:400]!r}"
            )

    async def _reply(self, request: Request, headers: Mapping[str, str]) -> Reply:
        url = URL(self._chance.choice(self._urls) + request.target, encoded=True)
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
        skipped = () if request.content_type else ("Content-Type",)
        async with self._session.request(
            request.method, url, headers=headers, data=request.content, timeout=timeout,
            allow_redirects=False, skip_auto_headers=skipped,
        ) as answer:  # fmt: skip
            if answer.content_type == "text/event-stream":
                return Reply(answer.status, answer.headers, await _first_part(answer), has_ended=False)
            return Reply(answer.status, answer.headers, await answer.read())

    def _note(self, request: Request, caller: Caller, reply: Reply) -> None:
        """Count the reply, and remember what it names."""
        if reply.content_type == "application/problem+json":
            self.report.codes[reply.body.partition(b'"code":"')[2].partition(b'"')[0].decode()] += 1
            return
        self.report.accepted.add(request.operation.source.label)
        if reply.content_type == "application/json" and request.operation.path != "/api/v1/openapi.json":
            told = msgspec.json.decode(reply.body)
            self._known.note(request.operation.noun, caller.tenant, told)


async def _first_part(answer: aiohttp.ClientResponse) -> bytes:
    try:
        async with asyncio.timeout(_STREAM_SECONDS):
            return await answer.content.read(4_096)
    except TimeoutError:
        return b""


def _shown(request: Request) -> str:
    body = b"" if request.content is None else request.content
    return f"{request.method} {request.target[:300]} {body[:400]!r}"
