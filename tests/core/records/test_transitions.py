from __future__ import annotations

import re

from raftsched.core.records.job import FINISHED, LEASED, PARKED, WAITING, Status
from raftsched.core.records.transitions import (
    MEANING,
    TRANSITIONS,
    Event,
    markdown_table,
    meanings,
    mermaid_diagram,
    next_status,
    refusal,
)
from tests.for_each import for_each

# The whole truth, written a second time and in another form: a row for each event, and where it leads from where.
WAITING_ONES = "scheduled queued retrying"
UNLEASED = f"{WAITING_ONES} waiting_dependencies paused"
REQUEUED = "dead_letter cancelled skipped"
EXPECTED = {
    "submit": {"new": "queued"},
    "submit_later": {"new": "scheduled"},
    "submit_waiting": {"new": "waiting_dependencies"},
    "submit_paused": {"new": "paused"},
    "lease": {WAITING_ONES: "running"},
    "complete": {"running": "completed"},
    "snooze": {"running": "scheduled"},
    "retry": {"running": "retrying"},
    "give_back": {"running": "queued"},
    "give_up": {"running": "dead_letter"},
    "cancel": {UNLEASED: "cancelled", "running cancelling": "cancelling", "cancelled": "cancelled"},
    "stop": {"cancelling": "cancelled"},
    "abort": {"running cancelling": "cancelled"},
    "release": {"waiting_dependencies": "queued"},
    "release_later": {"waiting_dependencies": "scheduled"},
    "skip": {UNLEASED: "skipped"},
    "fail_dependency": {UNLEASED: "dead_letter"},
    "pause": {UNLEASED: "paused"},
    "resume": {"paused": "queued"},
    "resume_later": {"paused": "scheduled"},
    "resume_waiting": {"paused": "waiting_dependencies"},
    "reschedule": {WAITING_ONES: "scheduled"},
    "bring_forward": {WAITING_ONES: "queued"},
    "amend": {status: status for status in UNLEASED.split()},
    "expire": {f"{UNLEASED} running": "dead_letter", "cancelling": "cancelled"},
    "requeue": {REQUEUED: "queued"},
    "requeue_later": {REQUEUED: "scheduled"},
    "requeue_waiting": {REQUEUED: "waiting_dependencies"},
}
EXPECTED_CELLS = {
    (source, event): target
    for event, ways in EXPECTED.items()
    for sources, target in ways.items()
    for source in sources.split()
}


@for_each("event", Event)
@for_each("status", [None, *Status])
def test_every_pair_of_status_and_event_leads_where_the_plan_says(status: Status | None, event: Event) -> None:
    label = "new" if status is None else status.label
    expected = EXPECTED_CELLS.get((label, event), "-")
    target = next_status(status, event)
    assert (target.label if target else "-") == expected


def test_table_leads_to_every_status_but_failed() -> None:
    assert set(Status) - set(TRANSITIONS.values()) == {Status.FAILED}


def test_every_status_is_waiting_parked_leased_or_finished_and_never_two() -> None:
    kinds = (WAITING, PARKED, LEASED, FINISHED)
    assert sum(map(len, kinds)) == len(set().union(*kinds)) == len(Status)


def test_only_a_requeue_leads_out_of_what_is_finished_and_nothing_out_of_completed() -> None:
    requeues = {Event.REQUEUE, Event.REQUEUE_LATER, Event.REQUEUE_WAITING}
    leaving = {(source, event) for (source, event), target in TRANSITIONS.items() if source in FINISHED - {target}}
    assert {event for _, event in leaving} == requeues
    assert Status.COMPLETED not in {source for source, _ in TRANSITIONS}


def test_only_waiting_jobs_can_be_leased_and_only_leased_ones_can_end_an_attempt() -> None:
    ending = {
        Event.COMPLETE, Event.SNOOZE, Event.RETRY, Event.GIVE_BACK, Event.GIVE_UP, Event.STOP, Event.ABORT,
    }  # fmt: skip
    assert {source for source, event in TRANSITIONS if event is Event.LEASE} == WAITING
    assert {source for source, event in TRANSITIONS if event in ending} == LEASED


def test_every_unfinished_status_can_reach_an_end() -> None:
    reaching: set[Status | None] = set(FINISHED)
    for _ in Status:
        reaching |= {source for (source, _), target in TRANSITIONS.items() if target in reaching}
    assert reaching >= {None, *TRANSITIONS.values()}


def test_every_event_has_a_row_and_a_meaning() -> None:
    assert {event for _, event in TRANSITIONS} == set(Event) == set(MEANING)


def test_refusal_names_the_status_the_event_and_where_it_would_be_legal() -> None:
    assert refusal(Status.COMPLETED, Event.CANCEL) == (
        "cancel is not legal for a job that is completed, "
        "only for one that is scheduled, queued, retrying, running, waiting_dependencies, paused, cancelling or cancelled"
    )
    assert refusal(Status.QUEUED, Event.COMPLETE) == (
        "complete is not legal for a job that is queued, only for one that is running"
    )


def test_mermaid_diagram_shows_each_row_that_leads_elsewhere_once_and_the_end_of_each_finished_status() -> None:
    arrows = re.findall(r"^    (\S+) --> (\S+?)(?:: (.+))?$", mermaid_diagram(), flags=re.MULTILINE)
    drawn = [(source, target, event) for source, target, events in arrows for event in events.split(", ")]
    rows = {
        (source.label if source else "[*]", target.label, event)
        for (source, event), target in TRANSITIONS.items()
        if source is not target
    }
    ends = {(status.label, "[*]", "") for status in FINISHED & set(TRANSITIONS.values())}
    assert len(drawn) == len(rows | ends)
    assert set(drawn) == rows | ends
    assert len(arrows) == len({(source, target) for source, target, _ in arrows}), "one arrow for each pair"


def test_markdown_table_has_the_cells_of_the_plan() -> None:
    header, _, *rows = [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in markdown_table().splitlines()]
    cells = {(row[0], event): cell for row in rows for event, cell in zip(header[1:], row[1:], strict=True) if cell}
    assert cells == EXPECTED_CELLS
    assert header[1:] == list(Event)


def test_meanings_list_every_event() -> None:
    assert re.findall(r"^- `(\w+)`: .+$", meanings(), flags=re.MULTILINE) == list(Event)
