"""Define the specification of a job: what its submitter requested.

A job, its submission and a schedule's template have the same `JobSpec`. To add an option, add a field to `Options`, its
range to `_numbers_problem` or a similar function, and a line to `SPEC_TEXTS` if schedules can set it. If it can be
amended, add a field of the same name to `SpecChanges`. Fields are stored by position: new ones go at the end, with a
default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from raftsched import limits
from raftsched.core.records.bounds import (
    PRIORITY_MAX,
    TIME_MS_MAX,
    id_problem,
    name_problem,
    range_problem,
    requested_time_problem,
    tags_problem,
    text_problem,
)
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.retry import RetryPolicy, policy_problem
from raftsched.core.records.texts import (
    list_text,
    optional_count,
    optional_seconds,
    optional_text,
    seconds_text,
    span_text,
)

UNIQUE_KEY_BYTES_MAX: Final = 64
"""Length of the digest; with the tenant it stays far below LMDB's limit of keys."""
NEVER: Final = -1
"""In place of a time in `SpecChanges`: remove the job's time."""


class OnDependencyFailure(IntEnum):
    """Enumerate the ends of a job with an unmet dependency."""

    SKIP = 1
    """It ends `skipped`; its own dependants follow."""
    FAIL = 2
    """It is dead-lettered (`dependency_failed`)."""

    @property
    def label(self) -> str:
        return self.name.lower()


class CallKind(IntEnum):
    """Enumerate the kinds of jobs that need no handler."""

    HTTP = 1
    SHELL = 2

    @property
    def label(self) -> str:
        return self.name.lower()

    @property
    def handler(self) -> str:
        """Return the name by which an executor of this kind requests jobs. No job can be called so: `wire.common.Name`."""
        return f":{self.label}"


class Call(msgspec.Struct, frozen=True, array_like=True):
    """Define what an executor does in place of a handler; the payload is the body or the standard input."""

    kind: CallKind
    text: bytes
    """JSON of the request or command, without its body (`wire.calls`). `apply` does not read it."""


class Hook(msgspec.Struct, frozen=True, array_like=True):
    """Define the job that is submitted when another ends."""

    spec: JobSpec
    """Its options have no hooks, so a hook never causes another."""
    payload: bytes = b""
    """JSON text in which the facts of that end replace placeholders (`core.jobs.hooks`); b"" = all of them."""


class Options(msgspec.Struct, frozen=True, array_like=True):
    """Define the part of a job's specification that few jobs use; other jobs store None in its place."""

    expires_at_ms: TimeMs | None = None
    """The job ends as `expired` if no attempt of its run has started by then. A started run continues, further attempts
    included. None = it can start at any time."""
    deadline_ms: TimeMs | None = None
    """The job ends as `expired` if it is not finished by then, whatever its status. None = no deadline."""
    heartbeat_timeout_ms: int = 0
    """Longest silence of the handler itself (progress or an explicit heartbeat) in an attempt; 0 = not monitored."""
    at_most_once: bool = False
    """The worker must commit `StartRun` before the first effect; a started run is never leased again."""
    concurrency_key: str = ""
    """Jobs of a queue with the same key share the queue's `key_concurrency_max`."""
    unique_key: bytes = b""
    """Digest of the job's unique key within its tenant; b"" = none."""
    unique_until_ms: TimeMs = TimeMs(0)
    """The job holds `unique_key` until then; 0 = until it is finished."""
    idempotency_until_ms: TimeMs = TimeMs(0)
    """The job holds its idempotency key, and is kept, until then; 0 = as long as the job is stored."""
    retry_on: tuple[str, ...] = ()
    """Error types that are retried; () = all."""
    no_retry: tuple[str, ...] = ()
    """Error types that are dead-lettered at once."""
    on_dependency_failure: OnDependencyFailure = OnDependencyFailure.SKIP
    schedule_id: bytes = b""
    fire_time_ms: TimeMs | None = None
    """The fire time of the schedule that this run is for."""
    is_backfill: bool = False
    """The run was submitted by a backfill of the schedule."""
    workflow_id: bytes = b""
    task: str = ""
    """The job's name within its workflow."""
    replay_of: bytes = b""
    """Id of the job from which this one was cloned."""
    retention_ms: int = 0
    """Retention after its end, or longer if it is still needed; 0 = its queue's or the cluster's."""
    lost_workers_max: int = 0
    """Lost workers after which it is dead-lettered; 0 = by its queue (`admission.lost_workers_max`)."""
    call: Call | None = None
    """None = a worker's handler runs it."""
    on_failure: Hook | None = None
    """None = its queue's."""
    on_success: Hook | None = None
    hook_of: bytes = b""
    """Id of the job whose end submitted this one."""
    parameters: bytes = b""
    """JSON object with the values of its schedule's parameters (`parameters.values_of`); b"" = it has none."""
    notice_of: bytes = b""
    """Id of the schedule about which this job tells its owner."""
    traceparent: str = ""
    """The span that submitted it (W3C Trace Context); "" = none."""

    @property
    def is_message(self) -> bool:
        """Return whether an event submitted the job. Such a job causes no further ones."""
        return bool(self.hook_of or self.notice_of)


class JobSpec(msgspec.Struct, frozen=True, array_like=True):
    """Define the job's name and queue, its attempts, time limits and options."""

    name: str
    queue: str
    priority: int
    """0 to 9; higher first."""
    max_attempts: int
    """Failures, timeouts included, after which it is dead-lettered."""
    timeout_ms: int
    """Longest run time of one attempt; 0 = none."""
    retry: RetryPolicy
    tags: tuple[str, ...] = ()
    region: str = ""
    options: Options | None = None
    """None = all defaults; an `Options` with only defaults is never stored (`normalized`)."""

    @property
    def concurrency_key(self) -> str:
        return "" if self.options is None else self.options.concurrency_key

    @property
    def handler(self) -> str:
        """Return the name of the handler that it needs: its own, or that of executors of its call."""
        return self.name if self.options is None or self.options.call is None else self.options.call.kind.handler

    @property
    def workflow_id(self) -> bytes:
        return b"" if self.options is None else self.options.workflow_id

    @property
    def schedule_id(self) -> bytes:
        return b"" if self.options is None else self.options.schedule_id


class SpecChanges(msgspec.Struct, frozen=True, array_like=True):
    """Carry changes of a `JobSpec` or its `Options`, in fields of the same names; None = unchanged."""

    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    timeout_ms: int | None = None
    tags: tuple[str, ...] | None = None
    expires_at_ms: int | None = None
    """`NEVER` removes it; the same holds for `deadline_ms`."""
    deadline_ms: int | None = None
    lost_workers_max: int | None = None


_DEFAULT: Final = Options()
_OPTION_NAMES: Final = frozenset(Options.__struct_fields__)


def normalized(options: Options) -> Options | None:
    """Return None for options with only defaults, else `options`."""
    return None if options == _DEFAULT else options


def with_options(spec: JobSpec, **fields: Any) -> JobSpec:
    """Return `spec` with `fields` of its options replaced."""
    return replace(spec, options=normalized(replace(spec.options or _DEFAULT, **fields)))


def amended(spec: JobSpec, changes: SpecChanges) -> JobSpec:
    """Return `spec` with `changes`; the caller must check it by `spec_problem`."""
    wanted = {name: value for name, value in msgspec.structs.asdict(changes).items() if value is not None}
    for name in ("expires_at_ms", "deadline_ms"):
        if wanted.get(name) == NEVER:
            wanted[name] = None
    of_options = {name: wanted.pop(name) for name in list(wanted) if name in _OPTION_NAMES}
    return replace(with_options(spec, **of_options) if of_options else spec, **wanted)


def of_new_run(spec: JobSpec, now_ms: int) -> JobSpec:
    """Return the specification of a job's new run, without passed times, which would end it before it starts.

    A unique key whose time has passed is not taken again.
    """
    options = spec.options
    if options is None:
        return spec
    passed: dict[str, Any] = {}
    if options.expires_at_ms is not None and options.expires_at_ms <= now_ms:
        passed["expires_at_ms"] = None
    if options.deadline_ms is not None and options.deadline_ms <= now_ms:
        passed["deadline_ms"] = None
    if 0 < options.unique_until_ms <= now_ms:
        passed |= {"unique_key": b"", "unique_until_ms": TimeMs(0)}
    return with_options(spec, **passed) if passed else spec


# -- validation -------------------------------------------------------------------------------------------------------


@lru_cache(limits.SPECS_CHECKED_MAX)  # most jobs of a name have the same one
def spec_problem(spec: JobSpec) -> str:
    """Return why the state can't store this specification, or ""."""
    return (
        name_problem("name", spec.name)
        or name_problem("queue", spec.queue)
        or range_problem("priority", spec.priority, 0, PRIORITY_MAX)
        or range_problem("max_attempts", spec.max_attempts, 1, limits.ATTEMPTS_MAX)
        or range_problem("timeout_ms", spec.timeout_ms, 0, limits.TIMEOUT_MS_MAX)
        or policy_problem(spec.retry)
        or (name_problem("region", spec.region) if spec.region else "")
        or tags_problem(spec.tags)
        or ("" if spec.options is None else _options_problem(spec.options))
    )


def _options_problem(options: Options) -> str:
    return (
        _numbers_problem(options)
        or _keys_problem(options)
        or _error_types_problem("retry_on", options.retry_on)
        or _error_types_problem("no_retry", options.no_retry)
        or id_problem("schedule_id", options.schedule_id)
        or id_problem("workflow_id", options.workflow_id)
        or id_problem("replay_of", options.replay_of)
        or (range_problem("call bytes", len(options.call.text), 2, limits.CALL_BYTES_MAX) if options.call else "")
        or id_problem("hook_of", options.hook_of)
        or range_problem("parameters bytes", len(options.parameters), 0, limits.PARAMETERS_BYTES_MAX)
        or id_problem("notice_of", options.notice_of)
        or hook_problem("on_failure", options.on_failure)
        or hook_problem("on_success", options.on_success)
    )


def _numbers_problem(options: Options) -> str:
    return (
        requested_time_problem("expires_at_ms", options.expires_at_ms)
        or requested_time_problem("deadline_ms", options.deadline_ms)
        or range_problem("heartbeat_timeout_ms", options.heartbeat_timeout_ms, 0, limits.TIMEOUT_MS_MAX)
        or range_problem("unique_until_ms", options.unique_until_ms, 0, TIME_MS_MAX)
        or range_problem("idempotency_until_ms", options.idempotency_until_ms, 0, TIME_MS_MAX)
        or requested_time_problem("fire_time_ms", options.fire_time_ms)
        or range_problem("retention_ms", options.retention_ms, 0, limits.DELAY_MS_MAX)
        or range_problem("lost_workers_max", options.lost_workers_max, 0, limits.LOST_WORKERS_MAX)
    )


def _keys_problem(options: Options) -> str:
    if options.concurrency_key and name_problem("concurrency_key", options.concurrency_key):
        return name_problem("concurrency_key", options.concurrency_key)
    return (
        range_problem("unique_key bytes", len(options.unique_key), 0, UNIQUE_KEY_BYTES_MAX)
        or text_problem("task", options.task, limits.NAME_CHARS_MAX)
        or text_problem("traceparent", options.traceparent, limits.TRACEPARENT_CHARS)
    )


def hook_problem(field: str, hook: Hook | None) -> str:
    """Return the fault of a job's or queue's hook, or ""."""
    if hook is None:
        return ""
    options = hook.spec.options
    if options is not None and (options.on_failure is not None or options.on_success is not None):
        return f"{field}: a hook has no hooks"
    problem = (
        spec_problem(hook.spec)
        or range_problem("payload bytes", len(hook.payload), 0, limits.HOOK_BYTES_MAX)
        or range_problem("payload placeholders", hook.payload.count(b"{{"), 0, limits.HOOK_PLACEHOLDERS_MAX)
    )
    return f"{field}.{problem}" if problem else ""


def _error_types_problem(field: str, types: tuple[str, ...]) -> str:
    problem = range_problem(field, len(types), 0, limits.ERROR_TYPES_MAX)
    for each in types:
        problem = problem or name_problem(field, each)
    return problem


# -- texts for people -------------------------------------------------------------------------------------------------


def _retry_text(policy: RetryPolicy) -> str:
    spans = ", ".join(f"{name} {span_text(ms)}" for name, ms in (("base", policy.base_ms), ("cap", policy.cap_ms)))
    delays = f", delays {list_text(tuple(map(span_text, policy.delays_ms)))}" if policy.delays_ms else ""
    factors = f"factor {seconds_text(policy.factor_thousandths)}, jitter {seconds_text(policy.jitter_thousandths)}"
    return f"{policy.backoff.name.lower()}, {spans}, {factors}{delays}"


def _call_text(spec: JobSpec, kind: CallKind) -> str:
    call = _options(spec).call
    return optional_text(call.text.decode() if call is not None and call.kind is kind else "")


def hook_text(hook: Hook | None) -> str:
    """Return a hook for the audit trail."""
    return optional_text("" if hook is None else f"{hook.spec.name} ({hook.spec.queue})")


def _options(spec: JobSpec) -> Options:
    return spec.options or _DEFAULT


SPEC_TEXTS: Final[Mapping[str, Callable[[JobSpec], str]]] = {
    "name": lambda spec: spec.name,
    "priority": lambda spec: str(spec.priority),
    "queue": lambda spec: spec.queue,
    "max_attempts": lambda spec: str(spec.max_attempts),
    "timeout_seconds": lambda spec: optional_seconds(spec.timeout_ms),
    "heartbeat_timeout_seconds": lambda spec: optional_seconds(_options(spec).heartbeat_timeout_ms),
    "retry_policy": lambda spec: _retry_text(spec.retry),
    "retry_on": lambda spec: list_text(_options(spec).retry_on),
    "no_retry": lambda spec: list_text(_options(spec).no_retry),
    "start": lambda spec: "at_most_once" if _options(spec).at_most_once else "at_least_once",
    "concurrency_key": lambda spec: optional_text(_options(spec).concurrency_key),
    "on_dependency_failure": lambda spec: _options(spec).on_dependency_failure.label,
    "tags": lambda spec: list_text(spec.tags),
    "region": lambda spec: optional_text(spec.region),
    "retention_seconds": lambda spec: optional_seconds(_options(spec).retention_ms),
    "max_lost_workers": lambda spec: optional_count(_options(spec).lost_workers_max),
    "http": lambda spec: _call_text(spec, CallKind.HTTP),
    "shell": lambda spec: _call_text(spec, CallKind.SHELL),
    "on_failure": lambda spec: hook_text(_options(spec).on_failure),
    "on_success": lambda spec: hook_text(_options(spec).on_success),
}
"""Functions that format each part for the audit trail, by its name in the API; without the times of one job."""
