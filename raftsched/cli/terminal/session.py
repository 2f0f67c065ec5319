"""Talk to the cluster for one command: documents of the API in, documents out.

Commands print the documents of the API unchanged, new fields included. Every request is retried through elections;
those that create something carry an idempotency key, so that a retry never creates a second one.
"""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import wraps
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import click

from raftsched.cli.terminal.output import progress_console, reports_errors, url_option
from raftsched.client import ClientSettings
from raftsched.client.events import event_stream
from raftsched.client.http.calls import KEY_HEADER, Calls, part
from raftsched.client.http.connection import Connection
from raftsched.client.http.idempotency_keys import KeyFactory
from raftsched.client.http.nodes import Nodes
from raftsched.client.http.retries import Failure
from raftsched.client.records import Event
from raftsched.wire.verbs import Verb

__all__ = ["Session", "part", "with_plain_session", "with_session"]

SETTINGS: Final = ClientSettings()
PAGE_SIZE_MAX: Final = 1_000
_SILENCE_SECONDS: Final = 2.0
"""After this, a waiting user is informed that the cluster is still being asked."""
_ONE_NODE_SECONDS: Final = 5.0
"""Time in which a request to one node is retried: nobody takes over for it."""
_R = TypeVar("_R")
_T = TypeVar("_T")

actor_option = click.option(
    "--actor",
    envvar="RAFTSCHED_ACTOR",
    help="Who you are, for the audit trail; default: your user name here. Also from RAFTSCHED_ACTOR.",
)


class Session:
    """A client of the cluster for one command; use it as a context manager, from one thread."""

    def __init__(
        self, urls: Sequence[str], *, actor: str | None = None, settings: ClientSettings | None = None
    ) -> None:
        self._settings = settings = settings or SETTINGS
        self.urls = tuple(urls)
        self.actor = actor or user_name()
        nodes = Nodes(urls, avoid_seconds=settings.avoid_seconds, follow_leader=settings.follow_leader)
        self._connection = Connection(nodes, settings, actor=self.actor)
        self._keys = KeyFactory(self._connection.clock, self._connection.randomness)
        self._calls = Calls(self._connection, self._keys)
        self._runner = asyncio.Runner()

    def at(self, url: str) -> Session:
        """Return a session with one node only, whatever it says of a leader."""
        return Session(
            (url,),
            actor=self.actor,
            settings=replace(self._settings, follow_leader=False, retry_seconds=_ONE_NODE_SECONDS),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._connection.close())
        self._runner.close()

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """Return the document at `path`; parameters that are None, "" or empty are left out."""
        return self.send("GET", path, query=query)

    def post(self, path: str, document: Mapping[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        return self.send("POST", path, document, **options)

    def send(
        self,
        method: str,
        path: str,
        document: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Send one request and return the document of its reply; raises its error. See `Calls.call`."""
        asked = {name: value for name, value in (query or {}).items() if value not in (None, "", (), [])}
        return self._run(self._calls.call(dict[str, Any], method, path, document, query=asked, headers=headers))

    def do(
        self, verb: Verb, object_path: str, fields: Mapping[str, Any] | None = None, **options: Any
    ) -> dict[str, Any]:
        """Do what `verb` says to the object at `object_path`, and return the reply. See `Calls.do`."""
        return self._run(self._calls.do(dict[str, Any], verb, object_path, fields, **options))

    def new_key(self) -> str:
        """Return an idempotency key that was never used."""
        return self._keys.next()

    def key_header(self, key: str | None = None) -> dict[str, str]:
        """Return the header by which a request counts once, even if it is sent again; by default with a new key."""
        return {KEY_HEADER: key or self.new_key()}

    def pages(self, path: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Yield the pages of a list, each when it is needed."""
        while True:
            page = self.get(path, **query)
            yield page
            query["cursor"] = page.get("next_cursor")
            if not query["cursor"]:
                return

    def items(self, path: str, key: str, *, limit: int, **query: Any) -> Iterator[dict[str, Any]]:
        """Yield at most `limit` items of a list, page by page."""
        left = limit
        with ExitStack() as shown:
            for number, page in enumerate(self.pages(path, limit=min(limit, PAGE_SIZE_MAX), **query)):
                if number == 1:  # it is slow
                    shown.enter_context(progress_console.status("reading"))
                yield from page[key][:left]
                left -= len(page[key])
                if left <= 0:
                    return

    def events(
        self, *, types: Sequence[str], queue: str | None, job: str | None, tenant: str | None, after: str | None
    ) -> Iterator[Event]:
        """Yield events from now on, or behind the event `after`, without an end; see `Client.events`."""
        stream = event_stream(
            self._connection, types=types or None, queue=queue, job=job, tenant=tenant, last_event_id=after
        )
        events = aiter(stream.events())
        while True:
            yield self._runner.run(_next(events))

    def download(self, path: str, take: Callable[[bytes], None], *, silence_seconds: float) -> None:
        """Give the parts of a long reply of one node to `take`; it is asked for once."""

        async def read() -> None:
            async with self._connection.download(path, silence_seconds=silence_seconds) as download:
                if isinstance(download, Failure):
                    raise download.error
                async for part in download.parts:
                    take(part)

        self._runner.run(read())

    def _run(self, call: Coroutine[Any, Any, _T]) -> _T:
        """Return the result of `call`; report on standard error if that takes long."""
        return self._runner.run(_announced(call))


def with_session(command: Callable[..., _R]) -> Callable[..., _R]:
    """Give a command its `session` in place of --url and --actor; print its errors in one line."""
    return actor_option(with_plain_session(command))


def with_plain_session(command: Callable[..., _R]) -> Callable[..., _R]:
    """As `with_session`, but without --actor: for commands that record no actor."""

    @url_option
    @reports_errors
    @wraps(command)
    def wrapped(*args: Any, urls: Sequence[str], actor: str | None = None, **kwargs: Any) -> _R:
        with Session(urls, actor=actor) as session:
            return command(*args, session=session, **kwargs)

    return wrapped


def user_name() -> str:
    """Return the user's name in this system; "anonymous" if it has none that fits into a header."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        return "anonymous"
    return name if name.isascii() and name.isprintable() and name.strip() else "anonymous"


async def _next(events: AsyncIterator[Event]) -> Event:
    return await anext(events)


async def _announced(call: Coroutine[Any, Any, _T]) -> _T:
    asked = asyncio.ensure_future(call)
    done, _ = await asyncio.wait([asked], timeout=_SILENCE_SECONDS)
    if not done:
        click.echo("raftsched: still waiting for the cluster to answer", err=True)
    return await asked
