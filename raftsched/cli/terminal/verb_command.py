"""Make the command of a verb that acts on one object by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from raftsched.cli.terminal.options import given, options, verb_options
from raftsched.cli.terminal.output import json_option
from raftsched.cli.terminal.session import Session, with_session
from raftsched.wire.verbs import Verb


def verb_command(
    verb: Verb,
    path_of: Callable[[str], str],
    show: Callable[..., None],
    *others: Callable[[Any], Any],
) -> click.Command:
    """Return the command `VERB NAME`, with an option for each field of `verb` and with `others`, as for the tenant.

    `path_of` returns the path of the object of this name; `show` prints the reply.
    """

    @click.command(verb.name, help=verb.help)
    @click.argument("name")
    @verb_options(verb)
    @options(*others)
    @with_session
    @json_option
    def command(session: Session, name: str, *, as_json: bool, **values: Any) -> None:
        fields = {field: values.pop(field) for field in verb.options}
        show(session.do(verb, path_of(name), given(fields), query=values), as_json=as_json)

    return command
