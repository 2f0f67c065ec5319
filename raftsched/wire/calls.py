"""Define the documents of jobs that need no handler: an HTTP request, or a command.

The API checks them, and the log keeps them as the JSON text of these structs. Executors read that text again. The body of
a request and the standard input of a command are the job's payload.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from raftsched import limits
from raftsched.wire.common import Name, Request

Kind = Literal["http", "shell"]
"""Kind of a job that needs no handler. It is the default of the job's name and queue, too."""
KINDS: Final[tuple[Kind, ...]] = ("http", "shell")

STATUS_PATTERN: Final = r"^([1-5]xx|[1-5][0-9]{2})$(?!\n)"
STATUS_RULE: Final = "a status as 404, or a class of them as 5xx"
HEADER_NAME_PATTERN: Final = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$(?!\n)"
HEADER_NAME_RULE: Final = "letters, digits and !#$%&'*+.^_`|~-"
HEADER_VALUE_PATTERN: Final = r"^([!-~]([ \t!-~]*[!-~])?)?$(?!\n)"
HEADER_VALUE_RULE: Final = "printable ASCII characters without line breaks, and without spaces at the ends"
ENV_NAME_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$(?!\n)"
ENV_NAME_RULE: Final = "letters, digits and _, the first not a digit"

CALL_RULES: Final = {
    STATUS_PATTERN: STATUS_RULE,
    HEADER_NAME_PATTERN: HEADER_NAME_RULE,
    HEADER_VALUE_PATTERN: HEADER_VALUE_RULE,
    ENV_NAME_PATTERN: ENV_NAME_RULE,
}
"""The rule that each pattern enforces, as readable text."""

_RESERVED_HEADERS: Final = frozenset(
    ("connection", "content-length", "expect", "host", "idempotency-key", "keep-alive", "proxy-authorization")
) | {"proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
_RESERVED_PREFIXES: Final = ("raftsched-", "webhook-")


def is_reserved_header(name: str) -> bool:
    """Return whether the executor alone sets a header, whose name is in lower case."""
    return name in _RESERVED_HEADERS or name.startswith(_RESERVED_PREFIXES)


StatusPattern = Annotated[str, Meta(pattern=STATUS_PATTERN, description=STATUS_RULE)]
Statuses = Annotated[tuple[StatusPattern, ...], Meta(max_length=100)]
HeaderName = Annotated[str, Meta(pattern=HEADER_NAME_PATTERN, description=HEADER_NAME_RULE)]
HeaderValue = Annotated[str, Meta(pattern=HEADER_VALUE_PATTERN, description=HEADER_VALUE_RULE, max_length=8_192)]
EnvName = Annotated[str, Meta(pattern=ENV_NAME_PATTERN, description=ENV_NAME_RULE)]
ExitCode = Annotated[int, Meta(ge=0, le=255)]
Argument = Annotated[str, Meta(max_length=limits.CALL_BYTES_MAX)]
Url = Annotated[str, Meta(min_length=1, max_length=2_048, extra_json_schema={"format": "uri"})]


class SecretReference(Request, frozen=True):
    """The name of a secret, which the executor reads when it runs the job. Its value is stored nowhere."""

    secret: Name


class HttpCall(Request, frozen=True):
    """An HTTP request to send, and the meaning of its response."""

    url: Url
    """An absolute address, `http` or `https`, without a user name and password."""
    method: Literal["POST", "GET", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"] = "POST"
    headers: Annotated[dict[HeaderName, HeaderValue], Meta(max_length=50)] = {}
    """Headers besides those that identify the run, which can't be replaced."""
    body: msgspec.Raw | UnsetType = UNSET
    """JSON of any kind, sent as JSON; a string is sent as it is."""
    timeout_seconds: Annotated[float, Meta(gt=0, le=3_600)] = 30.0
    """Longest time for the whole exchange, redirects included."""
    success_statuses: Annotated[tuple[StatusPattern, ...], Meta(min_length=1, max_length=100)] = ("2xx",)
    """Statuses of a successful run."""
    retry_statuses: Statuses = ("408", "425", "429", "5xx")
    """Statuses that are tried again. What is in neither list is final."""
    max_redirects: Annotated[int, Meta(ge=0, le=10)] = 0
    """Redirects to follow. Beyond them, the status of the redirect is that of the run."""
    signing_secret: Name | None = None
    """Name of the secret that signs the request (Standard Webhooks)."""
    bearer: SecretReference | None = None
    """The secret to send as `Authorization: Bearer`. It is not sent to another host after a redirect."""
    completion: Literal["response", "callback"] = "response"
    """`callback`: after a 202 the run lasts until its target reports the outcome (`POST /runs/{run_id}/complete`), or until
    the job's `timeout_seconds`."""


class ShellCommand(Request, frozen=True):
    """A command to run, and the meaning of its exit code. It runs without a shell, unless `argv` names one."""

    argv: Annotated[tuple[Argument, ...], Meta(min_length=1, max_length=1_000)]
    """The program and its arguments."""
    env: Annotated[dict[EnvName, Argument], Meta(max_length=200)] = {}
    """Variables of its environment, besides those of the run."""
    cwd: Annotated[str, Meta(min_length=1, max_length=4_096)] | None = None
    """An absolute path; default: an empty directory of its own."""
    stdin: str | UnsetType = UNSET
    success_exit_codes: Annotated[tuple[ExitCode, ...], Meta(min_length=1, max_length=256)] = (0,)
    retry_exit_codes: Annotated[tuple[ExitCode, ...], Meta(max_length=256)] | None = None
    """Exit codes that are tried again; by default all but those of success."""
    nice: Annotated[int, Meta(ge=0, le=19)] = 0
    memory_mib: Annotated[int, Meta(ge=1, le=1 << 20)] | None = None
    """Longest address space of each process."""
    cpu_seconds: Annotated[int, Meta(ge=1, le=7 * 86_400)] | None = None
    """Longest CPU time of each process."""
