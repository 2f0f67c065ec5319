"""Look into what a converter returned."""

from __future__ import annotations

from typing import Any

from raftsched.cli.converters.names import unique_names
from raftsched.cli.converters.report import Report


def schedules(report: Report) -> dict[str, dict[str, Any]]:
    """Return the schedules by name, as `raftsched apply` takes them."""
    return {name: entry.document(name) for name, entry in unique_names(report.entries)}


def only(report: Report) -> dict[str, Any]:
    """Return the one schedule; a failure shows what was found instead."""
    (schedule,) = schedules(report).values() or [{"findings": [str(finding) for finding in report.findings]}]
    return schedule


def found(report: Report, kind: str) -> list[str]:
    """Return the findings of a kind, each as `LINE: TEXT`."""
    return [f"{finding.line}: {finding.text}" for finding in report.findings if finding.kind == kind]
