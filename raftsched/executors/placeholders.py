"""Fill in the facts of a run where the texts of a body name them: `{{run_id}}`, `{{parameters.region}}`.

There are names and nothing else: no code, no expressions. `{{{{` is a literal `{{`, and braces around what can't be a name
stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from raftsched.executors.parameters import parameter_texts
from raftsched.worker import Context

_BRACES: Final = re.compile(r"\{\{(\{\{|\s*([A-Za-z_][\w.-]{0,80})\s*\}\})", re.ASCII)


class UnknownPlaceholder(Exception):
    """A text names a fact that no run has; the message says which there are."""


def facts_of(ctx: Context, secrets: Mapping[str, str]) -> Mapping[str, str]:
    """Return the facts of a run, by their names; an empty text if it has none.

    `secrets` has the content of the secrets among its parameters, by their names.
    """
    fire_time = timestamp(ctx.instant)
    return {
        "job_id": ctx.job_id,
        "run_id": ctx.run_id,
        "name": ctx.name,
        "attempt": str(ctx.attempt_number),
        "fencing_token": str(ctx.fencing_token),
        "schedule_id": ctx.schedule_id or "",
        "fire_time": fire_time,
        "scheduled_at": timestamp(ctx.instant or ctx.run_at),
        **{f"parameters.{name}": text for name, text in parameter_texts(ctx.parameters, secrets).items()},
    }


def timestamp(moment: datetime | None) -> str:
    """Return an RFC 3339 text with milliseconds in UTC, "" for None."""
    return "" if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def filled(value: Any, facts: Mapping[str, str]) -> Any:
    """Return JSON of any kind with its texts filled in; names of fields stay as they are.

    Raises `UnknownPlaceholder`.
    """
    if isinstance(value, str):
        return _filled_text(value, facts) if "{{" in value else value
    if isinstance(value, list):
        return [filled(each, facts) for each in value]
    if isinstance(value, dict):
        return {name: filled(each, facts) for name, each in value.items()}
    return value


def _filled_text(text: str, facts: Mapping[str, str]) -> str:
    def fact(found: re.Match[str]) -> str:
        if found[1] == "{{":
            return "{{"
        name = found[2]
        if name in facts:
            return facts[name]
        known = ", ".join(facts)
        raise UnknownPlaceholder(f"no run has the fact {name!r}: name one of {known}; write {{{{{{{{ for {{{{")

    return _BRACES.sub(fact, text)
