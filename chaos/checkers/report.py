"""Report violations, and how much was looked at: a null result is only as strong as the evidence beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from chaos.checkers.history.views import History

SHOWN_MAX = 5
"""Violations of one property that the text shows; the rest is counted."""


class Violation(NamedTuple):
    """One place where a property does not hold."""

    message: str
    t: int = -1
    """Microseconds of the harness's clock; -1 = at no one moment."""

    def __str__(self) -> str:
        return self.message if self.t < 0 else f"at {self.t / 1e6:.6f} s: {self.message}"


Check = Callable[[History], list[Violation]]


@dataclass(frozen=True, slots=True)
class Property:
    """A checker and its place in the specification."""

    check: Check
    source: str
    """Of RELIABILITY.md: an invariant (I1…, L1) or a guarantee (G1…); if that says nothing, a case or DESIGN.md."""
    evidence: Callable[[History], int]
    """Return how many things of the history it speaks about; 0 = nothing was proven."""

    @property
    def name(self) -> str:
        return self.check.__name__


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The verdict on a history."""

    violations: Mapping[str, Sequence[Violation]]
    """By property; only those that are violated."""
    evidence: Mapping[str, int]
    """By property: how many things it spoke about."""
    operations: Mapping[str, int]
    """By kind and end, such as "submit ok"."""
    faults: Mapping[str, int]
    unknown_count: int
    """Operations whose client never learned what became of them."""
    settled_count: int
    """Those among them whose effect is in the log; the others did nothing, if the log was read back."""
    seconds: float

    @property
    def is_clean(self) -> bool:
        return not self.violations

    @property
    def not_exercised(self) -> list[str]:
        """Properties about which this history says nothing."""
        return [name for name, count in self.evidence.items() if not count]

    def __str__(self) -> str:
        violated = sum(map(len, self.violations.values()))
        verdict = "no violation" if self.is_clean else f"{violated} VIOLATIONS of {len(self.violations)} properties"
        lines = [
            f"{verdict}; {sum(self.operations.values())} operations checked in {self.seconds:.2f} s",
            f"  operations: {_listed(self.operations)}",
            f"  unknown: {self.unknown_count}, found in the log: {self.settled_count}",
            f"  faults: {_listed(self.faults)}",
            f"  evidence: {_listed({name: count for name, count in self.evidence.items() if count})}",
            f"  not exercised: {', '.join(self.not_exercised) or 'none'}",
        ]
        for name, violations in self.violations.items():
            lines.append(f"{name}: {len(violations)}")
            lines.extend(f"  {violation}" for violation in violations[:SHOWN_MAX])
        return "\n".join(lines)


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"
