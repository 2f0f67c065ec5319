"""Read the values of a schedule's parameters from options, and ask for those that are missing."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click
import msgspec

from raftsched.cli.commands.schedule.read import schedule_path
from raftsched.cli.terminal.options import pairs
from raftsched.cli.terminal.output import visible
from raftsched.cli.terminal.session import Session

_TEXTS: Final = frozenset({"text", "choice", "secret"})


def parameter_values(session: Session, name: str, options: Sequence[str], tenant: str | None) -> dict[str, Any]:
    """Return the values that `options` give as NAME=VALUE for the schedule `name`, in the form of a request.

    At a terminal it asks for required ones that are missing. The cluster checks the values. Raises `click.UsageError` for
    an option of another form.
    """
    texts = pairs(options, "=", "--parameter", "NAME=VALUE")
    may_ask = sys.stdin.isatty() and sys.stderr.isatty()
    if not (texts or may_ask):
        return {}
    definitions = {each["name"]: each for each in session.get(schedule_path(name), tenant=tenant)["parameters"]}
    for each in definitions.values():
        if may_ask and each["required"] and "default" not in each and each["name"] not in texts:
            texts[each["name"]] = _asked(each)
    return {name: _value(text, definitions.get(name, {})) for name, text in texts.items()}


def _asked(parameter: Mapping[str, Any]) -> str:
    choices = ["true", "false"] if parameter["type"] == "boolean" else parameter.get("choices")
    kind = "name of a secret" if parameter["type"] == "secret" else parameter["type"]
    question = f"{parameter['name']} ({parameter.get('description') or kind})"
    return str(click.prompt(visible(question), type=click.Choice(choices) if choices else str, err=True))


def _value(text: str, definition: Mapping[str, Any]) -> Any:
    """Return `text`, or the number or truth value that it writes if the parameter is no text."""
    if definition.get("type", "text") in _TEXTS:
        return text
    try:
        msgspec.json.decode(text, type=bool | int | float)
    except msgspec.DecodeError:
        return text
    return msgspec.Raw(text.encode())
