"""Layer B of linearizability: a search per job for one order that explains every answer by its value (G2).

Theory of operation. Jobs are independent, so each is searched alone (P-compositionality; Herlihy & Wing 1990). The
search is just-in-time linearization (Wing & Gong 1993, Lowe 2017): calls and returns are scanned in the order of time,
with the set of all (state, operations already placed) that explain what was seen so far. When an operation returns, it
must have been placed in each of them; whatever could not is dropped, and when none is left, no order exists.

Two things keep the set small. Operations that read only are placed as soon as they agree with the state: to place
them later explains nothing more. And no operation is left open for ever: what became of unknown ones, and of what the
leader did by itself, is in the log (etcd's patch_history). What isn't there did not happen. What is there happened
before the first reply that shows its index. Revisions are used for nothing else, so this layer does not believe them.

The search has a bound on its steps, and reports when it is reached: no answer is no pass. It needs the log, and says
nothing without it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from chaos.checkers.history.views import NEVER, History, Operation
from chaos.checkers.jobs.log import move_of
from chaos.checkers.model import JobState, Move, after, explains, happens, stage_of
from chaos.checkers.report import Violation

_NO_VERDICT = frozenset({"submit", "lease", "heartbeat"})
"""Operations whose refusals prove nothing about a job."""
_JOB_OPERATIONS = frozenset({"submit", "get", "lease", "heartbeat", "outcome", "cancel"})
"""Operations whose answers are explained; what others do is taken from the log."""
_TELLING_REFUSALS = frozenset({"not_found", "already_finished", "lease_lost", "already_recorded", "cancelled"})
_WANTED_LATER = frozenset({"cancel", "abort", "skip", "pause", "start"})
"""Moves that mean nothing to a job to which they were done before, but may be needed later: it can be resumed, or run
again, and then be paused, skipped or cancelled once more."""


Rule = Callable[[JobState, Move], JobState | None]
"""Effects of a move on a job. `explains`: a client was answered so; `happens`: it is in the log, and some answered
operation may be the same one; `after`: it is in the log, and nobody asked for it."""


class Step(NamedTuple):
    """One operation on one job, to be placed between `start` and `end`."""

    start: int
    end: int
    move: Move
    rule: Rule
    name: str


def linearizable(history: History) -> list[Violation]:
    """For every job there is one order of all operations on it that explains every answer, in real time (G2)."""
    if not history.changes:
        return []
    violations = []
    for job, steps in steps_by_job(history).items():
        verdict = _Search(steps, history.search_steps_max).run()
        if verdict:
            violations.append(Violation(f"job {job}: {verdict}"))
    return violations


# -- what is to be placed ---------------------------------------------------------------------------------------------


def steps_by_job(history: History) -> dict[str, list[Step]]:
    steps: dict[str, list[Step]] = defaultdict(list)
    for operation in history.operations:
        if not operation.is_unknown and not operation.call.stale:
            for job, move in _moves(operation):
                steps[job].append(Step(operation.start, operation.end, move, explains, name=str(operation)))
    previous: dict[str, int] = {}
    repeated = _repeated_cancels(history)
    for match in history.matches:
        change = match.change
        if change.f in ("touch", "amend"):
            continue  # to the model, nothing happened
        askers = match.unknown or [asker for asker in match.answered if asker.call.op in repeated]
        if match.is_internal or not match.answered or askers:
            start = previous.get(change.job, 0) if match.is_internal or not askers else askers[0].start
            name = f"{change.f} {change.outcome}".rstrip() + f" of index {change.index}"
            move = move_of(change, history)
            end = history.first_shown(change.index)
            rule = after if match.is_internal and change.f != "skip" else happens
            steps[change.job].append(Step(start, max(start, end), move, rule, name=name))
        previous[change.job] = max(change.t, 0)
    return steps


def _repeated_cancels(history: History) -> frozenset[int]:
    """Return the calls that cancelled a job several times: a client repeats one whose reply was lost, and meanwhile
    somebody else may have the job run again.
    """
    counts = Counter(
        asker.call.op
        for match in history.matches
        if match.change.f == "cancel" and not match.is_internal
        for asker in match.answered
    )
    return frozenset(op for op, count in counts.items() if count > 1)


def _moves(operation: Operation) -> Iterator[tuple[str, Move]]:
    """(job, move) for each job of an answered operation."""
    call, reply = operation.call, operation.reply
    assert reply is not None
    if operation.error and (call.f in _NO_VERDICT or operation.error not in _TELLING_REFUSALS):
        return
    if call.f == "heartbeat" and not reply.valid:
        return  # the leader may give up a lease before the log does
    if call.f not in _JOB_OPERATIONS:
        return  # what the log says of them is placed
    if call.f == "lease":
        for grant in reply.grants:
            yield grant.job, Move("lease", token=grant.token, attempt=grant.attempt, worker=call.worker)
        return
    yield (
        operation.job,
        Move(
            call.f,
            tenant=call.tenant,
            token=call.token,
            attempt=reply.attempt,
            worker=call.worker,
            outcome=call.outcome,
            completion_id=call.completion_id,
            retryable=call.retryable,
            attempts_max=call.max_attempts,
            is_duplicate=reply.duplicate,
            cancel_requested=reply.cancel_requested,
            error=operation.error,
            stage=stage_of(reply.status),
            is_once=call.once,
            is_forced=call.force,
        ),
    )


# -- the search -------------------------------------------------------------------------------------------------------


Place = tuple[JobState, int]
"""A state, and a bit for each open operation that is already part of it."""


@dataclass(slots=True)
class _Search:
    """The search for one job."""

    steps: list[Step]
    steps_max: int
    frontier: set[Place] = field(default_factory=lambda: {(JobState(), 0)})
    open: dict[int, Step] = field(default_factory=dict)
    """Bit -> an operation that was called and has not returned."""
    count: int = 0

    def run(self) -> str:
        """Return why there is no order, or ""."""
        bits: dict[int, int] = {}
        for _, is_return, number in _scan(self.steps):
            if not is_return:
                bits[number] = self._call(self.steps[number])
                continue
            bit = bits[number]
            self._return(bit)
            if self.count > self.steps_max:
                return f"no answer within {self.steps_max} steps, with {len(self.open)} operations open"
            if not self.frontier:
                return f"no order explains {self.steps[number].name}"
            del self.open[bit]
        return ""

    def _call(self, step: Step) -> int:
        bit = 1
        while bit in self.open:
            bit <<= 1
        self.open[bit] = step
        return bit

    def _return(self, bit: int) -> None:
        """Keep what has the operation placed; place whatever else can come before it."""
        done: set[Place] = set()
        seen: set[Place] = set()
        stack = [self._with_reads(place) for place in self.frontier]
        while stack and self.count <= self.steps_max:
            place = stack.pop()
            if place in seen:
                continue
            seen.add(place)
            state, placed = place
            if placed & bit:
                done.add((state, placed ^ bit))
                continue
            for other, step in self.open.items():
                if placed & other:
                    continue
                new = self._apply(state, step)
                if new is not None:
                    stack.append(self._with_reads((new, placed | other)))
        self.frontier = done

    def _with_reads(self, place: Place) -> Place:
        """Place every open operation that agrees with the state, leaves it as it is, and would do so at any time."""
        state, placed = place
        for bit, step in self.open.items():
            if not placed & bit and step.move.f not in _WANTED_LATER and self._apply(state, step) == state:
                placed |= bit
        return state, placed

    def _apply(self, state: JobState, step: Step) -> JobState | None:
        self.count += 1
        return step.rule(state, step.move)


def _scan(steps: list[Step]) -> list[tuple[int, bool, int]]:
    """Calls and returns in the order of time; at one moment, calls come first. What never ends has no return."""
    calls = [(step.start, False, number) for number, step in enumerate(steps)]
    returns = [(step.end, True, number) for number, step in enumerate(steps) if step.end < NEVER]
    return sorted(calls + returns)
