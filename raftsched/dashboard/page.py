"""Define a page: its path, the right that it needs, and what its handlers return."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from raftsched.client.asked_node import BackupStream
from raftsched.dashboard.view import View


@dataclass(frozen=True, slots=True)
class Rendered:
    """A template below `templates/`, and its variables."""

    template: str
    variables: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Redirect:
    """Another page to go to, after an action; `notice` is shown there once."""

    path: str
    """Begins with `/ui/`."""
    notice: str = ""


@dataclass(frozen=True, slots=True)
class Download:
    """A file for the browser to store; `open` begins to receive it."""

    open: Callable[[], AbstractAsyncContextManager[BackupStream]]


Answer = Rendered | Redirect | Download
Show = Callable[[View], Awaitable[Answer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One path of the dashboard.

    GET calls `show`, and POST calls `act`, once the form is known to come from one of our pages. If `act` raises an
    error of the request (`Invalid`, `Rejected`), `show` renders the same page with `view.error`. A page without `show`
    returns to where the form was, and shows the error there.
    """

    path: str
    """Below `/ui`, with `{names}` in braces, which are in `view.match`."""
    show: Show | None = None
    act: Show | None = None
    access: str = "read"
    """The right without which the page does not exist for its reader; one of `Caller.may`."""
    nav: str = ""
    """Its label in the navigation; "" = it has none."""
