"""Callers of the API who should be shown nothing of a tenant, and all that real nodes answer them."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from raftsched.api.access.rules import OF_ALL_TENANTS, ROLES, Access
from raftsched.api.http.routes import BACKUP_TYPE, BASE_PATH, STREAM_TYPE
from raftsched.core.records.api_token import Role
from raftsched.dashboard.pages import PAGES
from raftsched.dashboard.session import ROOT, SESSION_COOKIE
from tests.acceptance.canaries import TENANT, Day
from tests.api.access.test_roles import routes
from tests.dashboard.cost import SELECTED

OTHER: Final = "zeta"
_REQUESTS_AT_ONCE: Final = 16
_TRIES_MAX: Final = 20
"""A node that is busy may answer 503 for a moment."""
_PUBLIC: Final = (Access.PUBLIC, Access.CALLBACK)


@dataclass(frozen=True, slots=True)
class Onlooker:
    """A caller, and its tenant and role if it has a token."""

    name: str
    token: str
    tenant: str = ""
    role: Role | None = None

    def is_entitled(self, access: Access) -> bool:
        """Return whether a reply of such a route may be about the tenant `acme`."""
        if self.tenant != TENANT or self.role is None or access in _PUBLIC:
            return False
        return self.role in ROLES[access] and access not in OF_ALL_TENANTS


def onlookers(day: Day) -> list[Onlooker]:
    """Make tokens of another tenant, and of `acme` with too few rights; one caller has none."""
    roles = [(Role.VIEWER, OTHER), (Role.WORKER, OTHER), (Role.ADMIN, OTHER)]
    roles += [(Role.VIEWER, TENANT), (Role.WORKER, TENANT)]
    made = [
        Onlooker(f"{role.label} of {tenant}", day.make_token(role.label, tenant), tenant, role)
        for role, tenant in roles
    ]
    return [*made, Onlooker("nobody", "")]


@dataclass(frozen=True, slots=True)
class Question:
    """A request that reads, and the access that its route asks for."""

    access: Access
    method: str
    path: str
    body: Any = None


def questions(day: Day) -> Iterator[Question]:
    """Yield a request for each route and page that can be read, about each thing that the tenant has."""
    for route in routes():
        if route.method == "GET" and route.reply_type not in (STREAM_TYPE, BACKUP_TYPE):
            about = route.path.removeprefix(BASE_PATH)
            queries = ("",) if "{" in about else ("", f"?tenant={TENANT}", f"?queue={day.queue}")
            for path in _about(day, about):
                yield from (
                    Question(route.access, "GET", f"{route.path[: -len(about)]}{path}{each}") for each in queries
                )
    for page in PAGES:
        for path in _about(day, page.path) if page.show else ():
            yield Question(Access(page.access), "GET", f"{ROOT}{path}{SELECTED.get(page.path, '')}")
    for name in (*day.names.texts.values(), day.queue, *day.things["jobs"]):
        yield Question(Access.READ, "GET", f"{ROOT}/search?q={name}")
    yield from _readings_by_post(day)


def _readings_by_post(day: Day) -> Iterator[Question]:
    for ids in ({"ids": day.things["jobs"]}, {"filter": {"queue": day.queue}}):
        yield Question(Access.OPERATE, "POST", f"{BASE_PATH}/jobs/bulk", {"action": "cancel", "dry_run": True, **ids})
    wish = {"worker": "w2", "queues": [day.queue], "capacity": 10, "wait_seconds": 0}
    yield Question(Access.WORK, "POST", f"{BASE_PATH}/leases", wish)
    reported = [{"run_id": run, "fencing_token": 1} for run in day.things["runs"]]
    yield Question(Access.WORK, "POST", f"{BASE_PATH}/leases/heartbeat", {"worker": "w1", "leases": reported})


def _about(day: Day, path: str) -> Iterator[str]:
    """Yield a path for each thing of its noun; a path without names has one."""
    noun = path.split("/")[1]
    for name in day.things.get(noun, ["n1"]) if "{" in path else [""]:
        yield re.sub(r"\{\w+\}", name, path)


async def answers(day: Day, callers: list[Onlooker]) -> AsyncIterator[tuple[Question, str]]:
    """Ask what the callers are not entitled to, of the nodes in turn, and yield the head and body of each reply."""
    gate = asyncio.Semaphore(_REQUESTS_AT_ONCE)
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:

        async def ask(number: int, caller: Onlooker, question: Question) -> tuple[Question, str]:
            url = f"{day.cluster.urls[number % len(day.cluster.urls)]}{question.path}"
            for _ in range(_TRIES_MAX):
                async with (
                    gate,
                    session.request(
                        question.method, url, json=question.body, headers=_credentials(caller), allow_redirects=False
                    ) as reply,
                ):
                    text = (await reply.read()).decode(errors="replace")
                    head = " ".join(f"{key}: {value}" for key, value in reply.headers.items() if key != "Set-Cookie")
                if reply.status < 500:
                    return question, f"{head}\n{text}"
            raise AssertionError((question, reply.status, text))

        wanted = [
            (caller, question)
            for question in questions(day)
            for caller in callers
            if not caller.is_entitled(question.access)
        ]
        for done in asyncio.as_completed([ask(number, *each) for number, each in enumerate(wanted)]):
            yield await done


def _credentials(caller: Onlooker) -> Mapping[str, str]:
    if not caller.token:
        return {}
    return {"Authorization": f"Bearer {caller.token}", "Cookie": f"{SESSION_COOKIE}={caller.token}"}


def events(day: Day, caller: Onlooker, place: str, last: str) -> str:
    """Return the events that the caller is shown after a place, up to one that has the text `last`."""
    base = day.cluster.wait_for_leader().api
    headers = {**_credentials(caller), "Last-Event-ID": place}
    request = urllib.request.Request(f"{base}{BASE_PATH}/events", headers=dict(headers))
    read: list[str] = []
    with urllib.request.urlopen(request, timeout=30) as reply:
        for line in reply:
            read.append(line.decode())
            if last in read[-1]:
                break
    return "".join(read)
