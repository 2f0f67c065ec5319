"""Read the operations of an OpenAPI document, each with what its requests and replies must look like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import jsonschema_rs
import schemathesis
from schemathesis import APIOperation
from schemathesis.core.result import Ok

_PUBLIC: Final = frozenset({"/healthz", "/readyz"})
_BY_CALLBACK: Final = "/api/v1/runs/{id}/complete"


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    source: APIOperation[Any, Any, Any, Any]
    statuses: frozenset[int]
    """Documented statuses of success."""
    reply_type: str
    reply: jsonschema_rs.Validator | None
    """None if the reply may be any document."""
    body: jsonschema_rs.Validator | None

    @property
    def noun(self) -> str:
        """Return the noun of its path: `jobs`."""
        return self.path.removeprefix("/api/v1").split("/")[1]

    @property
    def is_public(self) -> bool:
        """Return whether it asks for no token of the cluster."""
        return self.path in _PUBLIC or self.path == _BY_CALLBACK

    @property
    def is_stream(self) -> bool:
        return self.reply_type == "text/event-stream"


def operations_of(document: Mapping[str, Any]) -> list[Operation]:
    """Return all operations of the document."""
    operations: list[Operation] = []
    for found in schemathesis.openapi.from_dict(dict(document)).get_all_operations():
        assert isinstance(found, Ok), f"the document is not valid: {found}"
        operations.append(_operation(found.ok(), document))
    return operations


def problem_validator(document: Mapping[str, Any]) -> jsonschema_rs.Validator:
    found = _validator({"$ref": "#/components/schemas/Problem"}, document)
    assert found is not None
    return found


def _operation(source: APIOperation[Any, Any, Any, Any], document: Mapping[str, Any]) -> Operation:
    told = document["paths"][source.path][source.method]
    successes = {status: reply for status, reply in told["responses"].items() if status != "default"}
    [(reply_type, reply)] = next(iter(successes.values()))["content"].items()
    body = told.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    return Operation(
        source.method.upper(),
        source.path,
        source,
        frozenset(map(int, successes)),
        reply_type,
        _validator(reply["schema"], document),
        _validator(body, document),
    )


def _validator(schema: Mapping[str, Any], document: Mapping[str, Any]) -> jsonschema_rs.Validator | None:
    if not schema:
        return None
    return jsonschema_rs.validator_for({**schema, "components": document["components"]})
