"""Give requests ids that exist and a caller, and keep away what would end the fuzzing itself.

What is kept away is in `LEFT_OUT`; every route gets requests of every caller all the same.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from tests.drills.api_fuzz.callers import Caller, Cast
from tests.drills.api_fuzz.requests import Request

LEFT_OUT: Final[Mapping[str, str]] = {
    "rotate or revoke a token in use": "another one is named, so that all callers keep theirs",
    "remove a node that runs": "an unknown one is named: the three must be there at the end",
    "add a member at an address of the document's making": "it gets a closed port of 127.0.0.1: no traffic leaves it",
    "quotas for the two tenants": "another tenant is named: they would refuse what the other routes are to be given",
    "changes by the admin of all in all tenants at once": "it names a tenant: nobody else may reach the reserved one",
    "waits of more than 0.1 s; streams of more than 0.3 s": "they are cut, for time",
}
"""What no request does, and why."""
_OPAQUE: Final = frozenset({"jobs", "workflows", "runs", "tokens"})
"""Nouns that are named by ids that the server makes, never the same for two tenants."""
_is_made_by_server: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(\.\d+)?|[0-9a-f]{16}").fullmatch
_FIELDS: Final = {"job_id": "jobs", "run_id": "runs", "workflow_id": "workflows", "schedule_id": "schedules"}
_KEPT_MAX: Final = 100
_WAIT_SECONDS: Final = 0.1
_EVERYWHERE: Final = frozenset({"cluster", "tenants", "tokens"})
"""Nouns of which the admin of all needs no tenant to change them."""
_SPARE: Final = "spare"
_ACCEPTED: Final[Mapping[str, Mapping[str, Any]]] = {
    "/api/v1/schedules": {"cron": "0 0 1 1 *", "job": {"name": "made"}},
    "/api/v1/workflows": {"jobs": {"a": {"name": "made"}, "b": {"name": "made", "depends_on": ["a"]}}},
    "/api/v1/leases": {"worker": "w1", "queues": ["*"], "capacity": 5},
    "/api/v1/jobs": {},
}
"""Bodies that are accepted, with a name: few that a document's schema allows are."""
_PORT: Final = re.compile(r".+:\d{1,5}")


@dataclass(slots=True)
class Known:
    """Ids that replies have told, by noun and by the tenant of who was told."""

    ids: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    owners: dict[str, str] = field(default_factory=dict)
    """The tenant of each id of an opaque noun that a caller of one tenant was told."""
    fencing_tokens: dict[str, int] = field(default_factory=dict)

    def note(self, noun: str, tenant: str, reply: Any) -> None:
        """Remember what a reply names."""
        for found in _objects(reply):
            for name, value in found.items():
                of = _FIELDS.get(name) or (noun if name in ("id", "name") else None)
                if of is None or not isinstance(value, str) or not value or (name == "name" and "id" in found):
                    continue
                self._keep(of, tenant, value)
                if tenant and of in _OPAQUE and _is_made_by_server(value):  # bulk replies repeat what was asked for
                    self.owners.setdefault(value, tenant)
                if name == "run_id" and isinstance(found.get("fencing_token"), int):
                    self.fencing_tokens[value] = found["fencing_token"]

    def _keep(self, noun: str, tenant: str, value: str) -> None:
        kept = self.ids[noun, tenant]
        kept.append(value)
        del kept[:-_KEPT_MAX]

    def some(self, noun: str, tenant: str, chance: random.Random) -> str | None:
        """Return an id; None if none is known."""
        kept = self.ids.get((noun, tenant))
        return chance.choice(kept) if kept else None


class Craft:
    """Turns requests of a document into those of callers."""

    def __init__(self, cast: Cast, known: Known, chance: random.Random) -> None:
        self._cast = cast
        self._known = known
        self._chance = chance
        self._member_count = 0

    def addressed(self, request: Request) -> None:
        """Name records that exist in most requests, and fields without which few are accepted."""
        noun = request.operation.noun
        tenant = self._chance.choice(self._cast.tenants)
        for name in request.path:
            known = self._known.some(noun, tenant, self._chance) if self._chance.random() < 0.8 else None
            if known is not None:
                request.path[name] = known
        accepted = _ACCEPTED.get(request.operation.path)
        if accepted is not None and isinstance(request.body, dict) and self._chance.random() < 0.5:
            names = self._chance.sample(sorted(request.body), min(len(request.body), 1))
            request.body = {name: request.body[name] for name in names} | deepcopy(dict(accepted))
        if isinstance(request.body, dict):
            self._fill(request.body, noun, tenant, request.path.get("id"))

    def _fill(self, body: dict[str, Any], noun: str, tenant: str, run_id: str | None) -> None:
        chance = self._chance
        if noun in ("jobs", "workflows", "schedules", "submit") and "name" not in body and chance.random() < 0.5:
            body["name"] = f"made {chance.randrange(30)}"
        if noun == "leases" and "queues" in body and chance.random() < 0.7:
            body["queues"] = ["*"]
        if noun == "runs" and run_id in self._known.fencing_tokens and chance.random() < 0.7:
            body["fencing_token"] = self._known.fencing_tokens[run_id]
        for found in _objects(body):
            if isinstance(found.get("run_id"), str) and chance.random() < 0.7:
                found["run_id"] = self._known.some("runs", tenant, chance) or found["run_id"]
                found["fencing_token"] = self._known.fencing_tokens.get(found["run_id"], 1)
            if isinstance(found.get("ids"), list) and chance.random() < 0.7:
                found["ids"] = [known for _ in range(3) if (known := self._known.some("jobs", tenant, chance))]

    def headers_of(self, request: Request, caller: Caller) -> dict[str, str]:
        """Return all headers of the request for this caller."""
        headers = dict(request.headers)
        if request.content_type is not None:
            headers["Content-Type"] = request.content_type
        if caller.credentials:
            headers["Authorization"] = caller.credentials
        is_change = request.method != "GET" and request.operation.noun not in _EVERYWHERE
        if caller.is_everywhere and (is_change or self._chance.random() < 0.5):
            headers["Raftsched-Tenant"] = self._chance.choice(self._cast.tenants)
        return headers

    def harmless(self, request: Request) -> None:
        """Change what would end the fuzzing: see `LEFT_OUT`."""
        noun, path = request.operation.noun, request.path
        if noun == "tokens" and path.get("id") in self._cast.token_ids:
            path["id"] = _SPARE
        if noun == "tenants" and path.get("name") in {*self._cast.tenants, self._cast.reserved_tenant, "default"}:
            path["name"] = _SPARE
        if noun == "cluster" and re.fullmatch(r"n\d+", path.get("id", "")):
            path["id"] = f"gone{self._chance.randrange(10)}"
        if request.operation.path == "/api/v1/cluster/members" and isinstance(request.body, dict):
            self._stay_here(request.body)
        for fields in (request.query, request.body if isinstance(request.body, dict) else {}):
            if isinstance(fields.get("wait_seconds"), int | float) and fields["wait_seconds"] > _WAIT_SECONDS:
                fields["wait_seconds"] = _WAIT_SECONDS

    def _stay_here(self, body: dict[str, Any]) -> None:
        """Let a member have an address only where nobody listens."""
        for port, name in enumerate(("raft", "api"), start=1):
            if isinstance(body.get(name), str) and (_PORT.fullmatch(body[name]) or self._chance.random() < 0.5):
                body[name] = f"127.0.0.1:{port + 2 * self._member_count % 1000}"
        if self._chance.random() < 0.5:
            self._member_count += 1
            body["id"] = f"gone{self._member_count}"


def _objects(value: Any, depth: int = 0) -> list[dict[str, Any]]:
    """Return the objects in a JSON value that are not too deep in it."""
    if depth > 4:
        return []
    if isinstance(value, dict):
        return [value, *(found for child in value.values() for found in _objects(child, depth + 1))]
    if isinstance(value, list):
        return [found for child in value[:20] for found in _objects(child, depth + 1)]
    return []
