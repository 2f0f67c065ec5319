"""Read the admin token file, and derive from it what only nodes can make: the token of their executors, and vouchers.

All nodes have the same file, so each can check what another made.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from raftsched.core.records.api_token import digest_of
from raftsched.errors import Invalid

FIELD: Final = "admin_token_file"
_CHARS_MIN: Final = 16


class _Secret(NamedTuple):
    """Hold the digests and the key that follow from one line of the file."""

    digest: bytes
    executor_digest: bytes
    voucher_key: bytes


class AdminFile:
    """The file whose lines are admin tokens; a change of the file is noticed at the next request that needs it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_at: tuple[int, ...] | None = None
        self._secrets: tuple[_Secret, ...] = ()
        self._executor_secret = ""

    def load(self) -> None:
        """Read the file if it has changed; raises `Invalid` naming the setting if it is no file of tokens."""
        try:
            status = self._path.stat()
            # A copy may have the time and the size of the file that it replaces.
            version = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size)
            if version == self._read_at:
                return
            lines = self._path.read_text(encoding="ascii").split()
        except (OSError, UnicodeDecodeError) as error:
            raise Invalid(f"{FIELD}: {self._path}: {error}", field=FIELD) from error
        if not lines or any(len(line) < _CHARS_MIN for line in lines):
            told = f"expected a random text of at least {_CHARS_MIN} characters in each line"
            raise Invalid(f"{FIELD}: {self._path}: {told}; `openssl rand -hex 32` makes one", field=FIELD)
        self._secrets = tuple(
            _Secret(digest_of(line), digest_of(_executor_secret(line)), _derived(line, b"voucher")) for line in lines
        )
        self._executor_secret = _executor_secret(lines[0])
        self._read_at = version

    @property
    def executor_secret(self) -> str:
        """Return the secret of the token of this node's own executors."""
        with suppress(Invalid):  # that of the last good file
            self.load()
        return self._executor_secret

    def is_admin(self, text: str) -> bool:
        """Return whether `text` is an admin token."""
        digest = digest_of(text)
        return self._any(lambda secret: hmac.compare_digest(digest, secret.digest))

    def is_executor(self, text: str) -> bool:
        """Return whether `text` is the secret of the executors of a node."""
        digest = digest_of(text)
        return self._any(lambda secret: hmac.compare_digest(digest, secret.executor_digest))

    def vouch(self, statement: str) -> str:
        """Return a MAC by which other nodes know that this node made the statement."""
        with suppress(Invalid):  # that of the last good file
            self.load()
        return hmac.new(self._secrets[0].voucher_key, statement.encode(), hashlib.sha256).hexdigest()

    def has_vouched(self, statement: str, mac: str) -> bool:
        """Return whether a node of this cluster made the statement."""
        wanted = mac.encode()

        def is_mac(secret: _Secret) -> bool:
            made = hmac.new(secret.voucher_key, statement.encode(), hashlib.sha256).hexdigest()
            return hmac.compare_digest(made.encode(), wanted)

        return self._any(is_mac)

    def _any(self, accepts: Callable[[_Secret], bool]) -> bool:
        try:
            self.load()
        except Invalid:
            return False  # a file that is being replaced, or was damaged: nobody is let in by it
        # All are compared, so that the time tells nothing of their order.
        return sum(map(accepts, self._secrets)) > 0


def _executor_secret(line: str) -> str:
    return _derived(line, b"executor").hex()


def _derived(line: str, purpose: bytes) -> bytes:
    return hmac.new(line.encode(), b"raftsched " + purpose, hashlib.sha256).digest()
