"""Random histories of everything that a job can be told to do; what is watched in them stands in `control_history`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.core.control_history import History

SEEDS = range(12)
STEPS = 250

WEIGHTS: dict[Callable[[History], None], int] = {
    History.submit: 14, History.lease: 16, History.report: 10, History.expire: 6, History.start: 5,
    History.progress: 2, History.log: 4, History.pause: 4, History.resume: 4, History.amend: 5, History.requeue: 6,
    History.cancel: 4, History.configure: 3, History.pause_queue: 3, History.ring: 6, History.ring_a_stray_one: 1,
    History.do_background_work: 4, History.purge: 4,
}  # fmt: skip


def run_history(seed: int) -> History:
    history = History(seed)
    for step in history.draw.choices(list(WEIGHTS), list(WEIGHTS.values()), k=STEPS):
        history.now_ms += history.draw.choice([0, 0, 1, 50, 400, 2_500])
        step(history)
    history.bring_all_to_an_end()
    return history


@pytest.mark.parametrize("seed", SEEDS)
def test_random_history_keeps_every_promise(seed: int) -> None:
    run_history(seed)


def test_histories_go_where_they_are_meant_to() -> None:
    """A few histories meet each refusal that matters and each kind of end: else the test above shows little."""
    refusals: Counter[str] = Counter()
    answers: Counter[str] = Counter()
    statuses: Counter[str] = Counter()
    for seed in range(20, 33):
        history = run_history(seed)
        refusals += history.refusals
        answers += history.answers
        statuses += Counter(job.status.label for job in history.plain.all_jobs())
    wanted = {
        "lease_lost", "cancelled", "not_started", "unique_conflict", "idempotency_mismatch", "running",
        "already_finished", "stale_revision", "stale_decision", "paused", "completed", "already_recorded",
    }  # fmt: skip
    assert wanted - refusals.keys() == set()
    granted = {answer.split()[0] for answer in answers if not answer.endswith("Refused")}
    assert granted == {
        "SubmitJob", "LeaseJobs", "BlockJobs", "RecordOutcome", "ExpireLeases", "StartRun", "ReportProgress", "AppendLog",
        "PauseJob", "ResumeJob", "AmendJob", "RequeueJob", "CancelJob", "ConfigureQueue", "PauseQueue", "HandleDeadlines",
        "DoBackgroundStep", "PurgeJobs",
    }  # fmt: skip
    assert {"completed", "dead_letter", "cancelled", "skipped"} <= statuses.keys()
