"""What the options of a job must be so that the state can hold them."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from raftsched import limits
from raftsched.core.records.bounds import (
    TIME_MS_MAX,
    id_problem,
    name_problem,
    range_problem,
    text_problem,
    wish_problem,
)
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.job import Options

UNIQUE_KEY_BYTES_MAX: Final = 64
"""A digest; the whole key, with the tenant, stays far below what LMDB takes."""

_DEFAULT: Final = Options()


def options_problem(options: Options | None) -> str:
    """Return what is wrong with the options, or ""."""
    if options is None:
        return ""
    return (
        _times_problem(options)
        or _keys_problem(options)
        or _error_types_problem("retry_on", options.retry_on)
        or _error_types_problem("no_retry", options.no_retry)
        or id_problem("schedule_id", options.schedule_id)
        or id_problem("workflow_id", options.workflow_id)
        or id_problem("replay_of", options.replay_of)
    )


def tidy(options: Options) -> Options | None:
    """Return None for options that ask for nothing, so that the job carries none."""
    return None if options == _DEFAULT else options


AS_IT_WAS: Final = -1
"""In place of a time, where an amendment says nothing about it."""


def with_lost_workers_max(options: Options | None, lost_workers_max: int) -> Options | None:
    """Return the options with another limit of lost workers; 0 = as the queue says."""
    return tidy(replace(options or _DEFAULT, lost_workers_max=lost_workers_max))


def with_times(options: Options | None, *, expires_at_ms: int | None, deadline_ms: int | None) -> Options | None:
    """Return the options with these two times, None = none; `AS_IT_WAS` leaves one alone."""
    times = {"expires_at_ms": expires_at_ms, "deadline_ms": deadline_ms}
    return tidy(replace(options or _DEFAULT, **{name: ms for name, ms in times.items() if ms != AS_IT_WAS}))


def of_new_run(options: Options, now_ms: int) -> Options | None:
    """Return the options of a job's new run, without times that have passed: they would end it before it began.

    A unique claim whose time has passed is not made again.
    """
    if options.expires_at_ms is not None and options.expires_at_ms <= now_ms:
        options = replace(options, expires_at_ms=None)
    if options.deadline_ms is not None and options.deadline_ms <= now_ms:
        options = replace(options, deadline_ms=None)
    if 0 < options.unique_until_ms <= now_ms:
        options = replace(options, unique_key=b"", unique_until_ms=TimeMs(0))
    return tidy(options)


def _times_problem(options: Options) -> str:
    return (
        wish_problem("expires_at_ms", options.expires_at_ms)
        or wish_problem("deadline_ms", options.deadline_ms)
        or range_problem("heartbeat_timeout_ms", options.heartbeat_timeout_ms, 0, limits.TIMEOUT_MS_MAX)
        or range_problem("unique_until_ms", options.unique_until_ms, 0, TIME_MS_MAX)
        or range_problem("idempotency_until_ms", options.idempotency_until_ms, 0, TIME_MS_MAX)
        or wish_problem("instant_ms", options.instant_ms)
        or range_problem("retention_ms", options.retention_ms, 0, limits.DELAY_MS_MAX)
        or range_problem("lost_workers_max", options.lost_workers_max, 0, limits.LOST_WORKERS_MAX)
    )


def _keys_problem(options: Options) -> str:
    if options.concurrency_key and name_problem("concurrency_key", options.concurrency_key):
        return name_problem("concurrency_key", options.concurrency_key)
    return range_problem("unique_key bytes", len(options.unique_key), 0, UNIQUE_KEY_BYTES_MAX) or text_problem(
        "task", options.task, limits.NAME_CHARS_MAX
    )


def _error_types_problem(field: str, types: tuple[str, ...]) -> str:
    problem = range_problem(field, len(types), 0, limits.ERROR_TYPES_MAX)
    for each in types:
        problem = problem or name_problem(field, each)
    return problem
