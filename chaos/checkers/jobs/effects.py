"""Properties of what workers did, by their own ledger, and of what a fencing receiver took from them (G5, G6)."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from chaos.checkers.history.events import Downstream, Effect
from chaos.checkers.history.views import NEVER, History
from chaos.checkers.report import Violation

Span = tuple[int, int, int]
"""(begin, end, token)."""


def effects_disjoint(history: History) -> list[Violation]:
    """Attempts of one run never overlap in real time, if workers keep time (I8b, G3b).

    Says nothing where they don't (`Setup.workers_keep_time`), nor of jobs with a timeout, which ends in cluster time.
    """
    if not history.setup.workers_keep_time:
        return []
    violations = []
    for (job, run), spans in _spans(history).items():
        if history.timeouts.get(job) != 0:
            continue
        spans.sort()
        for (_, end, earlier), (begin, _, later) in pairwise(spans):
            if begin < end and earlier != later:
                what = f"run {job}.{run}: token {later} begins while {earlier} continues"
                violations.append(Violation(what, begin))
    return violations


def _spans(history: History) -> dict[tuple[str, int], list[Span]]:
    spans: dict[tuple[str, int], list[Span]] = defaultdict(list)
    for token, effects in history.effects_of.items():
        begin = -1
        for effect in effects:
            if effect.phase == "begin":
                begin = effect.t
            elif begin >= 0:
                spans[effect.job, effect.run].append((begin, effect.t, token))
                begin = -1
        if begin >= 0:
            spans[effects[0].job, effects[0].run].append((begin, NEVER, token))
    return spans


def timed_effect_count(history: History) -> int:
    return len(history.of(Effect)) if history.setup.workers_keep_time else 0


def effects_follow_grants(history: History) -> list[Violation]:
    """A job's body begins only under a token that its worker was granted for it, once for each token (I11)."""
    granted = {
        grant.token: (answer.operation.end, grant.job, grant.run, answer.call.worker)
        for answer, grant in history.grants
    }
    begun: set[int] = set()
    violations = []
    for effect in history.of(Effect):
        if effect.phase != "begin":
            continue
        since, job, run, worker = granted.get(effect.token, (NEVER, "", 0, ""))
        if effect.t < since or (job, run, worker) != (effect.job, effect.run, effect.worker):
            what = f"{effect.worker} begins run {effect.job}.{effect.run} under token {effect.token}, not its own"
            violations.append(Violation(what, effect.t))
        if effect.token in begun:
            violations.append(Violation(f"run {effect.job}.{effect.run} begins twice under {effect.token}", effect.t))
        begun.add(effect.token)
    return violations


def completed_was_executed(history: History) -> list[Violation]:
    """A run whose completion was accepted has run: its body began under that token before it was reported (I11, G5)."""
    if not history.of(Effect):
        return []
    return [
        Violation(f"{answer.operation} is accepted, but nothing ran under its token", answer.reply.t)
        for answer in history.answers("outcome")
        if answer.call.outcome == "completed"
        and not any(effect.t <= answer.reply.t for effect in history.effects_of.get(answer.call.token, ()))
    ]


def fenced_tokens_never_fall(history: History) -> list[Violation]:
    """A receiver that keeps the highest token of a resource never takes an older one, nor refuses a newer one (I12)."""
    highest: dict[str, int] = {}
    violations = []
    for event in history.of(Downstream):
        known = highest.get(event.resource, 0)
        if event.accepted != (event.token >= known):
            verb = "takes" if event.accepted else "refuses"
            violations.append(Violation(f"{event.resource} {verb} token {event.token} after {known}", event.t))
        if event.accepted:
            highest[event.resource] = max(known, event.token)
    return violations
