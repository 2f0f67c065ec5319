"""Convert the definitions of a schedule's parameters to what is stored, and back."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from msgspec import UNSET

from raftsched.api.jobs.calls import NULL
from raftsched.core.records.parameters import Parameter, ParameterType, parameter_problem, parameters_problem
from raftsched.errors import Invalid
from raftsched.wire.jobs import JobBody
from raftsched.wire.parameters import ParameterBody
from raftsched.wire.schedules import ScheduleRequest

_PLACEHOLDER: Final = re.compile(rb"\{\{(?:\{\{|\s*parameters\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\})")
"""`{{parameters.NAME}}`, or a literal `{{`; `executors.placeholders` has the same rules."""


def parameters_of(wanted: ScheduleRequest, prefix: str) -> tuple[Parameter, ...]:
    """Return the definitions; raises `Invalid` naming the field below `prefix`."""
    parameters = tuple(map(_parameter, wanted.parameters))
    is_timed = any(timing is not None for timing in (wanted.cron, wanted.every, wanted.at))
    for position, parameter in enumerate(parameters):
        problem = parameter_problem(parameter)
        if not problem and is_timed and parameter.must_be_given:
            problem = "default: is required, since a run by time gives no value; or leave out cron, every and at"
        if problem:
            field = f"{prefix}parameters[{position}].{problem.partition(':')[0]}"
            raise Invalid(f"{prefix}parameters[{position}].{problem}", field=field)
    if problem := parameters_problem(parameters):
        raise Invalid(f"{prefix}{problem}", field=f"{prefix}parameters")
    return parameters


def must_be_given(wanted: ParameterBody) -> bool:
    """Return whether each run must be given a value."""
    return wanted.required and not _default(wanted)


def check_placeholders(job: JobBody, payload: bytes, parameters: tuple[Parameter, ...], prefix: str) -> None:
    """Raise `Invalid` if the body of a request, or the input of a command, names an unknown parameter."""
    if job.http is None and job.shell is None:
        return
    known = [parameter.name for parameter in parameters]
    named = (match[1].decode() for match in _PLACEHOLDER.finditer(payload) if match[1])
    unknown = next((name for name in named if name not in known), None)
    if unknown is not None:
        field = f"{prefix}{'shell.stdin' if job.http is None else 'http.body'}"
        told = f"there is no parameter {unknown}; known are {', '.join(known) or 'none'}"
        raise Invalid(f"{field}: {told}", field=field)


def parameter_document(parameter: Parameter) -> dict[str, Any]:
    """Return what a user would write for a definition."""
    document: dict[str, Any] = {"name": parameter.name, "type": parameter.type.label}
    if parameter.choices:
        document["choices"] = list(parameter.choices)
    if parameter.default:
        document["default"] = msgspec.Raw(parameter.default)
    document["required"] = parameter.required
    if parameter.description:
        document["description"] = parameter.description
    return document


def _parameter(wanted: ParameterBody) -> Parameter:
    return Parameter(
        wanted.name,
        ParameterType[wanted.type.upper()],
        tuple(wanted.choices or ()),
        _default(wanted),
        wanted.required,
        wanted.description or "",
    )


def _default(wanted: ParameterBody) -> bytes:
    """Return the JSON text of the default; b"" if there is none, or it is null."""
    return b"" if wanted.default is UNSET or wanted.default == NULL else bytes(wanted.default)
