"""The checkers on good histories, and what stands around them: files, reports, cost. Mutations are next door."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from chaos import checkers
from chaos.checkers import (
    FEATURES,
    PROPERTIES,
    BadHistory,
    History,
    Property,
    append_event,
    check_all,
    read_history,
    write_history,
)
from chaos.checkers.client.linearizability import linearizable
from chaos.checkers.history.events import (
    AnyEvent,
    Change,
    Granted,
    HandedBack,
    Healed,
    Invoke,
    Nemesis,
    Reply,
    Setup,
    Started,
)
from chaos.checkers.leases.terms import ends_of_belief
from chaos.checkers.liveness import no_lease_outlives_its_term
from chaos.checkers.model import CANCELLING, JobState, Move, explains
from tests.chaos.histories import NODES, good_history, replay
from tests.steps import steps_of

SEEDS = 200


@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_good_histories_pass_every_checker(first: int) -> None:
    for seed in range(first, first + 20):
        report = check_all(History(good_history(seed), replay=replay))
        assert report.is_clean, f"seed {seed}: {report}"


def test_good_histories_exercise_every_checker() -> None:
    reports = [check_all(History(good_history(seed), replay=replay)) for seed in range(10)]
    names = [each.name for each in PROPERTIES]
    assert [name for name in names if not any(report.evidence[name] for report in reports)] == []


def test_good_histories_hold_what_is_hard() -> None:
    """Unknown outcomes of both kinds, shared log entries, every way for a lease to end, every telling refusal."""
    histories = [History(good_history(seed)) for seed in range(40)]
    changes = [change for history in histories for change in history.changes]
    ends = {(change.f, change.outcome, change.status) for change in changes}
    errors = {operation.error for history in histories for operation in history.operations}
    reports = [check_all(history) for history in histories]
    settled, unknown = (sum(getattr(report, name) for report in reports) for name in ("settled_count", "unknown_count"))
    assert 50 < settled < unknown - 50
    assert {("expire", "worker_lost", "queued"), ("outcome", "completed", "cancelled")} <= ends
    assert {("expire", "timeout", "retrying"), ("expire", "cancelled", "cancelled"), ("purge", "", "purged")} <= ends
    assert {"not_found", "lease_lost", "already_finished", "cancelled", "idempotency_mismatch", "not_leader"} <= errors
    assert any(len({change.index for change in own}) < len(own) for h in histories for own in h.changes_of.values())


def test_lease_of_a_job_with_a_timeout_ends_at_any_time_if_wall_clocks_are_off() -> None:
    """Cluster time leaps when a majority of clocks was wrong, and the timeout is over at once."""
    kept = History(good_history(3))
    off = History([replace(kept.setup, epoch_ms=0), *(event for event in kept.events if event is not kept.setup)])
    timeouts = [kept.timeouts[grant.job] for _, grant in kept.grants]
    assert min(timeouts) == 0 < max(timeouts)
    ends = list(zip(timeouts, ends_of_belief(kept), ends_of_belief(off), strict=True))
    assert [(timeout, end, end_off) for timeout, end, end_off in ends if end_off != (0 if timeout else end)] == []
    assert all(end for _, end, _ in ends)


def test_properties_say_what_they_promise_and_where() -> None:
    everything = (*PROPERTIES, *FEATURES)
    assert len({each.name for each in everything}) == len(everything)
    for each in everything:
        assert each.check.__doc__, each.name
        assert each.source in each.check.__doc__, each.name


# -- files ------------------------------------------------------------------------------------------------------------


def test_history_survives_a_file(tmp_path: Path) -> None:
    events = good_history(3)
    path = tmp_path / "history.jsonl"
    write_history(path, events)
    assert read_history(path) == events


def test_history_appends_whole_lines(tmp_path: Path) -> None:
    events: list[AnyEvent] = [Setup(nodes=NODES), Started(node="n1", index=0), Healed(t=5)]
    path = tmp_path / "history.jsonl"
    for event in events:
        with path.open("ab") as file:
            append_event(file, event)
    assert path.read_text().count("\n") == len(events)
    assert read_history(path) == events


@pytest.mark.parametrize(
    "line", [b'{"event":"leader","node":"n1"}', b'{"event":"coronation"}', b'{"event":"healed","x":1}', b"{", b""]
)
def test_history_names_the_line_that_is_no_event(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(b'{"event":"healed","t":1}\n' + line + b"\n")
    with pytest.raises(BadHistory, match="line 2"):
        read_history(path)


# -- reports ----------------------------------------------------------------------------------------------------------


def test_report_of_an_empty_history_proves_nothing() -> None:
    report = check_all(History([Setup(nodes=NODES)]))
    assert report.is_clean
    assert set(report.not_exercised) == {each.name for each in (*PROPERTIES, *FEATURES)}


def test_report_counts_operations_faults_and_unknowns() -> None:
    events: list[AnyEvent] = [
        Setup(nodes=NODES),
        Nemesis(t=1, fault="crash", phase="start"),
        Invoke(t=2, process="a", op=1, f="submit"),
        Reply(t=3, process="a", op=1, type="fail", error="not_leader"),
        Invoke(t=4, process="a", op=2, f="cancel", job="j"),
        Nemesis(t=5, fault="crash", phase="stop"),
    ]
    report = check_all(History(events))
    assert report.is_clean
    assert report.operations == {"submit fail": 1, "cancel info": 1}
    assert report.faults == {"crash": 1}
    assert (report.unknown_count, report.settled_count) == (1, 0)


def test_report_text_names_property_and_moment() -> None:
    events = [event for event in good_history(3) if not (isinstance(event, Change) and event.f == "submit")]
    text = str(check_all(History(events)))
    assert "VIOLATIONS" in text
    assert "acknowledged_is_kept: " in text
    assert "at 0." in text


def test_search_that_gives_up_is_a_violation() -> None:
    report = check_all(History(good_history(3), search_steps_max=3))
    assert list(report.violations) == ["linearizable"]
    assert "no answer within 3 steps" in str(report)


def test_history_without_the_log_is_still_checked() -> None:
    """As a drill with real processes writes it: clients, effects, final states."""
    for seed in range(20):
        events = [event for event in good_history(seed) if not isinstance(event, Change)]
        purged = {change.job for change in History(good_history(seed)).changes if change.f == "purge"}
        report = check_all(History(events))
        told = [str(v) for found in report.violations.values() for v in found]
        assert all(any(job in text for job in purged) for text in told), f"seed {seed}: {report}"


def test_checkers_judge_any_history_without_an_error() -> None:
    """A harness may be broken too: events get lost, come twice, or late."""
    flagged = 0
    for seed in range(40):
        random = Random(seed)
        events = [event for event in good_history(seed) if random.random() > 0.03]
        for _ in range(random.randint(0, 5)):
            events.insert(random.randrange(1, len(events)), random.choice(events))
        flagged += not check_all(History(events)).is_clean
    assert flagged == 40


# -- cost -------------------------------------------------------------------------------------------------------------


def test_checking_takes_the_same_steps_for_each_operation_of_a_long_history() -> None:
    short, long = (History(good_history(5_002, jobs=jobs, workers=6), replay=replay) for jobs in (60, 600))
    growth = len(long.operations) / len(short.operations)
    assert growth > 9
    for each in (*PROPERTIES, *FEATURES):
        few, many = (_steps_of_check(each, history) for history in (short, long))
        assert many < growth * few * 1.6 + 100, each.name


def _steps_of_check(each: Property, history: History) -> int:
    def check() -> None:
        assert each.check(history) == [], each.name

    return steps_of(check, checkers)


def test_search_copes_with_one_busy_job() -> None:
    """A thousand operations on one job, forty open at any time, a quarter of them unknown."""
    history = History(_busy_job(Random(1), count=1_000))
    report = check_all(history)
    assert report.is_clean, str(report)
    assert report.unknown_count > report.settled_count > 50


def _busy_job(random: Random, *, count: int) -> list[AnyEvent]:
    """Leases, snoozes and reads, each taking effect at its own moment, with wide intervals around it."""
    events: list[AnyEvent] = []
    status, attempt = "queued", 0
    for op in range(1, count + 1):
        t = 10_000 + 10 * op
        f = "submit" if op == 1 else random.choice(("get", "lease" if status == "queued" else "outcome"))
        call: dict[str, Any] = {"job": "j", "run": 1} if f in ("get", "outcome") else {}
        reply: dict[str, Any] = {"job": "j"} if f == "submit" else {}
        report: dict[str, Any] = {}
        if f == "outcome":
            report, status = {"outcome": "snoozed", "completion_id": "done"}, "queued"
            call |= report | {"token": attempt}
        elif f == "lease":
            status, attempt = "running", attempt + 1
            reply = {"grants": (Granted("j", 1, attempt, attempt),)}
        elif f == "get":
            reply = {"status": status, "attempt": attempt}
        if f != "get":
            place = Change(t=t, index=op, position=0, f=f, job="j", status=status, now_ms=1, due_ms=1, op=op)
            events.append(replace(place, attempt=attempt, token=attempt, worker="w", ttl_ms=10_000, **report))
        type_: Any = "info" if op % 4 == 1 < op else "ok"
        shown = {"applied": op, **reply} if type_ == "ok" else {}
        process = f"p{op}"
        events.append(Invoke(t=t - random.randint(0, 200), process=process, op=op, f=f, worker="w", **call))
        events.append(Reply(t=t + random.randint(0, 200), process=process, op=op, type=type_, **shown))
    return [Setup(nodes=NODES), *sorted(events, key=lambda event: event.t)]


# -- what is done to a job again --------------------------------------------------------------------------------------


def test_a_second_pause_is_not_taken_for_part_of_the_first() -> None:
    """Paused, resumed by time, paused and resumed by a user, and nobody looked meanwhile (seed 558)."""
    asked: dict[str, Any] = {"tenant": "default", "body": "b", "max_attempts": 3}
    done = [("pause", "paused", ""), ("resume", "queued", "time"), ("pause", "paused", ""), ("resume", "queued", "")]
    events: list[AnyEvent] = [
        Setup(nodes=("n1",)),
        Invoke(t=1, process="c", op=1, f="submit", **asked),
        Change(t=2, index=1, position=0, f="submit", job="j", status="queued", now_ms=1, due_ms=1, op=1, **asked),
    ]
    for index, (f, status, cause) in enumerate(done, start=2):
        events.append(
            Change(t=10 * index, index=index, position=0, f=f, job="j", status=status, cause=cause, now_ms=index)
        )
    events.append(Reply(t=60, process="c", op=1, type="ok", job="j", applied=5))
    assert not linearizable(History(events))
    lost = [event for event in events if not (isinstance(event, Change) and event.index == 4)]
    assert [str(violation) for violation in linearizable(History(lost))] == [
        "job j: no order explains resume of index 5"
    ]


# -- time that goes slowly ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "stamped_seconds", "is_allowed"), [(12, 12, True), (14, 14, False), (24, 12, True), (28, 12, False)]
)
def test_silence_counts_in_cluster_time_up_to_twice_its_length(
    seconds: int, stamped_seconds: int, is_allowed: bool
) -> None:
    """Time that was ahead of all clocks goes on at half speed, and leases end by it (seed 1100021 on 5 nodes)."""
    changes = [("submit", "queued", 0), ("lease", "running", 1), ("expire", "retrying", 2)]
    events: list[AnyEvent] = [Setup(nodes=("n1",), lease_ttl_ms=3_000, lease_bound_ms=10_000), Healed(t=0)]
    for f, status, index in changes:
        is_end = f == "expire"
        t, now_ms = (seconds * 1_000_000, stamped_seconds * 1_000) if is_end else (index, index)
        events.append(
            Change(
                t=t,
                index=index + 1,
                position=0,
                f=f,
                job="j",
                status=status,
                now_ms=now_ms,
                token=0 if f == "submit" else 7,
                worker="w",
            )
        )
    assert (no_lease_outlives_its_term(History(events)) == []) is is_allowed


# -- what a leader does by itself -------------------------------------------------------------------------------------


def test_a_lease_that_the_leader_handed_back_came_from_somewhere_and_no_other_did() -> None:
    asked: dict[str, Any] = {"tenant": "default", "body": "b", "max_attempts": 3}
    events: list[AnyEvent] = [
        Setup(nodes=("n1",)),
        Invoke(t=1, process="c", op=1, f="submit", **asked),
        Invoke(t=2, process="w", op=2, f="lease", worker="w"),
        Change(t=3, index=1, position=0, f="submit", job="j", status="queued", now_ms=1, due_ms=1, op=1, **asked),
        Change(
            t=4, index=2, position=0, f="lease", job="j", status="running", now_ms=2, attempt=1, token=7, worker="w"
        ),
        HandedBack(t=5, node="n1", job="j", token=7),
        Change(
            t=6,
            index=3,
            position=0,
            f="outcome",
            job="j",
            status="queued",
            now_ms=3,
            token=7,
            outcome="snoozed",
            attempt=1,
        ),
    ]
    assert check_all(History(events)).is_clean
    other = [replace(event, token=8) if isinstance(event, HandedBack) else event for event in events]
    for history in (other, [event for event in events if not isinstance(event, HandedBack)]):
        assert set(check_all(History(history)).violations) == {"nothing_from_nowhere"}


def test_report_of_a_run_that_was_cancelled_and_begun_anew_may_be_answered_as_cancelled() -> None:
    """Seed 4101455: its worker was told so, while the next run was being cancelled, too."""
    again = JobState(CANCELLING, token=40, worker="v1", stopped=(18,), run=2)
    late = Move("outcome", token=18, outcome="completed", error="cancelled")
    assert explains(again, late) == again
    assert explains(again._replace(stopped=()), late) is None
    assert explains(again, late._replace(token=40)) != again
