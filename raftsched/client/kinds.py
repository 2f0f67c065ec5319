"""Describe jobs that need no handler: an HTTP request to send, or a command to run.

`http_job` and `shell_job` return the `JobSpec` of such a job, for schedules, workflows and hooks. `Client.http` and
`Client.shell` submit one. Secrets are given by name: an executor reads their values when it runs the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Unpack

from raftsched.client.http.calls import given
from raftsched.client.specs import JobOptions, JobSpec


class HttpOptions(JobOptions, total=False):
    """The options of an HTTP request besides its address, and those of every job."""

    method: Literal["POST", "GET", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"] | None
    """`POST` by default."""
    headers: Mapping[str, str] | None
    """Headers besides those that identify the run."""
    body: Any
    """Any value with a JSON form, sent as JSON; a string is sent as it is. None = no body."""
    http_timeout_seconds: float | None
    """Longest time for the whole exchange, 30 by default; `timeout_seconds` limits the attempt."""
    success_statuses: Sequence[str | int] | None
    """Statuses of a successful run, as 200 or `2xx`; `2xx` by default."""
    retry_statuses: Sequence[str | int] | None
    """Statuses that are tried again; 408, 425, 429 and `5xx` by default. What is in neither list is final."""
    max_redirects: int | None
    """Redirects to follow; none by default."""
    sign: str | None
    """Name of the secret that signs the request, as Standard Webhooks defines it."""
    bearer: str | None
    """Name of the secret to send as `Authorization: Bearer`."""
    completion: Literal["response", "callback"] | None
    """`callback`: after a 202 the run lasts until its target reports the outcome, or until `timeout_seconds`, which is
    required then."""


class ShellOptions(JobOptions, total=False):
    """The options of a command besides its program and arguments, and those of every job."""

    env: Mapping[str, str] | None
    """Variables of its environment, besides those of the run. It has no others."""
    cwd: str | None
    """An absolute path; None = an empty directory of its own."""
    stdin: str | None
    """Its standard input; None = empty."""
    success_exit_codes: Sequence[int] | None
    """0 by default."""
    retry_exit_codes: Sequence[int] | None
    """Exit codes that are tried again; by default all but those of success."""
    nice: int | None
    """0 to 19; higher yields to other processes."""
    memory_mib: int | None
    """Longest address space of each process."""
    cpu_seconds: int | None
    """Longest CPU time of each process."""


_RENAMED: Final = {"sign": "signing_secret", "http_timeout_seconds": "timeout_seconds"}
"""Option -> field of the request, if it has another name."""


def http_job(url: str, *, name: str = "", **options: Unpack[HttpOptions]) -> JobSpec:
    """Return the job that sends a request to `url`. Its name and queue are `http` by default."""
    call, others = _split(options, HttpOptions)
    if "bearer" in call:
        call["bearer"] = {"secret": call["bearer"]}
    for statuses in call.keys() & {"success_statuses", "retry_statuses"}:
        call[statuses] = [str(status) for status in call[statuses]]
    request = {"url": url, **{_RENAMED.get(option, option): value for option, value in call.items()}}
    return JobSpec(name=name, http=request, **others)


def shell_job(argv: Sequence[str], *, name: str = "", **options: Unpack[ShellOptions]) -> JobSpec:
    """Return the job that runs the program `argv[0]` with the arguments after it. Its name and queue are `shell` by default.

    No shell reads it: for pipes and variables give `["/bin/sh", "-c", text]`. Raises `TypeError` if `argv` is a text.
    """
    if isinstance(argv, str):
        raise TypeError(f"argv: expected a list of texts, such as {argv.split()!r}, not a text")
    command, others = _split(options, ShellOptions)
    return JobSpec(name=name, shell={"argv": list(argv), **command}, **others)  # noqa: S604  # the field, not a shell


def _split(options: Mapping[str, Any], kind: type) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options that only `kind` has, if given, and the options of every job."""
    own = kind.__annotations__.keys() - JobOptions.__annotations__.keys()
    call = given(**{option: value for option, value in options.items() if option in own})
    return call, {option: value for option, value in options.items() if option not in own}
