"""Define the verbs: what people can do to jobs, schedules, queues and workers. ONE table for servers, clients and commands.

A row holds what is the same for all of them. These are made from it:

- the routes of the API and their summaries, by `api.http.routes.verb_route`;
- the actions of bulk requests and the fields that each of them takes, in `api.jobs.bulk.actions`;
- the requests that the client and the command line send, by `client.http.calls.Calls.do`;
- the commands, their options and their help, in `cli.commands.control` and `cli.terminal.verb_command`.

CONTRIBUTING.md says how to add a verb.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Final, Literal

import msgspec

from raftsched.wire.common import FINISHED, LEASED, STATUS_NAMES, UNLEASED, Reply, StatusName
from raftsched.wire.control import AmendRequest, CancelQuery, PauseRequest, ReplayRequest, RetryRequest
from raftsched.wire.firings import BackfillReply, BackfillRequest, FiringReply, TriggerRequest
from raftsched.wire.jobs import JobReply
from raftsched.wire.queues import QueuePatch, QueueSettingsReply
from raftsched.wire.schedules import DeletedReply, SchedulePatch, ScheduleReply, TenantQuery
from raftsched.wire.workers import DrainRequest, WorkerReply

Action = Literal["cancel", "pause", "resume", "retry", "replay", "reschedule", "reprioritise", "delete"]
"""The verbs that also work on many jobs at once."""


@dataclass(frozen=True, slots=True)
class Verb:
    """Something that people can do to one kind of object."""

    name: str
    help: str
    """Its effect. The first line is the summary of its route, and all of it is the help of its command."""
    _: KW_ONLY
    noun: str
    """The kind of object."""
    object_path: str
    """The path of the object, below the base path of the API."""
    method: Literal["POST", "PATCH", "DELETE"] = "POST"
    """A POST has the name of the verb below the path of the object. The others are requests to the object itself."""
    part_of: str = ""
    """The verb whose route it uses, with some of its fields; "" = it has its own route."""
    is_bulk_only: bool = False
    """Whether it has no route for one object."""
    body: type[msgspec.Struct] | None = None
    is_body_required: bool = False
    query: type[msgspec.Struct] | None = None
    reply: type[Reply]
    statuses: tuple[int, ...] = (200,)
    """HTTP statuses of success."""
    is_keyed: bool = False
    """It creates something, so it takes an idempotency key."""
    is_conditional: bool = False
    """It takes `If-Match`, with the revision that the caller has read."""
    fields: tuple[str, ...] | None = None
    """The fields that a command and a bulk request can give; None = all fields of its request."""
    needs_field: bool = False
    """Whether exactly one of `fields` must be given."""
    past: str = ""
    """As in "3 jobs paused"."""
    meant_for: tuple[StatusName, ...] = ()
    """Statuses of the jobs that a bulk request means if it names none; () = it is no bulk action."""
    reorders: bool = False
    """Whether it changes the order in which waiting jobs are stored."""

    @property
    def has_route(self) -> bool:
        return not self.part_of and not self.is_bulk_only

    def path(self, object_path: str) -> str:
        """Return the path of the request about the object at `object_path`."""
        return f"{object_path}/{self.name}" if self.method == "POST" else object_path

    @property
    def request(self) -> type[msgspec.Struct] | None:
        """Return the struct of what is asked: the body, or the query if there is no body."""
        return self.body or self.query

    @property
    def options(self) -> tuple[str, ...]:
        """Return the fields that a command and a bulk request can give."""
        if self.fields is not None:
            return self.fields
        return self.request.__struct_fields__ if self.request is not None else ()


def _by_name(*verbs: Verb) -> Mapping[str, Verb]:
    return {verb.name: verb for verb in verbs}


_ENDED: Final[tuple[StatusName, ...]] = tuple(each for each in STATUS_NAMES if each in FINISHED - {"failed"})
_WHEN: Final = ("run_at", "delay_seconds")

_job = partial(Verb, noun="job", object_path="/jobs/{id}", reply=JobReply)
_amending_job = partial(_job, method="PATCH", body=AmendRequest, is_body_required=True, meant_for=UNLEASED)

JOB: Final = _by_name(
    _job(
        "cancel",
        "Cancel jobs. A running one is notified at its worker's next heartbeat.",
        past="cancelled",
        method="DELETE",
        query=CancelQuery,
        meant_for=(*UNLEASED, *(each for each in LEASED if each != "cancelling")),
    ),
    _job(
        "pause",
        "Pause jobs until they are resumed, or until a time.",
        past="paused",
        body=PauseRequest,
        meant_for=tuple(each for each in UNLEASED if each != "paused"),
    ),
    _job("resume", "Resume paused jobs.", past="resumed", meant_for=("paused",)),
    _job(
        "retry",
        "Run failed or cancelled jobs again.\n\n"
        "Each begins a new run, with all of its attempts; one that waits for its next attempt makes it now.",
        past="requeued",
        body=RetryRequest,
        meant_for=("dead_letter",),
    ),
    _job(
        "replay",
        "Submit clones of jobs, each with a link to its original.",
        past="replayed",
        body=ReplayRequest,
        fields=_WHEN,
        statuses=(201, 200),
        is_keyed=True,
        meant_for=_ENDED,
    ),
    _amending_job(
        "reschedule",
        "Move waiting jobs to another time. `--delay 0` = now.",
        past="rescheduled",
        part_of="amend",
        fields=_WHEN,
        needs_field=True,
        reorders=True,
    ),
    _amending_job(
        "reprioritise",
        "Change the priority of waiting jobs.",
        past="reprioritised",
        part_of="amend",
        fields=("priority",),
        needs_field=True,
        reorders=True,
    ),
    _amending_job(
        "amend",
        "Change a waiting job: its time, queue, payload or limits.",
        is_conditional=True,
        meant_for=(),
    ),
    _job("delete", "Delete finished jobs.", past="deleted", is_bulk_only=True, meant_for=_ENDED),
)

_schedule = partial(Verb, noun="schedule", object_path="/schedules/{id}", query=TenantQuery, reply=ScheduleReply)

SCHEDULE: Final = _by_name(
    _schedule(
        "amend",
        "Change some fields of a schedule (JSON Merge Patch). Running jobs continue.",
        method="PATCH",
        body=SchedulePatch,
        is_body_required=True,
        is_conditional=True,
    ),
    _schedule("delete", "Delete schedules. Their jobs continue.", method="DELETE", reply=DeletedReply),
    _schedule("pause", "Pause a schedule until it is resumed, or until a time.", body=PauseRequest),
    _schedule("resume", "Resume a schedule. Its misfire policy decides about missed fire times.", fields=()),
    _schedule(
        "trigger",
        "Run a schedule now, in addition to its fire times.",
        body=TriggerRequest,
        reply=FiringReply,
        statuses=(201, 200),
        is_keyed=True,
    ),
    _schedule(
        "backfill",
        "Run a schedule for past fire times.",
        body=BackfillRequest,
        is_body_required=True,
        reply=BackfillReply,
        is_keyed=True,
    ),
)

_queue = partial(Verb, noun="queue", object_path="/queues/{name}", reply=QueueSettingsReply)

QUEUE: Final = _by_name(
    _queue(
        "configure",
        "Change settings of a queue. Others stay as they are. Running jobs continue.",
        method="PATCH",
        body=QueuePatch,
        is_body_required=True,
    ),
    _queue(
        "pause",
        "Stop dispatching from a queue. It resumes by `queue resume` or at a time. Running jobs continue.",
        body=PauseRequest,
    ),
    _queue("resume", "Resume a queue."),
)

_worker = partial(Verb, noun="worker", object_path="/workers/{name}", reply=WorkerReply)

WORKER: Final = _by_name(
    _worker(
        "drain",
        "Give a worker no further jobs, until `undrain`. Its running jobs continue.",
        body=DrainRequest,
    ),
    _worker("undrain", "Give a drained worker jobs again."),
)
