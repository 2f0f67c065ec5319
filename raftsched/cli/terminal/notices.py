"""Read notices of schedules as people write them on a command line, and show them so.

As in `dead_letter,missed=https://hooks.example.org/x`, `recovered=slack:https://…`, `late=email:ops@example.com`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from raftsched.cli.terminal.handlerless import hook_text
from raftsched.cli.terminal.options import hook_document
from raftsched.errors import Invalid

FORM: Final = "EVENTS=TARGET"
OPTION: Final = "--notify"
_NOTICE: Final = re.compile(r"([a-z_]+(?:,[a-z_]+)*)=(?:(slack|email):)?(.+)", re.DOTALL)


def notice_document(text: str) -> dict[str, Any]:
    """Return the notice; raises `Invalid` for a text of another form. The cluster checks events and targets."""
    match = _NOTICE.fullmatch(text)
    if match is None:
        told = f"{OPTION}: must be {FORM}, as in dead_letter,missed=slack:https://hooks.example.org/x, not {text!r}"
        raise Invalid(told, field=OPTION)
    events, form, target = match.groups()
    document: dict[str, Any] = {"on": events.split(",")}
    if form == "email":
        return document | {"email": {"to": target.split(",")}}
    if form == "slack":
        return document | {"slack": target}
    if target.startswith("{"):
        return document | {"job": hook_document(target, OPTION)}
    return document | {"webhook": target}


def notice_text(notice: Mapping[str, Any]) -> str:
    """Return a notice in the form in which people write it; a job by what it does."""
    events = ",".join(notice["on"])
    if "email" in notice:
        return f"{events}=email:{','.join(notice['email']['to'])}"
    if "slack" in notice:
        return f"{events}=slack:{notice['slack']}"
    return f"{events}={notice['webhook'] if 'webhook' in notice else hook_text(notice['job'])}"


def alarm_text(alarm: Mapping[str, Any]) -> str:
    return f"{alarm['event']} since {alarm['since']}"
