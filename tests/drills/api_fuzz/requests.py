"""Make requests of an operation: those that its schema allows, and those that break it in one place or several."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, unquote

import hypothesis
import msgspec
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.core import NotSet

from tests.drills.api_fuzz.document import Operation

_QUIET: Final = {
    "database": None,
    "deadline": None,
    "phases": [hypothesis.Phase.generate],
    "suppress_health_check": list(hypothesis.HealthCheck),
}
_ODD_METHODS: Final = ("PUT", "PATCH", "TRACE", "OPTIONS", "PROPFIND")
_ODD_TYPES: Final = ("text/plain", "application/xml", "application/json; charset=utf-16", "")


@dataclass(slots=True)
class Request:
    """A request before its caller is known."""

    operation: Operation
    method: str
    path: dict[str, str]
    """Path parameters, not encoded."""
    query: dict[str, Any]
    headers: dict[str, str]
    body: Any = None
    """A JSON value, bytes to send as they are, or None for no body."""
    content_type: str | None = None
    notes: set[str] = field(default_factory=set)

    @property
    def target(self) -> str:
        """Return path and query, encoded."""
        path = self.operation.path
        for name, value in self.path.items():
            path = path.replace(f"{{{name}}}", _quoted(value) or "%20")
        query = "&".join(f"{_quoted(name)}={_quoted(_text(value))}" for name, value in self.query.items())
        return f"{path}?{query}" if query else path

    @property
    def content(self) -> bytes | None:
        """Return the body as it is sent."""
        return self.body if self.body is None or isinstance(self.body, bytes) else _json(self.body)


def drawn(operation: Operation, mode: GenerationMode, count: int, seed: int) -> list[Request]:
    """Return up to `count` requests of the operation; some operations can't be asked wrongly, and have none."""
    cases: list[Case[Any]] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(max_examples=count, **_QUIET)  # type: ignore[arg-type]  # its kinds differ by name
    @hypothesis.given(operation.source.as_strategy(generation_mode=mode))
    def collect(case: Case[Any]) -> None:
        cases.append(case)

    with suppress(Unsatisfiable):
        collect()
    return [_request(operation, case) for case in cases]


def spoiled(request: Request, chance: random.Random) -> Request:
    """Return the request with a fault that no document describes: another method, type or length, an unknown field."""
    match chance.randrange(5):
        case 0:
            return _but(request, method=chance.choice(_ODD_METHODS))
        case 1 if request.content is not None:
            return _but(request, content_type=chance.choice(_ODD_TYPES))
        case 2 if request.content:
            return _but(request, body=request.content[: chance.randrange(len(request.content))])
        case 3 if isinstance(request.body, dict):
            return _but(request, body={**request.body, "nmae": 1})
        case _:
            return _but(request, query={**request.query, "nmae": "1"})


def _but(request: Request, **changed: Any) -> Request:
    fields = {name: getattr(request, name) for name in Request.__dataclass_fields__}
    return Request(**{**fields, "notes": set(request.notes), **changed})


def _request(operation: Operation, case: Case[Any]) -> Request:
    path = {name: unquote(str(value), errors="surrogatepass") for name, value in (case.path_parameters or {}).items()}
    headers = {name: str(value) for name, value in (case.headers or {}).items()}
    body = None if isinstance(case.body, NotSet) else case.body
    content_type = None if body is None else "application/json"
    return Request(operation, operation.method, path, dict(case.query or {}), headers, body, content_type)


def strings_of(value: Any) -> Iterator[str]:
    """Yield all texts in a JSON value."""
    if isinstance(value, str):
        yield value
    children: Sequence[Any] = ()
    if isinstance(value, dict):
        children = [*value.keys(), *value.values()]
    elif isinstance(value, list):
        children = value
    for child in children:
        yield from strings_of(child)


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass")


def _text(value: Any) -> str:
    """Return a value of a query; several form one text, separated by commas."""
    if isinstance(value, list):
        return ",".join(map(_text, value))
    return value if isinstance(value, str) else _json(value).decode(errors="replace")


def _json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, TypeError, ValueError):
        return json.dumps(value, default=str).encode()
