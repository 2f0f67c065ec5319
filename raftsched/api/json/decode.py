"""Decode scanned documents to the struct of their route.

A document that does not fit raises `Malformed` naming the field; nothing was stored. A batch is decoded item by item,
so that a bad item does not affect the others.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, Generic, TypeVar, cast

import msgspec
from aiohttp import web
from msgspec import inspect

from raftsched.api.json.errors import explain
from raftsched.api.json.scan import scan
from raftsched.core.records.ids import JobId, parse_job_id, parse_run_id
from raftsched.errors import Invalid, Malformed, NotFound

T = TypeVar("T")
_SHOWN_CHARS: Final = 60


class StructDecoder(Generic[T]):
    """Decodes documents to one struct."""

    def __init__(self, struct: type[T]) -> None:
        self._struct = struct
        self._decode = msgspec.json.Decoder(struct).decode

    def decode(self, document: bytes | msgspec.Raw, *, at: str = "") -> T:
        """Return the struct in `document`, which the scan accepted; raises `Malformed` naming a path below `at`."""
        try:
            return self._decode(document)
        except msgspec.ValidationError as error:
            raise explain(error, self._struct, at=at) from None
        except msgspec.DecodeError as error:
            raise Malformed(f"the body is not JSON: {error}") from None

    def read_optional(self, body: bytes) -> T:
        """Return the struct in `body`; for no body that of an empty object."""
        return self.read(body or b"{}")[0]

    def read(self, body: bytes) -> tuple[T, Any]:
        """Return the struct in `body`, and the whole document as plain objects; raises `Malformed` or `TooLarge`."""
        document = scan(body)
        return self.decode(body), document


def parse_query(request: web.Request, struct: type[T]) -> T:
    """Return the query of the request's URL; raises `Malformed` naming an unknown, repeated or wrong parameter."""
    query = request.query
    fields: dict[str, Any] = dict(query)
    if len(fields) != len(query):
        name = next(name for name in fields if len(query.getall(name)) > 1)
        raise Malformed(f"{name[:_SHOWN_CHARS]}: duplicate parameter", field=name[:_SHOWN_CHARS])
    for name in _lists_of(cast("type[msgspec.Struct]", struct)) & fields.keys():
        fields[name] = fields[name].split(",")
    try:
        return msgspec.convert(fields, struct, strict=False)
    except msgspec.ValidationError as error:
        fault = explain(error, struct)
        raise Malformed(str(fault), field=fault.field.partition("[")[0]) from None


@cache
def _lists_of(struct: type[msgspec.Struct]) -> frozenset[str]:
    """The parameters that take several values, with commas between them."""
    return frozenset(
        field.encode_name
        for field in msgspec.structs.fields(struct)
        if any(isinstance(part, inspect.ListType) for part in _parts(inspect.type_info(field.type)))
    )


def _parts(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    if isinstance(kind, inspect.Metadata):
        return _parts(kind.type)
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def job_id_in_path(request: web.Request, *, noun: str = "job") -> JobId:
    """Return the id in the URL; raises `NotFound` for a text that is not an id."""
    try:
        return parse_job_id(request.match_info["id"])
    except Invalid:
        raise NotFound(f"there is no such {noun}: this is not a {noun} id") from None


def job_id_at(text: str, at: str) -> JobId:
    """Return the id in `text`; raises `Malformed` naming the path `at`."""
    try:
        return parse_job_id(text, field=at)
    except Invalid as error:
        raise Malformed(str(error), field=at) from None


def run_id_at(text: str, at: str) -> tuple[JobId, int]:
    """Return the job and run that a run id names; raises `Malformed` naming the path `at`."""
    try:
        return parse_run_id(text, field=at)
    except Invalid as error:
        raise Malformed(str(error), field=at) from None


def run_id_in_path(request: web.Request) -> tuple[JobId, int]:
    """Return the job and run in the URL; raises `NotFound` for a text that is not a run id."""
    try:
        return parse_run_id(request.match_info["id"])
    except Invalid:
        raise NotFound("there is no such run: this is not a run id") from None
