"""The closing tables of drills: times by fault, and what was never seen, with the count of what was looked at beside each
zero.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

from chaos.drills.report.figures import Counted, Figures
from chaos.drills.rounds import SDK_WAIT_SECONDS_MAX, WRITE_GAP_SECONDS_MAX, Round

if TYPE_CHECKING:
    from chaos.drills.backends import Backend
    from chaos.drills.drill import Plan, Result

_PROMISES: Final = {
    "acknowledged answers lost": ("acknowledged_is_kept",),
    "refused requests that happened": ("refused_is_not_applied", "refused_deletion_is_not_applied"),
    "changes that nobody asked for": ("nothing_from_nowhere",),
    "keys with two jobs": ("one_job_per_key",),
    "tokens given twice or backward": ("tokens_rise", "one_holder_per_token"),
    "leases of one run that overlap": ("lease_intervals_disjoint", "believed_leases_disjoint", "kept_for_its_term"),
    "older tokens accepted after newer ones": ("fenced_tokens_never_fall",),
    "HTTP jobs completed without their effect": ("completed_was_received",),
    "jobs to begin at most once that began twice": ("begins_at_most_once",),
    "outcomes that count twice": ("one_outcome_per_token", "one_end_per_run"),
    "answers after a cancel that deny it": ("cancel_is_final",),
    "stale answers": ("answers_are_current", "job_revisions_in_order", "linearizable", "shown_is_applied"),
    "instants of schedules missed or decided twice": ("fire_times_decided_once_in_order", "ledger_equals_jobs"),
    "jobs of workflows that ran too soon": ("nothing_starts_before_its_parents", "workflows_are_whole_or_not_at_all"),
    "log entries that differ between nodes": ("committed_never_changes",),
    "states that differ": ("equal_state_digests", "snapshot_and_tail_equal_replay", "finals_follow_the_log"),
}
"""In the words of a user -> the properties of `chaos.checkers` behind it; the first one's evidence is counted."""
_SHOWN_MAX: Final = 20
_NOTHING: Final = Counted(0, 0)


def closing_lines(drills: Sequence[Figures]) -> str:
    """Return a line for each promise, over all drills, then the violations."""
    jobs = sum((each.jobs for each in drills), _NOTHING)
    lines = [f"{jobs.broken:,} of {jobs.looked_at:,} acknowledged jobs lost"]
    for promise, names in _PROMISES.items():
        broken = sum(_counted(drills, name).broken for name in names)
        lines.append(f"{broken:6,} of {_counted(drills, names[0]).looked_at:8,}  {promise}")
    unknown, settled = sum(each.unknown_count for each in drills), sum(each.settled_count for each in drills)
    lines.append(f"{unknown:,} requests have an unknown outcome; {settled:,} of them happened")
    exercised = {name for each in drills for name, counted in each.properties.items() if counted.looked_at}
    violations = [violation for each in drills for violation in each.violations]
    lines.append(
        f"{len(violations) or 'no'} violation{'s' * (len(violations) > 1)}; {len(exercised)} properties exercised"
    )
    lines += [f"  VIOLATION {violation}" for violation in violations[:_SHOWN_MAX]]
    return "\n".join(lines)


def _counted(drills: Sequence[Figures], name: str) -> Counted:
    return sum((each.properties.get(name, _NOTHING) for each in drills), _NOTHING)


# -- times ------------------------------------------------------------------------------------------------------------


class _Row(NamedTuple):
    round: Round
    violations: int


def times_table(drills: Sequence[Figures]) -> str:
    """Return a row for each kind of fault: rounds, violations and times.

    A round of two faults is in a row for each of them, also if only one could be made: its times are those of the attempt.
    """
    by_kind: dict[str, list[_Row]] = defaultdict(list)
    for drill in drills:
        for each, in_history in zip(drill.rounds, drill.in_rounds, strict=True):
            for kind in _kinds(each):
                by_kind[kind].append(_Row(each, len(each.violations) + in_history))
    head = [
        "| fault | rounds | violations | no accepted write: p50 / p99 / max s | longest SDK wait: p50 / p99 / max s |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *(_line(kind, rows) for kind, rows in sorted(by_kind.items()))])


def _kinds(each: Round) -> Iterator[str]:
    if len(each.asked) > 1:
        yield from (f"{name} + another" for name in dict.fromkeys(each.faults))
    else:
        yield from each.faults


def _line(kind: str, rows: Sequence[_Row]) -> str:
    gaps = _spread([row.round.write_gap_seconds for row in rows])
    waits = _spread([row.round.sdk_wait_seconds for row in rows])
    return f"| {kind} | {len(rows)} | {sum(row.violations for row in rows)} | {gaps} | {waits} |"


def _spread(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return " / ".join(f"{_quantile(ordered, part):.2f}" for part in (0.5, 0.99, 1.0))


def _quantile(ordered: Sequence[float], part: float) -> float:
    """The smallest value that at least this part does not exceed."""
    return ordered[ceil(part * len(ordered)) - 1]


# -- report.md --------------------------------------------------------------------------------------------------------


def report_text(result: Result, plan: Plan, backend: Backend, figures: Figures) -> str:
    """Return report.md."""
    bounds = f"{WRITE_GAP_SECONDS_MAX:.0f} s and {SDK_WAIT_SECONDS_MAX:.0f} s"
    sections = [
        f"# Drill with {plan.node_count} nodes, seed {plan.seed}",
        f"Backend {backend.name}: {backend.about}.",
        "![timeline](timeline.svg)",
        "## Rounds\n\n" + _rounds(result.rounds),
        f"## Times by fault\n\nBounds for a single fault of a minority: {bounds}.\n\n" + times_table([figures]),
        "## Verdict\n\n```\n" + closing_lines([figures]) + "\n```",
        "## Not shown\n\n" + _not_shown(result, figures),
        f"## Checkers\n\n```\n{result.report}\n```",
    ]
    return "\n\n".join(sections) + "\n"


def _rounds(rounds: Sequence[Round]) -> str:
    head = "| at s | fault | target | no write s | SDK s | verdict |\n|---|---|---|---|---|---|\n"
    return head + "\n".join(
        f"| {each.begin / 1e6:.1f} | {each.fault} | {each.target} | {each.write_gap_seconds:.2f} "
        f"| {each.sdk_wait_seconds:.2f} | {'; '.join(each.violations) or each.overload or 'ok'} |"
        for each in rounds
        if each.faults
    )


def _not_shown(result: Result, figures: Figures) -> str:
    lines = [f"- skipped: {name}: {why}" for name, why in figures.skipped.items()]
    lines += [f"- not made: {why}" for each in result.rounds for why in each.not_made]

    names = result.report.not_exercised if result.report is not None else []
    return "\n".join([*lines, f"- nothing to judge by: {', '.join(names) or 'none'}"])
