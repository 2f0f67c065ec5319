"""Use new certificate files without a restart: contexts that are made again when one of their files has changed.

asyncio, uvloop and aiohttp ask a context for each new connection. A `RenewedContext` passes the question to the newest
context, so that new connections use the new files, and open connections are not touched. Authorities can be removed as
well as added, which no change of an existing context allows.

Files are compared by inode, size and time of change. Broken files are refused with a line in the log, and the contexts
of before remain; a renewed certificate whose key follows a moment later is such a case.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeVar

import structlog

from raftsched.errors import Invalid
from raftsched.tls.contexts import TlsContexts, api_client_context

EXPIRY_WARNING_SECONDS: Final = 14 * 86_400.0
_WARNING_INTERVAL_SECONDS: Final = 86_400.0
_CLIENT_LOOK_SECONDS: Final = 1.0
"""A client looks at its files before a new connection, if the last look was longer ago."""
_log = structlog.get_logger()
_client_log = logging.getLogger(__name__)
"""A standard logger: a library must not write to the standard output of a program."""
_M = TypeVar("_M")


class _Renewal(Generic[_M]):
    """Keep the newest result of `make`, which reads some files."""

    def __init__(self, paths: Sequence[Path | None], make: Callable[[], _M]) -> None:
        """Make it for the first time; raises as `make` does."""
        self._paths = [path for path in paths if path is not None]
        self._make = make
        self._refusal = ""
        self._is_reported = False
        self._seen = self._stamps()
        self.newest = make()

    def look(self) -> bool:
        """Make it again if a file has changed, or if the last ones were refused; return whether it was made.

        Raises `Invalid` once for each reason why the files are refused, at the second look, since files that are replaced
        one by one don't fit together for a moment. `newest` stays what it was then.
        """
        before, self._seen = self._seen, self._stamps()
        if before == self._seen and not self._refusal:
            return False
        try:
            self.newest = self._make()
        except Invalid as error:
            before_that, self._refusal = self._refusal, str(error)
            if before_that != self._refusal:
                self._is_reported = False
                return False
            if self._is_reported:
                return False
            self._is_reported = True
            raise
        self._refusal = ""
        return True

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(path) for path in self._paths]


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns)


class RenewedContext(ssl.SSLContext):
    """A context whose handshakes are those of `newest`. Its own settings count for nothing."""

    newest: ssl.SSLContext

    @classmethod
    def of(cls, newest: ssl.SSLContext) -> Self:
        """Return a context of the same side as `newest`."""
        context = cls(newest.protocol)
        context.newest = newest
        return context

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """Begin a handshake over memory, as event loops do."""
        return self.newest.wrap_bio(*args, **kwargs)


class RenewedContexts:
    """Both contexts that `make` returns, made again by `look` when a file has changed; `setting` is for the log."""

    def __init__(self, setting: str, paths: Sequence[Path | None], make: Callable[[], TlsContexts]) -> None:
        """Make the contexts for the first time; raises as `make` does."""
        self._setting = setting
        self._renewal = _Renewal(paths, make)
        self._warned_at: float | None = None
        made = self._renewal.newest
        self.server, self.client = RenewedContext.of(made.server), RenewedContext.of(made.client)

    @property
    def expires_at(self) -> float:
        """Return when the certificate in use expires, in seconds since 1970; 0 if that is not known."""
        return self._renewal.newest.expires_at

    def look(self) -> None:
        """Use the files of now for new connections, if they have changed; refuse broken ones with a line in the log."""
        try:
            is_new = self._renewal.look()
        except Invalid as error:
            _log.error("certificates_refused", setting=self._setting, error=str(error), used="those of before")
            is_new = False
        made = self._renewal.newest
        if is_new:
            self.server.newest, self.client.newest = made.server, made.client
            self._warned_at = None
            _log.info("certificates_renewed", setting=self._setting, expires=_date(made.expires_at))
        self._warn_of_expiry(made.expires_at)

    def _warn_of_expiry(self, expires_at: float) -> None:
        now = time.time()
        if expires_at - now > EXPIRY_WARNING_SECONDS:
            return
        if self._warned_at is None or now - self._warned_at > _WARNING_INTERVAL_SECONDS:
            self._warned_at = now
            _log.warning("certificate_expires", setting=self._setting, expires=_date(expires_at))


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


class _ClientContext(RenewedContext):
    """The context of a client, which looks at its files before a new connection."""

    renewal: _Renewal[ssl.SSLContext]
    looked_at = float("-inf")

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        now = time.monotonic()
        if now - self.looked_at >= _CLIENT_LOOK_SECONDS:
            self.looked_at = now
            try:
                self.renewal.look()
            except Invalid as error:
                _client_log.error("%s; the files of before are used", error)  # no stack: it is no bug
            self.newest = self.renewal.newest
        return super().wrap_bio(*args, **kwargs)


def renewed_client_context(
    authority: Path | None = None, certificate: Path | None = None, key: Path | None = None
) -> ssl.SSLContext:
    """Return as `api_client_context` does a context that uses changed files for new connections; raises the same."""
    renewal = _Renewal((authority, certificate, key), lambda: api_client_context(authority, certificate, key))
    context = _ClientContext.of(renewal.newest)
    context.renewal = renewal
    return context
