"""Define the parameters of a schedule, and check the values that a run by hand gives.

Values are JSON texts and are kept as they were given, so a number keeps its digits. A run has a value for each parameter:
the given one, else the default, else null. A secret is given by its name and stored as `{"secret": NAME}`: only the executor
reads its content.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from typing import Final

import msgspec

from raftsched import limits
from raftsched.core.records.bounds import is_name, name_problem, range_problem, text_problem

_is_integer: Final = re.compile(rb"-?(0|[1-9][0-9]{0,17})").fullmatch
_is_number: Final = re.compile(rb"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?").fullmatch
_encode: Final = msgspec.json.Encoder().encode
_NULL: Final = b"null"
_texts: Final = msgspec.json.Decoder(str).decode
_objects: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_Values = Mapping[str, bytes]


class ParameterType(IntEnum):
    """Enumerate the types of values."""

    TEXT = 1
    INTEGER = 2
    NUMBER = 3
    BOOLEAN = 4
    CHOICE = 5
    SECRET = 6

    @property
    def label(self) -> str:
        return self.name.lower()


class Parameter(msgspec.Struct, frozen=True, array_like=True):
    """Define a value that a run of the schedule gets."""

    name: str
    type: ParameterType = ParameterType.TEXT
    choices: tuple[str, ...] = ()
    """The allowed texts of a choice."""
    default: bytes = b""
    """JSON text; b"" = none."""
    required: bool = False
    """A run needs a value other than null."""
    description: str = ""

    @property
    def must_be_given(self) -> bool:
        """Return whether each run must be given a value, so that time alone can't start one."""
        return self.required and not self.default


def parameter_problem(parameter: Parameter) -> str:
    """Return the fault of a definition, which begins with its field; "" if there is none."""
    if problem := name_problem("name", parameter.name):
        return problem
    if (parameter.type is ParameterType.CHOICE) != bool(parameter.choices):
        return "choices: is required for the type choice, and not allowed for others"
    if len(set(parameter.choices)) < len(parameter.choices):
        return "choices: has a text twice"
    default = value_problem(parameter, parameter.default) if parameter.default else ""
    return (
        f"default: {default}"
        if default
        else text_problem("description", parameter.description, 4 * limits.PARAMETER_DESCRIPTION_CHARS_MAX)
    )


def parameters_problem(parameters: tuple[Parameter, ...]) -> str:
    """Return the fault of a schedule's parameters, which begins with `parameters`; "" if there is none."""
    problem = range_problem("parameters", len(parameters), 0, limits.PARAMETERS_MAX) or range_problem(
        "parameters bytes", len(msgspec.msgpack.encode(parameters)), 0, limits.PARAMETER_DEFINITIONS_BYTES_MAX
    )
    for parameter in parameters:
        fault = parameter_problem(parameter)
        problem = problem or (f"parameters.{fault}" if fault else "")
    if problem:
        return problem
    if len({parameter.name.upper() for parameter in parameters}) < len(parameters):
        return "parameters: two names differ at most in upper and lower case"
    return _size_problem(values_of(parameters))


def value_problem(parameter: Parameter, value: bytes) -> str:
    """Return what is wrong with the JSON text of a value, or ""."""
    match parameter.type:
        case ParameterType.INTEGER:
            return "" if _is_integer(value) else "must be an integer of at most 18 digits"
        case ParameterType.NUMBER:
            return "" if _is_number(value) else "must be a number"
        case ParameterType.BOOLEAN:
            return "" if value in (b"true", b"false") else "must be true or false"
    try:
        text = _texts(value)
    except msgspec.DecodeError:
        return "must be a text"
    if parameter.type is ParameterType.CHOICE and text not in parameter.choices:
        return f"must be one of {', '.join(parameter.choices)}"[: limits.SKIP_REASON_CHARS_MAX]
    if parameter.type is ParameterType.SECRET and not is_name(text):
        return "must be the name of a secret"
    return ""


def values_problem(parameters: tuple[Parameter, ...], given: bytes) -> str:
    """Return the fault of the values that a run by hand gives, as a JSON object, or "".

    It begins with `parameters.NAME`, if one value is at fault.
    """
    try:
        values = _given(given)
    except msgspec.DecodeError:
        return "parameters: must be a JSON object"
    known = {parameter.name: parameter for parameter in parameters}
    for name, value in values.items():
        if name not in known:
            names = f"it has {', '.join(known)}" if known else "it has none"
            return f"parameters.{name}: the schedule has no such parameter; {names}"
        if fault := value_problem(known[name], value):
            return f"parameters.{name}: {fault}"
    for parameter in parameters:
        if parameter.must_be_given and parameter.name not in values:
            return f"parameters.{parameter.name}: is required"
    return _size_problem(values_of(parameters, given))


def values_of(parameters: tuple[Parameter, ...], given: bytes = b"") -> bytes:
    """Return the values of a run as a JSON object; b"" if the schedule has no parameters.

    `given` must have passed `values_problem`.
    """
    if not parameters:
        return b""
    values = _given(given)
    pairs = ((each, values.get(each.name, each.default)) for each in parameters)
    return b"{%b}" % b",".join(b"%b:%b" % (_encode(each.name), _stored(each, value)) for each, value in pairs)


def parameters_text(parameters: tuple[Parameter, ...]) -> str:
    """Return the definitions for the audit trail."""
    return ", ".join(map(_text, parameters)) or "none"


def _text(parameter: Parameter) -> str:
    choices = f" ({'|'.join(parameter.choices)})" if parameter.choices else ""
    default = f" = {parameter.default.decode()}" if parameter.default else ""
    return f"{parameter.name} {parameter.type.label}{choices}{default}{' required' if parameter.required else ''}"


def _given(text: bytes) -> _Values:
    return {name: bytes(value) for name, value in _objects(text).items()} if text else {}


def _stored(parameter: Parameter, value: bytes) -> bytes:
    if not value:
        return _NULL
    return b'{"secret":%b}' % value if parameter.type is ParameterType.SECRET else value


def _size_problem(values: bytes) -> str:
    return range_problem("parameters bytes", len(values), 0, limits.PARAMETERS_BYTES_MAX)
