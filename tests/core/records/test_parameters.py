"""Parameters of schedules: what the state accepts, and the values that it stores."""

from __future__ import annotations

from raftsched import limits
from raftsched.core.records.parameters import (
    Parameter,
    ParameterType,
    parameters_problem,
    value_problem,
    values_of,
    values_problem,
)

ROWS = Parameter("rows", ParameterType.INTEGER, default=b"10")
NOTE = Parameter("note")
TOKEN = Parameter("token", ParameterType.SECRET)
MUST = Parameter("must", required=True)


def test_values_are_kept_byte_for_byte_and_a_secret_is_a_reference() -> None:
    given = b'{"token": "shop_token", "share": 1.50e0}'
    parameters = (Parameter("share", ParameterType.NUMBER), ROWS, NOTE, TOKEN)
    assert values_of(parameters, given) == (b'{"share":1.50e0,"rows":10,"note":null,"token":{"secret":"shop_token"}}')
    assert values_of((), b"") == b""


def test_only_values_of_their_type_are_accepted() -> None:
    accepted = {
        ParameterType.TEXT: {b'""', b'"a"'},
        ParameterType.INTEGER: {b"0", b"-1", b"999999999999999999"},
        ParameterType.NUMBER: {b"0", b"-1", b"999999999999999999", b"1000000000000000000", b"1.5", b"1e9"},
        ParameterType.BOOLEAN: {b"true", b"false"},
        ParameterType.CHOICE: {b'"a"'},
        ParameterType.SECRET: {b'"a"'},
    }
    values = {value for each in accepted.values() for value in each} | {
        b"null",
        b"[]",
        b"{}",
        b"01",
        b"1.",
        b"NaN",
        b"",
    }
    for type_, good in accepted.items():
        choices = ("a",) if type_ is ParameterType.CHOICE else ()
        assert {value for value in values if not value_problem(Parameter("p", type_, choices), value)} == good, type_


def test_what_the_state_can_not_store_is_named() -> None:
    long = "x" * (limits.PARAMETER_DEFINITIONS_BYTES_MAX // 2)
    for parameters, told in (
        ((Parameter(""),), "parameters.name: "),
        ((NOTE, Parameter("NOTE")), "parameters: "),
        ((Parameter("p", choices=("a",)),), "parameters.choices: "),
        ((Parameter("p", default=b"1"),), "parameters.default: must be a text"),
        ((Parameter("p", default=b'"a'),), "parameters.default: must be a text"),
        ((Parameter("p", description="x" * 2_001),), "parameters.description bytes: "),
        ((Parameter("p", ParameterType.CHOICE, (long, f"{long}y")),), "parameters bytes: "),
        ((Parameter("p", default=b'"%b"' % (b"x" * limits.PARAMETERS_BYTES_MAX)),), "parameters bytes: "),
        (tuple(Parameter(f"p{number}") for number in range(limits.PARAMETERS_MAX + 1)), "parameters: "),
    ):
        assert parameters_problem(parameters).startswith(told), parameters
    assert parameters_problem((ROWS, NOTE, TOKEN, MUST)) == ""


def test_faulty_values_are_named() -> None:
    for given, told in (
        (b"[]", "parameters: must be a JSON object"),
        (b"{", "parameters: must be a JSON object"),
        (b"", "parameters.must: is required"),
        (b'{"must":"a","rows":"1"}', "parameters.rows: must be an integer of at most 18 digits"),
        (b'{"must":"a","no":1}', "parameters.no: the schedule has no such parameter; it has rows, must"),
        (b'{"must":"a"}', ""),
    ):
        assert values_problem((ROWS, MUST), given) == told
