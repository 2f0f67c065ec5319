"""Define all legal transitions of a job in ONE table.

Theory of operation. A job's status changes only when an operation is applied, and only along a row of `TRANSITIONS`:
(status, event) -> status. Documentation, the exhaustive test and the texts of refusals are made from the same table, so
they can't disagree with it.

- *Waiting* (`scheduled`, `queued`, `retrying`): the job waits only for time. The three differ in the event before.
  Becoming due is no event: nothing is written when a job becomes due, and users then see `queued` (`Job.status_at`).
- *Leased* (`running`, `cancelling`): one worker has the current fencing token. Each event except `cancel` ends the
  lease. So it needs that token, or an expiry that was checked again when it was applied.
- *Parked* (`waiting_dependencies`, `paused`): the job waits for a parent or a user.
- *Finished* (`completed`, `dead_letter`, `cancelled`, `skipped`): the run has ended. A user can begin a new run of the job
  by `requeue`, unless it is completed. Retention removes the job; that is no transition.

A race of a cancel and a completion is decided by the order in which they are applied. `complete` is legal only in
`running`, and only `stop` is legal in `cancelling`: an acknowledged cancel is final.

Left out: `failed`. A job that is given up is dead-lettered, whatever the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from raftsched.core.records.job import FINISHED, PARKED, RUN_AGAIN, WAITING, Status


class Event(StrEnum):
    """Enumerate the events of a job; `MEANING` describes them."""

    SUBMIT = "submit"
    SUBMIT_LATER = "submit_later"
    LEASE = "lease"
    COMPLETE = "complete"
    SNOOZE = "snooze"
    RETRY = "retry"
    GIVE_BACK = "give_back"
    GIVE_UP = "give_up"
    CANCEL = "cancel"
    STOP = "stop"
    SUBMIT_WAITING = "submit_waiting"
    SUBMIT_PAUSED = "submit_paused"
    RELEASE = "release"
    RELEASE_LATER = "release_later"
    SKIP = "skip"
    FAIL_DEPENDENCY = "fail_dependency"
    PAUSE = "pause"
    RESUME = "resume"
    RESUME_LATER = "resume_later"
    RESUME_WAITING = "resume_waiting"
    RESCHEDULE = "reschedule"
    BRING_FORWARD = "bring_forward"
    AMEND = "amend"
    EXPIRE = "expire"
    REQUEUE = "requeue"
    REQUEUE_LATER = "requeue_later"
    REQUEUE_WAITING = "requeue_waiting"
    ABORT = "abort"


MEANING: Final[Mapping[Event, str]] = {
    Event.SUBMIT: "a new job that is due",
    Event.SUBMIT_LATER: "a new job that is not due yet",
    Event.LEASE: "it is due, and a worker got it under a new fencing token",
    Event.COMPLETE: "the worker reported success with the current token",
    Event.SNOOZE: "the worker asked to be called again later; no attempt is used",
    Event.RETRY: "the attempt failed, timed out or lost its worker, and another may follow later",
    Event.GIVE_BACK: "its worker was lost for the first time: it may run elsewhere at once",
    Event.GIVE_UP: "the attempt failed, timed out or lost its worker, and no other may follow",
    Event.CANCEL: "a user cancelled it",
    Event.STOP: "the lease of a cancelled job ended, whatever its worker reported",
    Event.SUBMIT_WAITING: "a new job with unfinished parents",
    Event.SUBMIT_PAUSED: "a new job that waits until a user resumes it",
    Event.RELEASE: "its last parent ended as needed, and it is due",
    Event.RELEASE_LATER: "its last parent ended as needed, and it is not due yet",
    Event.SKIP: "a parent ended otherwise than needed, and the job is skipped in that case",
    Event.FAIL_DEPENDENCY: "a parent ended otherwise than needed, and the job fails in that case",
    Event.PAUSE: "a user paused it",
    Event.RESUME: "its pause ended, and it is due",
    Event.RESUME_LATER: "its pause ended, and it is not due yet",
    Event.RESUME_WAITING: "its pause ended, and it has unfinished parents",
    Event.RESCHEDULE: "a user gave it a time in the future",
    Event.BRING_FORWARD: "a user gave it a time in the past, or asked for its next attempt now",
    Event.AMEND: "a user changed other fields than its time, or the time of a parked job",
    Event.EXPIRE: "not started by its expiry, or not finished by its deadline",
    Event.REQUEUE: "a user runs it again, now",
    Event.REQUEUE_LATER: "a user runs it again, later",
    Event.REQUEUE_WAITING: "a user runs it again, and it has unfinished parents",
    Event.ABORT: "a user or its deadline ended a running attempt at once",
}

_WAITING: Final = sorted(WAITING)
_UNLEASED: Final = (*_WAITING, *sorted(PARKED))


def _from(sources: Iterable[Status], event: Event, target: Status) -> dict[tuple[Status | None, Event], Status]:
    return {(source, event): target for source in sources}


TRANSITIONS: Final[Mapping[tuple[Status | None, Event], Status]] = {
    # a new job
    (None, Event.SUBMIT): Status.QUEUED,
    (None, Event.SUBMIT_LATER): Status.SCHEDULED,
    # waiting
    (Status.SCHEDULED, Event.LEASE): Status.RUNNING,
    (Status.SCHEDULED, Event.CANCEL): Status.CANCELLED,
    (Status.QUEUED, Event.LEASE): Status.RUNNING,
    (Status.QUEUED, Event.CANCEL): Status.CANCELLED,
    (Status.RETRYING, Event.LEASE): Status.RUNNING,
    (Status.RETRYING, Event.CANCEL): Status.CANCELLED,
    # leased
    (Status.RUNNING, Event.COMPLETE): Status.COMPLETED,
    (Status.RUNNING, Event.SNOOZE): Status.SCHEDULED,
    (Status.RUNNING, Event.RETRY): Status.RETRYING,
    (Status.RUNNING, Event.GIVE_BACK): Status.QUEUED,
    (Status.RUNNING, Event.GIVE_UP): Status.DEAD_LETTER,
    (Status.RUNNING, Event.CANCEL): Status.CANCELLING,
    (Status.CANCELLING, Event.STOP): Status.CANCELLED,
    (Status.CANCELLING, Event.ABORT): Status.CANCELLED,
    (Status.CANCELLING, Event.EXPIRE): Status.CANCELLED,
    (Status.RUNNING, Event.ABORT): Status.CANCELLED,
    # parked
    (None, Event.SUBMIT_WAITING): Status.WAITING_DEPENDENCIES,
    (None, Event.SUBMIT_PAUSED): Status.PAUSED,
    (Status.WAITING_DEPENDENCIES, Event.RELEASE): Status.QUEUED,
    (Status.WAITING_DEPENDENCIES, Event.RELEASE_LATER): Status.SCHEDULED,
    **_from(_UNLEASED, Event.SKIP, Status.SKIPPED),
    **_from(_UNLEASED, Event.FAIL_DEPENDENCY, Status.DEAD_LETTER),
    (Status.WAITING_DEPENDENCIES, Event.CANCEL): Status.CANCELLED,
    (Status.PAUSED, Event.CANCEL): Status.CANCELLED,
    **_from(_UNLEASED, Event.PAUSE, Status.PAUSED),
    (Status.PAUSED, Event.RESUME): Status.QUEUED,
    (Status.PAUSED, Event.RESUME_LATER): Status.SCHEDULED,
    (Status.PAUSED, Event.RESUME_WAITING): Status.WAITING_DEPENDENCIES,
    # amended, expired
    **_from(_WAITING, Event.RESCHEDULE, Status.SCHEDULED),
    **_from(_WAITING, Event.BRING_FORWARD, Status.QUEUED),
    **{(status, Event.AMEND): status for status in _UNLEASED},
    **_from((*_UNLEASED, Status.RUNNING), Event.EXPIRE, Status.DEAD_LETTER),
    # run again
    **_from(RUN_AGAIN, Event.REQUEUE, Status.QUEUED),
    **_from(RUN_AGAIN, Event.REQUEUE_LATER, Status.SCHEDULED),
    **_from(RUN_AGAIN, Event.REQUEUE_WAITING, Status.WAITING_DEPENDENCIES),
    # cancelling twice succeeds and changes nothing
    (Status.CANCELLING, Event.CANCEL): Status.CANCELLING,
    (Status.CANCELLED, Event.CANCEL): Status.CANCELLED,
}


def next_status(status: Status | None, event: Event) -> Status | None:
    """Return the status after `event` in `status` (None = no job yet), or None if the event is not legal there."""
    return TRANSITIONS.get((status, event))


def refusal(status: Status | None, event: Event) -> str:
    """Return the sentence that explains to a user in which statuses `event` is legal."""
    legal = [_label(source) for source, known in TRANSITIONS if known is event]
    return f"{event} is not legal for a job that is {_label(status)}, only for one that is {_listed(legal)}"


def markdown_table() -> str:
    """Return the table as Markdown for the documentation, with a row for each status and a column for each event."""
    rows = [f"| | {' | '.join(Event)} |", "|---" * (len(Event) + 1) + "|"]
    for source in _statuses():
        targets = (TRANSITIONS.get((source, event)) for event in Event)
        cells = " | ".join("" if target is None else target.label for target in targets)
        rows.append(f"| **{_label(source)}** | {cells} |")
    return "\n".join(rows) + "\n"


def meanings() -> str:
    """Return the meaning of each event, as a Markdown list for the documentation."""
    return "".join(f"- `{event}`: {MEANING[event]}\n" for event in Event)


def mermaid_diagram() -> str:
    """Return the table as a Mermaid state diagram for the documentation; finished statuses lead to the end.

    Events that do not change the status (an amendment, a second cancel) are not drawn.
    """
    lines = ["stateDiagram-v2"]
    ways: dict[tuple[Status | None, Status], list[Event]] = {}
    for (source, event), target in TRANSITIONS.items():
        if source is not target:
            ways.setdefault((source, target), []).append(event)
    for (source, target), events in ways.items():
        start = "[*]" if source is None else source.label
        lines.append(f"    {start} --> {target.label}: {', '.join(events)}")
    lines.extend(f"    {status.label} --> [*]" for status in _statuses() if status in FINISHED)
    return "\n".join(lines) + "\n"


def _statuses() -> list[Status | None]:
    """Return the statuses of the table; None (no job yet) comes first."""
    known = set(TRANSITIONS.values())
    return [None, *(status for status in Status if status in known)]


def _label(status: Status | None) -> str:
    return "new" if status is None else status.label


def _listed(words: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
