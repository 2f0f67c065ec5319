"""The figures of a drill, as `report.json` keeps them: for programs, for `--repeat`, and to be added up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from chaos.drills.rounds import Round

if TYPE_CHECKING:
    from chaos.drills.drill import Plan, Result

FILE: Final = "report.json"


class Counted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A count of what was broken, and of all that was looked at."""

    broken: int
    looked_at: int

    def __add__(self, other: Counted) -> Counted:
        return Counted(self.broken + other.broken, self.looked_at + other.looked_at)


class Figures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One drill: what was asked for, its rounds, and what the checkers found."""

    backend: str
    node_count: int
    seed: int
    is_bound: bool
    """Times beyond their bounds were violations."""
    rounds: tuple[Round, ...]
    jobs: Counted
    """Acknowledged jobs, and those among them that are lost."""
    properties: dict[str, Counted]
    """By property of the checkers: its violations and its evidence."""
    unknown_count: int
    settled_count: int
    in_rounds: tuple[int, ...]
    """For each round, the violations of the history within it."""
    violations: tuple[str, ...]
    skipped: dict[str, str]
    """Faults that could not be made here, and why."""


class NoReport(Exception):
    """A path has no report that can be read; the message names it."""


def figures_of(result: Result, plan: Plan, backend: str, skipped: dict[str, str], *, is_bound: bool) -> Figures:
    """Return the figures of a drill that has ended."""
    report = result.report
    assert report is not None
    moments = [violation.t for found in report.violations.values() for violation in found]
    return Figures(
        backend=backend,
        node_count=plan.node_count,
        seed=plan.seed,
        is_bound=is_bound,
        rounds=tuple(result.rounds),
        jobs=Counted(*result.lost_and_acknowledged_jobs),
        properties={
            name: Counted(len(report.violations.get(name, ())), count)
            for name, count in report.evidence.items()
            if count or name in report.violations
        },
        unknown_count=report.unknown_count,
        settled_count=report.settled_count,
        in_rounds=tuple(sum(each.begin <= t < each.end for t in moments) for each in result.rounds),
        violations=tuple(result.violations),
        skipped=skipped,
    )


def write_figures(figures: Figures, directory: Path) -> None:
    (directory / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(figures)))


def read_figures(paths: Sequence[Path]) -> list[Figures]:
    """Return the figures of all drills in some reports, in their order; raises `NoReport`."""
    return [figures for path in paths for figures in _read(path)]


def _read(report: Path) -> list[Figures]:
    files = sorted(report.rglob(FILE), key=lambda file: (len(file.parts), _number(file), file))
    if not files:
        raise NoReport(f"{report}: there is no {FILE} in it")
    found = []
    for file in files:
        try:
            found.append(msgspec.json.decode(file.read_bytes(), type=Figures))
        except msgspec.DecodeError as error:
            raise NoReport(f"{file}: {error}") from None
    return found


def _number(file: Path) -> int:
    """The number of a drill among those of one report."""
    return int(file.parent.name) if file.parent.name.isdigit() else 0
