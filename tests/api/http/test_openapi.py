from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import msgspec
from aiohttp import web

import raftsched.api
import raftsched.wire
from raftsched.api.access.door import OpenDoor
from raftsched.api.app import create_app
from raftsched.api.forwarder import REQUEST_HEADERS
from raftsched.api.http.openapi import schema_name
from raftsched.api.http.submit_relay import RELAY_PATH
from raftsched.wire.common import NAME_PATTERN, Name, Reply
from raftsched.wire.jobs import ListQuery
from tests.api.node import Api, SimulatedNode


async def _document(api: Api) -> Any:
    answer = await api.get("openapi.json")
    assert answer.status == 200
    return answer.json


def _routes(app: web.Application) -> set[tuple[str, str]]:
    return {(route.method, route.resource.canonical) for route in app.router.routes() if route.resource is not None}


async def test_openapi_lists_exactly_the_routes_that_are_served(api: Api) -> None:
    paths = (await _document(api))["paths"]
    listed = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    streams = ("/api/v1/events", "/api/v1/cluster/backup")
    heads = {("HEAD", path) for method, path in listed if method == "GET" and path not in streams}
    between_nodes = {("POST", RELAY_PATH)}
    assert listed | heads | between_nodes == _routes(create_app(SimulatedNode(), OpenDoor()))


async def test_openapi_holds_the_routes_of_the_design(api: Api) -> None:
    paths = (await _document(api))["paths"]
    promised = {
        "/api/v1/jobs": {"get", "post"},
        "/api/v1/jobs/batch": {"post"},
        "/api/v1/jobs/bulk": {"post"},
        "/api/v1/jobs/{id}": {"get", "patch", "delete"},
        "/api/v1/jobs/{id}/pause": {"post"},
        "/api/v1/jobs/{id}/resume": {"post"},
        "/api/v1/jobs/{id}/retry": {"post"},
        "/api/v1/jobs/{id}/replay": {"post"},
        "/api/v1/jobs/{id}/runs": {"get"},
        "/api/v1/jobs/{id}/history": {"get"},
        "/api/v1/jobs/{id}/logs": {"get"},
        "/api/v1/jobs/{id}/result": {"get"},
        "/api/v1/jobs/{id}/explain": {"get"},
        "/api/v1/dead-letters": {"get"},
        "/api/v1/dead-letters/reasons": {"get"},
        "/api/v1/dead-letters/requeue": {"post"},
        "/api/v1/dead-letters/purge": {"post"},
        "/api/v1/workflows": {"get", "post"},
        "/api/v1/workflows/{id}": {"get", "delete"},
        "/api/v1/runs/{id}/start": {"post"},
        "/api/v1/runs/{id}/complete": {"post"},
        "/api/v1/runs/{id}/logs": {"post"},
        "/api/v1/runs/{id}/progress": {"post"},
        "/api/v1/leases": {"post"},
        "/api/v1/leases/heartbeat": {"post"},
        "/api/v1/leases/outcomes": {"post"},
        "/api/v1/tenants": {"get"},
        "/api/v1/tokens": {"get", "post"},
        "/api/v1/tokens/{id}": {"delete"},
        "/api/v1/tokens/{id}/rotate": {"post"},
        "/api/v1/tenants/{name}": {"get", "patch", "delete"},
        "/api/v1/queues": {"get"},
        "/api/v1/queues/{name}": {"get", "patch"},
        "/api/v1/queues/{name}/pause": {"post"},
        "/api/v1/queues/{name}/resume": {"post"},
        "/api/v1/queues/{name}/scale": {"get"},
        "/api/v1/schedules": {"get", "post", "put"},
        "/api/v1/schedules/preview": {"post"},
        "/api/v1/schedules/{id}": {"get", "patch", "delete"},
        "/api/v1/schedules/{id}/pause": {"post"},
        "/api/v1/schedules/{id}/resume": {"post"},
        "/api/v1/schedules/{id}/trigger": {"post"},
        "/api/v1/schedules/{id}/backfill": {"post"},
        "/api/v1/schedules/{id}/next": {"get"},
        "/api/v1/schedules/{id}/firings": {"get"},
        "/api/v1/events": {"get"},
        "/api/v1/audit": {"get"},
        "/api/v1/workers": {"get"},
        "/api/v1/workers/{name}/drain": {"post"},
        "/api/v1/workers/{name}/undrain": {"post"},
        "/api/v1/whoami": {"get"},
        "/api/v1/overview": {"get"},
        "/api/v1/cluster": {"get"},
        "/api/v1/cluster/node": {"get"},
        "/api/v1/cluster/members": {"post"},
        "/api/v1/cluster/members/{id}": {"delete"},
        "/api/v1/cluster/transfer": {"post"},
        "/api/v1/cluster/backup": {"get"},
        "/api/v1/cluster/backups": {"post"},
        "/api/v1/cluster/encryption": {"get"},
        "/api/v1/cluster/encryption/rotate": {"post"},
        "/api/v1/openapi.json": {"get"},
        "/healthz": {"get"},
        "/health": {"get"},
        "/readyz": {"get"},
        "/metrics": {"get"},
        "/submit": {"post"},
        "/jobs/{id}": {"get"},
    }
    assert {path: set(methods) for path, methods in paths.items()} == promised


async def test_openapi_publishes_every_field_and_bound_that_is_enforced(api: Api) -> None:
    schemas = (await _document(api))["components"]["schemas"]
    for module in _modules(raftsched.wire):
        for name, kind in vars(module).items():
            if _is_document(kind, module.__name__) and not _is_abstract(kind, schemas):
                fields = msgspec.structs.fields(kind)
                schema = schemas.get(name) or schemas[schema_name(name)]
                assert set(schema["properties"]) == {field.encode_name for field in fields}, name
    job = schemas["JobRequest"]
    assert job["additionalProperties"] is False
    assert schemas["HttpCall"]["required"] == ["url"]
    assert job["properties"]["max_attempts"] == {"type": "integer", "minimum": 1, "maximum": 1000, "default": 3}


async def test_openapi_says_which_documents_in_replies_may_be_null(api: Api) -> None:
    schemas = (await _document(api))["components"]["schemas"]
    job, [lease] = await api.submit(), await api.lease()
    for schema, reply in (("JobReply", job), ("LeaseReply", lease)):
        nulls = {name for name, value in reply.items() if value is None}
        assert {"http", "shell"} <= nulls
        definite = {name for name in nulls if "$ref" in schemas[schema]["properties"][name]}
        assert definite == set(), f"{schema} says that these are never null"


async def test_openapi_operations_are_named_and_described(api: Api) -> None:
    operations = [operation for path in (await _document(api))["paths"].values() for operation in path.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names))
    assert all(operation["summary"].endswith((".", "`")) or operation["summary"] for operation in operations)


async def test_openapi_parameters_are_those_of_path_and_query(api: Api) -> None:
    paths = (await _document(api))["paths"]
    parameters = {parameter["name"]: parameter["in"] for parameter in paths["/api/v1/jobs"]["get"]["parameters"]}
    assert parameters == dict.fromkeys(ListQuery.__struct_fields__, "query")
    assert [p["name"] for p in paths["/api/v1/jobs"]["post"]["parameters"]] == ["Idempotency-Key", "Raftsched-Actor"]
    for path, methods in paths.items():
        in_path = [p["name"] for m in methods.values() for p in m["parameters"] if p["in"] == "path"]
        assert in_path == re.findall(r"{(\w+)}", path) * len(methods)


async def test_replies_have_the_fields_that_are_published(api: Api) -> None:
    schemas = (await _document(api))["components"]["schemas"]
    job = await api.submit()
    assert set(job) == set(schemas["JobReply"]["properties"]) - {"duplicate"}
    [lease] = await api.lease()
    assert set(lease) == set(schemas["LeaseReply"]["properties"])
    [queue] = (await api.get("queues")).json["queues"]
    assert set(queue) == set(schemas["QueueReply"]["properties"])


def test_the_server_writes_every_field_of_a_reply() -> None:
    """Their defaults are for clients of other versions; one that the server forgot would be published as always there."""
    structs = {name: kind for module in _modules(raftsched.wire) for name, kind in vars(module).items()}
    missing: list[str] = []
    for path in Path(raftsched.api.__path__[0]).rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                continue
            kind = structs.get(call.func.id)
            if not isinstance(kind, type) or not issubclass(kind, Reply) or kind.__struct_config__.omit_defaults:
                continue
            given = {keyword.arg for keyword in call.keywords}
            wanted = {field.name for field in msgspec.structs.fields(kind) if field.default is not msgspec.UNSET}
            if None not in given and wanted - given:
                missing.append(f"{path.name}:{call.lineno}: {kind.__name__} without {sorted(wanted - given)}")
    assert not missing


def test_every_documented_bound_is_part_of_a_type() -> None:
    """Bounds belong into `Annotated`, where msgspec enforces what the document says."""
    assert get_args(Name)[1].pattern == NAME_PATTERN


def _is_document(kind: object, module: str) -> bool:
    if not isinstance(kind, type) or not issubclass(kind, msgspec.Struct):
        return False
    return kind.__module__ == module and bool(kind.__struct_fields__)


def _modules(*packages: ModuleType) -> Iterator[ModuleType]:
    for package in packages:
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(found.name)


def _is_abstract(kind: type, schemas: dict[str, Any]) -> bool:
    """Whether a struct only stands for what others have in common."""
    return bool(kind.__subclasses__()) and kind.__name__ not in schemas


def _parts_of(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object in a document, with its path."""
    if isinstance(node, dict):
        yield path, node
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for name, child in children:
        yield from _parts_of(child, f"{path}/{name}")


async def test_openapi_holds_nothing_that_generators_of_clients_stumble_over(api: Api) -> None:
    document = await _document(api)
    wrong: list[str] = []
    for path, part in _parts_of(document):
        if re.search(r"\(\?[=!<]|\\[AZz]", str(part.get("pattern", ""))):
            wrong.append(f"{path}: ECMA has no such pattern, or few engines do: {part['pattern']}")
        if part.get("type") == "array" and "items" not in part:
            wrong.append(f"{path}: an array without items")
        if any(isinstance(value, bool) for value in part.get("enum", ()) if isinstance(part.get("enum"), list)):
            wrong.append(f"{path}: an enumeration of truth values")
        if isinstance(ref := part.get("$ref"), str) and ref.rpartition("/")[2] not in document["components"]["schemas"]:
            wrong.append(f"{path}: {ref} leads nowhere")
    assert not wrong


async def test_openapi_sorts_operations_and_says_what_headers_may_hold(api: Api) -> None:
    document = await _document(api)
    tags = {tag["name"] for tag in document["tags"]}
    wrong: list[str] = []
    operations = [each for methods in document["paths"].values() for each in methods.values()]
    open_to_all = {each["operationId"] for each in operations if each["security"] != [{"token": []}]}
    assert open_to_all == {"healthz", "readyz", "complete_run"}
    assert document["components"]["securitySchemes"] == {"token": {"type": "http", "scheme": "bearer"}}
    for operation in operations:
        if len(operation.get("tags", ())) != 1 or not tags.issuperset(operation["tags"]):
            wrong.append(f"{operation['operationId']}: tags {operation.get('tags')}")
        headers = [each for each in operation["parameters"] if each["in"] == "header"]
        free = [each["name"] for each in headers if "pattern" not in each["schema"] and each["name"] != "Last-Event-ID"]
        if free:
            wrong.append(f"{operation['operationId']}: headers {free} without a pattern")
        lost = {each["name"] for each in headers} - {*REQUEST_HEADERS, "Last-Event-ID"}
        if lost:
            wrong.append(f"{operation['operationId']}: a follower does not pass on {lost}")
    assert not wrong


async def test_openapi_says_where_exactly_one_field_must_be_given(api: Api) -> None:
    schemas = (await _document(api))["components"]["schemas"]
    cases = {
        name: [sorted(case["required"]) for case in schema["allOf"][0]["oneOf"]]
        for name, schema in schemas.items()
        if "allOf" in schema
    }
    assert cases == {
        "BulkRequest": [["ids"], ["filter"], ["all"]],
        "DeadLettersRequest": [["ids"], ["filter"], ["all"], ["reason"]],
        "ScheduleRequest": [["cron"], ["every"], ["at"], ["parameters"]],
        "PreviewRequest": [["cron"], ["every"], ["at"]],
        "BlackoutRequest": [["from", "to"], ["end", "start"]],
        "TaskDependencyRequest": [["task"], ["job"]],
    }
    assert all(set(field) <= schemas[name]["properties"].keys() for name, fields in cases.items() for field in fields)
