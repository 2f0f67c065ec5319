"""The closing table of a drill: what was never seen, with the count of what was looked at beside each zero."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from chaos.drills.rounds import SDK_WAIT_SECONDS_MAX, WRITE_GAP_SECONDS_MAX, Round
from chaos.drills.verdict import UNJUDGED

if TYPE_CHECKING:
    from chaos.drills.backends import Backend
    from chaos.drills.drill import Plan, Result

_PROMISES: Final = {
    "acknowledged answers lost": ("acknowledged_is_kept",),
    "refused requests that happened": ("refused_is_not_applied",),
    "changes that nobody asked for": ("nothing_from_nowhere",),
    "keys with two jobs": ("one_job_per_key",),
    "tokens given twice or backward": ("tokens_rise", "one_holder_per_token"),
    "leases of one run that overlap": ("lease_intervals_disjoint", "believed_leases_disjoint"),
    "outcomes that count twice": ("one_outcome_per_token", "one_end_per_run"),
    "answers after a cancel that deny it": ("cancel_is_final",),
    "stale answers": ("answers_are_current", "job_revisions_in_order", "linearizable"),
    "log entries that differ between nodes": ("committed_never_changes",),
    "states that differ": ("equal_state_digests", "snapshot_and_tail_equal_replay", "finals_follow_the_log"),
}
"""In the words of a user -> the properties of `chaos.checkers` behind it; the first one's evidence is counted."""


def closing_table(results: Sequence[Result]) -> str:
    """Return a line for each promise, over all drills, then the rest of the verdict."""
    reports = [result.report for result in results if result.report is not None]
    lines = []
    for promise, names in _PROMISES.items():
        broken = sum(len(report.violations.get(name, ())) for report in reports for name in names)
        lines.append(f"{broken:6,} of {sum(report.evidence.get(names[0], 0) for report in reports):8,}  {promise}")
    unknown, settled = (
        sum(counts) for counts in zip(*((r.unknown_count, r.settled_count) for r in reports), strict=True)
    )
    lines.append(f"{unknown:,} requests have an unknown outcome; {settled:,} of them happened")
    exercised = {name for report in reports for name, count in report.evidence.items() if count}
    violations = [violation for result in results for violation in result.violations]
    lines.append(
        f"{len(violations) or 'no'} violation{'s' * (len(violations) > 1)}; {len(exercised)} properties exercised"
    )
    lines += [f"  VIOLATION {violation}" for violation in violations[:_SHOWN_MAX]]
    return "\n".join(lines)


_SHOWN_MAX: Final = 20


def report_text(result: Result, plan: Plan, backend: Backend, skipped: Mapping[str, str]) -> str:
    """Return report.md."""
    sections = [
        f"# Drill with {plan.node_count} nodes, seed {plan.seed}",
        f"Backend {backend.name}: {backend.about}.",
        "![timeline](timeline.svg)",
        "## Rounds\n\n" + _rounds(result.rounds),
        "## Times by fault\n\n" + _times(result.rounds),
        "## Verdict\n\n```\n" + closing_table([result]) + "\n```",
        "## Not shown\n\n" + _not_shown(result, skipped),
        f"## Checkers\n\n```\n{result.report}\n```",
    ]
    return "\n\n".join(sections) + "\n"


def _rounds(rounds: Sequence[Round]) -> str:
    head = "| at s | fault | target | no write s | SDK s | verdict |\n|---|---|---|---|---|---|\n"
    return head + "\n".join(
        f"| {each.begin / 1e6:.1f} | {each.fault} | {each.target} | {each.write_gap_seconds:.2f} "
        f"| {each.sdk_wait_seconds:.2f} | {'; '.join(each.violations) or each.overload or 'ok'} |"
        for each in rounds
    )


def _times(rounds: Sequence[Round]) -> str:
    """Return the median and the longest of both figures, by fault."""
    by_fault: dict[str, list[Round]] = defaultdict(list)
    for each in rounds:
        by_fault[each.fault].append(each)
    bounds = f"{WRITE_GAP_SECONDS_MAX:.0f} s and {SDK_WAIT_SECONDS_MAX:.0f} s"
    lines = [
        f"Bounds for a fault of a minority: {bounds}.\n",
        "| fault | rounds | no write p50, max s | SDK p50, max s |",
        "|---|---|---|---|",
    ]
    for name, found in sorted(by_fault.items()):
        gaps = sorted(each.write_gap_seconds for each in found)
        waits = sorted(each.sdk_wait_seconds for each in found)
        middle = len(found) // 2
        lines.append(
            f"| {name} | {len(found)} | {gaps[middle]:.2f}, {gaps[-1]:.2f} | {waits[middle]:.2f}, {waits[-1]:.2f} |"
        )
    return "\n".join(lines)


def _not_shown(result: Result, skipped: Mapping[str, str]) -> str:
    lines = [f"- skipped: {name}: {why}" for name, why in skipped.items()]
    lines += [f"- not judged: {name}: {why}" for name, why in UNJUDGED.items()]
    names = result.report.not_exercised if result.report is not None else []
    return "\n".join([*lines, f"- nothing to judge by: {', '.join(names) or 'none'}"])
