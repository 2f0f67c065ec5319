"""A history as the checkers read it: operations paired, the log in order, and who caused which entry of it.

Everything here is derived once and kept. It only groups what the harness wrote and judges nothing, but for `Match`,
which tells what became of unknown operations: an effect in the log belongs to the operation that asked for it, so an
unknown operation without an effect did nothing, whatever its client fears.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import Final, TypeVar, cast, get_args, overload

from chaos.checkers.history.events import (
    AlarmsChanged,
    AnyEvent,
    Applied,
    BackgroundWorkChanged,
    Change,
    Decided,
    Effect,
    Event,
    FinalState,
    Granted,
    HandedBack,
    Invoke,
    QueueChanged,
    Reply,
    ScheduleChanged,
    Setup,
    WorkflowChanged,
)

ENDS_LEASE = frozenset({"outcome", "expire", "lapse", "abort"})
"""Changes that end a lease, if they have a token."""
NEW_RUN = frozenset({"requeue", "revive"})
NEVER = 1 << 62
"""The end of an operation that nobody saw end."""
_start: Final = attrgetter("start")

Replay = Callable[[Sequence[Applied]], Iterable[str]]
"""Given the whole log from its first entry on, the digest of the state after each entry; a pure function."""

E = TypeVar("E", bound=Event)
Placed = Change | Decided | ScheduleChanged | AlarmsChanged | QueueChanged | WorkflowChanged | BackgroundWorkChanged
"""An effect of the log, at its place in it."""
_PLACED: Final = frozenset(get_args(Placed))


@dataclass(frozen=True, slots=True)
class Operation:
    """A client's call and what came of it; it took effect, if at all, between `start` and `end`."""

    call: Invoke
    reply: Reply | None
    start: int
    end: int
    """`NEVER` where the outcome is unknown."""

    @property
    def is_ok(self) -> bool:
        return self.reply is not None and self.reply.type == "ok"

    @property
    def is_unknown(self) -> bool:
        return self.end == NEVER

    @property
    def error(self) -> str:
        """The code of a definite refusal, "" where it is none."""
        return self.reply.error or "refused" if self.reply is not None and self.reply.type == "fail" else ""

    @property
    def job(self) -> str:
        return self.call.job or (self.reply.job if self.reply is not None else "")

    @property
    def shown(self) -> int:
        """The newest log index that the reply proves to be committed."""
        return max(self.reply.applied, self.reply.revision) if self.reply is not None else 0

    def __str__(self) -> str:
        call = self.call
        what = f"{call.f} {self.job}".rstrip()
        token = f" token {call.token}" if call.token else ""
        return f"op {call.op} ({what}{token} at {call.node or '?'} by {call.process})"


@dataclass(frozen=True, slots=True)
class Answer:
    """An operation that succeeded."""

    operation: Operation
    call: Invoke
    reply: Reply


class Earliest(Sequence[Operation]):
    """The first `count` of `operations`, not copied: many changes share the calls of one worker."""

    __slots__ = ("_count", "_operations")

    def __init__(self, operations: Sequence[Operation], count: int) -> None:
        self._operations = operations
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Operation: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Operation]: ...
    def __getitem__(self, at: int | slice) -> Operation | Sequence[Operation]:
        if isinstance(at, slice):
            return self._operations[: self._count][at]
        return self._operations[range(self._count)[at]]


@dataclass(slots=True)
class Match:
    """The operations that may have caused a change of the log: all that asked for just this, before it was applied.

    Each kind is in the order of its starts.
    """

    change: Change
    answered: Sequence[Operation] = ()
    """They know of it: ok, or refused as cancelled where the report closed a cancelled lease."""
    unknown: Sequence[Operation] = ()
    refused: Sequence[Operation] = ()
    is_handed_back: bool = False
    """The leader asked for the end of this lease."""

    @property
    def is_internal(self) -> bool:
        """No client asks for it: the leader does."""
        by_others = bool(self.change.cause) or self.change.f not in ("submit", "lease", "outcome", "cancel", "abort")
        return self.is_handed_back or by_others

    @property
    def first_start(self) -> int:
        """The earliest moment at which it can have been asked for."""
        return min((operations[0].start for operations in (self.answered, self.unknown) if operations), default=0)


class History:
    """The events of a run; `replay` and `search_steps_max` are for the properties that need them."""

    def __init__(
        self, events: Iterable[AnyEvent], *, replay: Replay | None = None, search_steps_max: int = 200_000
    ) -> None:
        self.events = tuple(events)
        self.replay = replay
        self.search_steps_max = search_steps_max
        """Steps of the linearizability search for one job."""
        self._ordered: dict[tuple[type[Event], ...], list[AnyEvent]] = {}
        self._logs: dict[tuple[type[Event], ...], list[Placed]] = {}
        self._by_kind: dict[type[Event], list[Event]] = defaultdict(list)
        for event in self.events:
            self._by_kind[type(event)].append(event)

    def of(self, kind: type[E]) -> list[E]:
        """All events of a kind, in order."""
        return cast("list[E]", self._by_kind.get(kind, []))

    def ordered(self, *kinds: type[Event]) -> list[AnyEvent]:
        """All events of some kinds, in their common order."""
        if kinds not in self._ordered:
            self._ordered[kinds] = [event for event in self.events if type(event) in kinds]
        return self._ordered[kinds]

    def log_of(self, *kinds: type[Event]) -> list[Placed]:
        """Events of the log of some kinds, in its order."""
        if kinds not in self._logs:
            found = [event for event in self._log if type(event) in kinds]
            self._logs[kinds] = sorted(found, key=lambda event: (event.index, event.position))
        return self._logs[kinds]

    @cached_property
    def _log(self) -> list[Placed]:
        """Every event of the log, in the order in which the harness saw them."""
        return [cast("Placed", event) for event in self.events if type(event) in _PLACED]

    def log_by_index(self, *kinds: type[Event]) -> Iterator[tuple[int, list[Placed]]]:
        """The same, by the entries that they belong to."""
        for index, events in groupby(self.log_of(*kinds), key=lambda event: event.index):
            yield index, list(events)

    @cached_property
    def setup(self) -> Setup:
        return next(iter(self.of(Setup)), Setup(nodes=()))

    @property
    def end(self) -> int:
        return self.events[-1].t if self.events else 0

    # -- clients ------------------------------------------------------------------------------------------------------

    @cached_property
    def operations(self) -> list[Operation]:
        """All operations in the order of their calls; of two replies to one, the first counts."""
        replies: dict[int, Reply] = {}
        for reply in self.of(Reply):
            replies.setdefault(reply.op, reply)
        return [_operation(call, replies.get(call.op)) for call in self.of(Invoke)]

    @cached_property
    def _answers(self) -> dict[str, list[Answer]]:
        answers: dict[str, list[Answer]] = defaultdict(list)
        for operation in self.operations:
            if operation.reply is not None and operation.reply.type == "ok":
                answers[operation.call.f].append(Answer(operation, operation.call, operation.reply))
        return answers

    def answers(self, f: str) -> list[Answer]:
        """The successful operations of a kind, in the order of their calls."""
        return self._answers.get(f, [])

    @cached_property
    def grants(self) -> list[tuple[Answer, Granted]]:
        """Every lease that a worker was shown."""
        return [(answer, grant) for answer in self.answers("lease") for grant in answer.reply.grants]

    @cached_property
    def current_answers(self) -> list[Answer]:
        """All successful operations but reads that may be old, in the order of their calls."""
        everything = (answer for answers in self._answers.values() for answer in answers if not answer.call.stale)
        return sorted(everything, key=lambda answer: answer.operation.start)

    @cached_property
    def _shown(self) -> tuple[list[int], list[int]]:
        """Rising log indexes, and for each the earliest end of a reply that shows it or a later one."""
        pairs = sorted((answer.operation.shown, answer.operation.end) for answer in self.current_answers)
        indexes, ends, earliest = [], [], NEVER
        for index, end in reversed(pairs):
            earliest = min(earliest, end)
            indexes.append(index)
            ends.append(earliest)
        return indexes[::-1], ends[::-1]

    def first_shown(self, index: int) -> int:
        """Return the time at which the first client could know that the log reached `index`; `NEVER` if none could."""
        indexes, ends = self._shown
        position = bisect_left(indexes, index)
        return ends[position] if position < len(ends) else NEVER

    # -- the log ------------------------------------------------------------------------------------------------------

    @cached_property
    def changes(self) -> list[Change]:
        """The log, in its order."""
        return sorted(self.of(Change), key=lambda change: (change.index, change.position))

    @cached_property
    def lost_workers_max(self) -> dict[int, int]:
        """Token -> how many lost workers ended its job when its lease expired: its own word, its queue's, or the default."""
        of_jobs: dict[str, int] = {}
        of_queues: dict[str, int] = {}
        most: dict[int, int] = {}
        for event in self.log_of(Change, QueueChanged):
            if isinstance(event, QueueChanged):
                of_queues[event.queue] = event.max_lost_workers
            elif isinstance(event, Change) and event.f in ("submit", "amend"):
                of_jobs[event.job] = event.max_lost_workers
            elif isinstance(event, Change) and event.f == "expire":
                own, of_queue = of_jobs.get(event.job), of_queues.get(event.queue)
                most[event.token] = own or of_queue or self.setup.lost_attempts_max
        return most

    @cached_property
    def changes_of(self) -> dict[str, list[Change]]:
        """The log of each job."""
        changes: dict[str, list[Change]] = defaultdict(list)
        for change in self.changes:
            changes[change.job].append(change)
        return changes

    @cached_property
    def grant_of(self) -> dict[int, Change]:
        """Token -> the change that granted it first."""
        grants: dict[int, Change] = {}
        for change in self.changes:
            if change.f == "lease":
                grants.setdefault(change.token, change)
        return grants

    @cached_property
    def end_of(self) -> dict[int, Change]:
        """Token -> the change that ended its lease first."""
        ends: dict[int, Change] = {}
        for change in self.changes:
            if change.f in ENDS_LEASE and change.token:
                ends.setdefault(change.token, change)
        return ends

    @cached_property
    def requeued(self) -> set[str]:
        """Jobs that ran again after an end, or may have: what is said of ends does not hold for these."""
        asked = {operation.call.job for operation in self.operations if operation.call.f == "requeue"}
        return asked | {change.job for change in self.changes if change.f in NEW_RUN}

    @cached_property
    def purged(self) -> set[str]:
        return {change.job for change in self.changes if change.f == "purge"}

    @cached_property
    def timeouts(self) -> dict[str, int]:
        """Job -> its timeout in milliseconds, 0 = none; a job whose submit nobody knows is not there."""
        timeouts = {answer.reply.job: answer.call.timeout_ms for answer in self.answers("submit")}
        return timeouts | {change.job: change.timeout_ms for change in self.changes if change.f == "submit"}

    @cached_property
    def finals(self) -> dict[str, FinalState]:
        """The last word of each node."""
        return {final.node: final for final in self.of(FinalState)}

    @cached_property
    def matches(self) -> list[Match]:
        """For each change of the log, in order, who may have asked for it."""
        return list(_matches(self))

    @cached_property
    def settled(self) -> set[int]:
        """The unknown operations, by their numbers, that may have caused what is in the log."""
        settled: set[int] = set()
        of_worker: dict[str, Sequence[Operation]] = {}
        for match in self.matches:
            if match.change.f != "lease":
                settled.update(operation.call.op for operation in match.unknown)
            elif len(match.unknown) > len(of_worker.get(match.change.worker, ())):
                of_worker[match.change.worker] = match.unknown  # it holds all that were fewer
        settled.update(operation.call.op for operations in of_worker.values() for operation in operations)
        return settled

    @cached_property
    def effects_of(self) -> dict[int, list[Effect]]:
        """Token -> what was done under it."""
        effects: dict[int, list[Effect]] = defaultdict(list)
        for effect in self.of(Effect):
            effects[effect.token].append(effect)
        return effects


def _operation(call: Invoke, reply: Reply | None) -> Operation:
    is_known = reply is not None and reply.type != "info"
    return Operation(call, reply, call.t, reply.t if is_known and reply is not None else NEVER)


# -- who asked for it -------------------------------------------------------------------------------------------------


class _Kinds:
    """Operations by what became of them, added in the order of their starts."""

    def __init__(self) -> None:
        self.answered: list[Operation] = []
        self.unknown: list[Operation] = []
        self.refused: list[Operation] = []

    def add(self, operation: Operation, *, closes: bool = False) -> None:
        """`closes`: its refusal tells that it was heard."""
        if operation.is_ok or closes:
            self.answered.append(operation)
        elif operation.is_unknown:
            self.unknown.append(operation)
        else:
            self.refused.append(operation)


def _matches(history: History) -> Iterator[Match]:
    askers, leases = _askers(history)
    handed_back = {("outcome", event.job, event.token, "snoozed", "") for event in history.of(HandedBack)}
    granted = {grant.token: answer.operation for answer, grant in history.grants}
    for change in history.changes:
        wish = _wish_behind(change)
        owner = granted.get(change.token) if change.f == "lease" else None
        if owner is not None:
            match = _match(change, [owner])
        elif change.cause:
            match = Match(change)
        elif change.f == "lease":
            match = _match_of_lease(change, leases.get(change.worker, _Kinds()))
        else:
            match = _match(change, askers.get(wish, ()))
        match.is_handed_back = wish in handed_back
        yield match


def _askers(history: History) -> tuple[dict[tuple[object, ...], list[Operation]], dict[str, _Kinds]]:
    """Return who asks for what, and the lease calls of each worker, which may be many and ask for the same."""
    askers: dict[tuple[object, ...], list[Operation]] = defaultdict(list)
    leases: dict[str, _Kinds] = defaultdict(_Kinds)
    for operation in sorted(history.operations, key=_start):
        if operation.call.f == "lease":
            leases[operation.call.worker].add(operation)
        for wish in _wishes(operation):
            askers[wish].append(operation)
    return askers, leases


def _match(change: Change, wishers: Iterable[Operation]) -> Match:
    kinds = _Kinds()
    for operation in wishers:
        if 0 <= change.t < operation.start:
            continue
        if change.f == "submit" and operation.is_ok and operation.job != change.job:
            continue  # the key's earlier job, purged since
        closes = change.f == "outcome" and change.status == "cancelled" and operation.error == "cancelled"
        kinds.add(operation, closes=closes)
    return Match(change, kinds.answered, kinds.unknown, kinds.refused)


def _match_of_lease(change: Change, calls: _Kinds) -> Match:
    """As `_match`, without a look at each of the worker's calls."""
    until = change.t if change.t >= 0 else NEVER
    answered, unknown, refused = (
        Earliest(kind, bisect_right(kind, until, key=_start)) for kind in (calls.answered, calls.unknown, calls.refused)
    )
    return Match(change, answered, unknown, refused)


def _wishes(operation: Operation) -> Iterator[tuple[object, ...]]:
    """Yield the wishes of an operation; equal ones can't be distinguished in the log."""
    call = operation.call
    match call.f:
        case "submit":
            if call.key:
                yield ("key", call.tenant, call.key)
            yield ("op", call.op)
            if operation.is_ok:
                yield ("job", operation.job)
        case "outcome":
            yield ("outcome", call.job, call.token, call.outcome, call.completion_id)
        case "cancel":
            yield ("cancel", call.job)


def _wish_behind(change: Change) -> tuple[object, ...]:
    match change.f:
        case "submit":
            # All tries of one submission carry the same body, and so the same number: the key tells more.
            if change.key:
                return ("key", change.tenant, change.key)
            return ("op", change.op) if change.op else ("job", change.job)
        case "lease":
            return ("lease", change.worker)
        case "outcome":
            return ("outcome", change.job, change.token, change.outcome, change.completion_id)
        case "abort":
            return ("cancel", change.job)
        case _:
            return (change.f, change.job)
