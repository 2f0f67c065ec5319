"""Build the OpenAPI 3.1 document from the table of routes and from the structs that enforce it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any, Final

import msgspec
from msgspec import UNSET

from raftsched import limits
from raftsched.api.access.door import ACTOR_HEADER
from raftsched.api.access.rules import OF_ALL_TENANTS, ROLES
from raftsched.api.http.problems import CONTENT_TYPE as PROBLEM_TYPE
from raftsched.api.http.routes import BASE_PATH, Route
from raftsched.wire.calls import HttpCall, ShellCommand
from raftsched.wire.common import KEY_PATTERN, Problem, Reply
from raftsched.wire.jobs import HookBody, JobBody, JobRequest, RetryPolicyReply
from raftsched.wire.notices import NoticeBody
from raftsched.wire.schedules import ScheduleRequest
from raftsched.wire.timings import CalendarRequest
from raftsched.wire.workers import CALLBACK_TOKEN_HEADER, HeldLease, OutcomeReport
from raftsched.wire.workflows import TaskRequest

_REF: Final = "#/components/schemas/{name}"
_PARTS: Final = (
    Problem,
    JobBody,
    HookBody,
    NoticeBody,
    HttpCall,
    ShellCommand,
    HeldLease,
    JobRequest,
    OutcomeReport,
    RetryPolicyReply,
    TaskRequest,
    CalendarRequest,
    ScheduleRequest,
)
"""Structs that others hold as raw JSON and refer to by name."""
_REPLY_NAMES: Final = {"BackfillItem": "BackfillItem", "Skipped": "SkippedInstant"}
"""Names of replies without the ending `Reply`."""
_NO_LINE_FEED: Final = r"$(?!\n)"
"""The end of a text for Python; in a document `$` alone means it, and some generators reject look-aheads."""
_SCHEME: Final = "token"
_TAGS: Final = {
    "jobs": "Submit, read, list and change jobs, one or many.",
    "schedules": "Submit jobs repeatedly; preview fire times, and read the ledger of decisions.",
    "workflows": "Submit jobs together that depend on each other.",
    "queues": "Read and set limits, shares and pauses.",
    "dead-letters": "Read, requeue and purge jobs that were given up.",
    "leases": "Lease jobs, renew leases and report outcomes, as workers do.",
    "runs": "Report the start, progress and log of a run, as workers do.",
    "workers": "Read the workers that made a request lately.",
    "events": "Stream committed changes.",
    "audit": "Read the audit trail.",
    "tokens": "Make, list, rotate and revoke the tokens of the API.",
    "tenants": "Read and set quotas and shares of tenants.",
    "cluster": "Read and change the nodes and the leader.",
    "node": "Ask this node for its health and its metrics; routes of older clients.",
}


def _given(*names: str) -> dict[str, Any]:
    """Return a schema for an object that has these fields, and not as null."""
    return {"required": list(names), "properties": {name: {"not": {"type": "null"}} for name in names}}


_ALL: Final = {"required": ["all"], "properties": {"all": {"const": True}}}
_WHEN: Final = [_given("cron"), _given("every"), _given("at")]
_MUST_BE_GIVEN: Final = {
    "required": ["required"],
    "properties": {"required": {"const": True}, "default": {"type": "null"}},
}
_BY_HAND: Final = {
    "required": ["parameters"],
    "properties": {"parameters": {"contains": _MUST_BE_GIVEN}},
    "not": {"anyOf": _WHEN},
}
_EXACTLY_ONE: Final[dict[str, list[dict[str, Any]]]] = {
    "BulkRequest": [_given("ids"), _given("filter"), _ALL],
    "DeadLettersRequest": [
        _given("ids"),
        _given("filter"),
        _ALL,
        _given("reason") | {"not": {"anyOf": [_given("ids"), _given("filter"), _ALL]}},
    ],
    "ScheduleRequest": [*_WHEN, _BY_HAND],
    "PreviewRequest": _WHEN,
    "BlackoutRequest": [_given("from", "to"), _given("start", "end")],
    "TaskDependencyRequest": [_given("task"), _given("job")],
}
"""Alternatives of fields, or of groups of fields, of which exactly one must be given."""
_HEADERS: Final[dict[str, dict[str, Any]]] = {
    "Idempotency-Key": {"pattern": KEY_PATTERN.removesuffix(_NO_LINE_FEED) + "$"},
    ACTOR_HEADER: {"pattern": rf"^[!-~]([ -~]{{0,{limits.ACTOR_CHARS_MAX - 2}}}[!-~])?$"},
    CALLBACK_TOKEN_HEADER: {"pattern": rf"^[!-~]{{16,{limits.CALLBACK_TOKEN_CHARS_MAX}}}$"},
    "If-Match": {"pattern": r'^((W/)?"?[0-9]{1,18}"?|\*)$'},
    "If-None-Match": {"pattern": r"^\*$"},
}
_PATH_PARAMETER: Final = re.compile(r"{(\w+)}")
_STATUS_TEXTS: Final = {200: "Done.", 201: "Stored."}


def openapi_document(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the document for `routes`."""
    schemas = _schemas(frozenset(kind for route in routes for kind in (route.body, route.query, route.reply) if kind))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "raftsched",
            "version": version("raftsched"),
            "description": "A job scheduler that is one small Raft cluster. Every node answers every request.",
        },
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {_SCHEME: {"type": "http", "scheme": "bearer"}}},
    }


@cache
def _schemas(structs: frozenset[type]) -> dict[str, Any]:
    """Return the schema of every struct by its name; built once, since that takes 0.1 s. Callers must not change it."""
    ordered = sorted({*structs, *_PARTS}, key=lambda kind: kind.__name__)
    _, found = msgspec.json.schema_components(ordered, ref_template=_REF)
    schemas: dict[str, Any] = _named(found)
    for struct in _replies():
        if schema := schemas.get(struct.__name__) or schemas.get(schema_name(struct.__name__)):
            _complete(schema, struct)
    for name, cases in _EXACTLY_ONE.items():
        if name in schemas:
            schemas[name]["allOf"] = [{"oneOf": cases}]
    _plain(schemas)
    return schemas


def _named(schemas: dict[str, Any]) -> dict[str, Any]:
    """Return `schemas` with generic documents named as replies: `PauseDocument_str_` becomes `PauseReply`."""
    text = msgspec.json.encode(schemas).decode()
    names = {name: schema_name(name) for name in schemas if "Document" in name}
    for name, reply in names.items():
        text = text.replace(f'"{_REF.format(name=name)}"', f'"{_REF.format(name=reply)}"')
    named: dict[str, Any] = msgspec.json.decode(text)
    return {names.get(name, name): schema | {"title": names.get(name, name)} for name, schema in named.items()}


def schema_name(document: str) -> str:
    """Return the published name of a generic document: that of the server's reply."""
    name = document.partition("Document")[0]
    return _REPLY_NAMES.get(name, f"{name}Reply")


def _replies(struct: type[msgspec.Struct] = Reply) -> Iterator[type[msgspec.Struct]]:
    """Yield every struct of a reply, without the client's subclasses."""
    for each in struct.__subclasses__():
        if each.__module__.startswith("raftsched.wire."):
            yield each
            yield from _replies(each)


def _complete(schema: dict[str, Any], struct: type[msgspec.Struct]) -> None:
    """Mark the fields that the server always writes as required: all but those that are `UNSET`.

    A reply that omits defaults has no required fields, and no null. Defaults are removed: they only serve clients that
    read replies of another version.
    """
    properties = schema["properties"]
    fields = msgspec.structs.fields(struct)
    if struct.__struct_config__.omit_defaults:
        for field in fields:
            if field.default is None:
                properties[field.encode_name] = _not_null(properties[field.encode_name])
        return
    schema["required"] = [field.encode_name for field in fields if field.default is not UNSET]
    for each in properties.values():
        each.pop("default", None)


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    [kind] = [each for each in schema["anyOf"] if each != {"type": "null"}] if "anyOf" in schema else [schema]
    return {name: value for name, value in kind.items() if name != "default"}


def _plain(schema: Any) -> None:
    """Rewrite schemas so that generators of clients understand them: ends of patterns, single booleans, untyped
    arrays.
    """
    if isinstance(schema, dict):
        pattern = schema.get("pattern")
        if isinstance(pattern, str) and pattern.endswith(_NO_LINE_FEED):
            schema["pattern"] = pattern.removesuffix(_NO_LINE_FEED) + "$"
        if len(values := schema.get("enum", ())) == 1 and isinstance(values[0], bool):
            schema |= {"type": "boolean", "const": values[0]}
            del schema["enum"]
        if schema.get("type") == "array":
            schema.setdefault("items", {})
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        _plain(part)


def _tag(path: str) -> str:
    noun = path.removeprefix(f"{BASE_PATH}/").partition("/")[0]
    return noun if path.startswith(BASE_PATH) and noun in _TAGS else "node"


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "tags": [_tag(route.path)],
        "summary": route.summary,
        "security": [{_SCHEME: []}] if route.access in ROLES else [],
        "parameters": _parameters(route, schemas),
        "responses": {
            **{str(status): _response(route, _STATUS_TEXTS[status]) for status in route.statuses},
            "default": {"description": "Refused.", "content": {PROBLEM_TYPE: {"schema": _reference(Problem)}}},
        },
    }
    if route.access in ROLES:
        roles = ", ".join(role.label for role in sorted(ROLES[route.access]))
        whose = " of all tenants" if route.access in OF_ALL_TENANTS else ""
        operation["description"] = f"With tokens, it needs one{whose} with the role {roles}."
    if route.body is not None:
        content = {"application/json": {"schema": _reference(route.body)}}
        operation["requestBody"] = {"required": route.body_required, "content": content}
    return operation


def _response(route: Route, text: str) -> dict[str, Any]:
    schema = {} if route.reply is None else _reference(route.reply)
    return {"description": text, "content": {route.reply_type: {"schema": schema}}}


def _parameters(route: Route, schemas: dict[str, Any]) -> list[dict[str, Any]]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PATH_PARAMETER.findall(route.path)
    ]
    in_headers = [
        {"name": name, "in": "header", "schema": {"type": "string"} | _HEADERS.get(name, {})} for name in route.headers
    ]
    properties = {} if route.query is None else schemas[route.query.__name__]["properties"]
    in_query = [{"name": name, "in": "query", "schema": schema} | _style(schema) for name, schema in properties.items()]
    return [*in_path, *in_headers, *in_query]


def _style(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the style of a parameter; several values form one text, separated by commas."""
    is_list = any(part.get("type") == "array" for part in (schema, *schema.get("anyOf", ())))
    return {"style": "form", "explode": False} if is_list else {}


def _reference(struct: type) -> dict[str, str]:
    return {"$ref": _REF.format(name=struct.__name__)}
