"""Make the environment of a command: a few variables of the worker, those of the job, and those of the run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from raftsched.errors import Invalid
from raftsched.executors.placeholders import timestamp
from raftsched.tracing import passed_on
from raftsched.worker.handlers.context import Context

_BASE = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
"""Variables of the worker that each command gets. No other one is passed on: they may hold secrets."""


def worker_variables(names: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that commands get from the worker: a base, and `names`.

    Raises `Invalid` for a name that is not set.
    """
    chosen = {name: environment[name] for name in _BASE if name in environment}
    chosen.setdefault("PATH", os.defpath)
    for name in names:
        if name not in environment:
            raise Invalid(f"--env: {name} is not set in the environment of this worker", field="env")
        chosen[name] = environment[name]
    return chosen


def run_variables(ctx: Context, urls: Iterable[str]) -> dict[str, str]:
    """Return the variables that identify the run; a job can't replace them."""
    variables = {
        "RAFTSCHED_JOB_ID": ctx.job_id,
        "RAFTSCHED_RUN_ID": ctx.run_id,
        "RAFTSCHED_FENCING_TOKEN": str(ctx.fencing_token),
        "RAFTSCHED_ATTEMPT": str(ctx.attempt_number),
        "RAFTSCHED_URL": " ".join(urls),
    }
    if scheduled_at := timestamp(ctx.instant or ctx.run_at):
        variables["RAFTSCHED_SCHEDULED_AT"] = scheduled_at
    return variables


def trace_variables(ctx: Context) -> dict[str, str]:
    """Return the variables that pass on the trace of the run, TRACEPARENT and TRACESTATE, as OpenTelemetry names them."""
    return {name.upper(): text for name, text in passed_on(ctx.traceparent).items()}


def parameter_variables(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with the values of a run's parameters, by their names in upper case."""
    return {f"RAFTSCHED_PARAMETER_{name.upper()}": text for name, text in texts.items()}
