"""The OpenAPI 3.1 document, made from the table of routes and the structs that enforce what it says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from typing import Any, Final

import msgspec

from raftsched.api.problems import CONTENT_TYPE as PROBLEM_TYPE
from raftsched.api.problems import Problem
from raftsched.api.replies import RetryPolicyReply
from raftsched.api.requests import HeldLease, JobBody, JobRequest, OutcomeReport, TaskRequest
from raftsched.api.requests.schedules import CalendarRequest, ScheduleRequest
from raftsched.api.routes import Route

_REF: Final = "#/components/schemas/{name}"
_PARTS: Final = (
    Problem,
    JobBody,
    HeldLease,
    JobRequest,
    OutcomeReport,
    RetryPolicyReply,
    TaskRequest,
    CalendarRequest,
    ScheduleRequest,
)
"""Structs that others hold as raw JSON and refer to by name."""
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
        "paths": paths,
        "components": {"schemas": schemas},
    }


@cache
def _schemas(structs: frozenset[type]) -> dict[str, Any]:
    """Return the schema of every struct, by its name: read only, and made once, since it takes a tenth of a second."""
    ordered = sorted({*structs, *_PARTS}, key=lambda kind: kind.__name__)
    _, schemas = msgspec.json.schema_components(ordered, ref_template=_REF)
    return schemas


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": _parameters(route, schemas),
        "responses": {
            **{str(status): _response(route, _STATUS_TEXTS[status]) for status in route.statuses},
            "default": {"description": "Refused.", "content": {PROBLEM_TYPE: {"schema": _reference(Problem)}}},
        },
    }
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
    in_headers = [{"name": name, "in": "header", "schema": {"type": "string"}} for name in route.headers]
    properties = {} if route.query is None else schemas[route.query.__name__]["properties"]
    in_query = [{"name": name, "in": "query", "schema": schema} | _style(schema) for name, schema in properties.items()]
    return [*in_path, *in_headers, *in_query]


def _style(schema: dict[str, Any]) -> dict[str, Any]:
    """Several values of one parameter stand in one text, with commas between them."""
    is_list = any(part.get("type") == "array" for part in (schema, *schema.get("anyOf", ())))
    return {"style": "form", "explode": False} if is_list else {}


def _reference(struct: type) -> dict[str, str]:
    return {"$ref": _REF.format(name=struct.__name__)}
