from __future__ import annotations

import re

import pytest

from raftsched.core.job import FINISHED, LEASED, WAITING, Status
from raftsched.core.transitions import (
    MEANING,
    TRANSITIONS,
    Event,
    markdown_table,
    meanings,
    mermaid_diagram,
    next_status,
    refusal,
)

# The whole truth, written a second time and in another form: a row for each status, and what each event does there.
EXPECTED = """
                submit  submit_later  lease    complete   snooze     retry     give_back  give_up      cancel      stop
new             queued  scheduled     -        -          -          -         -          -            -           -
scheduled       -       -             running  -          -          -         -          -            cancelled   -
queued          -       -             running  -          -          -         -          -            cancelled   -
running         -       -             -        completed  scheduled  retrying  queued     dead_letter  cancelling  -
cancelling      -       -             -        -          -          -         -          -            cancelling  cancelled
retrying        -       -             running  -          -          -         -          -            cancelled   -
completed       -       -             -        -          -          -         -          -            -           -
dead_letter     -       -             -        -          -          -         -          -            -           -
cancelled       -       -             -        -          -          -         -          -            cancelled   -
"""
_header, *_rows = [line.split() for line in EXPECTED.strip().splitlines()]
EXPECTED_CELLS = {(row[0], event): cell for row in _rows for event, cell in zip(_header, row[1:], strict=True)}
LATER_WORK = {Status.WAITING_DEPENDENCIES, Status.PAUSED, Status.FAILED, Status.SKIPPED}


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("status", [None, *Status])
def test_every_pair_of_status_and_event_leads_where_the_plan_says(status: Status | None, event: Event) -> None:
    label = "new" if status is None else status.label
    expected = EXPECTED_CELLS.get((label, event), "-")
    target = next_status(status, event)
    assert (target.label if target else "-") == expected


def test_table_leaves_out_exactly_the_statuses_of_later_work() -> None:
    assert set(Status) - set(TRANSITIONS.values()) == LATER_WORK


def test_every_status_is_waiting_leased_or_finished_and_never_two() -> None:
    assert not WAITING & LEASED
    assert not FINISHED & (WAITING | LEASED)
    assert set(TRANSITIONS.values()) <= WAITING | LEASED | FINISHED


def test_finished_statuses_lead_nowhere_else() -> None:
    assert all(target is source for (source, _), target in TRANSITIONS.items() if source in FINISHED)


def test_only_waiting_jobs_can_be_leased_and_only_leased_ones_can_end_an_attempt() -> None:
    ending = {Event.COMPLETE, Event.SNOOZE, Event.RETRY, Event.GIVE_BACK, Event.GIVE_UP, Event.STOP}
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
        "only for one that is scheduled, queued, retrying, running, cancelling or cancelled"
    )
    assert refusal(Status.QUEUED, Event.COMPLETE) == (
        "complete is not legal for a job that is queued, only for one that is running"
    )


def test_mermaid_diagram_shows_each_row_once_and_the_end_of_each_finished_status() -> None:
    arrows = re.findall(r"^    (\S+) --> (\S+?)(?:: (\S+))?$", mermaid_diagram(), flags=re.MULTILINE)
    rows = {(source.label if source else "[*]", target.label, event) for (source, event), target in TRANSITIONS.items()}
    ends = {(status.label, "[*]", "") for status in FINISHED & set(TRANSITIONS.values())}
    assert len(arrows) == len(rows | ends)
    assert set(arrows) == rows | ends


def test_markdown_table_has_the_cells_of_the_plan() -> None:
    header, _, *rows = [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in markdown_table().splitlines()]
    cells = {(row[0], event): cell or "-" for row in rows for event, cell in zip(header[1:], row[1:], strict=True)}
    assert cells == EXPECTED_CELLS


def test_meanings_list_every_event() -> None:
    assert re.findall(r"^- `(\w+)`: .+$", meanings(), flags=re.MULTILINE) == list(Event)
