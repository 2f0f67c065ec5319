"""Make typed calls: send a document, return a struct, and follow the cursors of lists.

`None` and `UNSET` mean the cluster's default, and are not sent. In the changes of a `PATCH`, `None` removes a value.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from raftsched.client.http.connection import Connection
from raftsched.client.http.documents import encode_fields
from raftsched.client.http.idempotency_keys import KeyFactory
from raftsched.errors import Invalid, OutcomeUnknown
from raftsched.wire.verbs import Verb

T = TypeVar("T")
KEY_HEADER = "Idempotency-Key"
IF_MATCH = "If-Match"
IF_NONE_MATCH = "If-None-Match"


class Calls:
    """Typed requests to the cluster, shared by all handles of a client."""

    def __init__(self, connection: Connection, keys: KeyFactory) -> None:
        self.connection = connection
        self.keys = keys

    @property
    def freshness(self) -> dict[str, str]:
        """Return the query field of a read's consistency; empty if it is the cluster's default."""
        consistency = self.connection.settings.consistency
        return {} if consistency == "linearizable" else {"consistency": consistency}

    async def call(
        self,
        kind: type[T],
        method: str,
        path: str,
        document: msgspec.Struct | Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
        has_consistency: bool = True,
    ) -> T:
        """Return the reply to a request, with retries; see `Connection.call`.

        A GET names its consistency, unless its path has no choice (`has_consistency` is false).
        """
        full_query = {**self.freshness, **(query or {})} if method == "GET" and has_consistency else query
        body = await self.connection.call(
            method,
            path,
            None if method == "GET" else encode_fields(document or {}, whole="request"),
            query=query_of(full_query or {}),
            headers=headers,
            timeout_seconds=timeout_seconds,
        )
        return _decoded(body, kind, f"{method} {path}")

    async def do(
        self,
        kind: type[T],
        verb: Verb,
        object_path: str,
        fields: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        key: str | None = None,
        if_revision: int | None = None,
    ) -> T:
        """Do what `verb` says to the object at `object_path`, and return the reply. See `call`.

        `fields` are its body, or its query if it has no body. A verb that creates something counts once for each `key`;
        by default this call has its own. With `if_revision`, it changes only an object of this revision.
        """
        if verb.body is None:
            query = {**(query or {}), **(fields or {})}
            fields = None
        headers = {KEY_HEADER: key or self.keys.next()} if verb.is_keyed else if_match(if_revision)
        return await self.call(kind, verb.method, verb.path(object_path), fields, query=query, headers=headers)

    async def each(self, kind: type[T], path: str, field: str, query: Mapping[str, Any]) -> AsyncIterator[T]:
        """Yield the items under `field`, page by page."""
        page_query = dict(query)
        while True:
            items, cursor = await self.page(kind, path, field, page_query)
            for item in items:
                yield item
            if not cursor:
                return
            page_query["cursor"] = cursor

    async def page(
        self, kind: type[T], path: str, field: str, query: Mapping[str, Any]
    ) -> tuple[Sequence[T], str | None]:
        """Return the items under `field` of one page, and the cursor of the next one; None at the end."""
        page = await self.call(dict[str, msgspec.Raw], "GET", path, query=query)
        items: list[T] = _decoded(page.get(field, b""), list[kind], f"GET {path}")  # type: ignore[valid-type]
        return items, msgspec.json.decode(page.get("next_cursor", b"null"), type=str | None)


def _decoded(body: bytes | msgspec.Raw, kind: type[T], request: str) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise OutcomeUnknown(f"{request}: the reply can't be read: {error}") from None


def if_match(revision: int | None) -> dict[str, str]:
    """Return the header by which only an object of this revision is changed; {} if None."""
    return {} if revision is None else {IF_MATCH: f'"{revision}"'}


def given(**fields: Any) -> dict[str, Any]:
    """Return the fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def query_of(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields as query texts: numbers, `true` and `false`, times, lists separated by commas."""
    return {name: _query_text(value) for name, value in fields.items() if value is not None}


def _query_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(map(_query_text, value))
    return str(value)


def part(name: object, *, field: str = "id") -> str:
    """Return a name as a part of a path; raises `Invalid` naming `field` if it is empty or not a text."""
    if not isinstance(name, str) or not name:
        raise Invalid(f"{field}: expected a text that is not empty, not {name!r}", field=field)
    try:
        return quote(name, safe="")
    except UnicodeEncodeError as error:
        raise Invalid(f"{field}: is not Unicode text: {error}", field=field) from None
