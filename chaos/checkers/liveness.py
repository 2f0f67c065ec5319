"""Properties demanded once all faults are over (L1). They say nothing about a history without `Healed`."""

from __future__ import annotations

from chaos.checkers.history import Change, Healed, Members
from chaos.checkers.report import Violation
from chaos.checkers.views import History

NEEDED = ("submit", "lease", "outcome")
"""What must work at every node: a job's whole way."""


def every_node_serves(history: History) -> list[Violation]:
    """Within a bound after the heal, submit, lease and outcome each succeed at every node's endpoint (L1)."""
    healed = _healed_at(history)
    if healed < 0:
        return []
    limit = healed + history.setup.operation_bound_ms * 1_000
    served = {(answer.call.node, "lease") for answer, _ in history.grants if healed <= answer.operation.end <= limit}
    for f in ("submit", "outcome"):
        served |= {(answer.call.node, f) for answer in history.answers(f) if healed <= answer.operation.end <= limit}
    return [
        Violation(f"{node} serves no {' and no '.join(missing)} within {limit - healed} µs of the heal", limit)
        for node in _voters(history)
        if (missing := [f for f in NEEDED if (node, f) not in served])
    ]


def nodes_converge(history: History) -> list[Violation]:
    """Within a bound after the heal, all nodes have applied the same index, the last one (L1)."""
    healed = _healed_at(history)
    if healed < 0:
        return []
    limit = healed + history.setup.convergence_bound_ms * 1_000
    last = max((final.index for final in history.finals.values()), default=0)
    violations = []
    for node in _voters(history):
        final = history.finals.get(node)
        if final is None or final.t > limit or final.index != last:
            what = "has no final state" if final is None else f"ends at index {final.index} of {last}, at {final.t} µs"
            violations.append(Violation(f"{node} {what}; the limit is {limit} µs", limit))
    return violations


def no_lease_outlives_its_term(history: History) -> list[Violation]:
    """After the heal, a lease whose worker is silent ends within its term and a bound, a cancelled one within the grace.

    (L1.) Silence counts from the grant, the latest valid heartbeat, or the heal, whatever came last.
    """
    healed = _healed_at(history)
    if healed < 0:
        return []
    setup = history.setup
    allowed = setup.lease_ttl_ms * (1_000 + setup.rate_error_thousandths) + setup.lease_bound_ms * 1_000
    heard: dict[int, int] = {}
    for answer in history.answers("heartbeat"):
        if answer.reply.valid:
            heard[answer.call.token] = max(heard.get(answer.call.token, 0), answer.operation.end)
    violations = []
    for token, granted in history.grant_of.items():
        ended = history.end_of.get(token)
        end = history.end if ended is None else ended.t
        silent = end - max(healed, granted.t, heard.get(token, 0))
        if silent > allowed:
            violations.append(Violation(f"token {token} is current after {silent} µs of silence", end))
    violations.extend(_never_stopped(history, healed))
    return violations


def _never_stopped(history: History, healed: int) -> list[Violation]:
    """Cancelled jobs whose lease goes on although the grace is over."""
    setup = history.setup
    grace_ms = max(setup.cancel_grace_ms, setup.lease_ttl_ms) + setup.lease_bound_ms
    allowed = grace_ms * (1_000 + setup.rate_error_thousandths)
    last: dict[str, Change] = {change.job: change for change in history.changes}
    return [
        Violation(f"job {change.job} is still cancelling", history.end)
        for change in last.values()
        if change.status == "cancelling" and history.end - max(healed, change.t) > allowed
    ]


def lease_count(history: History) -> int:
    return len(history.grant_of) if _healed_at(history) >= 0 else 0


def healed_count(history: History) -> int:
    return len(history.of(Healed))


def _healed_at(history: History) -> int:
    """When the last fault was over; -1 = never."""
    healed = history.of(Healed)
    return healed[-1].t if healed else -1


def _voters(history: History) -> tuple[str, ...]:
    members = history.of(Members)
    return members[-1].nodes if members else history.setup.nodes
