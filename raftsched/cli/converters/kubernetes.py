"""Convert CronJobs of Kubernetes. The command of their one container becomes a command for a shell worker.

The image, its volumes and its limits are not kept: a shell worker runs where it is started, for example in a pod of that
image.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from raftsched.cli.converters.fields import Fields
from raftsched.cli.converters.go_cron import go_timing, split_zone
from raftsched.cli.converters.report import Entry, Report, given
from raftsched.cli.converters.schedule_fields import WINDOW_SECONDS_MAX, labels, paused
from raftsched.cli.terminal.files import parse_documents
from raftsched.errors import Invalid

_OVERLAPS: Final = {"": "allow", "Allow": "allow", "Forbid": "skip", "Replace": "cancel_previous"}
_BACKOFF_LIMIT: Final = 6
"""The default of `backoffLimit`."""
_BACKOFF: Final = {"backoff": "exponential", "base_seconds": 10, "factor": 2, "cap_seconds": 360, "jitter": 0}
_SERVER_FIELDS: Final = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
_REFERENCE: Final = re.compile(r"\$\$|\$\((?P<name>[^()]*)\)")


def read_cronjobs(text: str, *, file: str, timezone: str | None) -> Report:
    """Return the schedules of the CronJobs in a manifest, one document or more."""
    report = Report(file, timezone)
    for document in parse_documents(file, text):
        for path, value in _objects(document.value, ""):
            kind = value.get("kind") if isinstance(value, dict) else None
            if kind == "CronJob":
                _read(report, Fields(document, path, value))
            elif value is not None:
                report.note(f"{kind or 'something'} is not a CronJob", document.line_of(f"{path}.kind".lstrip(".")))
    return report


def _objects(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the objects of a document with their paths: its own, or those of a list."""
    if not isinstance(value, dict) or not isinstance(value.get("items"), list):
        yield path, value
        return
    for number, item in enumerate(value["items"]):
        yield f"items[{number}]", item


def _read(report: Report, cronjob: Fields) -> None:
    cronjob.ignore("apiVersion", "kind", "status")
    with report.entry("CronJob", cronjob.line("kind")) as entry:
        metadata, spec = cronjob.inner("metadata"), cronjob.inner("spec")
        metadata.ignore("annotations", *_SERVER_FIELDS)
        name, namespace = metadata.text("name"), metadata.text("namespace")
        entry.name = f"{namespace}.{name}" if namespace else name
        entry.line = spec.line("schedule") or entry.line
        schedule = spec.text("schedule")
        entry.original = f"{entry.name}: {schedule}"
        entry.fields = _timing(schedule, spec, report) | _policies(spec, entry)
        entry.fields |= labels(entry, metadata.table("labels"), metadata.line("labels"))
        template = spec.inner("jobTemplate")
        template.ignore("metadata")
        entry.job = _job(template.inner("spec"), entry)
        for fields in (cronjob, metadata, spec, template):
            fields.report_rest(entry)


def _timing(schedule: str, spec: Fields, report: Report) -> dict[str, Any]:
    prefix, expression = split_zone(schedule)
    zone = spec.text("timeZone")
    if prefix and zone:
        raise Invalid("both timeZone and the schedule name a zone, which Kubernetes rejects")
    return go_timing(expression, zone=lambda: prefix or zone or report.local_zone(), seconds=False)


def _policies(spec: Fields, entry: Entry) -> dict[str, Any]:
    policy = spec.text("concurrencyPolicy")
    if policy not in _OVERLAPS:
        raise Invalid(f"concurrencyPolicy {policy!a} is not known; there are Allow, Forbid, Replace")
    if policy == "Forbid":
        entry.note("Forbid: a skipped run stays skipped; Kubernetes may start it when the earlier run ends")
    deadline = spec.integer("startingDeadlineSeconds")
    fields: dict[str, Any] = {
        "overlap": _OVERLAPS[policy],
        "misfire": "run_once",
        "catchup_window_seconds": WINDOW_SECONDS_MAX if deadline is None else deadline,
    }
    if spec.flag("suspend"):
        fields |= paused(entry, "suspended")
    return fields


def _job(spec: Fields, entry: Entry) -> dict[str, Any]:
    for name in ("parallelism", "completions"):
        if spec.integer(name) not in (None, 1):
            raise Invalid(f"{name}: a job runs once; submit a workflow for more")
    limit = spec.integer("backoffLimit")
    attempts = 1 + (_BACKOFF_LIMIT if limit is None else limit)
    template = spec.inner("template")
    template.ignore("metadata")
    pod = template.inner("spec")
    pod.ignore("restartPolicy")
    job: dict[str, Any] = {"shell": _command(pod, entry), "max_attempts": attempts} | given(
        {
            "timeout_seconds": pod.integer("activeDeadlineSeconds"),
            "deadline_in_seconds": spec.integer("activeDeadlineSeconds"),
            "retention_seconds": spec.integer("ttlSecondsAfterFinished"),
        }
    )
    job |= {"start": "at_most_once"} if attempts == 1 else {"retry_policy": dict(_BACKOFF)}
    for fields in (spec, template, pod):
        fields.report_rest(entry)
    return job


def _command(pod: Fields, entry: Entry) -> dict[str, Any]:
    containers = pod.each("containers")
    if len(containers) != 1 or pod.each("initContainers"):
        raise Invalid("it does not have exactly one container, and no others before it")
    container = containers[0]
    container.ignore("name", "imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy")
    command, arguments = container.texts("command"), container.texts("args")
    if not command:
        raise Invalid("it has no command: what runs is in the image")
    environment, is_unknown = _environment(container, entry)
    entry.not_kept(
        f"image {container.text('image')}: the command runs where its shell worker runs", container.line("image")
    )
    argv = [_expanded(part, environment, is_unknown) for part in (*command, *arguments)]
    shell = {"argv": argv, "env": environment, "cwd": container.text("workingDir")}
    container.report_rest(entry)
    return given(shell)


def _environment(container: Fields, entry: Entry) -> tuple[dict[str, str], Callable[[str], bool]]:
    """Return the variables of a container, and whether a name is that of a variable whose value is not in the file."""
    environment: dict[str, str] = {}
    unknown: set[str] = set()
    has_sources = bool(container.each("envFrom"))

    def is_unknown(name: str) -> bool:
        return name in unknown or (has_sources and name not in environment)

    if has_sources:
        entry.not_kept("envFrom: the variables of other objects are not in the file", container.line("envFrom"))
    for variable in container.each("env"):
        name = variable.text("name")
        if variable.inner("valueFrom").is_empty:
            environment[name] = _expanded(variable.text("value"), environment, is_unknown)
        else:
            unknown.add(name)
            entry.not_kept(f"variable {name}: its value is not in the file", variable.line("name"))
    return environment, is_unknown


def _expanded(text: str, environment: Mapping[str, str], is_unknown: Callable[[str], bool]) -> str:
    """Replace `$(NAME)` by the variable, as Kubernetes does; `$$` is `$`, and names of no variable stay as they are.

    Raises `Invalid` if the value of a variable is not known.
    """

    def value(match: re.Match[str]) -> str:
        name = match["name"]
        if name is not None and is_unknown(name):
            raise Invalid(f"its command needs $({name}), whose value is not in the file")
        return "$" if name is None else environment.get(name, match[0])

    return _REFERENCE.sub(value, text)
