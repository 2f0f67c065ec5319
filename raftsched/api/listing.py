"""GET /jobs: pages over a stable order, whatever is added or removed meanwhile.

Theory of operation. A page is read on from a key (`raftsched.storage.pages`), by id or, with a status, by the index of
that status. Other filters are applied to what was read. A page ends when it is full, when its payloads and results have
grown to `limits.PAGE_BYTES_MAX`, or when `limits.SCAN_ROWS_MAX` jobs were examined, so no request holds the loop for
long; so a page can come back short, or empty, and still have a next cursor.

A cursor holds where the page ended, and the newest job of the moment in which the walk began: jobs that are submitted
later are left out, so a walk ends however fast new ones come (by status: unless they come faster than it reads). It
says nothing about the node that gave it out; any other, and a new leader, goes on from it. It may come from anyone, so
it is only read, never trusted.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Final, NamedTuple

import msgspec

from raftsched import limits
from raftsched.api.backend import TENANT_DEFAULT
from raftsched.api.rendering import job_reply
from raftsched.api.replies import JobReply, JobsPage
from raftsched.api.requests import ListQuery
from raftsched.core.job import Job, Status
from raftsched.errors import Malformed
from raftsched.storage.reader import StateReader

_VERSION: Final = 1
_DIGEST_BYTES: Final = 8
_ID_BYTES: Final = 16


class _Cursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    version: int
    digest: bytes
    """Of the filters: a cursor goes on with the list that it came from."""
    newest: bytes
    """Id of the newest job when the walk began."""
    after: bytes
    """Key of the last job examined; b"" = from the beginning."""


class _Rows(NamedTuple):
    items: list[tuple[bytes, Job]]
    """Jobs, each with the key that goes on behind it."""
    next_key: bytes
    """Where the next ones begin; b"" at the end."""


_decode_cursor = msgspec.msgpack.Decoder(_Cursor).decode
_encode_cursor = msgspec.msgpack.Encoder().encode


def list_page(state: StateReader, query: ListQuery, now_ms: int) -> JobsPage:
    """Return the page that `query` asks for; raises `Malformed` for a cursor that is not of this list."""
    cursor = _read_cursor(query) if query.cursor else _first(state, query)
    rows = _examine(state, query, cursor, now_ms)
    jobs: list[JobReply] = []
    room = limits.PAGE_BYTES_MAX
    next_key = rows.next_key
    for position, (key, job) in enumerate(rows.items):
        if not _matches(job, query, cursor):
            continue
        payload, result = state.payload(job.id), state.result(job.id)
        jobs.append(job_reply(job, payload, result, now_ms))
        room -= len(payload) + len(result)
        if len(jobs) == query.limit or room <= 0:
            next_key = key if position + 1 < len(rows.items) else next_key
            break
    following = msgspec.structs.replace(cursor, after=next_key) if next_key else None
    return JobsPage(jobs=jobs, next_cursor=_write_cursor(following) if following else None)


def _examine(state: StateReader, query: ListQuery, cursor: _Cursor, now_ms: int) -> _Rows:
    after = cursor.after or None
    filtered = query.queue or query.name or query.tag
    limit = limits.SCAN_ROWS_MAX if filtered else query.limit
    descending = query.order == "desc"
    if query.status is None:
        found = state.list_jobs(after=after, limit=limit, descending=descending)
        jobs = [job for job in found if job.id <= cursor.newest]
        return _Rows([(job.id, job) for job in jobs], jobs[-1].id if len(jobs) == limit else b"")
    status = Status[query.status.upper()]
    page = state.list_jobs_by_status(status, now_ms=now_ms, after=after, limit=limit, descending=descending)
    return _Rows(page.items, page.next_cursor)


def _matches(job: Job, query: ListQuery, cursor: _Cursor) -> bool:
    return (
        job.id <= cursor.newest
        and job.tenant == TENANT_DEFAULT
        and (query.queue is None or job.queue == query.queue)
        and (query.name is None or job.name == query.name)
        and (query.tag is None or query.tag in job.tags)
    )


def _first(state: StateReader, query: ListQuery) -> _Cursor:
    newest = state.list_jobs(limit=1, descending=True)
    return _Cursor(_VERSION, _digest(query), newest[0].id if newest else bytes(_ID_BYTES), b"")


def _read_cursor(query: ListQuery) -> _Cursor:
    try:
        cursor = _decode_cursor(base64.b64decode(query.cursor or "", altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise Malformed("cursor: not one that this server gave out", field="cursor") from None
    if cursor.version != _VERSION or cursor.digest != _digest(query):
        raise Malformed("cursor: it belongs to a list with other filters or another order", field="cursor")
    if len(cursor.newest) != _ID_BYTES or len(cursor.after) > limits.KEY_BYTES_MAX:
        raise Malformed("cursor: not one that this server gave out", field="cursor")
    return cursor


def _write_cursor(cursor: _Cursor) -> str:
    return base64.urlsafe_b64encode(_encode_cursor(cursor)).decode()


def _digest(query: ListQuery) -> bytes:
    filters = (query.status, query.queue, query.name, query.tag, query.order)
    return hashlib.blake2b(msgspec.msgpack.encode(filters), digest_size=_DIGEST_BYTES).digest()
