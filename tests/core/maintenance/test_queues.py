from __future__ import annotations

import pytest

from raftsched import limits
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import RejectCode
from raftsched.core.operations.control import BackgroundKind
from raftsched.core.operations.queues import ConfigureQueue, PauseQueue
from raftsched.core.records.bounds import TIME_MS_MAX
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.queue import Queue, TenantWeight
from raftsched.core.state.entries import AuditEntry
from raftsched.core.state.results import QueueSaved, Refused
from raftsched.core.state.writes import PutBackgroundWork
from tests.core.control_scene import QUEUE, ControlScene, options, saved
from tests.core.scene import START_MS, code_of

# -- settings


def test_configure_makes_a_record_and_changes_only_what_it_names(scene: ControlScene) -> None:
    first = scene.configure(concurrency_max=3, ageing_ms=1_000, actor="ann")
    assert (first.name, first.concurrency_max, first.ageing_ms, first.rate_count) == (QUEUE, 3, 1_000, 0)
    assert (first.created_at_ms, first.updated_at_ms, first.revision) == (START_MS, START_MS, scene.state.index)
    scene.wait(5)
    weights = (TenantWeight("a", 3),)
    second = scene.configure(retention_ms=7, weights=weights)
    assert (second.concurrency_max, second.ageing_ms, second.retention_ms, second.weights) == (3, 1_000, 7, weights)
    assert (second.created_at_ms, second.updated_at_ms) == (START_MS, scene.now_ms)
    assert scene.state.queue(QUEUE) == second


def test_configure_leaves_a_line_that_says_what_changed(scene: ControlScene) -> None:
    scene.configure(concurrency_max=3)
    scene.configure(concurrency_max=5, weights=(TenantWeight("a", 3),), actor="ann")
    assert scene.audited() == AuditEntry(
        TimeMs(scene.now_ms), "ann", "queue.configure", f"queue:{QUEUE}", "",
        "concurrency: 3 -> 5; weights: none -> a=3", scene.state.index,
    )  # fmt: skip
    scene.configure(rate_count=10, rate_period_ms=500, ageing_ms=90_000, concurrency_max=0)
    assert (
        scene.audited().detail
        == "rate: none -> 10 per 0.5 s, burst 10; concurrency: 5 -> none; ageing_seconds: none -> 90"
    )


def test_configure_of_what_is_so_already_writes_nothing(scene: ControlScene) -> None:
    assert scene.configure() == Queue(QUEUE, created_at_ms=TimeMs(START_MS))
    assert scene.last.writes == ()
    assert scene.state.queue(QUEUE) is None
    known = scene.configure(rate_count=3, rate_period_ms=10)
    assert scene.configure(rate_count=3) == known
    assert scene.last.writes == ()


def test_configure_can_take_a_limit_away(scene: ControlScene) -> None:
    scene.configure(rate_count=3, rate_period_ms=10, concurrency_max=1)
    free = scene.configure(rate_count=0, concurrency_max=0)
    assert (free.rate_count, free.concurrency_max, free.bucket_milli) == (0, 0, 0)


def test_configure_of_a_rate_needs_its_period(scene: ControlScene) -> None:
    result = scene.apply(ConfigureQueue(QUEUE, rate_count=3))
    assert isinstance(result, Refused)
    assert (result.code, result.message.split(":")[0]) == (RejectCode.INVALID, "rate_period_ms")
    scene.configure(rate_count=3, rate_period_ms=10)
    assert isinstance(scene.apply(ConfigureQueue(QUEUE, rate_period_ms=0)), Refused)


def test_configure_offers_blocked_jobs_again_where_the_limit_of_a_key_rose(scene: ControlScene) -> None:
    keyed = options(concurrency_key="k")
    scene.running(options=keyed)
    job = scene.submit(options=keyed)
    work = PutBackgroundWork(BackgroundKind.RELEASE_BLOCKED, QUEUE.encode())
    scene.configure(key_concurrency_max=1)
    assert work not in scene.last.writes, "1 is what it was"
    scene.configure(key_concurrency_max=2)
    assert work not in scene.last.writes, "none is blocked"
    scene.configure(key_concurrency_max=1)
    scene.hold(job)
    scene.configure(concurrency_max=9)
    assert work not in scene.last.writes, "another limit"
    scene.configure(key_concurrency_max=2)
    assert work in scene.last.writes


# -- pause


def test_pause_says_since_when_until_when_and_why(scene: ControlScene) -> None:
    until_ms = TimeMs(START_MS + 100)
    queue = scene.pause_queue(until_ms=until_ms, reason="deploy", actor="ann")
    assert (queue.paused, queue.paused_at_ms, queue.pause_until_ms, queue.pause_reason) == (
        True, START_MS, until_ms, "deploy",
    )  # fmt: skip
    assert queue.next_deadline_ms == until_ms
    assert (scene.audited().action, scene.audited().actor, scene.audited().detail) == ("queue.pause", "ann", "deploy")


def test_pause_twice_keeps_its_begin_and_writes_nothing_where_all_is_the_same(scene: ControlScene) -> None:
    known = scene.pause_queue(reason="a")
    scene.wait(5)
    assert scene.pause_queue(reason="a") == known
    assert scene.last.writes == ()
    assert scene.pause_queue(reason="b").paused_at_ms == START_MS


def test_resume_clears_the_pause_and_twice_succeeds(scene: ControlScene) -> None:
    scene.pause_queue(until_ms=TimeMs(START_MS + 100), reason="a")
    queue = scene.pause_queue(paused=False)
    assert (queue.paused, queue.paused_at_ms, queue.pause_until_ms, queue.pause_reason) == (False, 0, 0, "")
    assert scene.audited().action == "queue.resume"
    assert scene.pause_queue(paused=False) == queue
    assert scene.last.writes == ()


def test_resume_of_a_queue_that_nobody_touched_makes_no_record(scene: ControlScene) -> None:
    assert isinstance(scene.apply(PauseQueue("never", False)), QueueSaved)
    assert scene.state.queue("never") is None


def test_pause_keeps_the_settings_and_settings_keep_the_pause(scene: ControlScene) -> None:
    scene.configure(concurrency_max=3)
    assert scene.pause_queue().concurrency_max == 3
    assert saved(scene.apply(ConfigureQueue(QUEUE, concurrency_max=4))).paused


# -- bounds


def test_settings_of_one_queue_more_than_there_may_be_are_refused(
    scene: ControlScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "QUEUES_CONFIGURED_MAX", 2)
    scene.configure(concurrency_max=1)
    scene.apply(PauseQueue("second", True))
    for operation in (ConfigureQueue("third", concurrency_max=1), PauseQueue("third", True)):
        assert code_of(scene.apply(operation)) is RejectCode.LIMIT_REACHED
    assert scene.configure(concurrency_max=2).concurrency_max == 2
    assert isinstance(scene.apply(PauseQueue("third", False)), QueueSaved)


LONG = "x" * 2_000


@pytest.mark.parametrize(
    ("operation", "field"),
    [
        (ConfigureQueue(""), "name"),
        (ConfigureQueue("a\0b"), "name"),
        (ConfigureQueue(QUEUE, rate_count=limits.QUEUE_LIMIT_MAX + 1), "rate_count"),
        (ConfigureQueue(QUEUE, rate_count=-2), "rate_count"),
        (ConfigureQueue(QUEUE, rate_period_ms=limits.RATE_PERIOD_MS_MAX + 1), "rate_period_ms"),
        (ConfigureQueue(QUEUE, concurrency_max=limits.QUEUE_LIMIT_MAX + 1), "concurrency_max"),
        (ConfigureQueue(QUEUE, key_concurrency_max=-2), "key_concurrency_max"),
        (ConfigureQueue(QUEUE, ageing_ms=limits.DELAY_MS_MAX + 1), "ageing_ms"),
        (ConfigureQueue(QUEUE, retention_ms=limits.DELAY_MS_MAX + 1), "retention_ms"),
        (ConfigureQueue(QUEUE, weights=(TenantWeight("a", 0),)), "weight"),
        (ConfigureQueue(QUEUE, weights=(TenantWeight("a", 1_001),)), "weight"),
        (ConfigureQueue(QUEUE, weights=(TenantWeight("", 1),)), "tenant"),
        (ConfigureQueue(QUEUE, weights=(TenantWeight("a", 1), TenantWeight("a", 2))), "weights"),
        (ConfigureQueue(QUEUE, weights=(TenantWeight("a", 1),) * (limits.QUEUE_WEIGHTS_MAX + 1)), "weights"),
        (ConfigureQueue(QUEUE, actor=LONG), "actor"),
        (PauseQueue("", True), "name"),
        (PauseQueue(QUEUE, True, until_ms=TimeMs(TIME_MS_MAX + 1)), "until_ms"),
        (PauseQueue(QUEUE, True, reason=LONG), "reason"),
        (PauseQueue(QUEUE, True, actor=LONG), "actor"),
    ],
)
def test_queue_operations_refuse_what_the_state_cannot_hold_and_name_the_field(
    scene: ControlScene, operation: Operation, field: str
) -> None:
    result = scene.apply(operation)
    assert isinstance(result, Refused)
    assert (result.code, result.message.split(":")[0].split()[0]) == (RejectCode.INVALID, field)
