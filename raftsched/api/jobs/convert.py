"""Convert a submitted job to the operation that stores it, and a schedule's job back to its document.

From top to bottom: the job as a whole, its plain fields, its options, its keys, and its dependencies. An invalid value
raises `Malformed`, `TooLarge` or `Invalid` naming the field.
"""

from __future__ import annotations

import hashlib
import json
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec import UNSET

from raftsched import limits
from raftsched.api.http.json_reply import seconds_or_none
from raftsched.api.jobs.calls import call_of, name_of, payload_of, queue_of, shown_call
from raftsched.api.json.decode import job_id_at
from raftsched.api.json.times import due_at_ms, due_or_now_ms, end_ms, milliseconds, span_ms
from raftsched.core.jobs.facts import FACTS, PLACEHOLDER
from raftsched.core.operations.codec import SubmitJob
from raftsched.core.records.bounds import utf8_bytes
from raftsched.core.records.ids import TENANT_DEFAULT, JobId, TimeMs
from raftsched.core.records.job import Condition, Dependency
from raftsched.core.records.retry import Backoff, RetryPolicy
from raftsched.core.records.schedule import Template
from raftsched.core.records.spec import Hook, JobSpec, OnDependencyFailure, Options, normalized
from raftsched.errors import Invalid, Malformed, TooLarge
from raftsched.wire.jobs import (
    MAX_ATTEMPTS_DEFAULT,
    DependencyRequest,
    HookBody,
    JobBody,
    JobRequest,
    RetryPolicyRequest,
    TimedJobBody,
    UniqueRequest,
)

PRIORITIES: Final = {"low": 2, "normal": 5, "high": 8}
_POLICY_DEFAULT: Final = RetryPolicy()
_OPTIONS_DEFAULT: Final = Options()
_POLICY_WORDS: Final = {policy: policy.label for policy in OnDependencyFailure}
_AT_MOST_ONCE: Final = "at_most_once"
_DIGEST_BYTES: Final = 16
_canonical = msgspec.json.Encoder(order="sorted").encode


def submit_operation(
    wanted: JobRequest, *, job_id: JobId, now_ms: int, key: str = "", fingerprint: bytes = b"", at: str = ""
) -> SubmitJob:
    """Return the operation that stores `wanted` under `job_id`.

    Raises `Malformed`, `TooLarge` or `Invalid` naming the field, below the path `at`.
    """
    prefix = f"{at}." if at else ""
    due_ms = due_at_ms(wanted.run_at, wanted.delay_seconds, now_ms, prefix)
    claims = unique_keys_of(wanted, has_key=bool(key), now_ms=now_ms, prefix=prefix)
    if wanted.traceparent is not None:
        claims["traceparent"] = wanted.traceparent
    operation = body_operation(
        wanted,
        job_id=job_id,
        tenant=wanted.tenant or TENANT_DEFAULT,
        due_ms=due_ms,
        options=options_of(wanted, due_at_ms=due_ms, now_ms=now_ms, prefix=prefix, **claims),
        prefix=prefix,
    )
    if not (key or wanted.depends_on):
        return operation
    depends_on = dependencies_of(wanted.depends_on, prefix) if wanted.depends_on else ()
    return msgspec.structs.replace(operation, idempotency_key=key, fingerprint=fingerprint, depends_on=depends_on)


def body_operation(
    wanted: TimedJobBody, *, job_id: JobId, tenant: str, due_ms: TimeMs | None, options: Options | None, prefix: str
) -> SubmitJob:
    """Return the operation that stores a job without key and dependencies; raises as `submit_operation`."""
    return SubmitJob(
        id=job_id,
        tenant=tenant,
        spec=spec_of(wanted, options, prefix),
        due_at_ms=due_or_now_ms(due_ms),
        payload=payload_of(wanted, prefix),
        paused=wanted.paused,
    )


def spec_of(wanted: HookBody, options: Options | None, prefix: str) -> JobSpec:
    """Return the spec of a job, which does not depend on its times and its submitter."""
    return JobSpec(
        name=wanted.name or name_of(wanted, prefix),
        queue=wanted.queue or queue_of(wanted, prefix),
        priority=priority_number(wanted.priority),
        max_attempts=max_attempts_of(wanted, prefix),
        timeout_ms=span_ms(wanted.timeout_seconds),
        retry=_POLICY_DEFAULT if wanted.retry_policy is None else policy_of(wanted.retry_policy, prefix),
        tags=tags_of(wanted.tags, prefix) if wanted.tags else (),
        region=wanted.region or "",
        options=options,
    )


# -- plain fields ------------------------------------------------------------------------------------------------------


def priority_number(priority: int | str) -> int:
    """Return a priority given as a number or a word."""
    return PRIORITIES[priority] if isinstance(priority, str) else priority


def max_attempts_of(wanted: HookBody, prefix: str) -> int:
    """Return the limit of failures, from `max_attempts` or `max_retries`; raises `Invalid` if both are given."""
    if wanted.max_retries is None:
        return MAX_ATTEMPTS_DEFAULT if wanted.max_attempts is UNSET else wanted.max_attempts
    if wanted.max_attempts is not UNSET:
        field = f"{prefix}max_retries"
        raise Invalid(f"{field}: give either max_attempts or max_retries, not both", field=field)
    return wanted.max_retries + 1


def policy_of(wanted: RetryPolicyRequest, prefix: str) -> RetryPolicy:
    """Return the policy in integers; raises `Invalid` if the delays do not fit the backoff."""
    field = f"{prefix}retry_policy.delays_seconds"
    delays = wanted.delays_seconds or []
    if bool(delays) != (wanted.backoff == "list"):
        raise Invalid(f"{field}: is required with the backoff `list`, and not allowed with others", field=field)
    return RetryPolicy(
        backoff=Backoff[wanted.backoff.upper()],
        base_ms=milliseconds(wanted.base_seconds),
        factor_thousandths=round(wanted.factor * 1000),
        cap_ms=milliseconds(wanted.cap_seconds),
        jitter_thousandths=round(wanted.jitter * 1000),
        delays_ms=tuple(map(milliseconds, delays)),
    )


def tags_of(tags: list[str], prefix: str) -> tuple[str, ...]:
    """Return the tags, each once, in order; raises `Malformed` naming one that is too long."""
    for position, tag in enumerate(tags):
        if utf8_bytes(tag) > limits.TAG_CHARS_MAX:
            field = f"{prefix}tags[{position}]"
            raise Malformed(f"{field}: must be at most {limits.TAG_CHARS_MAX} bytes of UTF-8", field=field)
    return tuple(dict.fromkeys(tags))


# -- options -----------------------------------------------------------------------------------------------------------


def _option_fields() -> tuple[msgspec.structs.FieldInfo, ...]:
    plain = {"name", "payload", "queue", "priority", "timeout_seconds", "max_attempts", "max_retries", "retry_policy"}
    plain |= {"tags", "region", "run_at", "delay_seconds", "paused"}
    return tuple(field for field in msgspec.structs.fields(TimedJobBody) if field.name not in plain)


_OPTION_DEFAULTS: Final = {field.name: field.default for field in _option_fields()}
"""Default of each field that belongs to the options."""
_option_values: Final = attrgetter(*_OPTION_DEFAULTS)
_DEFAULT_VALUES: Final = tuple(_OPTION_DEFAULTS.values())


def options_of(
    wanted: TimedJobBody, *, due_at_ms: int | None, now_ms: int, prefix: str, **fields: Any
) -> Options | None:
    """Return the options of a job and its times, with `fields` replaced; None if all have their defaults.

    Raises `Malformed` or `Invalid` naming the field.
    """
    if not fields and _option_values(wanted) == _DEFAULT_VALUES:
        return None
    expires_at_ms, deadline_ms = _ends(wanted, now_ms if due_at_ms is None else due_at_ms, prefix)
    options = options_of_body(wanted, prefix)
    if expires_at_ms is not None or deadline_ms is not None or fields:
        options = msgspec.structs.replace(options, expires_at_ms=expires_at_ms, deadline_ms=deadline_ms, **fields)
    return normalized(options)


def _ends(wanted: TimedJobBody, from_ms: int, prefix: str) -> tuple[TimeMs | None, TimeMs | None]:
    expires_at_ms = end_ms(
        wanted.expires_at,
        wanted.expires_in_seconds,
        name="expires_at",
        span_name="expires_in_seconds",
        from_ms=from_ms,
        prefix=prefix,
    )
    deadline_ms = end_ms(
        wanted.deadline,
        wanted.deadline_in_seconds,
        name="deadline",
        span_name="deadline_in_seconds",
        from_ms=from_ms,
        prefix=prefix,
    )
    for name, moment in (("expires_at", wanted.expires_at), ("deadline", wanted.deadline)):
        if moment is not None and wanted.run_at is not None and moment <= wanted.run_at:
            field = f"{prefix}{name}"
            raise Invalid(f"{field}: must be after run_at, or the job never runs", field=field)
    return expires_at_ms, deadline_ms


def options_of_body(wanted: JobBody, prefix: str) -> Options:
    """Return the options that do not depend on the job's time; raises `Malformed` naming a text that is too long."""
    options = _options_of_hook(wanted, prefix)
    if wanted.on_failure is None and wanted.on_success is None:
        return options
    return msgspec.structs.replace(
        options,
        on_failure=hook_of(wanted.on_failure, f"{prefix}on_failure."),
        on_success=hook_of(wanted.on_success, f"{prefix}on_success."),
    )


def hook_of(wanted: HookBody | None, prefix: str) -> Hook | None:
    """Return the job that an end submits; raises `Malformed`, `TooLarge` or `Invalid` naming the field."""
    if wanted is None:
        return None
    for name, span in (
        ("expires_in_seconds", wanted.expires_in_seconds),
        ("deadline_in_seconds", wanted.deadline_in_seconds),
    ):
        if span is not None:
            raise Invalid(f"{prefix}{name}: is not allowed in a hook", field=f"{prefix}{name}")
    payload = payload_of(wanted, prefix)
    if len(payload) > limits.HOOK_BYTES_MAX:
        field = f"{prefix}payload"
        raise TooLarge(f"{field}: must be at most {limits.HOOK_BYTES_MAX} bytes of JSON in a hook", field=field)
    check_placeholders(payload, f"{prefix}payload")
    return Hook(spec_of(wanted, normalized(_options_of_hook(wanted, prefix)), prefix), payload)


def check_placeholders(payload: bytes, field: str) -> None:
    """Raise `Invalid` naming `field` if there is no fact for a placeholder, or there are too many."""
    names = [match.decode() for match in PLACEHOLDER.findall(payload)]
    unknown = next((name for name in names if name not in FACTS), None)
    if unknown is not None:
        raise Invalid(f"{field}: there is no {{{{cause.{unknown}}}}}; known are {', '.join(FACTS)}", field=field)
    if payload.count(b"{{") > limits.HOOK_PLACEHOLDERS_MAX:
        raise Invalid(f"{field}: must have at most {limits.HOOK_PLACEHOLDERS_MAX} placeholders", field=field)


def _options_of_hook(wanted: HookBody, prefix: str) -> Options:
    return Options(
        heartbeat_timeout_ms=span_ms(wanted.heartbeat_timeout_seconds),
        at_most_once=wanted.start == _AT_MOST_ONCE,
        concurrency_key=_text(wanted.concurrency_key or "", f"{prefix}concurrency_key"),
        retry_on=_error_types(wanted.retry_on, f"{prefix}retry_on"),
        no_retry=_error_types(wanted.no_retry, f"{prefix}no_retry"),
        on_dependency_failure=OnDependencyFailure[wanted.on_dependency_failure.upper()],
        retention_ms=span_ms(wanted.retention_seconds),
        lost_workers_max=wanted.max_lost_workers or 0,
        call=None if wanted.http is None and wanted.shell is None else call_of(wanted, prefix),
    )


def _error_types(types: list[str] | None, field: str) -> tuple[str, ...]:
    return tuple(_text(each, f"{field}[{position}]") for position, each in enumerate(types or ()))


def _text(text: str, field: str) -> str:
    if utf8_bytes(text) > limits.NAME_CHARS_MAX:
        raise Malformed(f"{field}: must be at most {limits.NAME_CHARS_MAX} bytes of UTF-8", field=field)
    return text


# -- keys --------------------------------------------------------------------------------------------------------------


def unique_keys_of(wanted: JobRequest, *, has_key: bool, now_ms: int, prefix: str) -> dict[str, Any]:
    """Return the options for the job's unique key, and for the lifetime of its idempotency key."""
    options: dict[str, Any] = {}
    if wanted.idempotency_ttl_seconds is not None:
        if not has_key:
            field = f"{prefix}idempotency_ttl_seconds"
            raise Invalid(f"{field}: is not allowed without an idempotency key", field=field)
        options["idempotency_until_ms"] = TimeMs(now_ms + span_ms(wanted.idempotency_ttl_seconds))
    if wanted.unique is not None:
        options["unique_key"] = unique_key(wanted, wanted.unique, prefix)
        if wanted.unique.for_seconds is not None:
            options["unique_until_ms"] = TimeMs(now_ms + span_ms(wanted.unique.for_seconds))
    return options


def unique_key(wanted: JobRequest, unique: UniqueRequest, prefix: str) -> bytes:
    """Return the digest of the properties that must be unique; raises `Invalid` if `by` and `key` do not fit."""
    by = unique.by or (["name", "payload"] if unique.key is None else ["name", "key"])
    if ("key" in by) != (unique.key is not None):
        field = f"{prefix}unique.key"
        raise Invalid(f"{field}: must be given if, and only if, `by` names it", field=field)
    values: dict[str, Any] = {"name": wanted.name or name_of(wanted, prefix), "key": unique.key}
    if "payload" in by:
        payload, call = payload_of(wanted, prefix), call_of(wanted, prefix)
        values["payload"] = json.loads(payload) if payload else None
        if call is not None:  # the same body to another address is another job
            values["payload"] = [values["payload"], json.loads(call.text)]
    return digest_of({part: values[part] for part in by})


_NOT_IN_FINGERPRINT: Final = frozenset({"idempotency_key", "traceparent"})


def fingerprint_of(document: dict[str, Any]) -> bytes:
    """Return the digest of a document, whatever the order of its keys; its idempotency key and its span don't count."""
    return digest_of({name: value for name, value in document.items() if name not in _NOT_IN_FINGERPRINT})


def digest_of(value: Any) -> bytes:
    """Return the digest of a document of plain objects, whatever the order of its keys."""
    return hashlib.blake2b(_canonical(value), digest_size=_DIGEST_BYTES).digest()


# -- dependencies ------------------------------------------------------------------------------------------------------


def dependencies_of(wanted: list[str | DependencyRequest], prefix: str) -> tuple[Dependency, ...]:
    """Return what a job depends on; raises `Malformed` or `Invalid` naming the one at fault."""
    parents: dict[bytes, Dependency] = {}
    for position, each in enumerate(wanted):
        field = f"{prefix}depends_on[{position}]"
        text, condition = (each, "success") if isinstance(each, str) else (each.job, each.condition)
        parent = job_id_at(text, field if isinstance(each, str) else f"{field}.job")
        if parent in parents:
            raise Invalid(f"{field}: names a job twice", field=field)
        parents[parent] = Dependency(parent, Condition[condition.upper()])
    return tuple(parents.values())


# -- back to a document -------------------------------------------------------------------------------------------------


def shown_spec(spec: JobSpec, payload: bytes) -> dict[str, Any]:
    """Return the fields of a spec that are shown alike in the reply of a job and in the document of a schedule's job."""
    options = spec.options or _OPTIONS_DEFAULT
    return {
        **shown_call(spec, payload),
        "name": spec.name,
        "queue": spec.queue,
        "priority": spec.priority,
        "timeout_seconds": seconds_or_none(spec.timeout_ms),
        "heartbeat_timeout_seconds": seconds_or_none(options.heartbeat_timeout_ms),
        "max_attempts": spec.max_attempts,
        "retry_on": options.retry_on,
        "no_retry": options.no_retry,
        "start": start_word(options),
        "concurrency_key": options.concurrency_key or None,
        "on_dependency_failure": _POLICY_WORDS[options.on_dependency_failure],
        "tags": spec.tags,
        "region": spec.region or None,
        "retention_seconds": seconds_or_none(options.retention_ms),
        "on_failure": shown_hook(options.on_failure),
        "on_success": shown_hook(options.on_success),
    }


def shown_hook(hook: Hook | None) -> msgspec.Raw | None:
    """Return what a user would write for a hook; null if there is none."""
    if hook is None:
        return None
    return msgspec.Raw(msgspec.json.encode(job_document(Template(hook.spec), hook.payload)))


def start_word(options: Options) -> str:
    return _AT_MOST_ONCE if options.at_most_once else "at_least_once"


def job_document(template: Template, payload: bytes) -> dict[str, Any]:
    """Return what a user would write for the job that firings submit, without options that have their defaults."""
    options = template.spec.options or _OPTIONS_DEFAULT
    document = {
        **shown_spec(template.spec, payload),
        "retry_policy": _policy_document(template.spec.retry),
        "expires_in_seconds": seconds_or_none(template.expires_after_ms),
        "deadline_in_seconds": seconds_or_none(template.deadline_after_ms),
        "max_lost_workers": options.lost_workers_max or None,
    }
    return {name: value for name, value in document.items() if value not in (None, (), _OPTION_DEFAULTS.get(name))}


def _policy_document(policy: RetryPolicy) -> dict[str, Any]:
    delays = [delay_ms / 1000 for delay_ms in policy.delays_ms]
    document: dict[str, Any] = {
        "backoff": policy.backoff.name.lower(),
        "base_seconds": policy.base_ms / 1000,
        "factor": policy.factor_thousandths / 1000,
        "cap_seconds": policy.cap_ms / 1000,
        "jitter": policy.jitter_thousandths / 1000,
    }
    return document | ({"delays_seconds": delays} if policy.backoff is Backoff.LIST else {})


def without_nulls(document: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that are not None."""
    return {name: value for name, value in document.items() if value is not None}
