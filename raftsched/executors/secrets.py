"""Read secrets by the names that jobs give, and keep their values out of all that is recorded.

A secret is a file of a directory, or the variable `RAFTSCHED_SECRET_<NAME>` of the executor's environment: upper case,
with `_` for each character that is no letter or digit. It is read for each run, so that a new value needs no restart.

These are the secrets of the default tenant. Executors work for all tenants, and a job chooses where its request goes. So
another tenant's job reads only files in the directory of its tenant, `<directory>/<tenant>/<name>`.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

from raftsched import limits
from raftsched.core.records.ids import TENANT_DEFAULT
from raftsched.errors import Invalid
from raftsched.wire.common import is_name

PREFIX: Final = "RAFTSCHED_SECRET_"
_SHORTEST_CUT: Final = 4
"""The start of a value at the end of a cut text is removed from this length on."""


class MissingSecret(Exception):
    """There is no usable secret of a name; the message has the name, never a value."""


class Secrets:
    """Read secrets from `directory`, if there is one, and then from `environment`.

    Raises `Invalid` if `directory` is none.
    """

    def __init__(self, directory: Path | None = None, *, environment: Mapping[str, str] = os.environ) -> None:
        if directory is not None and not directory.is_dir():
            raise Invalid(f"secrets_dir: {directory} is not a directory", field="secrets_dir")
        self._directory = directory
        self._environment = environment

    def read(self, name: str, tenant: str = TENANT_DEFAULT) -> str:
        """Return the value of a secret of a tenant; raises `MissingSecret`."""
        is_default = tenant in ("", TENANT_DEFAULT)  # a run that no cluster gave has none
        value = self._of_default(name) if is_default else self._of_tenant(name, tenant)
        if not value:
            raise MissingSecret(f"the secret {name} is empty")
        return value

    def _of_default(self, name: str) -> str:
        variable = variable_of(name)
        value = _content(self._directory / name, name) if self._directory is not None else None
        value = self._environment.get(variable) if value is None else value
        if value is None:
            directory = "" if self._directory is None else f" and there is no file {self._directory / name}"
            raise MissingSecret(f"the secret {name} is missing: {variable} is not set{directory}")
        return value

    def _of_tenant(self, name: str, tenant: str) -> str:
        if self._directory is None or not is_name(tenant):  # a name is no path
            raise MissingSecret(f"the secret {name} is missing: tenants have theirs in a directory of secrets")
        file = self._directory / tenant / name
        value = _content(file, name)
        if value is None:
            raise MissingSecret(f"the secret {name} of the tenant {tenant} is missing: there is no file {file}")
        return value


def _content(file: Path, name: str) -> str | None:
    """Return the content of a secret's file without the line feed at its end; None if there is no file."""
    try:
        with file.open("rb") as opened:
            content = opened.read(limits.SECRET_BYTES_MAX + 1)
        if len(content) > limits.SECRET_BYTES_MAX:
            raise MissingSecret(f"the secret {name} is larger than {limits.SECRET_BYTES_MAX} bytes")
        return content.decode().removesuffix("\n").removesuffix("\r")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise MissingSecret(f"the secret {name} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise MissingSecret(f"the secret {name} is not UTF-8 text") from None


def variable_of(name: str) -> str:
    """Return the environment variable of a secret."""
    return PREFIX + re.sub(r"[^A-Z0-9]", "_", name.upper())


class Redaction:
    """Replace the values of the secrets of a run, in the forms in which a target may send them back."""

    def __init__(self, values: Mapping[str, str]) -> None:
        """Take name -> value of the secrets."""
        forms = {form: name for name, value in values.items() for form in _forms(value)}
        self._marks = {form: b"[secret %b]" % name.encode() for form, name in forms.items()}
        longest_first = sorted(self._marks, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, longest_first))) if forms else None

    def content(self, data: bytes, *, is_cut: bool = False) -> bytes:
        """Return `data` without values; `is_cut`: more may have followed, so its end may be the start of a value."""
        if self._pattern is None:
            return data
        clean = self._pattern.sub(lambda found: self._marks[found[0]], data)
        return clean[: len(clean) - self.begun_bytes(clean, shortest=_SHORTEST_CUT)] if is_cut else clean

    def text(self, text: str) -> str:
        """Return `text` without values."""
        return self.content(text.encode("utf-8", "backslashreplace")).decode() if self._pattern else text

    def stream(self) -> RedactedStream:
        """Return what removes values from bytes that arrive in pieces."""
        return RedactedStream(self)

    def begun_bytes(self, data: bytes, *, shortest: int) -> int:
        """Return the length of the longest end of `data`, from `shortest` on, with which a value begins; 0 = none."""
        longest = 0
        for form in self._marks:
            lengths = range(min(len(form), len(data)), shortest - 1, -1)
            longest = max(longest, next((each for each in lengths if data.endswith(form[:each])), 0))
        return longest


class RedactedStream:
    """Remove values from bytes that arrive in pieces: an end that may be the start of a value waits for the next one."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._held = b""

    def take(self, data: bytes) -> bytes:
        """Return the next bytes without values."""
        clean = self._redaction.content(self._held + data)
        held = self._redaction.begun_bytes(clean, shortest=1)
        self._held = clean[len(clean) - held :]
        return clean[: len(clean) - held]

    def end(self) -> bytes:
        """Return the bytes that still waited."""
        rest, self._held = self._held, b""
        return rest


def _forms(value: str) -> Iterable[bytes]:
    """Yield the forms of a value: as it is, its key, and quoted for JSON, Python and URLs, and as base64."""
    for each in {value, value.removeprefix("whsec_")}:
        quoted: Sequence[str] = (each, json.dumps(each)[1:-1], repr(each)[1:-1], quote(each, safe=""))
        yield from (form.encode() for form in quoted)
        yield base64.b64encode(each.encode()).rstrip(b"=")
