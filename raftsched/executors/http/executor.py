"""Send the request of each run that a worker leases, follow its redirects, and judge the response.

`Worker.execute("http", executor, on_stop=executor.close)` takes it. Nothing is kept between runs but connections: no
cookies, no credentials. Each run ends by its call's `timeout_seconds`, redirects included, and its cancellation closes
the connection. Errors name neither secrets nor headers.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp
import msgspec

from raftsched import limits
from raftsched.errors import Invalid
from raftsched.executors.http.connector import CheckedResolver, Connector, Lookup, lookup_name, peer
from raftsched.executors.http.hops import Hop, hop_of
from raftsched.executors.http.host_slots import HostSlots
from raftsched.executors.http.message import Message, is_redirect, message_of
from raftsched.executors.http.own_ports import OwnPorts
from raftsched.executors.http.reply import Response, judge, read_body, result_of
from raftsched.executors.http.targets import Targets
from raftsched.executors.http.verdicts import InvalidCall, NoReply, NoReplyInTime
from raftsched.executors.parameters import secret_names
from raftsched.executors.secrets import MissingSecret, Redaction, Secrets
from raftsched.wire.calls import HttpCall
from raftsched.worker import Context, Verdict
from raftsched.worker.handlers.verdicts import Accepted

_PER_HOST = 32
_ACCEPTED = 202


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """Bound what requests may do."""

    targets: Targets = field(default_factory=Targets)
    """Addresses to which they may go."""
    secrets: Secrets = field(default_factory=Secrets)
    proxy: str | None = None
    """URL of a proxy for all requests. It resolves names by itself, so only names and literal addresses are checked."""
    cluster: Sequence[str] = ()
    """URLs of nodes of the cluster. No request may go to its nodes: it names the others."""
    per_host: int = _PER_HOST
    """Requests to one host that are sent at the same time."""
    lookup: Lookup = lookup_name
    """Resolve names."""

    def __post_init__(self) -> None:
        """Raise `Invalid` for a proxy that is no URL."""
        if self.proxy is not None and not re.match(r"https?://[^\s/]+/?$", self.proxy):
            raise Invalid("proxy: not a URL as http://proxy.internal:3128", field="proxy")


class HttpExecutor:
    """Run HTTP jobs; belongs to the event loop that first uses it."""

    def __init__(self, settings: HttpSettings | None = None) -> None:
        self._settings = settings or HttpSettings()
        self._hosts = HostSlots(self._settings.per_host)
        self._own_ports = OwnPorts(self._settings.cluster, self._settings.lookup)
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, ctx: Context, payload: Any) -> dict[str, Any]:
        """Return the result of the run; raises verdicts, whose error types `verdicts` defines."""
        call = _call_of(ctx)
        secrets = self._secrets_of(call, ctx)
        redaction = Redaction(secrets)
        message = message_of(call, ctx, payload, secrets, int(time.time()))
        self._settings.targets.own = await self._own_ports.current()
        first = hop_of(call.url, self._settings.targets)
        begun = time.monotonic()
        try:
            async with self._hosts.turn(first.origin, can_snooze=not ctx.starts_at_most_once):
                begun = time.monotonic()
                async with asyncio.timeout(call.timeout_seconds):
                    response, message = await self._follow(call, first, message)
        except Verdict:
            raise
        except TimeoutError:
            raise NoReplyInTime(f"no whole reply within {call.timeout_seconds:g} s") from None
        except _Broken as error:
            raise NoReply(redaction.text(str(error))) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoReply(redaction.text(f"{type(error).__name__}: {error}")) from None
        if response.status == _ACCEPTED and message.asks_for_callback:
            raise Accepted
        judge(call, response, redaction, datetime.now(UTC), retry_cap_seconds=ctx.retry_cap_seconds)
        return result_of(response, redaction, round((time.monotonic() - begun) * 1000))

    async def close(self) -> None:
        """Close its connections; a later run opens new ones."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _secrets_of(self, call: HttpCall, ctx: Context) -> Mapping[str, str]:
        """Return name -> value of the secrets that a run names; raises `InvalidCall`."""
        names = [] if call.signing_secret is None else [call.signing_secret]
        names += [] if call.bearer is None else [call.bearer.secret]
        names += secret_names(ctx.parameters)
        try:
            return {name: self._settings.secrets.read(name, ctx.tenant) for name in names}
        except MissingSecret as error:
            raise InvalidCall(str(error)) from None

    async def _follow(self, call: HttpCall, hop: Hop, message: Message) -> tuple[Response, Message]:
        """Send `message` to `hop` and to where redirects lead; return the last response, and what was sent for it."""
        redirect_count = 0
        while True:
            response = await self._send(hop, message)
            location = response.headers.get("Location")
            if location is None or not is_redirect(response.status) or redirect_count >= call.max_redirects:
                return response, message
            redirect_count += 1
            following = hop_of(location, self._settings.targets, previous=hop.url)
            message = message.redirected(response.status)
            if following.origin != hop.origin:
                message = message.for_other_origin()
            hop = following

    async def _send(self, hop: Hop, message: Message) -> Response:
        async with self._opened().request(
            message.method,
            hop.url,
            data=message.body,
            headers=message.all_headers,
            skip_auto_headers=("content-type",),
            allow_redirects=False,
            proxy=self._settings.proxy,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        ) as reply:
            address = peer.get()
            body, is_cut = await read_body(reply, limits.HTTP_RESULT_BODY_BYTES_MAX)
            reason = reply.reason or ""
            return Response(reply.status, reason, reply.headers, body, is_cut, str(hop.url), address)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            settings = self._settings
            resolver = None if settings.proxy else CheckedResolver(settings.targets, settings.lookup)
            self._session = aiohttp.ClientSession(
                connector=Connector(resolver),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                middlewares=(_once,),
            )
        return self._session


class _Broken(Exception):
    """A connection broke."""


async def _once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Make the first break of a connection final: aiohttp would send some requests again in silence."""
    try:
        return await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _Broken(f"{type(error).__name__}: {error}") from None


def _call_of(ctx: Context) -> HttpCall:
    """Return the call of a job.

    Raises `msgspec.ValidationError` for one of a later release: another executor may know what it means.
    """
    return msgspec.convert(ctx.call, HttpCall)
