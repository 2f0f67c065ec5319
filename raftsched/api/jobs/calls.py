"""Convert the request or command of a job that needs no handler, and its body, to what is stored, and back.

The body of a request and the standard input of a command are the job's payload, so they can be amended and replayed like
any other. What is left is stored in the job's record. An executor checks again what it needs for safety.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, UnsetType

from raftsched import limits
from raftsched.core.records.spec import Call, CallKind, JobSpec
from raftsched.errors import Invalid, Malformed, TooLarge
from raftsched.executors.http.targets import host_fault
from raftsched.values import check_value
from raftsched.wire.calls import HttpCall, ShellCommand, is_reserved_header
from raftsched.wire.jobs import HookBody

NULL: Final = msgspec.Raw(b"null")
_OWN_VARIABLES: Final = "RAFTSCHED_"
_encode = msgspec.json.Encoder(order="deterministic").encode


# -- what is stored ----------------------------------------------------------------------------------------------------


def name_of(wanted: HookBody, prefix: str) -> str:
    """Return the name of a job; a request or command can do without, and has that of its kind."""
    if wanted.name:
        return wanted.name
    kind = _kind_of(wanted, prefix)
    if kind is None:
        field = f"{prefix}name"
        raise Malformed(f"{field}: this field is required, except with http or shell", field=field)
    return kind.label


def queue_of(wanted: HookBody, prefix: str) -> str:
    """Return the queue of a job: by default that of its name, or of its kind for a request or command."""
    if wanted.queue:
        return wanted.queue
    kind = _kind_of(wanted, prefix)
    return wanted.name if kind is None else kind.label


def payload_of(wanted: HookBody, prefix: str) -> bytes:
    """Return the JSON text of the payload: as it was sent, or the body of the request or the command's input.

    Raises `TooLarge`, `Malformed` or `Invalid` naming the field.
    """
    if wanted.http is None and wanted.shell is None:
        return json_bytes(wanted.payload, limits.PAYLOAD_BYTES_MAX, f"{prefix}payload")
    name, body = _body_of(wanted)
    if wanted.payload is not UNSET and wanted.payload != NULL:
        field = f"{prefix}payload"
        raise Invalid(f"{field}: is not allowed here; give {name}", field=field)
    return json_bytes(body, limits.PAYLOAD_BYTES_MAX, f"{prefix}{name}")


def call_of(wanted: HookBody, prefix: str) -> Call | None:
    """Return the request or command of a job; raises `TooLarge` or `Invalid` naming the field."""
    kind = _kind_of(wanted, prefix)
    if kind is None:
        return None
    if wanted.http is not None:
        _check_http(wanted.http, f"{prefix}http.")
        if wanted.http.completion == "callback" and wanted.timeout_seconds is None:
            field = f"{prefix}timeout_seconds"
            raise Invalid(f"{field}: is required with the completion `callback`: the run ends by then", field=field)
        bare: HttpCall | ShellCommand = msgspec.structs.replace(wanted.http, body=UNSET)
    else:
        assert wanted.shell is not None
        _check_shell(wanted.shell, f"{prefix}shell.")
        bare = msgspec.structs.replace(wanted.shell, stdin=UNSET)
    text = _encode(bare)
    if len(text) > limits.CALL_BYTES_MAX:
        field = f"{prefix}{kind.label}"
        told = f"{field}: must be at most {limits.CALL_BYTES_MAX} bytes of JSON without its body, not {len(text)}"
        raise TooLarge(told, field=field)
    return Call(kind, text)


def json_bytes(raw: msgspec.Raw | UnsetType, bytes_max: int, field: str) -> bytes:
    """Return the JSON text as it was sent, b"" for none and for null; raises `TooLarge` or `Malformed` naming `field`."""
    if raw is UNSET or raw == NULL:
        return b""
    text = bytes(raw)
    check_value(text, bytes_max=bytes_max, field=field)
    return text


def _kind_of(wanted: HookBody, prefix: str) -> CallKind | None:
    if wanted.http is not None and wanted.shell is not None:
        field = f"{prefix}shell"
        raise Invalid(f"{field}: give either http or shell, not both", field=field)
    if wanted.http is not None:
        return CallKind.HTTP
    return None if wanted.shell is None else CallKind.SHELL


def _body_of(wanted: HookBody) -> tuple[str, msgspec.Raw | UnsetType]:
    """Return the name of the field that holds the body, and the body."""
    if wanted.http is not None:
        return "http.body", wanted.http.body
    assert wanted.shell is not None
    stdin = wanted.shell.stdin
    return "shell.stdin", UNSET if stdin is UNSET else msgspec.Raw(_encode(stdin))


# -- checks ------------------------------------------------------------------------------------------------------------


def _check_http(call: HttpCall, prefix: str) -> None:
    if fault := url_fault(call.url):
        raise Invalid(f"{prefix}url: {fault}", field=f"{prefix}url")
    seen: set[str] = set()
    for name in call.headers:
        lowered = name.lower()
        if is_reserved_header(lowered):
            raise Invalid(f"{prefix}headers: {name} is set by the executor", field=f"{prefix}headers")
        if lowered in seen:
            raise Invalid(f"{prefix}headers: {name} is given twice", field=f"{prefix}headers")
        seen.add(lowered)
    if call.bearer is not None and "authorization" in seen:
        raise Invalid(f"{prefix}bearer: give it or the header Authorization, not both", field=f"{prefix}bearer")


def url_fault(url: str) -> str:
    """Return why no request can be sent to this address, or ""."""
    if not (url.isascii() and url.isprintable()) or " " in url or "\\" in url:
        return "must be ASCII without spaces and backslashes; encode other characters as %XX, and names as xn--…"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"not an address: {error}"
    if parts.scheme not in ("http", "https"):
        return "must begin with http:// or https://"
    if not parts.hostname:
        return "names no host"
    if "@" in parts.netloc:
        return "must not contain a user name or password; give a header, or `bearer` with the name of a secret"
    return "must have a port from 1 to 65535" if port == 0 else host_fault(parts.hostname)


def _check_shell(command: ShellCommand, prefix: str) -> None:
    if not command.argv[0]:
        raise Invalid(f"{prefix}argv[0]: names no program", field=f"{prefix}argv[0]")
    for field, text in _texts_of(command):
        if "\0" in text:
            raise Invalid(f"{prefix}{field}: must not contain NUL", field=f"{prefix}{field}")
    for name in command.env:
        if name.startswith(_OWN_VARIABLES):
            raise Invalid(f"{prefix}env: {name} is set by the executor", field=f"{prefix}env")
    if command.cwd is not None and not command.cwd.startswith("/"):
        raise Invalid(f"{prefix}cwd: must be an absolute path", field=f"{prefix}cwd")


def _texts_of(command: ShellCommand) -> Iterator[tuple[str, str]]:
    yield from ((f"argv[{position}]", text) for position, text in enumerate(command.argv))
    yield from ((f"env.{name}", text) for name, text in command.env.items())
    yield "cwd", command.cwd or ""


# -- back to a document ------------------------------------------------------------------------------------------------


def shown_call(spec: JobSpec, payload: bytes) -> Mapping[str, msgspec.Raw | None]:
    """Return the fields `payload`, `http` and `shell` of a document; null if there is none."""
    call = None if spec.options is None else spec.options.call
    if call is None:
        return {"payload": msgspec.Raw(payload) if payload else None, "http": None, "shell": None}
    return {"payload": None, "http": None, "shell": None} | {call.kind.label: _with_body(call, payload)}


def _with_body(call: Call, payload: bytes) -> msgspec.Raw:
    if not payload:
        return msgspec.Raw(call.text)
    name = b"body" if call.kind is CallKind.HTTP else b"stdin"
    return msgspec.Raw(b'%s,"%s":%s}' % (call.text[:-1], name, payload))


def lease_call(spec: JobSpec) -> dict[str, Any]:
    """Return the fields `http` and `shell` of a lease, without their body: that is its payload."""
    call = None if spec.options is None else spec.options.call
    return {} if call is None else {call.kind.label: msgspec.Raw(call.text)}
