"""Generate the parts of the documentation that the code defines.

A page holds a line `<!-- generated: NAME -->`; mkdocs calls `on_page_markdown` for each page, which replaces the line by
the text of `GENERATED[NAME]`. Nothing generated is committed, so it can't be out of date.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import click
import msgspec
from aiohttp.test_utils import make_mocked_request

import raftsched
from raftsched import config, environment, errors
from raftsched.api.access.door import OpenDoor
from raftsched.api.app import create_app
from raftsched.api.backend import Backend
from raftsched.api.http.advice import ADVICE
from raftsched.api.http.problems import http_problem, refusal
from raftsched.cli.main import main
from raftsched.client.bulk import DeadLetters
from raftsched.client.http.settings import ClientSettings
from raftsched.client.kinds import HttpOptions, ShellOptions
from raftsched.client.queues import Queue
from raftsched.client.schedules import Schedules
from raftsched.client.specs import JobOptions
from raftsched.client.workflows import WorkflowRun, Workflows
from raftsched.core.operations.codec import RejectCode
from raftsched.core.records.transitions import markdown_table, meanings, mermaid_diagram
from raftsched.core.state.results import Refused
from raftsched.metrics.catalog import METRICS
from raftsched.worker.settings import WorkerSettings

_SOURCES: Final = Path(raftsched.__file__).parent
GENERATED_MARK: Final = re.compile(r"^<!-- generated: (\S+) -->$", flags=re.MULTILINE)
_RAISED: Final = re.compile(r"Rejected\(\s*\"([a-z_]+)\",(?:[^()]|\([^()]*\))*?\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page with its generated parts; called by mkdocs."""
    return GENERATED_MARK.sub(lambda mark: GENERATED[mark[1]](), markdown)


# -- jobs and errors ------------------------------------------------------------------------------------------------------


def _job_life_cycle() -> str:
    table = markdown_table()
    return f"```mermaid\n{mermaid_diagram()}```\n\n{meanings()}\n{_transposed(table)}"


def _transposed(table: str) -> str:
    """The table with a row for each event: the events are many, the statuses few."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.splitlines()]
    header, _, *body = rows
    columns = list(zip(header, *body, strict=True))
    return _table(["event", *(cell.strip("*") for cell in columns[0][1:])], columns[1:])


def _error_codes() -> str:
    classes = {kind.code: kind for kind in _subclasses(errors.RaftschedError) if kind.__module__ == errors.__name__}
    rejected = _rejected_statuses()
    protocol = {http_problem(status, "").code: status for status in (404, 405, 413, 417, 500)}
    rows = []
    for code in dict.fromkeys([*ADVICE, *rejected]):
        kind = classes.get(code)
        status = rejected.get(code) or (kind.http_status if kind else protocol.get(code, 409))
        rows.append((f"`{code}`", status, "yes" if kind and kind.retryable else "no", ADVICE.get(code, "")))
    return _table(["code", "HTTP status", "retryable", "what to do"], rows)


def _rejected_statuses() -> dict[str, int]:
    """Code -> HTTP status of each rejection that the source raises by name, or that an operation can end in."""
    found = {}
    for path in sorted(_SOURCES.rglob("*.py")):
        for raised in _RAISED.finditer(path.read_text(encoding="utf-8")):
            status = re.search(r"http_status=(\d+)", raised[0])
            found[raised[1]] = int(status[1]) if status else errors.Rejected.http_status
    operations = {code.label: refusal(Refused(code, "")).http_status for code in RejectCode}
    del operations[RejectCode.INVALID.label]
    return found | operations


def _error_classes() -> str:
    rows = [
        (f"`{kind.__name__}`", f"`{kind.__mro__[1].__name__}`", _paragraph(kind))
        for kind in _subclasses(errors.RaftschedError)
        if kind.__module__ in {errors.__name__, "raftsched.client.errors"}
    ]
    return _table(["class", "is a", "meaning"], rows)


def _subclasses(kind: type[errors.RaftschedError]) -> Iterator[type[errors.RaftschedError]]:
    for child in kind.__subclasses__():
        yield child
        yield from _subclasses(child)


# -- settings -------------------------------------------------------------------------------------------------------------


def _node_settings() -> str:
    rows = []
    texts = _attribute_texts(config.NodeConfig)
    for field in msgspec.structs.fields(config.NodeConfig):
        default = "required" if field.required else f"`{field.default}`" if field.default not in {"", None} else ""
        reread = config.REREAD.get(field.name, "restart")
        rows.append((f"`{field.name}`", default, texts.get(field.name, ""), reread))
    return _table(["setting", "default", "meaning", "reread"], rows)


def _variables() -> str:
    return _table(["variable", "read by"], [(f"`{name}`", text) for name, text in environment.READ_ELSEWHERE.items()])


def _options(kind: type) -> str:
    """Return a row for each attribute of a class of settings."""
    texts = _attribute_texts(kind)
    rows = []
    for name, parameter in inspect.signature(kind).parameters.items():
        default = parameter.default
        is_plain = default is not inspect.Parameter.empty and isinstance(default, int | float | str)
        rows.append((f"`{name}`", f"`{default}`" if is_plain else "", texts.get(name, "")))
    return _table(["field", "default", "meaning"], rows)


def _keywords(kind: type, beside: Iterable[str] = ()) -> str:
    """Return a row for each key of a `TypedDict`, but for those `beside` it."""
    texts = _attribute_texts(kind)
    names = [name for name in kind.__annotations__ if name not in beside]
    return _table(["field", "meaning"], [(f"`{name}`", texts.get(name, "")) for name in names])


def _attribute_texts(kind: type) -> dict[str, str]:
    """Return the docstring below each attribute of a class, on one line."""
    [body] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef)
    texts = {}
    for attribute, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(attribute, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            texts[ast.unparse(attribute.target)] = " ".join(str(text.value.value).split())
    return texts


# -- metrics --------------------------------------------------------------------------------------------------------------


def _metrics() -> str:
    rows = [
        (
            f"`{each.name}`",
            each.kind.value,
            ", ".join(f"`{label}`" for label in each.labels),
            each.help,
            each.scope.value,
        )
        for each in METRICS
    ]
    return _table(["name", "kind", "labels", "meaning", "exported by"], rows)


# -- Python ---------------------------------------------------------------------------------------------------------------


def _python_api() -> str:
    parts = []
    named = [getattr(raftsched, name) for name in raftsched.__all__]
    for thing in [*filter(inspect.isclass, named), Schedules, Workflows, WorkflowRun, Queue, DeadLetters]:
        if issubclass(thing, errors.RaftschedError):
            continue
        parts.append(f"### `{thing.__name__}`\n\n{_docstring(thing)}\n")
        if thing is not raftsched.BlockingClient:
            parts.extend(_methods(thing))
    parts.append("### Functions\n")
    parts.extend(_call_text(function.__name__, function, function) for function in filter(inspect.isfunction, named))
    return "\n".join(parts)


def _methods(kind: type) -> Iterator[str]:
    for name, function in vars(kind).items():
        if name.startswith("_") or not inspect.isroutine(function):
            continue
        yield _call_text(f"{kind.__name__}.{name}", function, getattr(kind, name))


def _call_text(name: str, function: Any, bound: Any) -> str:
    arguments = str(inspect.signature(bound)).replace("'", "")
    call = f"{name}{arguments}".replace("(self, ", "(").replace("(self)", "()")
    word = "async " if inspect.iscoroutinefunction(function) else ""
    return f"```text\n{word}{call}\n```\n\n{_docstring(function)}\n"


def _docstring(thing: Any) -> str:
    return inspect.cleandoc(thing.__doc__ or "")


def _paragraph(thing: Any) -> str:
    return " ".join(_docstring(thing).partition("\n\n")[0].split())


# -- the command line -----------------------------------------------------------------------------------------------------


def _commands() -> str:
    parts = []
    for path, command in _leaf_commands(main, ()):
        context = click.Context(command, info_name=" ".join(("raftsched", *path)))
        usage = " ".join((context.info_name or "", *command.collect_usage_pieces(context)))
        text = inspect.cleandoc(command.help or "").replace("\f", "")
        options = [record for parameter in command.params if (record := _option_row(parameter, context))]
        parts.append(f"### raftsched {' '.join(path)}\n\n```text\n{usage}\n```\n\n{text}\n")
        parts.append(_table(["option", "meaning"], options))
    return "\n".join(parts)


def _option_row(parameter: click.Parameter, context: click.Context) -> tuple[str, str] | None:
    """Return an option and its help; None for an argument, which is in the usage."""
    record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
    return None if record is None else (f"`{record[0]}`", record[1])


def _leaf_commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from _leaf_commands(found, (*path, name))


# -- HTTP -----------------------------------------------------------------------------------------------------------------


def openapi() -> dict[str, Any]:
    """Return the OpenAPI document, as a node answers it."""
    app = create_app(cast("Backend", object()), OpenDoor())  # this one route asks no node
    [route] = [route for route in app.router.routes() if route.name == "get_openapi" and route.method == "GET"]

    async def answer() -> bytes:
        response: Any = await route.handler(make_mocked_request("GET", "/api/v1/openapi.json"))
        return bytes(response.body)

    document: dict[str, Any] = msgspec.json.decode(asyncio.run(answer()))
    return document


def _http_routes() -> str:
    document = openapi()
    parts = []
    for tag in document["tags"]:
        parts.append(f"### {tag['name']}\n\n{tag['description']}\n")
        rows = [
            (f"`{method.upper()} {path}`", operation["summary"], _schema_link(operation), _reply_link(operation))
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
            if tag["name"] in operation["tags"]
        ]
        parts.append(_table(["route", "does", "body", "reply"], rows))
    return "\n".join(parts)


def _http_schemas() -> str:
    parts = []
    for name, schema in openapi()["components"]["schemas"].items():
        required = set(schema.get("required", ()))
        rows = [
            (f"`{field}`", _type_text(part), "required" if field in required else _default_text(part))
            for field, part in schema.get("properties", {}).items()
        ]
        parts.append(f"### {name}\n\n{schema.get('description', '')}\n")
        parts.append(_table(["field", "type", "default"], rows))
    return "\n".join(parts)


def _schema_link(operation: Mapping[str, Any]) -> str:
    content = operation.get("requestBody", {}).get("content", {})
    return ", ".join(_type_text(part["schema"]) for part in content.values())


def _reply_link(operation: Mapping[str, Any]) -> str:
    replies = [reply for status, reply in operation["responses"].items() if status != "default"]
    texts = {_type_text(part["schema"]) for reply in replies for part in reply["content"].values()}
    return ", ".join(sorted(text for text in texts if text))


def _type_text(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema or "oneOf" in schema:
        return " or ".join(filter(None, map(_type_text, schema.get("anyOf") or schema["oneOf"])))
    if "const" in schema or "enum" in schema:
        return ", ".join(
            f"`{msgspec.json.encode(value).decode()}`" for value in schema.get("enum") or [schema["const"]]
        )
    if schema.get("type") == "array":
        return f"array of {_type_text(schema.get('items', {})) or 'anything'}"
    kind = str(schema.get("type", ""))
    lowest, highest = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
    bounds = f", {lowest} to {highest}" if lowest is not None and highest is not None else ""
    return f"{kind}{bounds}"


def _default_text(schema: Mapping[str, Any]) -> str:
    return f"`{msgspec.json.encode(schema['default']).decode()}`" if schema.get("default") is not None else ""


# -- Markdown -------------------------------------------------------------------------------------------------------------


def _table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a Markdown table; "" without rows."""
    head = list(header)
    lines = [f"| {' | '.join(_cell(value) for value in row)} |" for row in rows]
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *lines]) + "\n" if lines else ""


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


GENERATED: Final[Mapping[str, Callable[[], str]]] = {
    "job-life-cycle": _job_life_cycle,
    "error-codes": _error_codes,
    "error-classes": _error_classes,
    "node-settings": _node_settings,
    "variables": _variables,
    "metrics": _metrics,
    "job-options": lambda: _keywords(JobOptions),
    "http-options": lambda: _keywords(HttpOptions, JobOptions.__annotations__),
    "shell-options": lambda: _keywords(ShellOptions, JobOptions.__annotations__),
    "client-settings": lambda: _options(ClientSettings),
    "worker-settings": lambda: _options(WorkerSettings),
    "python-api": _python_api,
    "commands": _commands,
    "http-routes": _http_routes,
    "http-schemas": _http_schemas,
}
"""Name of each generated part -> what makes its text."""
